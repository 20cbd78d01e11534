"""Report of a study: results beside the paper's, statistical tests, wallclock and figures."""

import itertools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from gloam import checks
from gloam.experiments.published import published, title
from gloam.experiments.study import Study
from gloam.files import write_bytes
from gloam.formats import RunFolder

METRICS = {"qd_score": "QD score", "coverage": "coverage"}


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
    out = study.path / "report"
    is_ours = not (out / "report.md").exists() or (out / "seeds.csv").is_file()
    got, fix = f"'{out / 'report.md'}'", "Move it away, or rename the folder."
    checks.expect(is_ours, "report", "a report of gloam, or none", got, fix)
    metrics = final_metrics(study)
    found = results(metrics)
    scores, coverages = (pairwise_table(metrics, metric) for metric in METRICS)
    tables = {
        "results": ("Results", readable(found)),
        "anova": ("Welch's one-way ANOVA", anova_table(metrics)),
        "pairwise-qd-score": ("Games-Howell comparisons of the QD score", scores),
        "pairwise-coverage": ("Games-Howell comparisons of coverage", coverages),
        "wallclock": ("Wallclock, seconds", wallclock(found)),
    }
    tables = {name: (heading, table) for name, (heading, table) in tables.items() if len(table)}
    texts = {
        "report.md": _markdown(study, dict(tables.values())),
        "seeds.csv": metrics.to_csv(index=False),
        "results.csv": found.to_csv(index=False),
        **{f"{name}.tex": as_latex(table) for name, (_, table) in tables.items()},
    }
    for name, text in texts.items():
        write_bytes(out / name, text.encode())
    written = [out / name for name in texts]
    if figures:
        from gloam.plots.run_figures import study_figures  # matplotlib takes a second to import

        written += study_figures(_folders(study), out, pdf=pdf)
    return written


