"""Parallel axes: each elite a line across one axis for each measure."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from gloam import checks
from gloam.archives import Elites
from gloam.archives.measure_names import labels
from gloam.plots import style
from gloam.plots.filled import Color, contents, value_limits

# More axes would be too narrow to read.
_MOST = 20


def parallel_axes(
    elites: Elites,
    *,
    measures: list[int] | None = None,
    color: Color = "objective",
    max_lines: int = 1000,
    limits: tuple[float, float] | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Figure:
    """Elites as lines across axes of their measures, the best on top.

    Args:
        elites: The filled archive.
        measures: Which measures to show, in this order; by default the first twenty.
        color, limits: As in `gloam.plots.heatmap`.
        max_lines: Number of elites to show at most, drawn at random with a fixed seed.
        title: Heading of the figure.
        ax: Axes to draw in; by default those of a new figure.
    """
    archive, values, name = contents(elites, color)
    dim = archive.measure_dim
    chosen = list(range(min(dim, _MOST))) if measures is None else list(measures)
    for one in chosen:
        checks.expect(
            0 <= checks.integer("measures", one, minimum=0) < dim,
            "measures",
            f"numbers from 0 to {dim - 1}",
            one,
        )
    checks.expect(len(chosen) > 1, "measures", "at least two", len(chosen), "Use heatmap.")
    cells = np.flatnonzero(np.isfinite(values))
    number = len(cells)
    if number > checks.integer("max_lines", max_lines, minimum=1):
        cells = np.random.default_rng(0).choice(cells, max_lines, replace=False)
    cells = cells[np.argsort(values[cells], kind="stable")]
    low, high = (np.asarray(bound)[chosen] for bound in (archive.lower, archive.upper))
    points = np.asarray(elites.store.measures)[cells][:, chosen]
    heights = (points - low) / (high - low)

    axes = style.axes_for(ax, min(1.6 + 1.1 * len(chosen), 12.0), 3.6)
    lines = np.stack([np.broadcast_to(np.arange(len(chosen)), heights.shape), heights], axis=2)
    drawn = LineCollection(
        list(lines),
        cmap=style.objective_colors(),
        linewidths=0.8,
        alpha=float(np.clip(30 / max(len(cells), 1), 0.25, 0.9)),
        rasterized=True,
    )
    ends = value_limits(archive, values) if limits is None else limits
    drawn.set(array=values[cells], clim=ends)
    axes.add_collection(drawn, autolim=False)
    _frame(axes, labels(archive.measure_names, dim), chosen, low, high, heights)
    # Of its own: the lines are half transparent.
    style.side_bar(ScalarMappable(Normalize(*ends), drawn.get_cmap()), axes, name)
    some = f"{len(cells):,} of {number:,} elites"
    style.heading(axes, title, some if len(cells) < number else "")
    return style.figure_of(axes)


def _frame(
    axes: Axes,
    names: tuple[str, ...],
    chosen: list[int],
    low: np.ndarray,
    high: np.ndarray,
    heights: np.ndarray,
) -> None:
    """An upright line for each measure, with its bounds at the ends."""
    for place in range(len(chosen)):
        axes.axvline(place, color=style.FAINT, linewidth=0.8, zorder=0)
        for bound, height, side in ((low, 0.0, "top"), (high, 1.0, "bottom")):
            axes.annotate(
                f"{bound[place]:.3g}",
                (place, height),
                (0, -2 if side == "top" else 2),
                textcoords="offset points",
                ha="center",
                va=side,
                fontsize=style.SMALL - 1,
                color=style.QUIET,
            )
    # Elites beyond the bounds are shown where they are.
    bottom, top = min(heights.min(initial=0), 0) - 0.09, max(heights.max(initial=1), 1) + 0.09
    axes.set(xlim=(-0.4, len(chosen) - 0.6), ylim=(bottom, top), yticks=[])
    rotation = 30 if max(len(names[one]) for one in chosen) > 11 and len(chosen) > 4 else 0
    axes.set_xticks(
        range(len(chosen)),
        [names[one] for one in chosen],
        rotation=rotation,
        ha="right" if rotation else "center",
    )
    style.dress(axes)
    for spine in axes.spines.values():
        spine.set_visible(False)
