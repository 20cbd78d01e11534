"""Report of a study: results beside the paper's, statistical tests, wallclock and figures."""

import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

from gloam._tools import checks
from gloam._tools.files import write_bytes
from gloam._tools.readable import as_latex, as_markdown, with_error
from gloam.formats import RunFolder
from gloam.runs.comparison import checked_values, games_howell
from gloam_lab.ceilings import Ceiling, ceiling
from gloam_lab.published import published, title
from gloam_lab.study import DOMAINS, Study

# Each process takes seconds to start and half a gigabyte.
_MOST_PROCESSES = 4

METRICS = {"qd_score": "QD score", "coverage": "coverage"}
CEILING_HEADING = "QD score as a share of the ceiling"
CEILING_NOTE = """\
The ceiling of a domain is the sum over all cells of the best possible objective. Where it is marked
with `≤`, it is an upper bound, and shares of it are lower bounds (`≥`). Domains without a known
ceiling for the study's cells are not listed.
"""


def write_report(path: str | os.PathLike, *, figures: bool = True, pdf: bool = True) -> list[Path]:
    """Write ``report/`` (Markdown, CSV, LaTeX and figures) from the results of a study so far.

    Args:
        path: The study folder.
        figures: Whether to draw figures.
        pdf: Whether to write the figures as PDF as well.

    Returns:
        The files written, the Markdown file first.
    """
    study = Study.read(path)
    out = _report_folder(study)
    metrics = final_metrics(study)
    compared = results(metrics, ceilings(study))
    scores, coverages = (pairwise_table(metrics, metric) for metric in METRICS)
    tables = {
        "results": ("Results", readable(compared)),
        "ceilings": (CEILING_HEADING, share_table(compared)),
        "anova": ("Welch's one-way ANOVA", anova_table(metrics)),
        "pairwise-qd-score": ("Games-Howell comparisons of the QD score", scores),
        "pairwise-coverage": ("Games-Howell comparisons of coverage", coverages),
        "wallclock": ("Wallclock, seconds", wallclock(compared)),
    }
    tables = {name: (heading, table) for name, (heading, table) in tables.items() if len(table)}
    texts = {
        "report.md": _markdown(study, dict(tables.values())),
        "seeds.csv": metrics.to_csv(index=False),
        "results.csv": compared.to_csv(index=False),
        **{f"{name}.tex": as_latex(table) for name, (_, table) in tables.items()},
    }
    for name, text in texts.items():
        write_bytes(out / name, text.encode())
    written = [out / name for name in texts]
    return written + (draw_figures(study, study.domains, pdf=pdf) if figures else [])


def draw_figures(study: Study, domains: Sequence[str], *, pdf: bool = True) -> list[Path]:
    """Draw the figures of some domains of a study, from its results so far."""
    from gloam_lab.figures import study_figures  # matplotlib takes a second to import

    return study_figures(_folders(study, domains), _report_folder(study), pdf=pdf)


