"""Heatmaps: an archive, or a function over measure space, coloured by objective."""

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PathCollection

from gloam import checks
from gloam.archives import Archive, Elites, GridArchive
from gloam.plots import style
from gloam.plots.plane import Plane

Filled = Elites | tuple[Archive, Float[np.ndarray, " cells"]]


def heatmap(
    axes: Axes,
    elites: Filled,
    *,
    limits: tuple[float, float] | None = None,
    plane: Plane | None = None,
) -> ScalarMappable:
    """Draw an archive: every cell in the colour of its elite's objective, empty cells pale.

    A grid is drawn as it is and a CVT archive as the cells of its centroids. With more than two
    measures the cells are dots, placed by the first two principal components of their centres, the
    best on top.

    Args:
        axes: Where to draw.
        elites: A filled archive, or an archive and the ``(cells,)`` objectives of its cells, minus
            infinity where a cell is empty.
        limits: Objectives of the darkest and the lightest colour; by default the elites' extremes.
        plane: The archive's plane, when several pictures share one.

    Returns:
        What a colour bar needs.
    """
    archive, objectives = contents(elites)
    plane = Plane(archive) if plane is None else plane
    low, high = objective_limits(archive, objectives) if limits is None else limits
    colors = {"cmap": style.objective_colors(), "vmin": low, "vmax": high}
    values = np.ma.masked_where(~np.isfinite(objectives), objectives)
    axes.set_facecolor(style.EMPTY if plane.whole else "white")
    if plane.whole and isinstance(archive, GridArchive):
        shape = archive.shape if len(archive.shape) == 2 else (*archive.shape, 1)
        x, y = (
            np.linspace(a, b, n + 1)
            for a, b, n in zip(plane.lower, plane.upper, shape, strict=True)
        )
        drawn = axes.pcolormesh(x, y, values.reshape(shape).T, rasterized=True, **colors)
    elif plane.whole:
        drawn = _image(axes, values[plane.cells_of_sites], plane, "nearest", colors)
    else:
        spots, empty = plane.place(plane.centers), np.ma.getmaskarray(values)
        _dots(axes, spots[empty], plane, color=style.EMPTY_DOT)
        drawn = _ranked_dots(axes, spots[~empty], values.compressed(), plane, colors)
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
    colors = {"cmap": style.objective_colors(), "vmin": limits[0], "vmax": limits[1]}
    if plane.whole:
        drawn = _image(axes, values, plane, "bilinear", colors)
    else:
        # Night behind the stars: cells at the minimum sink into it.
        axes.set_facecolor(colors["cmap"](0.0))
        drawn = _ranked_dots(axes, plane.place(plane.sites), values, plane, colors)
    plane.frame(axes)
    return drawn


def contents(elites: Filled) -> tuple[Archive, Float[np.ndarray, " cells"]]:
    """The archive, and the objectives of all its cells."""
    if isinstance(elites, Elites):
        return elites.archive, np.asarray(elites.store.objectives)
    archive, objectives = elites[0], np.asarray(elites[1])
    checks.expect(
        objectives.shape == (archive.num_cells,),
        "objectives",
        f"one for each of the {archive.num_cells} cells",
        f"shape {objectives.shape}",
        "Empty cells have minus infinity.",
    )
    return archive, objectives


def objective_limits(
    archive: Archive, objectives: Float[np.ndarray, " cells"]
) -> tuple[float, float]:
    """Lowest and highest objective of the elites, apart even when they are the same."""
    found = objectives[np.isfinite(objectives)]
    low, high = (found.min(), found.max()) if len(found) else (archive.f_min, archive.f_min)
    if low < high:
        return float(low), float(high)
    return (archive.f_min if archive.f_min < high else float(high) - 1.0), float(high)


def _image(axes: Axes, values: np.ndarray, plane: Plane, interpolation: str, colors: dict):
    (left, bottom), (right, top) = plane.lower, plane.upper
    return axes.imshow(
        values.reshape(plane.raster_shape),
        origin="lower",
        aspect="auto",
        extent=(left, right, bottom, top),
        interpolation=interpolation,
        **colors,
    )


def _ranked_dots(
    axes: Axes, spots: np.ndarray, values: np.ndarray, plane: Plane, colors: dict
) -> PathCollection:
    """Dots, the highest on top: the many low ones of a projection would hide them."""
    order = np.argsort(values, kind="stable")
    return _dots(axes, spots[order], plane, c=values[order], **colors)


def _dots(axes: Axes, spots: np.ndarray, plane: Plane, **colors) -> PathCollection:
    # So many dots fill the picture about once, whatever its size.
    box = axes.get_window_extent()
    points = 72 / axes.figure.get_dpi()
    area = min(box.width, box.height) ** 2 * points**2
    size = float(np.clip(area / plane.archive.num_cells, 2.5, 60.0))
    return axes.scatter(*spots.T, s=size, linewidths=0, rasterized=True, **colors)
