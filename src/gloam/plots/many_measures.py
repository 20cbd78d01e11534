"""Figures of archives with many measures: projections, pairs of measures, parallel axes."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from gloam._tools import checks
from gloam.archives import Elites, GridArchive
from gloam.archives.archive import measure_labels
from gloam.plots import style
from gloam.plots.heatmaps import draw_dots
from gloam.plots.plane import Color, Filled, Method, cell_values, project
from gloam.plots.style import Limits

# More panels, and more axes, would be too narrow to read.
_MAX_PAIRED = 6
_MAX_PARALLEL = 20
_MIN_BINS, _MAX_BINS = 6, 40


def projection_map(
    elites: Filled,
    *,
    method: Method = "pca",
    color: Color = "objective",
    max_cells: int | None = None,
    limits: Limits | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Figure:
    """Draw the cells of an archive as dots, close together if their measures are.

    Empty cells are pale dots, and the best are on top. The axes name the projection.

    Args:
        elites, color, limits: As in `heatmap`.
        method: ``"pca"`` for principal components; ``"umap"`` (needs ``umap-learn``) and ``"tsne"``
            (needs ``scikit-learn``) preserve neighborhoods rather than distances.
        max_cells: Maximum number of cells to draw, chosen at random with a fixed seed; by default
            100,000 for ``"pca"`` and 3,000 for the others, which are slower.
        title: Heading of the figure.
        ax: Axes to draw in; by default those of a new figure.
    """
    shown = cell_values(elites, color)
    if max_cells is None:
        max_cells = 100_000 if method == "pca" else 3_000
    count = shown.archive.num_cells
    cells = np.sort(_sample(np.arange(count), checks.integer("max_cells", max_cells, minimum=2)))
    centers = np.asarray(shown.archive.centers_of(jnp.asarray(cells, jnp.int32)))
    spots, names = project(centers, method)

    axes = style.axes_for(ax, 5.6, 4.8)
    axes.set_box_aspect(1)
    scale = style.color_scale(limits or shown.limits())
    drawn = draw_dots(axes, spots, shown.values[cells], scale)
    axes.set(xlabel=names[0], ylabel=names[1])
    axes.locator_params(nbins=5)
    style.dress(axes)
    style.side_bar(drawn, axes, shown.name)
    style.heading(axes, title, _sampled(len(cells), count, "cells"))
    return style.figure_of(axes)


def pairwise(
    elites: Elites,
    *,
    measures: Sequence[int] | None = None,
    limits: Limits | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Figure:
    """Draw a panel for each pair of measures: the best elite at each place, over all others.

    Places are the cells of a grid archive, or else bins between the bounds.

    Args:
        elites: The filled archive.
        measures: Two to six measures to show; by default the first six.
        limits: Objectives of the darkest and the lightest color; by default the extremes.
        title: Heading of the figure.
        ax: Axes to draw the panels in; by default they have a new figure.
    """
    shown = cell_values(elites)
    archive, limits = shown.archive, limits or shown.limits()
    chosen = _chosen(measures, archive.measure_dim, _MAX_PAIRED)
    expected = f"2 to {_MAX_PAIRED} different numbers"
    is_valid = len(set(chosen)) == len(chosen) <= _MAX_PAIRED
    checks.expect(is_valid, "measures", expected, checks.short(chosen))
    names, side = measure_labels(archive.measure_names, archive.measure_dim), len(chosen) - 1
    size = 1.7 * side + 1.6
    figure, panels = style.panels(ax, side, side, (size + 0.7, size))
    for row in range(side):
        for column in range(side):
            axes, pair = panels[row, column], (chosen[column], chosen[row + 1])
            if column > row:
                axes.set_axis_off()
                continue
            _draw_pair(axes, elites, pair, limits)
            if row == side - 1:
                axes.set_xlabel(names[pair[0]])
            if column == 0:
                axes.set_ylabel(names[pair[1]])
            axes.tick_params(labelbottom=row == side - 1, labelleft=column == 0)
    colors = ScalarMappable(Normalize(*limits), style.objective_colors())
    style.side_bar(colors, ax or list(panels.flat), "objective")
    style.heading(panels[0, 0], title)
    return figure


def parallel_axes(
    elites: Elites,
    *,
    measures: Sequence[int] | None = None,
    color: Color = "objective",
    max_lines: int = 1000,
    limits: Limits | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Figure:
    """Draw elites as lines across one axis for each measure, the best on top.

    Args:
        elites: The filled archive.
        measures: Measures to show, in this order; by default the first twenty.
        color, limits: As in `heatmap`.
        max_lines: Maximum number of elites to draw, chosen at random with a fixed seed.
        title: Heading of the figure.
        ax: Axes to draw in; by default those of a new figure.
    """
    shown = cell_values(elites, color)
    archive, values = shown.archive, shown.values
    chosen = _chosen(measures, archive.measure_dim, _MAX_PARALLEL)
    filled = np.flatnonzero(np.isfinite(values))
    cells = _sample(filled, checks.integer("max_lines", max_lines, minimum=1))
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
    limits = limits or shown.limits()
    drawn.set(array=values[cells], clim=limits)
    axes.add_collection(drawn, autolim=False)
    names = measure_labels(archive.measure_names, archive.measure_dim)
    _frame(axes, [names[measure] for measure in chosen], low, high)
    # Elites beyond the bounds are shown, too.
    bottom, top = min(heights.min(initial=0), 0) - 0.09, max(heights.max(initial=1), 1) + 0.09
    axes.set(xlim=(-0.4, len(chosen) - 0.6), ylim=(bottom, top))
    # The color bar is opaque, and the lines are translucent.
    style.side_bar(ScalarMappable(Normalize(*limits), drawn.get_cmap()), axes, shown.name)
    style.heading(axes, title, _sampled(len(cells), len(filled), "elites"))
    return style.figure_of(axes)


def _sample(cells: np.ndarray, most: int) -> np.ndarray:
    """Choose a limited number of cells."""
    if len(cells) <= most:
        return cells
    return np.random.default_rng(0).choice(cells, most, replace=False)


def _sampled(count: int, total: int, what: str) -> str:
    """Return a subtitle for a figure that does not show everything."""
    return f"{count:,} of {total:,} {what}" if count < total else ""


def _chosen(measures: Sequence[int] | None, dim: int, most: int) -> list[int]:
    """Return the indices of the measures to show: those given, or the first ones."""
    chosen = list(range(min(dim, most))) if measures is None else list(measures)
    checks.expect(len(chosen) > 1, "measures", "at least two", len(chosen), "Use heatmap.")
    for measure in chosen:
        is_known = checks.integer("measures", measure, minimum=0) < dim
        checks.expect(is_known, "measures", f"numbers from 0 to {dim - 1}", measure)
    return chosen


def _draw_pair(axes: Axes, elites: Elites, pair: tuple[int, int], limits: Limits) -> None:
    best, (x, y) = best_by_bin(elites, pair)
    values = np.ma.masked_invalid(best).T
    axes.set_facecolor(style.EMPTY)
    axes.pcolormesh(x, y, values, rasterized=True, **style.color_scale(limits))
    axes.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
    axes.set_box_aspect(1)
    axes.locator_params(nbins=3)
    style.dress(axes)


def best_by_bin(
    elites: Elites, pair: tuple[int, int]
) -> tuple[Float[np.ndarray, "x y"], list[np.ndarray]]:
    """Return the best objective in each bin of two measures, and the edges of the bins.

    Empty bins have minus infinity. Measures beyond the bounds count in the bins at the border, as
    in a grid archive.
    """
    archive, points = elites.archive, elites.flat_measures
    # About four elites in each bin, if they are spread evenly.
    bins = int(np.clip(round(len(elites) ** 0.5 / 2), _MIN_BINS, _MAX_BINS))
    edges, indices = [], []
    for k in pair:
        number = archive.shape[k] if isinstance(archive, GridArchive) else bins
        edges.append(np.linspace(archive.lower[k], archive.upper[k], number + 1))
        bin_of_point = np.searchsorted(edges[-1], points[:, k], side="right") - 1
        indices.append(bin_of_point.clip(0, number - 1))
    best = np.full([len(edge) - 1 for edge in edges], -np.inf)
    np.maximum.at(best, tuple(indices), elites.objectives)
    return best, edges


def _frame(axes: Axes, names: list[str], low: np.ndarray, high: np.ndarray) -> None:
    """Draw a vertical line for each measure, with its bounds at the ends."""
    for k in range(len(names)):
        axes.axvline(k, color=style.FAINT, linewidth=0.8, zorder=0)
        for bound, height, side in ((low, 0.0, "top"), (high, 1.0, "bottom")):
            looks = {"ha": "center", "va": side, "fontsize": style.SMALL - 1}
            offset = (0, -2 if side == "top" else 2)
            style.annotate(axes, f"{bound[k]:.3g}", (k, height), offset, **looks)
    is_long = max(map(len, names)) > 11 and len(names) > 4
    rotation, align = (30, "right") if is_long else (0, "center")
    axes.set_xticks(range(len(names)), names, rotation=rotation, ha=align)
    axes.set_yticks([])
    style.dress(axes)
    for spine in axes.spines.values():
        spine.set_visible(False)
