"""The report of a study: tables and figures in its folder `report/`."""

import os
from pathlib import Path

from gloam import checks
from gloam.experiments import tables
from gloam.experiments.published import title
from gloam.experiments.study import Study
from gloam.files import write_bytes
from gloam.formats import RunFolder


def write_report(path: str | os.PathLike, *, figures: bool = True, pdf: bool = True) -> list[Path]:
    """Write ``report/``: Markdown, CSV, LaTeX and figures of what the study has so far.

    Args:
        path: The study folder.
        figures: Whether to draw, too.
        pdf: Whether figures are also written as PDF.

    Returns:
        The files written, the Markdown first.
    """
    study = Study.read(path)
    out = study.path / "report"
    _check_ours(out)
    metrics = tables.final_metrics(study)
    results = tables.results(metrics)
    parts = {
        "results": ("Results", tables.readable(results)),
        "anova": ("Welch's one-way ANOVA", tables.anova_table(metrics)),
        "pairwise-qd-score": (
            "Games-Howell comparisons of the QD score",
            tables.pairwise_table(metrics, "qd_score"),
        ),
        "pairwise-coverage": (
            "Games-Howell comparisons of coverage",
            tables.pairwise_table(metrics, "coverage"),
        ),
        "wallclock": ("Wallclock, seconds", tables.wallclock(results)),
    }
    written = []

    def write(name: str, text: str) -> None:
        write_bytes(out / name, text.encode())
        written.append(out / name)

    missing = study.domains_without_files
    sections = [
        f"# {len(study.domains) - len(missing)} domains, {len(study.algorithms)} algorithms, "
        f"{study.num_seeds} seeds of {study.iterations:,} iterations\n",
        "Mean and standard error; the paper's figures are quoted from the paper. "
        "`s` is the wallclock of all seeds of a cell together, compilation included.\n",
    ]
    for heading, table in parts.values():
        if len(table):
            sections.append(f"## {heading}\n\n{tables.as_markdown(table)}")
    if missing:
        rows = [f"- {needs_files(domain)}\n" for domain in missing]
        sections.append("## Not run\n\n" + "".join(rows))
    write("report.md", "\n".join(sections))
    write("seeds.csv", metrics.to_csv(index=False))
    write("results.csv", results.to_csv(index=False))
    for name, (_, table) in parts.items():
        if len(table):
            write(f"{name}.tex", tables.as_latex(table))
    if figures:
        from gloam.plots.study import study_figures  # matplotlib takes a second to import

        written += study_figures(_folders(study), out, pdf=pdf)
    return written


def needs_files(domain: str) -> str:
    """A line about a domain that a study does not run, because it needs files."""
    return (
        f"{title(domain)} needs files (StyleGAN3, CLIP, landscapes). What is missing: "
        "gloam lsi check --stylegan FILE --clip DIR --landscapes DIR"
    )


def _check_ours(out: Path) -> None:
    """Refuse to replace a report that gloam did not write."""
    first = out / "report.md"
    ours = not first.exists() or (out / "seeds.csv").is_file()
    fix = "Move it away, or rename the folder."
    checks.expect(ours, "report", "a report of gloam, or none", f"'{first}'", fix)


def _folders(study: Study) -> dict[str, dict[str, list[RunFolder]]]:
    """Run folders with results, by titles of domain and algorithm."""
    found: dict[str, dict[str, list[RunFolder]]] = {}
    for cell in study.cells():
        parts = [part for part in cell.folders() if len(part.read_metrics())]
        if parts:
            found.setdefault(title(cell.domain), {})[title(cell.algorithm)] = parts
    return found
