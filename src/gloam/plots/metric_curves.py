"""Curves of metrics over iterations or evaluations, and of objectives.

Curves compare runs by label. With several seeds a curve is the mean, within a band of its standard
error.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from gloam._tools import checks
from gloam._tools.readable import with_error
from gloam.archives import Elites
from gloam.archives.qd_score import reference_note, tables_with_one_reference
from gloam.plots import style

Metrics = pd.DataFrame | Mapping[str, pd.DataFrame]
"""The metrics of a run, or those of several runs by label."""

_PANELS = {
    "qd_score": "QD score",
    "coverage": "coverage of the archive",
    "loss": "training loss",
    "unique_cells": "unique cells per batch",
}
# Up to this number, each seed has a thin line.
_FEW_SEEDS = 5


def curves(
    metrics: Metrics,
    *,
    columns: Sequence[str] | None = None,
    over: Literal["iteration", "evaluations"] | None = None,
    title: str = "",
    algorithm: str = "",
    ax: Axes | None = None,
) -> Figure:
    """Draw metrics over iterations: the mean over seeds, within a band of its standard error.

    Runs whose batches differ in size are drawn over the number of evaluations. QD scores are
    counted from one reference, the lowest ``f_min`` of the metrics.

    Args:
        metrics: The metrics of a run as `gloam.RunFolder.read_metrics` returns them, or those of
            several runs by label, to compare them.
        columns: Columns to draw, a panel for each; by default those of QD score, coverage, loss and
            unique cells that the metrics hold.
        over: Column of the horizontal axis; by default as above.
        title: Heading of the figure.
        algorithm: Name of the algorithm of a single run, which determines its color.
        ax: Axes to draw in, or to draw the panels of several columns in; by default they have a new
            figure.

    Example:
        >>> table = pd.DataFrame({"seed": [1, 1], "iteration": [10, 20], "qd_score": [1.0, 2.0]})
        >>> len(curves(table).axes)
        1
    """
    alone = isinstance(metrics, pd.DataFrame)
    runs = {algorithm: metrics} if alone else metrics
    tables, reference = tables_with_one_reference(list(runs.values()))
    runs = dict(zip(runs, tables, strict=True))
    names = _columns(runs, columns, alone=alone)
    checks.choice("over", over or "iteration", ("iteration", "evaluations"))
    colors, axis = style.line_colors(runs), over or _over(runs)
    wide = min(len(names), 3 if len(names) == 3 else 2)
    high = -(-len(names) // wide)
    figure, panels = style.panels(ax, high, wide, (4.6 * wide, 2.9 * high + 0.5))
    for axes in panels.flat[len(names) :]:
        axes.set_axis_off()
    for axes, name in zip(panels.flat, names, strict=False):
        for label, table in runs.items():
            if _has_values(table, name):
                _draw_curve(axes, table, name, axis, label, colors[label])
        _finish(axes, name, reference_note(reference) if name == "qd_score" else "")
        if alone:
            last = _last(runs[algorithm], name)
            axes.set_title(last, loc="right", fontsize=style.LABEL, color=style.QUIET)
    for axes in panels.flat[max(0, len(names) - wide) : len(names)]:
        axes.set_xlabel(axis)
    if ax is not None:
        style.heading(ax, title)
    elif title:
        style.figure_heading(figure, title)
    _add_legend(figure if ax is None else panels[0, 0], runs, colors, alone)
    return figure


def unique_cells(metrics: Metrics, *, title: str = "", ax: Axes | None = None) -> Figure:
    """Draw the number of distinct cells in a batch, below the size of the batch.

    A low number means that the emitters have converged to the same region; see
    ``docs/diagnosing.md``.

    Args:
        metrics, title: As in `curves`.
        ax: Axes to draw in; by default those of a new figure.
    """
    axes = style.axes_for(ax, 4.8, 3.3)
    figure = curves(metrics, columns=["unique_cells"], title=title, ax=axes)
    sizes = _batch_sizes([metrics] if isinstance(metrics, pd.DataFrame) else metrics.values())
    for size in sorted(sizes):
        axes.axhline(size, color=style.QUIET, linewidth=0.8, linestyle=(0, (4, 3)))
        edge = ("axes fraction", "data")
        style.annotate(axes, f"batch of {size:,}", (1, size), (-2, 3), edge, ha="right")
    if sizes:
        axes.set_ylim(0, 1.12 * max(sizes))
    return figure


def objective_ecdf(
    elites: Elites | Mapping[str, Elites],
    *,
    of: Literal["elites", "cells"] = "elites",
    title: str = "",
    ax: Axes | None = None,
) -> Figure:
    """Draw the share of elites up to each objective, or the share of cells that reach it.

    Args:
        elites: A filled archive, or several by label, to compare them.
        of: ``"elites"`` draws the empirical distribution function of the objectives, which rises
            from 0 to 1. ``"cells"`` draws the share of all cells whose elite is at least as good,
            which falls from the coverage to 0; the higher curve is the better archive.
        title: Heading of the figure.
        ax: Axes to draw in; by default those of a new figure.
    """
    checks.choice("of", of, ("elites", "cells"))
    runs = {"": elites} if isinstance(elites, Elites) else elites
    checks.expect(len(runs) > 0, "elites", "at least one archive", "none")
    for label, archive in runs.items():
        checks.instance("elites", archive, Elites, "Give result.elites or search.elites().")
        checks.expect(len(archive) > 0, f"elites {label}".strip(), "at least one elite", "none")
    axes = style.axes_for(ax, 5.0, 3.6)
    colors = style.line_colors(runs)
    is_rising = of == "elites"
    for label, archive in runs.items():
        x, y = _steps(archive, of)
        where = "post" if is_rising else "pre"
        axes.step(x, y, where=where, color=colors[label], linewidth=1.8, label=label)
    axes.set_xlabel("objective")
    axes.set_ylabel("share of elites up to it" if is_rising else "share of cells that reach it")
    axes.set_ylim(0, 1.02 if is_rising else None)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    style.dress(axes, grid=True)
    if any(runs):
        style.legend(axes, dict(zip(runs, axes.lines[-len(runs) :], strict=True)))
    style.heading(axes, title)
    return style.figure_of(axes)


def _columns(
    runs: Mapping[str, pd.DataFrame], columns: Sequence[str] | None, *, alone: bool
) -> list[str]:
    """Return the columns to draw, after checking that there is something to draw."""
    checks.expect(len(runs) > 0, "metrics", "at least one run", "none")
    fix = "Metrics are written at the first checkpoint of a run."
    for label, table in runs.items():
        argument = "metrics" if alone else f"metrics of {label}"
        checks.expect(len(table) > 0, argument, "at least one row", "none", fix)
    known = [name for name in _PANELS if any(_has_values(table, name) for table in runs.values())]
    names = known if columns is None else [columns] if isinstance(columns, str) else list(columns)
    present = f"{[list(table.columns) for table in runs.values()]}"
    checks.expect(len(names) > 0, "metrics", f"one of the columns {list(_PANELS)}", present)
    for name in names:
        is_present = any(name in table for table in runs.values())
        checks.expect(is_present, "metrics", f"a column '{name}'", present)
    return names


def _has_values(table: pd.DataFrame, name: str) -> bool:
    """Whether a column has values. The loss of a search without a model is always 0."""
    if name not in table:
        return False
    has_value = np.isfinite(table[name])
    if name in _PANELS:
        has_value &= table[name] != 0
    return bool(has_value.any())


def _num_seeds(table: pd.DataFrame) -> int:
    return len(set(table["seed"]))


def _over(runs: Mapping[str, pd.DataFrame]) -> str:
    """Return the column of the horizontal axis: evaluations if batches of runs differ in size."""
    is_known = all("evaluations" in table for table in runs.values())
    return "evaluations" if is_known and len(_batch_sizes(runs.values())) > 1 else "iteration"


def _batch_sizes(tables: Iterable[pd.DataFrame]) -> set[int]:
    """Return the numbers of evaluations in an iteration."""
    lasts: list[Any] = [table.iloc[-1] for table in tables if "evaluations" in table]
    return {round(row["evaluations"] / row["iteration"]) for row in lasts if row["iteration"]}


def _over_seeds(
    metrics: pd.DataFrame, name: str, over: str = "iteration"
) -> tuple[Int[np.ndarray, " n"], Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Return the values of ``over``, the mean over seeds, and its standard error (0 for one)."""
    table = pd.DataFrame(metrics.groupby(over)[name].agg(["mean", "sem"]))
    error = np.nan_to_num(table["sem"].to_numpy())
    return table.index.to_numpy(), table["mean"].to_numpy(), error


