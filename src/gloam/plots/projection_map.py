"""A map of an archive with many measures: its cells, brought onto two axes by a projection.

Pairwise panels: the best objective over each pair of three to six measures.

Parallel axes: each elite a line across one axis for each measure.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from gloam import checks
from gloam.archives import Archive, Elites, GridArchive
from gloam.archives.archive import measure_labels
from gloam.plots import style
from gloam.plots.heatmap import (
    METHODS,
    Color,
    Filled,
    Method,
    contents,
    dots,
    project,
    ranked_dots,
    value_limits,
)


def projection_map(
    elites: Filled,
    *,
    method: Method = "pca",
    color: Color = "objective",
    max_cells: int | None = None,
    limits: tuple[float, float] | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Figure:
    """The cells of an archive as dots, near one another where their measures are.

    Empty cells are pale dots, and the best are on top. The axes name the projection.

    Args:
        elites, color, limits: As in `gloam.plots.heatmap`.
        method: ``"pca"`` for principal components; ``"umap"`` (needs ``umap-learn``) and ``"tsne"``
            (needs ``scikit-learn``) keep neighbours together, at the cost of distances.
        max_cells: Number of cells to show at most, drawn at random with a fixed seed; by default
            100,000 for ``"pca"`` and 3,000 for the others, which take longer.
        title: Heading of the figure.
        ax: Axes to draw in; by default those of a new figure.
    """
    checks.choice("method", method, METHODS)
    archive, values, name = contents(elites, color)
    most = (100_000 if method == "pca" else 3_000) if max_cells is None else max_cells
    most = checks.integer("max_cells", most, minimum=2)
    cells = np.arange(archive.num_cells)
    if len(cells) > most:
        cells = np.sort(np.random.default_rng(0).choice(len(cells), most, replace=False))
    centers = np.asarray(archive.centers_of(jnp.asarray(cells, jnp.int32)))
    spots, labels = project(centers, method)

    axes = style.axes_for(ax, 5.6, 4.8)
    axes.set_box_aspect(1)
    low, high = value_limits(archive, values) if limits is None else limits
    shown = values[cells]
    filled = np.isfinite(shown)
    dots(axes, spots[~filled], len(cells), color=style.EMPTY_DOT)
    scale = {"cmap": style.objective_colors(), "vmin": low, "vmax": high}
    drawn = ranked_dots(axes, spots[filled], shown[filled], len(cells), scale)
    axes.set(xlabel=labels[0], ylabel=labels[1])
    axes.locator_params(nbins=5)
    style.dress(axes)
    style.side_bar(drawn, axes, name)
    some = f"{len(cells):,} of {archive.num_cells:,} cells"
    style.heading(axes, title, some if len(cells) < archive.num_cells else "")
    return style.figure_of(axes)


_FEWEST, _MOST = 2, 6
_FEWEST_BINS, _MOST_BINS = 6, 40


def pairwise(
    elites: Elites,
    *,
    measures: list[int] | None = None,
    limits: tuple[float, float] | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Figure:
    """A panel for each pair of measures: the best elite at every place, whatever the others are.

    Places are the cells of a grid archive; of others, bins between the bounds.

    Args:
        elites: The filled archive.
        measures: Two to six measures to show; by default the first six.
        limits: Objectives of the darkest and the lightest colour; by default the extremes.
        title: Heading of the figure.
        ax: Axes whose place the panels take; by default they have a new figure.
    """
    archive = elites.archive
    dim = archive.measure_dim
    chosen = list(range(min(dim, _MOST))) if measures is None else list(measures)
    sound = all(isinstance(one, int) and 0 <= one < dim for one in chosen)
    sound &= _FEWEST <= len(set(chosen)) == len(chosen) <= _MOST
    expected = f"{_FEWEST} to {_MOST} different numbers from 0 to {dim - 1}"
    checks.expect(sound, "measures", expected, checks.short(chosen))
    names, side = measure_labels(archive.measure_names, dim), len(chosen) - 1
    size = 1.7 * side + 1.6
    figure, panels = style.panels(ax, side, side, (size + 0.7, size))
    objectives = np.asarray(elites.store.objectives)
    low, high = value_limits(archive, objectives) if limits is None else limits
    for row in range(side):
        for column in range(side):
            axes, pair = panels[row, column], (chosen[column], chosen[row + 1])
            if column > row:
                axes.set_axis_off()
                continue
            _panel(axes, elites, pair, (low, high))
            if row == side - 1:
                axes.set_xlabel(names[pair[0]])
            if column == 0:
                axes.set_ylabel(names[pair[1]])
            axes.tick_params(labelbottom=row == side - 1, labelleft=column == 0)
    colors = ScalarMappable(Normalize(low, high), style.objective_colors())
    style.side_bar(colors, ax or list(panels.flat), "objective")
    if title:
        style.heading(panels[0, 0], title)
    return figure


def best_by_bin(
    elites: Elites, pair: tuple[int, int]
) -> tuple[Float[np.ndarray, "x y"], list[np.ndarray]]:
    """The best objective in each bin of two measures, minus infinity in empty ones, and the bins.

    Measures beyond the bounds count in the bins at the edge, as in a grid archive.
    """
    # So many bins hold about four elites each, if they are spread evenly.
    bins = int(np.clip(round(len(elites) ** 0.5 / 2), _FEWEST_BINS, _MOST_BINS))
    edges = [_edges(elites.archive, one, bins) for one in pair]
    points = elites.flat_measures[:, pair]
    places = tuple(
        np.clip(np.searchsorted(edge, points[:, k], side="right") - 1, 0, len(edge) - 2)
        for k, edge in enumerate(edges)
    )
    best = np.full([len(edge) - 1 for edge in edges], -np.inf)
    np.maximum.at(best, places, elites.objectives)
    return best, edges


def _edges(archive: Archive, measure: int, bins: int) -> np.ndarray:
    number = archive.shape[measure] if isinstance(archive, GridArchive) else bins
    return np.linspace(float(archive.lower[measure]), float(archive.upper[measure]), number + 1)


def _panel(axes: Axes, elites: Elites, pair: tuple[int, int], limits: tuple[float, float]) -> None:
    best, (x, y) = best_by_bin(elites, pair)
    axes.set_facecolor(style.EMPTY)
    values = np.ma.masked_where(np.isneginf(best), best).T
    axes.pcolormesh(
        x,
        y,
        values,
        cmap=style.objective_colors(),
        vmin=limits[0],
        vmax=limits[1],
        rasterized=True,
    )
    axes.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
    axes.set_box_aspect(1)
    axes.locator_params(nbins=3)
    style.dress(axes)


# More axes would be too narrow to read.
_PARALLEL_AXES_MOST = 20


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
    chosen = list(range(min(dim, _PARALLEL_AXES_MOST))) if measures is None else list(measures)
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
    _frame(axes, measure_labels(archive.measure_names, dim), chosen, low, high, heights)
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
