"""Heatmaps of archives: alone, beside a histogram of objectives, and as a difference of two."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D

from gloam._tools import checks
from gloam.archives import CVTArchive, Elites, GridArchive
from gloam.archives.qd_score import reference_note
from gloam.plots import style
from gloam.plots.grid_view import At, Measure, viewed_values
from gloam.plots.plane import CellValues, Color, Filled, Plane, cell_values
from gloam.plots.style import Limits

# More polygons take seconds to compute, and are hardly larger than a pixel.
_MAX_POLYGONS = 20_000
# Borders of more cells would hide the cells.
_MAX_OUTLINED = 1000
_BINS = 40


def heatmap(
    elites: Filled,
    *,
    color: Color = "objective",
    measures: Sequence[Measure] | None = None,
    at: At | None = None,
    limits: Limits | None = None,
    tails: float | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Figure:
    """Draw an archive: each cell in the color of its elite's objective, empty cells pale.

    A grid is drawn as a mesh and a CVT archive as the Voronoi cells of its centroids. Of a grid of
    three or four measures, two are drawn, with the best elite over the others at each place. Other
    cells of more than two measures are dots, placed by the first two principal components of their
    centers, the best on top.

    Args:
        elites: A filled archive, or an archive and the ``(cells,)`` objectives of its cells, minus
            infinity where a cell is empty.
        color: What the colors show: ``"objective"``, a scalar field, a variable of a `gloam.Space`
            by its column in `gloam.Elites.to_pandas` (a category as the number of its choice), or a
            number for each cell (cells with NaN stay pale).
        measures: The two measures of a grid to draw, by number from 0 or by name; by default the
            first two.
        at: Values of other measures of a grid, such as ``{"weight": 0.5}``: only cells that contain
            them are drawn.
        limits: Values of the darkest and the lightest color.
        tails: Share of the values at each end that lie beyond the limits, if these are not given.
            Default: 0, but 0.02 at an end where these 2% take up more than two thirds of the range.
        title: Heading of the figure.
        ax: Axes to draw in; by default those of a new figure.
    """
    shown, note = viewed_values(elites, color, measures, at)
    plane = Plane(shown.archive)
    axes = style.axes_for(ax, 5.4, 4.4 * plane.aspect + 0.4)
    drawn = draw_heatmap(axes, shown, plane, limits or shown.limits(tails))
    style.side_bar(drawn, axes, shown.name)
    style.heading(axes, title, note)
    return style.figure_of(axes)


def archive_figure(
    elites: Elites,
    *,
    measures: Sequence[Measure] | None = None,
    at: At | None = None,
    tails: float | None = None,
    title: str = "",
    note: str = "",
    ax: Axes | None = None,
) -> Figure:
    """Draw a heatmap of the elites beside a histogram of their objectives.

    The histogram is horizontal along the color bar, so that both share one scale.

    Args:
        elites: The filled archive.
        measures, at, tails: As in `heatmap`.
        title: Heading of the figure.
        note: Added to the line of QD score and coverage below the heading.
        ax: Axes to draw the panels in; by default they have a new figure.
    """
    shown, view_note = viewed_values(elites, "objective", measures, at)
    plane, limits = Plane(shown.archive), cell_values(elites).limits(tails)
    height = 4.8 * min(plane.aspect, 1.0)
    width = height / plane.aspect
    boxes = [(0.8, width), (width + 0.95, 0.18), (width + 1.19, 1.7)]
    places = [(left, 0.6, wide, height) for left, wide in boxes]
    figure, (axes, bar, counts) = style.sheet(width + 3.55, height + 1.25, places, ax)
    drawn = draw_heatmap(axes, shown, plane, limits)
    scores = [
        f"QD score {elites.qd_score:,.1f}{reference_note(elites.f_min)}",
        f"coverage {elites.coverage:.1%}",
        f"best {elites.best_objective:.4g}",
        note,
        view_note,
    ]
    style.heading(axes, title, "   ".join(filter(None, scores)))
    style.color_bar(figure, bar, limits)
    edges = np.linspace(*limits, _BINS + 1)
    # The bars at the ends contain the objectives beyond the limits.
    heights, _ = np.histogram(elites.objectives.clip(*limits), edges)
    middles = (edges[:-1] + edges[1:]) / 2
    counts.barh(middles, heights, height=0.9 * np.diff(edges), color=drawn.to_rgba(middles))
    clipped = "" if limits == cell_values(elites).limits(0.0) else ", clipped"
    counts.set(ylim=limits, xlabel="elites", ylabel=f"objective{clipped}")
    counts.yaxis.set_label_position("right")
    counts.yaxis.tick_right()
    counts.locator_params(axis="x", nbins=3, integer=True)
    style.dress(counts, grid=True)
    counts.spines["left"].set_visible(False)
    counts.grid(axis="y", visible=False)
    return figure


def comparison(
    first: Filled,
    second: Filled,
    *,
    labels: tuple[str, str] = ("first", "second"),
    measures: Sequence[Measure] | None = None,
    at: At | None = None,
    limit: float | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Figure:
    """Draw differences of objectives: blue where the first is better, orange where the second is.

    A cell that only one of them fills has the darkest blue or orange, a cell that neither fills is
    pale. The legend counts the cells that are drawn.

    Args:
        first, second: Filled archives with the same cells, for instance of two algorithms.
        labels: Their names.
        measures, at: As in `heatmap`; at each place the best of both are compared.
        limit: Difference of the darkest colors; by default the largest.
        title: Heading of the figure.
        ax: Axes to draw in; by default those of a new figure.
    """
    archive, other = cell_values(first).archive, cell_values(second).archive
    checks.expect(
        archive.has_cells_of(other),
        "second",
        "an archive with the cells of the first",
        f"{other.num_cells} cells of {other.measure_dim} measures",
        "Convert it first: elites.into(archive).",
    )
    (grid, ours, _), note = viewed_values(first, "objective", measures, at)
    (_, theirs, _), _ = viewed_values(second, "objective", measures, at)
    with np.errstate(invalid="ignore"):  # infinite where one is empty, NaN where both are
        differences = ours.astype(np.float64) - theirs
    largest = np.abs(differences[np.isfinite(differences)]).max(initial=0.0)
    largest = float(largest if limit is None else limit) or 1.0
    plane = Plane(grid)
    axes = style.axes_for(ax, 5.6, 4.4 * plane.aspect + 0.9)
    shown = CellValues(grid, np.clip(differences, -largest, largest), "")
    colors = style.difference_colors()
    drawn = draw_heatmap(axes, shown, plane, (-largest, largest), colors)
    style.side_bar(drawn, axes, f"objective of {labels[0]} minus {labels[1]}")
    marks = {
        _better(labels[0], differences): 1.0,
        _better(labels[1], -differences): 0.0,
        f"equal: {(differences == 0).sum():,}": 0.5,
    }
    entries = {
        text: Line2D([], [], linestyle="", marker="s", color=colors(share))
        for text, share in marks.items()
    }
    position = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16)}
    style.legend(axes, entries, handletextpad=0.2, **position)
    style.heading(axes, title, note)
    return style.figure_of(axes)


def _better(label: str, advantages: Float[np.ndarray, " cells"]) -> str:
    """Count the cells in which one archive is better, and those that it alone fills."""
    better, alone = (advantages > 0).sum(), np.isposinf(advantages).sum()
    return f"{label} better: {better:,} ({alone:,} filled by it alone)"


def draw_heatmap(
    axes: Axes,
    shown: CellValues,
    plane: Plane,
    limits: Limits | None = None,
    colors: Colormap | None = None,
) -> ScalarMappable:
    """Draw a heatmap without heading and color bar, and return what a color bar needs."""
    archive, scale = shown.archive, style.color_scale(limits or shown.limits(), colors)
    values = np.ma.masked_where(~np.isfinite(shown.values), shown.values)
    axes.set_facecolor("white" if plane.is_projected else style.EMPTY)
    is_voronoi = isinstance(archive, CVTArchive) and archive.metric == "euclidean"
    if plane.is_projected:
        drawn = draw_dots(axes, plane.spots, shown.values, scale)
    elif isinstance(archive, GridArchive):
        shape = archive.shape if len(archive.shape) == 2 else (*archive.shape, 1)
        sides = zip(plane.lower, plane.upper, shape, strict=True)
        x, y = (np.linspace(low, high, number + 1) for low, high, number in sides)
        drawn = axes.pcolormesh(x, y, values.reshape(shape).T, rasterized=True, **scale)
    elif is_voronoi and archive.measure_dim == 2 and archive.num_cells <= _MAX_POLYGONS:
        drawn = _draw_polygons(axes, values, plane, scale)
    else:
        drawn = _draw_raster(axes, values[plane.cells_of_sites], plane, "nearest", scale)
    plane.frame(axes)
    return drawn


def draw_function(
    axes: Axes, values: Float[np.ndarray, " sites"], plane: Plane, limits: Limits
) -> ScalarMappable:
    """Draw a function of measures, given its values at the sites of a plane."""
    scale = style.color_scale(limits)
    if plane.is_projected:
        # Values at the minimum blend into the background, and higher ones stand out.
        axes.set_facecolor(scale["cmap"](0.0))
        drawn = draw_dots(axes, plane.spots, values, scale)
    else:
        drawn = _draw_raster(axes, values, plane, "bilinear", scale)
    plane.frame(axes)
    return drawn


def draw_dots(
    axes: Axes, spots: Float[np.ndarray, "n 2"], values: Float[np.ndarray, " n"], scale: dict
) -> PathCollection:
    """Draw a dot for each cell, the highest on top, and pale ones for cells without a value.

    The size of the dots is such that they about fill the axes.
    """
    box = axes.get_window_extent()
    points = 72 / style.figure_of(axes).get_dpi()
    area = min(box.width, box.height) ** 2 * points**2
    size = float(np.clip(area / len(spots), 2.5, 60.0))
    looks = {"s": size, "linewidths": 0, "rasterized": True}
    empty = ~np.isfinite(values)
    if empty.any():
        axes.scatter(*spots[empty].T, color=style.EMPTY_DOT, **looks)
    # In a projection, many low values would hide the few high ones.
    order = np.argsort(values, kind="stable")
    order = order[~empty[order]]
    return axes.scatter(*spots[order].T, c=values[order], **looks, **scale)


def cell_polygons(
    centroids: Float[np.ndarray, "cells 2"],
) -> list[Float[np.ndarray, "corners 2"]]:
    """Return the corners of each Voronoi cell. Cells at the border reach far outwards."""
    from scipy.spatial import Voronoi

    points = np.asarray(centroids, np.float64)
    middle = (points.min(axis=0) + points.max(axis=0)) / 2
    extent = float(np.ptp(points, axis=0).max()) or 1.0
    # Points far outside bound all cells, and their own cells are not visible.
    around = [(x, y) for x in (-1, 0, 1) for y in (-1, 0, 1) if (x, y) != (0, 0)]
    far = middle + 20 * extent * np.array(around)
    diagram = Voronoi(np.concatenate([points, far]))
    regions = [diagram.regions[diagram.point_region[cell]] for cell in range(len(points))]
    return [diagram.vertices[region] for region in regions]


def _draw_polygons(
    axes: Axes, values: np.ma.MaskedArray, plane: Plane, scale: dict
) -> PolyCollection:
    """Draw the Voronoi cells that have a value, and the borders of all if they are visible."""
    corners = cell_polygons(plane.centers)
    is_outlined = len(corners) <= _MAX_OUTLINED
    drawn = PolyCollection(
        [corners[cell] for cell in np.flatnonzero(~np.ma.getmaskarray(values))],
        cmap=scale["cmap"],
        # Without a line in its own color, the background shows between neighbors.
        edgecolors="face",
        linewidths=0.3,
        rasterized=not is_outlined,
    )
    drawn.set(array=values.compressed(), clim=(scale["vmin"], scale["vmax"]))
    axes.add_collection(drawn, autolim=False)
    if is_outlined:
        lines = {"facecolors": "none", "edgecolors": style.FAINT, "linewidths": 0.6}
        axes.add_collection(PolyCollection(corners, zorder=0.9, **lines), autolim=False)
    return drawn


def _draw_raster(
    axes: Axes, values: np.ndarray, plane: Plane, interpolation: str, scale: dict
) -> AxesImage:
    (left, bottom), (right, top) = plane.lower, plane.upper
    return axes.imshow(
        values.reshape(plane.raster_shape),
        origin="lower",
        aspect="auto",
        extent=(left, right, bottom, top),
        interpolation=interpolation,
        **scale,
    )