def _markdown(study: Study, tables: Mapping[str, pd.DataFrame]) -> str:
    """Return the report as Markdown, with tables by heading."""
    missing = study.domains_without_files
    sections = [
        f"# {len(study.domains) - len(missing)} domains, {len(study.algorithms)} algorithms, "
        f"{study.num_seeds} seeds of {study.iterations:,} iterations\n",
        "Mean and standard error; the paper's results are quoted from the paper. "
        "`s` is the wallclock of all seeds of a cell together, including compilation.\n",
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


def _folders(study: Study) -> dict[str, dict[str, list[RunFolder]]]:
    """Return the run folders with results, by titles of domain and algorithm."""
    found: dict[str, dict[str, list[RunFolder]]] = {}
    for cell in study.cells():
        parts = [part for part in cell.folders() if len(part.read_metrics())]
        if parts:
            found.setdefault(title(cell.domain), {})[title(cell.algorithm)] = parts
    return found


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


def results(metrics: pd.DataFrame) -> pd.DataFrame:
    """Return mean and standard error of every cell, beside the paper's.

    Coverage is in per cent, as the paper prints it. ``difference`` is in per cent of the paper's
    mean, ``errors`` in standard errors of the difference of both means. ``seconds`` is the
    wallclock of all seeds of the cell together.
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
            texts[name] = f"{row[metric]:,.2f} ± {row[f'{metric}_error']:.2f}{unit}"
            theirs = row.get(f"{metric}_paper", np.nan)
            if not pd.isna(theirs):
                error = row[f"{metric}_paper_error"]
                texts[f"paper's {name}"] = f"{theirs:,.2f} ± {error:.2f}{unit}"
                difference, errors = row[f"{metric}_difference"], row[f"{metric}_errors"]
                texts[f"{name} differs"] = f"{difference:+.1f}% ({errors:+.1f} s.e.)"
        rows.append(texts | {"s": f"{row['seconds']:.1f}"})
    return pd.DataFrame(rows).fillna("")


def wallclock(results: pd.DataFrame) -> pd.DataFrame:
    """Return the seconds of every cell, all seeds together, with one row per domain."""
    rows = []
    for domain, cells in results.groupby("domain", sort=False):
        row = {"domain": title(str(domain))}
        for name, seconds in zip(cells["algorithm"], cells["seconds"], strict=True):
            row[title(name)] = f"{seconds:.1f}"
        rows.append(row)
    return pd.DataFrame(rows).fillna("")


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
        for one in groups:
            row = {"domain": title(str(domain)), "algorithm": title(one)}
            rows.append(row | {title(o): "" if o == one else tests[one, o].sign for o in groups})
    return pd.DataFrame(rows)


def _groups(cells: pd.DataFrame, metric: str) -> dict[str, np.ndarray]:
    """Return the values of each algorithm; empty if they are too few for a test."""
    groups = {
        str(name): rows[metric].to_numpy(np.float64)
        for name, rows in cells.groupby("algorithm", sort=False)
    }
    is_enough = len(groups) > 1 and min(len(group) for group in groups.values()) > 1
    return groups if is_enough else {}


def as_markdown(table: pd.DataFrame) -> str:
    """Return a table as Markdown."""
    lines = [list(table.columns), ["---"] * len(table.columns), *table.to_numpy().tolist()]
    return "".join(f"| {' | '.join(str(cell) for cell in line)} |\n" for line in lines)


def as_latex(table: pd.DataFrame) -> str:
    """Return a table as LaTeX, with booktabs rules."""
    escape = str.maketrans({"%": r"\%", "±": r"$\pm$", "<": "$<$", ">": "$>$", "_": r"\_"})
    head, *body = (
        " & ".join(str(cell).translate(escape) for cell in line) + r" \\"
        for line in (list(table.columns), *table.to_numpy().tolist())
    )
    begin = rf"\begin{{tabular}}{{{'l' * len(table.columns)}}}"
    lines = [begin, r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"]
    return "\n".join(lines) + "\n"


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


class PairwiseTest(NamedTuple):
    """Games-Howell comparison of one group with another."""

    difference: float
    p: float

    @property
    def sign(self) -> str:
        """``>`` or ``<`` if the means differ significantly (p < 0.05), else ``-``."""
        if not self.p < 0.05:
            return "-"
        return ">" if self.difference > 0 else "<"


def welch_anova(groups: Mapping[str, np.ndarray]) -> Anova | None:
    """Compute Welch's one-way ANOVA.

    Args:
        groups: Values by name of the group, at least two in each of at least two groups.

    Returns:
        The test, or ``None`` if the values of a group are all equal and the test is undefined.
    """
    from scipy import stats  # lazily: it takes a second to import

    values = _checked_values(groups)
    number = np.array([len(group) for group in values])
    error = np.array([group.var(ddof=1) for group in values]) / number
    if not (error > 0).all():
        return None
    f, p = stats.f_oneway(*values, equal_var=False)
    # SciPy does not return the degrees of freedom of the denominator, which the paper reports.
    k, share = len(values), (1 / error) / np.sum(1 / error)
    within = (k**2 - 1) / (3 * np.sum(np.square(1 - share) / (number - 1)))
    return Anova(float(f), float(k - 1), float(within), float(p))


def games_howell(groups: Mapping[str, np.ndarray]) -> dict[tuple[str, str], PairwiseTest]:
    """Compare every ordered pair of groups by the Games-Howell test.

    If the values within both groups are all equal, the comparison is exact: p is 0 or 1.
    """
    from scipy import stats  # lazily, as above

    values = _checked_values(groups)
    constant = [group.var() == 0 for group in values]
    with np.errstate(divide="ignore", invalid="ignore"):  # pairs of constant groups
        found = stats.tukey_hsd(*values, equal_var=False)
    result = {}
    for (i, one), (j, other) in itertools.permutations(enumerate(groups), 2):
        difference, p = float(found.statistic[i, j]), float(np.clip(found.pvalue[i, j], 0, 1))
        if constant[i] and constant[j]:
            p = float(difference == 0)
        result[one, other] = PairwiseTest(difference, p)
    return result


def _checked_values(groups: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    values = [np.asarray(group, dtype=np.float64) for group in groups.values()]
    sizes = {name: len(group) for name, group in groups.items()}
    is_enough = len(values) > 1 and min(sizes.values()) > 1
    checks.expect(is_enough, "groups", "at least two groups of at least two values", sizes)
    return values