@contextmanager
def drawing_processes() -> Iterator[ProcessPoolExecutor]:
    """Return processes that draw figures while this one runs searches.

    On exit, figures that have not been begun are cancelled: wait for them inside the block.

    Raises:
        ChildProcessError: A process was killed.
    """
    number = min(_MOST_PROCESSES, -(-(os.cpu_count() or 1) // 4))
    context = multiprocessing.get_context("spawn")  # a fork would share the threads of JAX
    pool = ProcessPoolExecutor(number, context, initializer=_prepare_drawing)
    try:
        yield pool
    except BrokenExecutor as error:
        raise ChildProcessError(
            "figures: a process that draws them was killed, perhaps because memory ran out. All "
            "runs are saved. Repeat the command, or add --no-figures to it."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare_drawing() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the study itself handles Ctrl-C
    jax.config.update("jax_platforms", "cpu")


def _report_folder(study: Study) -> Path:
    """Return the folder of the report, unless it has a report.md of another program."""
    out = study.path / "report"
    is_ours = not (out / "report.md").exists() or (out / "seeds.csv").is_file()
    got, fix = f"'{out / 'report.md'}'", "Move it away, or rename the folder."
    checks.expect(is_ours, "report", "a report of gloam, or none", got, fix)
    return out


def _markdown(study: Study, tables: Mapping[str, pd.DataFrame]) -> str:
    """Return the report as Markdown, with tables by heading."""
    missing = study.domains_without_files
    sections = [
        f"# {len(study.domains) - len(missing)} domains, {len(study.algorithms)} algorithms, "
        f"{study.num_seeds} seeds of {study.iterations:,} iterations\n",
        "Mean and standard error; the paper's results are quoted from the paper. "
        "`s` is the wallclock of all seeds of a cell together, including compilation.\n",
        *([CEILING_NOTE] if CEILING_HEADING in tables else []),
        *(f"## {heading}\n\n{as_markdown(table)}" for heading, table in tables.items()),
    ]
    if missing:
        sections.append("## Not run\n\n" + "".join(f"- {needs_files(name)}\n" for name in missing))
    return "\n".join(sections)


def needs_files(domain: str) -> str:
    """Return a line about a domain that a study does not run because its files are missing."""
    return (
        f"{title(domain)} needs files (StyleGAN3, CLIP, landscapes). To check them: "
        "gloam lsi check --stylegan FILE --clip DIR --landscapes DIR"
    )


def _folders(study: Study, domains: Sequence[str]) -> dict[str, dict[str, list[RunFolder]]]:
    """Return the run folders with results, by titles of domain and algorithm."""
    folders: dict[str, dict[str, list[RunFolder]]] = {}
    for cell in study.cells():
        if cell.domain not in domains:
            continue
        of_cell = [folder for folder, _ in cell.results()]
        if of_cell:
            folders.setdefault(title(cell.domain), {})[title(cell.algorithm)] = of_cell
    return folders


def final_metrics(study: Study) -> pd.DataFrame:
    """Return the last metrics of every seed, with domain and algorithm."""
    parts = []
    for cell in study.cells():
        metrics = cell.metrics()
        if len(metrics):
            last = metrics[metrics["iteration"] == metrics["iteration"].max()]
            parts.append(last.assign(domain=cell.domain, algorithm=cell.algorithm))
    checks.expect(bool(parts), "study", "finished cells", f"none in '{study.path}'")
    return pd.concat(parts, ignore_index=True)


def ceilings(study: Study) -> dict[str, Ceiling]:
    """Return the ceilings, by domain, that are known for the archives of a study."""
    by_domain = {}
    for cell in study.cells():
        if cell.domain in DOMAINS and cell.domain not in by_domain:
            for folder, _ in cell.results()[:1]:
                archive = folder.read_part("archive")
                by_domain[cell.domain] = ceiling(cell.domain, archive)
    return {domain: known for domain, known in by_domain.items() if known is not None}


def results(metrics: pd.DataFrame, ceilings: Mapping[str, Ceiling] | None = None) -> pd.DataFrame:
    """Return mean and standard error of every cell, beside the paper's.

    Coverage is in per cent, as the paper prints it. ``difference`` is in per cent of the paper's
    mean, ``errors`` in standard errors of the difference of both means. ``seconds`` is the
    wallclock of all seeds of the cell together. ``share`` is in per cent of the ``ceiling``, which
    is exact or an upper bound; the paper's has a share if the paper used the same cells.
    """
    rows = []
    cells: Any = metrics.groupby(["domain", "algorithm"], sort=False)
    for (domain, algorithm), cell in cells:
        paper = published(domain, algorithm)
        row: dict[str, Any] = {"domain": domain, "algorithm": algorithm, "seeds": len(cell)}
        for metric in METRICS:
            values = cell[metric].to_numpy(np.float64) * (100 if metric == "coverage" else 1)
            mean = values.mean()
            error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
            row |= {metric: mean, f"{metric}_error": error}
            if paper:
                theirs, their_error = getattr(paper, metric), getattr(paper, f"{metric}_error")
                joint = np.hypot(error, their_error)
                row |= {
                    f"{metric}_paper": theirs,
                    f"{metric}_paper_error": their_error,
                    f"{metric}_difference": 100 * (mean - theirs) / abs(theirs),
                    f"{metric}_errors": (mean - theirs) / joint if joint > 0 else np.nan,
                }
        known = (ceilings or {}).get(domain)
        if known:
            row |= {
                "ceiling": known.qd_score,
                "ceiling_is_exact": known.is_exact,
                "qd_score_share": 100 * row["qd_score"] / known.qd_score,
            }
            if paper and known.is_papers:
                row["qd_score_paper_share"] = 100 * paper.qd_score / known.qd_score
        # The seeds of a part run at once, and the parts one after another.
        seconds = cell["seconds"].groupby(cell["part"]).max().sum()
        rows.append(row | {"seconds": float(seconds)})
    return pd.DataFrame(rows)


def readable(table: pd.DataFrame) -> pd.DataFrame:
    """Format the table of `results`: mean ± error, the paper's, and the difference."""
    rows = []
    for row in table.to_dict("records"):
        texts = {
            "domain": title(row["domain"]),
            "algorithm": title(row["algorithm"]),
            "seeds": str(row["seeds"]),
        }
        for metric, name in METRICS.items():
            unit = "%" if metric == "coverage" else ""
            texts[name] = with_error(row[metric], row[f"{metric}_error"], unit)
            theirs = row.get(f"{metric}_paper", np.nan)
            if not pd.isna(theirs):
                error = row[f"{metric}_paper_error"]
                texts[f"paper's {name}"] = with_error(theirs, error, unit)
                difference, errors = row[f"{metric}_difference"], row[f"{metric}_errors"]
                texts[f"{name} differs"] = f"{difference:+.1f}% ({errors:+.1f} s.e.)"
        rows.append(texts | {"s": f"{row['seconds']:.1f}"})
    return pd.DataFrame(rows).fillna("")


def share_table(results: pd.DataFrame) -> pd.DataFrame:
    """Return QD scores in per cent of the ceiling: a row per domain, and one for the paper's."""
    if "ceiling" not in results:
        return pd.DataFrame()
    rows = []
    for domain, cells in results.dropna(subset="ceiling").groupby("domain", sort=False):
        first = cells.iloc[0]
        is_exact = bool(first["ceiling_is_exact"])
        at_most = "" if is_exact else "≤ "
        ours = {"domain": title(str(domain)), "ceiling": f"{at_most}{first['ceiling']:,.1f}"}
        theirs = {"domain": "the paper"}
        for cell in cells.to_dict("records"):
            name = title(cell["algorithm"])
            ours[name] = _share_text(cell["qd_score_share"], is_exact)
            if not pd.isna(cell.get("qd_score_paper_share", np.nan)):
                theirs[name] = _share_text(cell["qd_score_paper_share"], is_exact)
        rows += [ours, theirs] if len(theirs) > 1 else [ours]
    return pd.DataFrame(rows).fillna("")


def _share_text(share: float, is_exact: bool) -> str:
    """Format a share of the ceiling; shares of an upper bound are rounded down."""
    return f"{share:.1f}%" if is_exact else f"≥ {np.floor(10 * share) / 10:.1f}%"


def wallclock(results: pd.DataFrame) -> pd.DataFrame:
    """Return the seconds of every cell, all seeds together, with one row per domain."""
    rows = []
    for domain, cells in results.groupby("domain", sort=False):
        row = {"domain": title(str(domain))}
        for name, seconds in zip(cells["algorithm"], cells["seconds"], strict=True):
            row[title(name)] = f"{seconds:.1f}"
        rows.append(row)
    return pd.DataFrame(rows).fillna("")


class Anova(NamedTuple):
    """Welch's F test that all groups have the same mean, without assuming equal variances."""

    f: float
    between: float
    """Degrees of freedom of the numerator."""
    within: float
    """Degrees of freedom of the denominator."""
    p: float

    def __str__(self) -> str:
        level = "p < 0.001" if self.p < 0.001 else f"p = {self.p:.3f}"
        return f"F({self.between:.0f}, {self.within:.1f}) = {self.f:.1f}, {level}"


def welch_anova(groups: Mapping[str, np.ndarray]) -> Anova | None:
    """Compute Welch's one-way ANOVA.

    Args:
        groups: Values by name of the group, at least two in each of at least two groups.

    Returns:
        The test, or ``None`` if the values of a group are all equal and the test is undefined.
    """
    from scipy import stats  # lazily: it takes a second to import

    values = checked_values(groups)
    number = np.array([len(group) for group in values])
    error = np.array([group.var(ddof=1) for group in values]) / number
    if not (error > 0).all():
        return None
    f, p = stats.f_oneway(*values, equal_var=False)
    # SciPy does not return the degrees of freedom of the denominator, which the paper reports.
    k, share = len(values), (1 / error) / np.sum(1 / error)
    within = (k**2 - 1) / (3 * np.sum(np.square(1 - share) / (number - 1)))
    return Anova(float(f), float(k - 1), float(within), float(p))


def anova_table(metrics: pd.DataFrame) -> pd.DataFrame:
    """Return Welch's ANOVA of every domain and metric, in the paper's form."""
    rows = []
    for domain, cells in metrics.groupby("domain", sort=False):
        row = {"domain": title(str(domain))}
        for metric, name in METRICS.items():
            groups = _groups(cells, metric)
            row[name] = str(welch_anova(groups) or "undefined") if groups else "too few seeds"
        rows.append(row)
    return pd.DataFrame(rows)


def pairwise_table(metrics: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return Games-Howell signs of the row's algorithm against the column's, by domain."""
    rows = []
    for domain, cells in metrics.groupby("domain", sort=False):
        groups = _groups(cells, metric)
        tests = games_howell(groups) if groups else {}
        for name in groups:
            row = {"domain": title(str(domain)), "algorithm": title(name)}
            signs = {other: tests[name, other].sign for other in groups if other != name}
            rows.append(row | {title(other): signs.get(other, "") for other in groups})
    return pd.DataFrame(rows)


def _groups(cells: pd.DataFrame, metric: str) -> dict[str, np.ndarray]:
    """Return the values of each algorithm; empty if they are too few for a test."""
    groups = {
        str(name): rows[metric].to_numpy(np.float64)
        for name, rows in cells.groupby("algorithm", sort=False)
    }
    is_enough = len(groups) > 1 and min(len(group) for group in groups.values()) > 1
    return groups if is_enough else {}
