"""Heatmaps: an archive, or a function over measure space, coloured by objective."""

from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.figure import Figure

from gloam.archives import GridArchive
from gloam.plots import style
from gloam.plots.filled import Color, Filled, contents, value_limits
from gloam.plots.plane import Plane
from gloam.plots.voronoi import cell_polygons, has_polygons

# Borders of fewer cells can be seen; of more they would hide the cells.
_OUTLINED = 1000


def heatmap(
    elites: Filled,
    *,
    color: Color = "objective",
    limits: tuple[float, float] | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Figure:
    """An archive: every cell in the colour of its elite's objective, empty cells pale.

    A grid is drawn as it is and a CVT archive as the Voronoi cells of its centroids. With more than
    two measures the cells are dots, placed by the first two principal components of their centres,
    the best on top.

    Args:
        elites: A filled archive, or an archive and the ``(cells,)`` objectives of its cells, minus
            infinity where a cell is empty.
        color: What the colours show: ``"objective"``, a field of one number, or a number for each
            cell (NaN leaves a cell pale).
        limits: Values of the darkest and the lightest colour; by default the extremes.
        title: Heading of the figure.
        ax: Axes to draw in; by default those of a new figure.
    """
    plane = Plane(contents(elites)[0])
    axes = style.axes_for(ax, 5.4, 4.4 * plane.shape + 0.4)
    drawn = draw_heatmap(axes, elites, color=color, limits=limits, plane=plane)
    style.side_bar(drawn, axes, contents(elites, color)[2])
    if title:
        style.heading(axes, title)
    return style.figure_of(axes)


def draw_heatmap(
    axes: Axes,
    elites: Filled,
    *,
    color: Color = "objective",
    limits: tuple[float, float] | None = None,
    plane: Plane | None = None,
    colors: Any = None,
) -> ScalarMappable:
    """Draw a heatmap without a heading and a bar of colours.

    Args:
        axes, elites, color, limits: As in `heatmap`.
        plane: The archive's plane, when several pictures share one.
        colors: Another map of colours than that of objectives.

    Returns:
        What a bar of colours needs.
    """
    archive, objectives, _ = contents(elites, color)
    plane = Plane(archive) if plane is None else plane
    low, high = value_limits(archive, objectives) if limits is None else limits
    scale = {"cmap": colors or style.objective_colors(), "vmin": low, "vmax": high}
    values = np.ma.masked_where(~np.isfinite(objectives), objectives)
    axes.set_facecolor(style.EMPTY if plane.whole else "white")
    if plane.whole and isinstance(archive, GridArchive):
        shape = archive.shape if len(archive.shape) == 2 else (*archive.shape, 1)
        x, y = (
            np.linspace(a, b, n + 1)
            for a, b, n in zip(plane.lower, plane.upper, shape, strict=True)
        )
        drawn = axes.pcolormesh(x, y, values.reshape(shape).T, rasterized=True, **scale)
    elif has_polygons(archive):
        drawn = _polygons(axes, values, plane, scale)
    elif plane.whole:
        drawn = _image(axes, values[plane.cells_of_sites], plane, "nearest", scale)
    else:
        spots, empty = plane.place(plane.centers), np.ma.getmaskarray(values)
        dots(axes, spots[empty], archive.num_cells, color=style.EMPTY_DOT)
        filled = values.compressed()
        drawn = ranked_dots(axes, spots[~empty], filled, archive.num_cells, scale)
    plane.frame(axes)
    return drawn


def function_map(
    axes: Axes,
    values: Float[np.ndarray, " sites"],
    plane: Plane,
    *,
    limits: tuple[float, float],
) -> ScalarMappable:
    """Draw a function of measures from its values at the sites of a plane."""
    scale = {"cmap": style.objective_colors(), "vmin": limits[0], "vmax": limits[1]}
    if plane.whole:
        drawn = _image(axes, values, plane, "bilinear", scale)
    else:
        # Night behind the stars: cells at the minimum sink into it.
        axes.set_facecolor(scale["cmap"](0.0))
        spots = plane.place(plane.sites)
        drawn = ranked_dots(axes, spots, values, plane.archive.num_cells, scale)
    plane.frame(axes)
    return drawn


def ranked_dots(
    axes: Axes, spots: np.ndarray, values: np.ndarray, number: int, scale: dict
) -> PathCollection:
    """Dots, the highest on top: the many low ones of a projection would hide them."""
    order = np.argsort(values, kind="stable")
    return dots(axes, spots[order], number, c=values[order], **scale)


def dots(axes: Axes, spots: np.ndarray, number: int, **scale) -> PathCollection:
    """Dots of such a size that ``number`` of them fill the picture about once."""
    box = axes.get_window_extent()
    points = 72 / style.figure_of(axes).get_dpi()
    area = min(box.width, box.height) ** 2 * points**2
    size = float(np.clip(area / number, 2.5, 60.0))
    return axes.scatter(*spots.T, s=size, linewidths=0, rasterized=True, **scale)


def _polygons(axes: Axes, values: np.ma.MaskedArray, plane: Plane, scale: dict) -> PolyCollection:
    """The Voronoi cells that have a value, and the borders of others where they can be seen."""
    corners = cell_polygons(plane.centers)
    number, filled = len(corners), ~np.ma.getmaskarray(values)
    limits = scale["vmin"], scale["vmax"]
    drawn = PolyCollection(
        [corners[cell] for cell in np.flatnonzero(filled)],
        cmap=scale["cmap"],
        # Without a line in its own colour, paper shows between neighbours.
        edgecolors="face",
        linewidths=0.3,
        rasterized=number > _OUTLINED,
    )
    drawn.set(array=values.compressed(), clim=limits)
    axes.add_collection(drawn, autolim=False)
    if number <= _OUTLINED:
        lines = {"facecolors": "none", "edgecolors": style.FAINT, "linewidths": 0.6}
        axes.add_collection(PolyCollection(corners, zorder=0.9, **lines), autolim=False)
    return drawn


def _image(axes: Axes, values: np.ndarray, plane: Plane, interpolation: str, scale: dict):
    (left, bottom), (right, top) = plane.lower, plane.upper
    return axes.imshow(
        values.reshape(plane.raster_shape),
        origin="lower",
        aspect="auto",
        extent=(left, right, bottom, top),
        interpolation=interpolation,
        **scale,
    )
