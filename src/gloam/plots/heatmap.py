"""What figures of archives show: the cells, and a number for each that holds an elite.

The Voronoi cells of centroids in the plane, as polygons.

Measure space laid on paper: as it is for up to two measures, by principal components beyond.

Projections of many measures onto two axes: principal components, UMAP and t-SNE.

Heatmaps: an archive, or a function over measure space, coloured by objective.

The archive of a run at a glance: a large heatmap beside the distribution of objectives.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Shaped
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.figure import Figure

from gloam import checks
from gloam.archives import Archive, CVTArchive, Elites, GridArchive
from gloam.archives.archive import measure_labels
from gloam.drawing import PrincipalComponents
from gloam.plots import style

Filled = Elites | tuple[Archive, Float[np.ndarray, " cells"]]
"""A filled archive, or an archive and the ``(cells,)`` objectives of its cells, minus infinity
where a cell is empty."""
Color = str | Shaped[np.ndarray, " cells"]
"""``"objective"``, the name of a field of one number, or a number for each cell."""


def contents(
    elites: Filled, color: Color = "objective"
) -> tuple[Archive, Float[np.ndarray, " cells"], str]:
    """The archive, the values of all its cells, not finite where there is none, and their name."""
    if isinstance(elites, Elites):
        archive, objectives = elites.archive, np.asarray(elites.store.objectives)
    else:
        archive, objectives = elites[0], np.asarray(elites[1])
        _check_cells("objectives", objectives, archive, "Empty cells have minus infinity.")
    if isinstance(color, str) and color == "objective":
        return archive, objectives, "objective"
    if not isinstance(color, str):
        values = np.asarray(color, np.float64)
        _check_cells("color", values, archive, "Cells with nothing to show have NaN.")
        return archive, values, ""
    fields = elites.store.fields if isinstance(elites, Elites) else {}
    known = [name for name, values in fields.items() if np.ndim(values) == 1]
    checks.choice("color", color, ("objective", *known), "Or give a number for each cell.")
    values = np.asarray(fields[color], np.float64)
    return archive, np.where(np.isfinite(objectives), values, np.nan), color


def value_limits(archive: Archive, values: Float[np.ndarray, " cells"]) -> tuple[float, float]:
    """Lowest and highest of the finite values, apart even when they are the same."""
    found = values[np.isfinite(values)]
    low, high = (found.min(), found.max()) if len(found) else (archive.f_min, archive.f_min)
    if low < high:
        return float(low), float(high)
    return (archive.f_min if archive.f_min < high else float(high) - 1.0), float(high)


def _check_cells(name: str, values: np.ndarray, archive: Archive, fix: str) -> None:
    checks.expect(
        values.shape == (archive.num_cells,),
        name,
        f"one for each of the {archive.num_cells} cells",
        f"shape {values.shape}",
        fix,
    )


# More polygons take seconds to find, and are hardly larger than a pixel.
_MOST = 20_000


def has_polygons(archive: Archive) -> bool:
    """Whether the cells of an archive are drawn as polygons."""
    return (
        isinstance(archive, CVTArchive)
        and archive.metric == "euclidean"
        and archive.measure_dim == 2
        and archive.num_cells <= _MOST
    )


def cell_polygons(
    centroids: Float[np.ndarray, "cells 2"],
) -> list[Float[np.ndarray, "corners 2"]]:
    """The corners of each cell. Cells at the border reach far beyond the centroids."""
    from scipy.spatial import Voronoi

    points = np.asarray(centroids, np.float64)
    middle = (points.min(axis=0) + points.max(axis=0)) / 2
    extent = float(np.ptp(points, axis=0).max()) or 1.0
    # Among points far outside no cell is unbounded, and within the picture none of theirs shows.
    around = [(x, y) for x in (-1, 0, 1) for y in (-1, 0, 1) if (x, y) != (0, 0)]
    far = middle + 20 * extent * np.array(around)
    found = Voronoi(np.concatenate([points, far]))
    regions = [found.regions[found.point_region[cell]] for cell in range(len(points))]
    return [found.vertices[region] for region in regions]


# Points along each side of a raster, and how many are sent to the device at once.
_SIDE = 300
_CHUNK = 4096


class Plane:
    """Where the points of an archive's measure space lie in a picture.

    With two measures the axes are the measures, under their names. With one, the other axis says
    nothing. With more, the axes are the first two principal components of the centres of the cells.

    Args:
        archive: The division into cells.
    """

    def __init__(self, archive: Archive):
        self.archive = archive
        self.whole = archive.measure_dim <= 2
        """True when every point of measure space is a point of the picture."""
        if self.whole:
            self.labels = (*measure_labels(archive.measure_names, archive.measure_dim), "")[:2]
            self.lower = np.append(np.asarray(archive.lower), 0.0)[:2]
            self.upper = np.append(np.asarray(archive.upper), 1.0)[:2]
        else:
            self._components = PrincipalComponents(self.centers)
            spots = self.place(self.centers)
            self.labels = self._components.labels
            margin = 0.04 * np.ptp(spots, axis=0) + 1e-9
            self.lower, self.upper = spots.min(axis=0) - margin, spots.max(axis=0) + margin

    @cached_property
    def centers(self) -> Float[np.ndarray, "cells meas"]:
        """The centres of all cells."""
        cells = jnp.arange(self.archive.num_cells, dtype=jnp.int32)
        return np.asarray(self.archive.centers_of(cells))

    @property
    def shape(self) -> float:
        """Height of the picture for width 1: measures have one scale, unless they differ much."""
        width, height = self.upper - self.lower
        alike = self.archive.measure_dim == 2 and 0.5 <= height / width <= 2
        return float(height / width) if alike else 1.0

    @property
    def raster_shape(self) -> tuple[int, int]:
        """Rows and columns of the raster."""
        return (_SIDE if self.archive.measure_dim == 2 else 1, _SIDE)

    @cached_property
    def sites(self) -> Float[np.ndarray, "sites meas"]:
        """Where to ask for a function that is to be drawn.

        A raster over the bounds, row by row from below, when the plane is `whole`; else the
        centres of the cells.
        """
        if not self.whole:
            return self.centers
        steps = (np.arange(_SIDE) + 0.5) / _SIDE
        sides = [
            low + steps * (high - low) for low, high in zip(self.lower, self.upper, strict=True)
        ]
        if self.archive.measure_dim == 1:
            return sides[0][:, None].astype(np.float32)
        x, y = np.meshgrid(*sides)
        return np.stack([x.ravel(), y.ravel()], axis=1).astype(np.float32)

    @cached_property
    def cells_of_sites(self) -> Int[np.ndarray, " sites"]:
        """The cell of every site."""
        return in_chunks(eqx.filter_jit(self.archive.index_of), self.sites)

    def place(self, points: Float[np.ndarray, "n meas"]) -> Float[np.ndarray, "n 2"]:
        """The places of points in the picture."""
        if not self.whole:
            return self._components.place(points)
        if self.archive.measure_dim == 2:
            return np.asarray(points)
        # One measure: spread over the height, so that points do not hide one another.
        return np.stack([points[:, 0], (np.arange(len(points)) * 0.618034) % 1.0], axis=1)

    def frame(self, axes: Axes) -> None:
        """Set limits, labels, shape and ticks of axes."""
        axes.set(
            xlim=(self.lower[0], self.upper[0]),
            ylim=(self.lower[1], self.upper[1]),
            xlabel=self.labels[0],
            ylabel=self.labels[1],
        )
        axes.set_aspect("auto")
        axes.set_box_aspect(self.shape)
        axes.locator_params(nbins=5)
        if not self.labels[1]:
            axes.set_yticks([])
        style.dress(axes)


def in_chunks(function: Callable, points: Float[np.ndarray, "n meas"]) -> np.ndarray:
    """A function of rows at many points, as many at a time as memory surely holds."""
    parts = np.array_split(points, -(-len(points) // _CHUNK))
    return np.concatenate([np.asarray(function(jnp.asarray(part))) for part in parts])


Method = Literal["pca", "umap", "tsne"]
METHODS: tuple[Method, ...] = ("pca", "umap", "tsne")


def project(
    points: Float[np.ndarray, "n meas"], method: Method, *, seed: int = 0
) -> tuple[Float[np.ndarray, "n 2"], tuple[str, str]]:
    """The places of points in the plane, and the names of its axes.

    Raises:
        ImportError: The package of the method is not installed.
    """
    checks.choice("method", method, METHODS)
    if method == "pca":
        found = PrincipalComponents(points)
        return found.place(points), found.labels
    if len(points) < 5:
        few = f"'pca' for {len(points)} points"
        checks.expect(False, "method", few, f"'{method}'", "It needs 5 points or more.")
    return (_umap if method == "umap" else _tsne)(points, seed)


def _umap(points: np.ndarray, seed: int) -> tuple[np.ndarray, tuple[str, str]]:
    try:
        from umap import UMAP  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ImportError(_missing("umap", "umap-learn")) from None
    neighbors = min(15, len(points) - 1)
    # With a seed UMAP uses one thread, and warns if it was not told so.
    model = UMAP(n_components=2, n_neighbors=neighbors, random_state=seed, n_jobs=1)
    return np.asarray(model.fit_transform(points)), ("UMAP 1", "UMAP 2")


def _tsne(points: np.ndarray, seed: int) -> tuple[np.ndarray, tuple[str, str]]:
    try:
        from sklearn.manifold import TSNE
    except ImportError:
        raise ImportError(_missing("tsne", "scikit-learn")) from None
    perplexity = min(30.0, (len(points) - 1) / 3)
    model = TSNE(2, perplexity=perplexity, init="pca", random_state=seed)
    return np.asarray(model.fit_transform(points)), ("t-SNE 1", "t-SNE 2")


def _missing(method: str, package: str) -> str:
    return (
        f"method: expected the package {package} for '{method}', got none. "
        f"Install it: pip install {package}. Or use method='pca', which needs no package."
    )


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