def _draw_curve(
    axes: Axes, table: pd.DataFrame, name: str, over: str, label: str, color: str
) -> None:
    at, mean, error = _over_seeds(table, name, over)
    marker = "o" if len(at) == 1 else None
    axes.plot(at, mean, color=color, linewidth=1.8, label=label, marker=marker, zorder=3)
    if _num_seeds(table) == 1:
        return
    axes.fill_between(at, mean - error, mean + error, color=color, alpha=0.2, linewidth=0)
    if _num_seeds(table) <= _FEW_SEEDS:
        for _, rows in table.groupby("seed"):
            axes.plot(rows[over], rows[name], color=color, linewidth=0.6, alpha=0.55)


def _finish(axes: Axes, name: str, note: str = "") -> None:
    axes.set_ylabel(_PANELS.get(name, name.replace("_", " ")) + note)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    low = float(axes.dataLim.ymin)
    axes.set_ylim(bottom=axes.get_ylim()[0] if low < 0 else 0.0)
    unit, scale = ("%", 100.0) if name == "coverage" else ("", 1.0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{scale * y:,.10g}{unit}"))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    style.dress(axes, grid=True)


def _last(table: pd.DataFrame, name: str) -> str:
    """Return the last value as text, for instance ``7,204 ± 12``."""
    _, mean, error = (values[-1] for values in _over_seeds(table, name))
    if _num_seeds(table) > 1:
        scale, unit = (100.0, "%") if name == "coverage" else (1.0, "")
        return f"last {with_error(scale * mean, scale * error, unit)}"
    shown = {"qd_score": "{:,.1f}", "coverage": "{:.1%}", "loss": "{:.2g}"}.get(name, "{:,.0f}")
    return f"last {shown.format(mean)}"


def _add_legend(
    where: Figure | Axes, runs: Mapping[str, pd.DataFrame], colors: dict[str, str], alone: bool
) -> None:
    """Name the runs, and explain lines and bands if there are several seeds."""
    seeds = [_num_seeds(table) for table in runs.values()]
    most = max(seeds)
    if alone and most == 1:
        return
    entries: dict[str, Artist] = {
        (f"mean of {most} seeds" if alone else label): Line2D([], [], color=colors[label], lw=1.8)
        for label in runs
    }
    if most > 1:
        color = next(iter(colors.values())) if alone else style.QUIET
        entries["standard error"] = Patch(facecolor=color, alpha=0.25)
        if min(number for number in seeds if number > 1) <= _FEW_SEEDS:
            entries["single seeds"] = Line2D([], [], color=color, lw=0.6, alpha=0.7)
    if isinstance(where, Figure):
        options = {"ncols": min(len(entries), 5), "fontsize": style.LABEL}
        style.legend(where, entries, loc="outside lower center", **options)
    else:
        style.legend(where, entries)


def _steps(
    elites: Elites, of: Literal["elites", "cells"]
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Return the objectives in ascending order, and the share up to, or from, each."""
    x = np.sort(elites.objectives.astype(np.float64))
    rank = np.arange(1, len(x) + 1)
    if of == "elites":
        return np.concatenate([x[:1], x]), np.concatenate([[0.0], rank / len(x)])
    reached = (len(x) + 1 - rank) / elites.archive.num_cells
    return np.concatenate([x, x[-1:]]), np.concatenate([reached, [0.0]])
