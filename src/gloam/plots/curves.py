"""Curves: QD score, coverage, loss and unique cells over the iterations of one run or several.

The distribution of the elites' objectives, of one archive or of several.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from gloam import checks
from gloam.archives import Elites
from gloam.plots import style

_PANELS = {
    "qd_score": "QD score",
    "coverage": "coverage of the archive",
    "loss": "training loss",
    "unique_cells": "unique cells per batch",
}
Metrics = pd.DataFrame | Mapping[str, pd.DataFrame]
"""The metrics of a run, or those of several runs by label."""
# Up to so many seeds are drawn as lines of their own.
_FEW_SEEDS = 5


def curves(
    metrics: Metrics,
    *,
    columns: Sequence[str] | None = None,
    title: str = "",
    algorithm: str = "",
    ax: Axes | None = None,
) -> Figure:
    """How a run went: the mean over seeds, within a band of its standard error.

    Args:
        metrics: A run's metrics as `gloam.RunFolder.read_metrics` gives them, or several runs' by
            label, to compare them.
        columns: Columns to draw, a panel for each; by default those of QD score, coverage, loss and
            unique cells that the metrics hold.
        title: Heading of the figure.
        algorithm: Name of a single run's algorithm, for its colour.
        ax: Axes for a single column, or whose place several panels take; by default they have a
            new figure.

    Example:
        >>> table = pd.DataFrame({"seed": [1, 1], "iteration": [10, 20], "qd_score": [1.0, 2.0]})
        >>> len(curves(table).axes)
        1
    """
    alone = isinstance(metrics, pd.DataFrame)
    runs: Mapping[str, pd.DataFrame] = {algorithm: metrics} if alone else metrics
    names = _columns(runs, columns, alone=alone)
    colors = style.line_colors(runs)
    wide = min(len(names), 3 if len(names) == 3 else 2)
    high = -(-len(names) // wide)
    figure, panels = style.panels(ax, high, wide, (4.6 * wide, 2.9 * high + 0.5))
    for axes in panels.flat[len(names) :]:
        axes.set_axis_off()
    for axes, name in zip(panels.flat, names, strict=False):
        for label, table in runs.items():
            if _tells(table, name):
                _curve(axes, table, name, label, colors[label])
        _finish(axes, name)
        if alone:
            axes.set_title(
                _last(runs[algorithm], name), loc="right", fontsize=style.LABEL, color=style.QUIET
            )
    for axes in panels.flat[max(0, len(names) - wide) : len(names)]:
        axes.set_xlabel("iteration")
    if title and ax is None:
        figure.suptitle(
            title, x=0.015, ha="left", fontsize=style.TITLE, fontweight="bold", color=style.INK
        )
    elif title:
        style.heading(ax or panels[0, 0], title)
    _legend(figure if ax is None else panels[0, 0], runs, colors, alone)
    return figure


def _columns(
    runs: Mapping[str, pd.DataFrame], columns: Sequence[str] | None, *, alone: bool
) -> list[str]:
    """The columns to draw, after a check that there is something to draw."""
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
    known = [name for name in _PANELS if any(_tells(table, name) for table in runs.values())]
    names = known if columns is None else [columns] if isinstance(columns, str) else list(columns)
    found = f"{[list(table.columns) for table in runs.values()]}"
    checks.expect(len(names) > 0, "metrics", f"one of the columns {list(_PANELS)}", found)
    for name in names:
        there = any(name in table for table in runs.values())
        checks.expect(there, "metrics", f"a column '{name}'", found)
    return names


def unique_cells(metrics: Metrics, *, title: str = "", ax: Axes | None = None) -> Figure:
    """Different cells that the solutions of a batch land in, below the size of the batch.

    Few of them mean that the emitters have come together; see ``docs/diagnosing.md``.

    Args:
        metrics, title: As in `curves`.
        ax: Axes to draw in; by default those of a new figure.
    """
    axes = style.axes_for(ax, 4.8, 3.3)
    figure = curves(metrics, columns=["unique_cells"], title=title, ax=axes)
    tables = [metrics] if isinstance(metrics, pd.DataFrame) else metrics.values()
    sizes = {size for table in tables for size in _batch_sizes(table)}
    for size in sorted(sizes):
        axes.axhline(size, color=style.QUIET, linewidth=0.8, linestyle=(0, (4, 3)))
        axes.annotate(
            f"batch of {size:,}",
            (1, size),
            (-2, 3),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="right",
            fontsize=style.SMALL,
            color=style.QUIET,
        )
    if sizes:
        axes.set_ylim(0, 1.12 * max(sizes))
    return figure


def _batch_sizes(table: pd.DataFrame) -> set[int]:
    """Solutions of an iteration, where the metrics tell."""
    if "evaluations" not in table:
        return set()
    last = table.iloc[-1]
    return {round(last["evaluations"] / last["iteration"])} if last["iteration"] else set()


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
    if name not in table:
        return False
    found = np.isfinite(table[name])
    return bool((found & (table[name] != 0) if name in _PANELS else found).any())


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
    axes.set_ylabel(_PANELS.get(name, name.replace("_", " ")))
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    low = float(axes.dataLim.ymin)
    axes.set_ylim(bottom=axes.get_ylim()[0] if low < 0 else 0.0)
    unit, scale = ("%", 100.0) if name == "coverage" else ("", 1.0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{scale * y:,.10g}{unit}"))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    style.dress(axes, grid=True)


def _legend(
    where: Figure | Axes, runs: Mapping[str, pd.DataFrame], colors: dict, alone: bool
) -> None:
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
        whole = isinstance(where, Figure)
        where.legend(
            list(lines.values()),
            list(lines),
            loc="outside lower center" if whole else "best",
            frameon=False,
            ncols=min(len(lines), 5) if whole else 1,
            fontsize=style.LABEL if whole else style.SMALL,
            labelcolor=style.INK,
        )


def _last(table: pd.DataFrame, name: str) -> str:
    """The figure at the end, for instance ``7,204 ± 12``."""
    _, mean, error = (values[-1] for values in over_seeds(table, name))
    shown = {"qd_score": "{:,.1f}", "coverage": "{:.1%}", "loss": "{:.2g}"}.get(name, "{:,.0f}")
    spread = f" ± {shown.format(error)}" if _seeds(table) > 1 else ""
    return f"last {shown.format(mean)}{spread}"


def objective_ecdf(
    elites: Elites | Mapping[str, Elites],
    *,
    of: Literal["elites", "cells"] = "elites",
    title: str = "",
    ax: Axes | None = None,
) -> Figure:
    """The share of elites up to each objective, or the share of cells that reach it.

    Args:
        elites: A filled archive, or several by label, to compare them.
        of: ``"elites"`` draws the empirical distribution function of the objectives: it rises from
            0 to 1. ``"cells"`` draws the share of all cells whose elite is at least as good: it
            falls from the coverage to 0, and of two archives the higher curve is better.
        title: Heading of the figure.
        ax: Axes to draw in; by default those of a new figure.
    """
    checks.choice("of", of, ("elites", "cells"))
    runs = {"": elites} if isinstance(elites, Elites) else elites
    checks.expect(len(runs) > 0, "elites", "at least one archive", "none")
    for label, one in runs.items():
        checks.instance("elites", one, Elites, "Give result.elites or search.elites().")
        checks.expect(len(one) > 0, f"elites {label}".strip(), "at least one elite", "none")
    axes = style.axes_for(ax, 5.0, 3.6)
    colors = style.line_colors(runs)
    for label, one in runs.items():
        x, y = steps(one, of)
        where = "post" if of == "elites" else "pre"
        axes.step(x, y, where=where, color=colors[label], linewidth=1.8, label=label)
    axes.set(
        xlabel="objective",
        ylabel="share of elites up to it" if of == "elites" else "share of cells that reach it",
    )
    axes.set_ylim(0, 1.02 if of == "elites" else None)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    style.dress(axes, grid=True)
    if any(runs):
        axes.legend(frameon=False, fontsize=style.SMALL, labelcolor=style.INK)
    if title:
        style.heading(axes, title)
    return style.figure_of(axes)


def steps(
    elites: Elites, of: Literal["elites", "cells"]
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """The objectives in ascending order, and the share up to each, or from each upwards."""
    x = np.sort(elites.objectives.astype(np.float64))
    rank = np.arange(1, len(x) + 1)
    if of == "elites":
        return np.concatenate([x[:1], x]), np.concatenate([[0.0], rank / len(x)])
    reached = (len(x) + 1 - rank) / elites.archive.num_cells
    return np.concatenate([x, x[-1:]]), np.concatenate([reached, [0.0]])
