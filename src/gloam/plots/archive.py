"""The archive of a run at a glance: a large heatmap beside the distribution of objectives."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gloam.archives import Elites
from gloam.plots import style
from gloam.plots.filled import value_limits
from gloam.plots.heatmap import draw_heatmap
from gloam.plots.plane import Plane

_BINS = 40


def archive_figure(
    elites: Elites, *, title: str = "", note: str = "", ax: Axes | None = None
) -> Figure:
    """A heatmap of the elites beside a histogram of their objectives.

    The histogram stands on its side along the colour bar, so that one scale serves both.

    Args:
        elites: The filled archive.
        title: Heading of the figure.
        note: Added to the line of QD score and coverage below the heading.
        ax: Axes whose place the panels take; by default they have a new figure.
    """
    plane = Plane(elites.archive)
    figure, (axes, scale, counts) = _panels(plane.shape, ax)
    limits = value_limits(elites.archive, np.asarray(elites.store.objectives))
    drawn = draw_heatmap(axes, elites, limits=limits, plane=plane)
    parts = [
        f"QD score {elites.qd_score:,.1f}",
        f"coverage {elites.coverage:.1%}",
        f"best {elites.best_objective:.4g}",
        note,
    ]
    style.heading(axes, title, "   ".join(filter(None, parts)))

    style.color_bar(figure, scale, limits)
    edges = np.linspace(*limits, _BINS + 1)
    heights, _ = np.histogram(elites.objectives, edges)
    middles = (edges[:-1] + edges[1:]) / 2
    counts.barh(middles, heights, height=0.9 * np.diff(edges), color=drawn.to_rgba(middles))
    counts.set(ylim=limits, xlabel="elites", ylabel="objective")
    counts.yaxis.set_label_position("right")
    counts.yaxis.tick_right()
    counts.locator_params(axis="x", nbins=3, integer=True)
    style.dress(counts, grid=True)
    counts.spines["left"].set_visible(False)
    counts.grid(axis="y", visible=False)
    return figure


def _panels(shape: float, ax: Axes | None) -> tuple[Figure, list[Axes]]:
    """A figure around panels of equal height: the heatmap, its scale and the histogram."""
    height = 4.8 * min(shape, 1.0)
    width = height / shape
    boxes = [(0.8, width), (width + 0.95, 0.18), (width + 1.19, 1.7)]
    sheet = [(left, 0.6, wide, height) for left, wide in boxes]
    return style.sheet(width + 3.55, height + 1.25, sheet, ax)
