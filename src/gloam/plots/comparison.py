"""Two archives with the same cells: which is better where."""

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gloam import checks
from gloam.archives.elites import same_cells
from gloam.plots import style
from gloam.plots.heatmap import Filled, Plane, contents, draw_heatmap


def comparison(
    first: Filled,
    second: Filled,
    *,
    labels: tuple[str, str] = ("first", "second"),
    limit: float | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Figure:
    """The difference of objectives cell by cell: blue where the first is better, orange the second.

    A cell that only one of them holds has the darkest blue or orange, a cell that neither holds is
    pale. The legend counts the cells.

    Args:
        first, second: Filled archives with the same cells, for instance of two algorithms.
        labels: Their names.
        limit: Difference of the darkest colours; by default the largest.
        title: Heading of the figure.
        ax: Axes to draw in; by default those of a new figure.
    """
    archive, ours, _ = contents(first)
    other, theirs, _ = contents(second)
    checks.expect(
        same_cells(archive, other),
        "second",
        "an archive with the cells of the first",
        f"{other.num_cells} cells of {other.measure_dim} measures",
        "Bring it there first: elites.into(archive).",
    )
    values = differences(ours, theirs)
    largest = np.abs(values[np.isfinite(values)]).max(initial=0.0) if limit is None else limit
    largest = float(largest) or 1.0
    plane = Plane(archive)
    axes = style.axes_for(ax, 5.6, 4.4 * plane.shape + 0.9)
    shown = np.clip(values, -largest, largest)
    drawn = draw_heatmap(
        axes,
        (archive, ours),
        color=shown,
        limits=(-largest, largest),
        plane=plane,
        colors=style.difference_colors(),
    )
    style.side_bar(drawn, axes, f"objective of {labels[0]} minus {labels[1]}")
    _legend(axes, ours, theirs, labels)
    if title:
        style.heading(axes, title)
    return style.figure_of(axes)


def differences(
    ours: Float[np.ndarray, " cells"], theirs: Float[np.ndarray, " cells"]
) -> Float[np.ndarray, " cells"]:
    """First minus second; infinite where only one of them has an elite, NaN where neither has.

    >>> differences(np.array([2.0, 1.0, -np.inf, -np.inf]), np.array([0.5, -np.inf, 3.0, -np.inf]))
    array([ 1.5,  inf, -inf,  nan])
    """
    with np.errstate(invalid="ignore"):
        return np.asarray(ours, np.float64) - np.asarray(theirs, np.float64)


def counts(
    ours: Float[np.ndarray, " cells"], theirs: Float[np.ndarray, " cells"]
) -> tuple[int, int, int]:
    """Cells where the first is better or alone, those where the second is, and equal ones."""
    difference = differences(ours, theirs)
    return int((difference > 0).sum()), int((difference < 0).sum()), int((difference == 0).sum())


def _legend(axes: Axes, ours: np.ndarray, theirs: np.ndarray, labels: tuple[str, str]) -> None:
    better, worse, equal = counts(ours, theirs)
    alone = [np.isfinite(a) & ~np.isfinite(b) for a, b in ((ours, theirs), (theirs, ours))]
    colors = style.difference_colors()
    marks = {
        f"{labels[0]} better: {better:,}, of which alone {alone[0].sum():,}": colors(1.0),
        f"{labels[1]} better: {worse:,}, of which alone {alone[1].sum():,}": colors(0.0),
        f"equal: {equal:,}": colors(0.5),
    }
    handles = [Line2D([], [], linestyle="", marker="s", color=color) for color in marks.values()]
    axes.legend(
        handles,
        list(marks),
        loc="upper center",
        bbox_to_anchor=(0.5, -0.16),
        frameon=False,
        fontsize=style.SMALL,
        labelcolor=style.INK,
        handletextpad=0.2,
    )
