"""Curves: QD score, coverage, loss and unique cells over the iterations of one run or several."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from gloam import checks
from gloam.plots import style

_PANELS = {
    "qd_score": "QD score",
    "coverage": "coverage of the archive",
    "loss": "training loss",
    "unique_cells": "unique cells per batch",
}
# Up to so many seeds are drawn as lines of their own.
_FEW_SEEDS = 5


def curves(
    metrics: pd.DataFrame | Mapping[str, pd.DataFrame], *, title: str = "", algorithm: str = ""
) -> Figure:
    """How a run went: the mean over seeds, within a band of its standard error.

    Args:
        metrics: A run's metrics as `gloam.RunFolder.read_metrics` gives them, or several runs' by
            label, to compare them.
        title: Heading of the figure.
        algorithm: Name of a single run's algorithm, for its colour.

    Returns:
        A panel for each of QD score, coverage, loss and unique cells that the metrics hold.

    Example:
        >>> table = pd.DataFrame({"seed": [1, 1], "iteration": [10, 20], "qd_score": [1.0, 2.0]})
        >>> len(curves(table).axes)
        1
    """
    alone = isinstance(metrics, pd.DataFrame)
    runs: Mapping[str, pd.DataFrame] = {algorithm: metrics} if alone else metrics
    checks.expect(len(runs) > 0, "metrics", "at least one run", "none")
    for label, table in runs.items():
        whose = "metrics" if alone else f"metrics of {label}"
        checks.expect(
            len(table) > 0,
            whose,
            "at least one row",
            "none",
            "Metrics are written at the first checkpoint of a run.",
        )
    names = [name for name in _PANELS if any(_tells(table, name) for table in runs.values())]
    checks.expect(
        len(names) > 0,
        "metrics",
        f"one of the columns {list(_PANELS)}",
        f"{[list(table.columns) for table in runs.values()]}",
    )
    colors = style.line_colors(runs)
    columns = min(len(names), 3 if len(names) == 3 else 2)
    rows = -(-len(names) // columns)
    figure = style.figure(4.6 * columns, 2.9 * rows + 0.5)
    panels = figure.subplots(rows, columns, squeeze=False)
    for axes, name in zip(panels.flat, names, strict=True):
        for label, table in runs.items():
            if _tells(table, name):
                _curve(axes, table, name, label, colors[label])
        _finish(axes, name)
        if alone:
            axes.set_title(
                _last(runs[algorithm], name), loc="right", fontsize=style.LABEL, color=style.QUIET
            )
    for axes in panels[-1]:
        axes.set_xlabel("iteration")
    if title:
        figure.suptitle(
            title, x=0.015, ha="left", fontsize=style.TITLE, fontweight="bold", color=style.INK
        )
    _legend(figure, runs, colors, alone)
    return figure


def over_seeds(
    metrics: pd.DataFrame, name: str
) -> tuple[Int[np.ndarray, " n"], Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """The iterations, a column's mean over seeds, and its standard error (0 for one seed)."""
    table = pd.DataFrame(metrics.groupby("iteration")[name].agg(["mean", "sem"]))
    error = np.nan_to_num(table["sem"].to_numpy())
    return table.index.to_numpy(), table["mean"].to_numpy(), error


def _seeds(table: pd.DataFrame) -> int:
    return len(set(table["seed"]))


def _tells(table: pd.DataFrame, name: str) -> bool:
    """True when a column holds anything; the loss of a search without a model is always 0."""
    return name in table and bool((np.isfinite(table[name]) & (table[name] != 0)).any())


def _curve(axes: Axes, table: pd.DataFrame, name: str, label: str, color: str) -> None:
    at, mean, error = over_seeds(table, name)
    marker = "o" if len(at) == 1 else None
    axes.plot(at, mean, color=color, linewidth=1.8, label=label, marker=marker, zorder=3)
    if _seeds(table) == 1:
        return
    axes.fill_between(at, mean - error, mean + error, color=color, alpha=0.2, linewidth=0)
    if _seeds(table) <= _FEW_SEEDS:
        for _, own in table.groupby("seed"):
            axes.plot(own["iteration"], own[name], color=color, linewidth=0.6, alpha=0.55)


def _finish(axes: Axes, name: str) -> None:
    axes.set_ylabel(_PANELS[name])
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    low = float(axes.dataLim.ymin)
    axes.set_ylim(bottom=axes.get_ylim()[0] if low < 0 else 0.0)
    unit, scale = ("%", 100.0) if name == "coverage" else ("", 1.0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{scale * y:,.10g}{unit}"))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    style.dress(axes, grid=True)


def _legend(figure: Figure, runs: Mapping[str, pd.DataFrame], colors: dict, alone: bool) -> None:
    """The labels of the runs, and what line and band are when there are several seeds."""
    seeds = [_seeds(table) for table in runs.values()]
    most = max(seeds)
    lines: dict[str, Artist] = {
        (f"mean of {most} seeds" if alone else label): Line2D([], [], color=colors[label], lw=1.8)
        for label in runs
    }
    if most > 1:
        color = next(iter(colors.values())) if alone else style.QUIET
        lines["standard error"] = Patch(facecolor=color, alpha=0.25)
        if min(n for n in seeds if n > 1) <= _FEW_SEEDS:
            lines["single seeds"] = Line2D([], [], color=color, lw=0.6, alpha=0.7)
    if not alone or most > 1:
        figure.legend(
            list(lines.values()),
            list(lines),
            loc="outside lower center",
            frameon=False,
            ncols=min(len(lines), 5),
            fontsize=style.LABEL,
            labelcolor=style.INK,
        )


def _last(table: pd.DataFrame, name: str) -> str:
    """The figure at the end, for instance ``7,204 ± 12``."""
    _, mean, error = (values[-1] for values in over_seeds(table, name))
    shown = {"qd_score": "{:,.1f}", "coverage": "{:.1%}", "loss": "{:.2g}"}.get(name, "{:,.0f}")
    spread = f" ± {shown.format(error)}" if _seeds(table) > 1 else ""
    return f"last {shown.format(mean)}{spread}"
