"""Tables of a study: results beside the paper's, statistics, wallclock; Markdown, CSV, LaTeX."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from gloam.experiments.published import PUBLISHED, title
from gloam.experiments.statistics import games_howell, welch_anova
from gloam.experiments.study import Study

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
