"""Welch's one-way ANOVA and Games-Howell comparisons, as the paper reports them.

Tables of a study: results beside the paper's, statistics, wallclock; Markdown, CSV, LaTeX.

The report of a study: tables and figures in its folder `report/`.
"""

import itertools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from gloam import checks
from gloam.experiments.published import PUBLISHED, title
from gloam.experiments.study import Study
from gloam.files import write_bytes
from gloam.formats import RunFolder


class Anova(NamedTuple):
    """Welch's F test that all groups have one mean, without assuming one variance."""

    f: float
    between: float
    """Degrees of freedom of the numerator."""
    within: float
    """Degrees of freedom of the denominator."""
    p: float

    def __str__(self) -> str:
        level = "p < 0.001" if self.p < 0.001 else f"p = {self.p:.3f}"
        return f"F({self.between:.0f}, {self.within:.1f}) = {self.f:.1f}, {level}"


class Comparison(NamedTuple):
    """Games-Howell comparison of one group with another."""

    difference: float
    p: float

    @property
    def sign(self) -> str:
        """``>`` or ``<`` when the means differ significantly (p < 0.05), else ``-``."""
        if not self.p < 0.05:
            return "-"
        return ">" if self.difference > 0 else "<"


def _values(groups: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    values = [np.asarray(group, dtype=np.float64) for group in groups.values()]
    if len(values) < 2 or min(len(group) for group in values) < 2:
        sizes = {name: len(group) for name, group in groups.items()}
        raise ValueError(
            f"groups: expected at least two groups of at least two values, got {sizes}."
        )
    return values


def welch_anova(groups: Mapping[str, np.ndarray]) -> Anova | None:
    """Welch's one-way ANOVA.

    Args:
        groups: Trials by name of group.

    Returns:
        The test, or ``None`` where a group does not vary at all and the test is undefined.
    """
    from scipy import stats  # lazily: a second that no other command need wait for

    values = _values(groups)
    number = np.array([len(group) for group in values])
    error = np.array([group.var(ddof=1) for group in values]) / number
    if not (error > 0).all():
        return None
    f, p = stats.f_oneway(*values, equal_var=False)
    # SciPy does not return the degrees of freedom of the denominator, which the paper reports.
    k, share = len(values), (1 / error) / np.sum(1 / error)
    within = (k**2 - 1) / (3 * np.sum(np.square(1 - share) / (number - 1)))
    return Anova(float(f), float(k - 1), float(within), float(p))


def games_howell(groups: Mapping[str, np.ndarray]) -> dict[tuple[str, str], Comparison]:
    """Games-Howell comparison of every ordered pair of groups.

    Where neither of two groups varies, the comparison is exact: p is 0 or 1.
    """
    from scipy import stats  # lazily, as above

    values = _values(groups)
    constant = [group.var() == 0 for group in values]
    with np.errstate(divide="ignore", invalid="ignore"):  # pairs that do not vary
        found = stats.tukey_hsd(*values, equal_var=False)
    result = {}
    for (i, one), (j, other) in itertools.permutations(enumerate(groups), 2):
        difference, p = float(found.statistic[i, j]), float(np.clip(found.pvalue[i, j], 0, 1))
        if constant[i] and constant[j]:
            p = float(difference == 0)
        result[one, other] = Comparison(difference, p)
    return result


METRICS = {"qd_score": "QD score", "coverage": "coverage"}


def final_metrics(study: Study) -> pd.DataFrame:
    """The metrics of every seed at its last iteration, with domain and algorithm."""
    parts = []
    for cell in study.cells():
        metrics = cell.metrics()
        if len(metrics):
            last = metrics[metrics["iteration"] == metrics["iteration"].max()]
            parts.append(last.assign(domain=cell.domain, algorithm=cell.algorithm))
    if not parts:
        raise ValueError(f"study: expected finished cells, got none in '{study.path}'.")
    return pd.concat(parts, ignore_index=True)


def results(metrics: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard error of every cell, beside the paper's.

    Coverage is in per cent, as the paper prints it. ``difference`` is in per cent of the paper's
    mean, ``errors`` in standard errors of the difference of both means. ``seconds`` is the
    wallclock of all seeds of the cell together.
    """
    rows = []
    cells: Any = metrics.groupby(["domain", "algorithm"], sort=False)
    for (domain, algorithm), cell in cells:
        paper = PUBLISHED.get((domain, algorithm))
        row: dict[str, Any] = {"domain": domain, "algorithm": algorithm, "seeds": len(cell)}
        for metric in METRICS:
            scale = 100 if metric == "coverage" else 1
            values = cell[metric].to_numpy(np.float64) * scale
            mean = values.mean()
            error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
            row |= {metric: mean, f"{metric}_error": error}
            if paper:
                theirs = getattr(paper, metric)
                joint = np.hypot(error, getattr(paper, f"{metric}_error"))
                row |= {
                    f"{metric}_paper": theirs,
                    f"{metric}_paper_error": getattr(paper, f"{metric}_error"),
                    f"{metric}_difference": 100 * (mean - theirs) / abs(theirs),
                    f"{metric}_errors": (mean - theirs) / joint if joint > 0 else np.nan,
                }
        rows.append(row | {"seconds": _wallclock(cell)})
    return pd.DataFrame(rows)


def _wallclock(cell: pd.DataFrame) -> float:
    """Seconds of all seeds of a cell: seeds of a part run at once, parts one after another."""
    seconds: Any = cell["seconds"]
    if "part" not in cell:
        return float(seconds.max())
    return float(seconds.groupby(cell["part"]).max().sum())


def wallclock(results: pd.DataFrame) -> pd.DataFrame:
    """Seconds of every cell, all seeds together: a row for each domain."""
    rows = []
    for domain, cells in results.groupby("domain", sort=False):
        row = {"domain": title(str(domain))}
        for name, seconds in zip(cells["algorithm"], cells["seconds"], strict=True):
            row[title(name)] = f"{seconds:.1f}"
        rows.append(row)
    return pd.DataFrame(rows).fillna("")


def anova_table(metrics: pd.DataFrame) -> pd.DataFrame:
    """Welch's ANOVA of every domain and metric, in the paper's form."""
    rows = []
    for domain, cell in metrics.groupby("domain", sort=False):
        row = {"domain": title(str(domain))}
        for metric, name in METRICS.items():
            row[name] = _tested(
                cell, metric, lambda groups: str(welch_anova(groups) or "undefined")
            )
        rows.append(row)
    return pd.DataFrame(rows)


def pairwise_table(metrics: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Games-Howell signs: the row's algorithm against the column's, by domain."""
    rows = []
    for domain, cell in metrics.groupby("domain", sort=False):
        names = list(cell["algorithm"].unique())
        groups = _groups(cell, metric)
        if len(names) < 2 or min(len(group) for group in groups.values()) < 2:
            continue
        signs = games_howell(groups)
        for one in names:
            row = {"domain": title(str(domain)), "algorithm": title(one)}
            row |= {title(o): "" if o == one else signs[one, o].sign for o in names}
            rows.append(row)
    return pd.DataFrame(rows)


def as_markdown(table: pd.DataFrame) -> str:
    """A table as Markdown."""
    lines = [
        "| " + " | ".join(str(c) for c in table.columns) + " |",
        "|" + "---|" * len(table.columns),
    ]
    lines += ["| " + " | ".join(str(v) for v in row) + " |" for row in table.to_numpy()]
    return "\n".join(lines) + "\n"


def as_latex(table: pd.DataFrame) -> str:
    """A table as LaTeX, with booktabs rules."""
    escape = str.maketrans({"%": r"\%", "±": r"$\pm$", "<": "$<$", ">": "$>$", "_": r"\_"})
    lines = [rf"\begin{{tabular}}{{{'l' * len(table.columns)}}}", r"\toprule"]
    lines += [" & ".join(str(c).translate(escape) for c in table.columns) + r" \\", r"\midrule"]
    lines += [
        " & ".join(str(v).translate(escape) for v in row) + r" \\" for row in table.to_numpy()
    ]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def readable(table: pd.DataFrame) -> pd.DataFrame:
    """The table of `results` as people read it: mean ± error, the paper's, the difference."""

    def cell(row: Any, metric: str) -> dict[str, str]:
        unit = "%" if metric == "coverage" else ""
        both = f"{row[metric]:,.2f} ± {row[f'{metric}_error']:.2f}{unit}"
        if pd.isna(row.get(f"{metric}_paper", np.nan)):
            return {METRICS[metric]: both}
        return {
            METRICS[metric]: both,
            f"paper's {METRICS[metric]}": f"{row[f'{metric}_paper']:,.2f} "
            f"± {row[f'{metric}_paper_error']:.2f}{unit}",
            f"{METRICS[metric]} differs": f"{row[f'{metric}_difference']:+.1f}% "
            f"({row[f'{metric}_errors']:+.1f} s.e.)",
        }

    rows = []
    for row in table.to_dict("records"):
        start = {
            "domain": title(row["domain"]),
            "algorithm": title(row["algorithm"]),
            "seeds": str(row["seeds"]),
        }
        rows.append(
            start | cell(row, "qd_score") | cell(row, "coverage") | {"s": f"{row['seconds']:.1f}"}
        )
    return pd.DataFrame(rows).fillna("")


def _groups(cell: pd.DataFrame, metric: str) -> dict[str, np.ndarray]:
    return {
        str(name): rows[metric].to_numpy(np.float64)
        for name, rows in cell.groupby("algorithm", sort=False)
    }


def _tested(cell: pd.DataFrame, metric: str, test: Callable[[dict], str]) -> str:
    groups = _groups(cell, metric)
    if len(groups) < 2 or min(len(group) for group in groups.values()) < 2:
        return "too few seeds"
    return test(groups)


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
    metrics = final_metrics(study)
    found = results(metrics)
    parts = {
        "results": ("Results", readable(found)),
        "anova": ("Welch's one-way ANOVA", anova_table(metrics)),
        "pairwise-qd-score": (
            "Games-Howell comparisons of the QD score",
            pairwise_table(metrics, "qd_score"),
        ),
        "pairwise-coverage": (
            "Games-Howell comparisons of coverage",
            pairwise_table(metrics, "coverage"),
        ),
        "wallclock": ("Wallclock, seconds", wallclock(found)),
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
            sections.append(f"## {heading}\n\n{as_markdown(table)}")
    if missing:
        rows = [f"- {needs_files(domain)}\n" for domain in missing]
        sections.append("## Not run\n\n" + "".join(rows))
    write("report.md", "\n".join(sections))
    write("seeds.csv", metrics.to_csv(index=False))
    write("results.csv", found.to_csv(index=False))
    for name, (_, table) in parts.items():
        if len(table):
            write(f"{name}.tex", as_latex(table))
    if figures:
        from gloam.plots.run_figures import study_figures  # matplotlib takes a second to import

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
