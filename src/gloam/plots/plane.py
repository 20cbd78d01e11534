"""Values of cells and the projection of measure space onto a plane, for figures of archives."""

import importlib.util
from collections.abc import Callable
from functools import cached_property
from typing import Literal, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Shaped
from matplotlib.axes import Axes

from gloam._tools import checks
from gloam._tools.drawing import PrincipalComponents
from gloam.archives import Archive, Elites
from gloam.archives.archive import measure_labels
from gloam.plots import style
from gloam.spaces import Space

Filled = Elites | tuple[Archive, Float[np.ndarray, " cells"]]
"""A filled archive, or an archive and the ``(cells,)`` objectives of its cells, minus infinity
where a cell is empty."""
Color = str | Shaped[np.ndarray, " cells"]
"""``"objective"``, the name of a scalar field or of a variable of a space (as in
`gloam.Elites.to_pandas`), or a number for each cell."""
Method = Literal["pca", "umap", "tsne"]
"""Ways to project measures onto two axes."""

# Points along each side of a raster, and points evaluated at a time.
_SIDE = 300
_CHUNK = 4096
# UMAP and t-SNE look for neighbors, and fail for fewer points.
FEWEST_EMBEDDED = 5
# Share of the values at one end, and the share of the range at which they hide the others.
_TAIL, _HIDING = 0.02, 2 / 3
_TITLES = {"umap": "UMAP", "tsne": "t-SNE"}


class CellValues(NamedTuple):
    """A number for each cell of an archive."""

    archive: Archive
    values: Float[np.ndarray, " cells"]
    """Not finite for cells without a value."""
    name: str
    """Name of the numbers, for the color bar."""

    def limits(self, tails: float | None = None) -> style.Limits:
        """Return the range of the colors, whose ends differ even if all values are equal.

        Args:
            tails: Share of the values at each end that lie beyond the range. Default: 0, but 0.02
                at an end where these 2% take up more than two thirds of the range.
        """
        finite = self.values[np.isfinite(self.values)]
        f_min = self.archive.f_min_from(0.0)
        if not len(finite):
            return f_min - 1.0, f_min
        share = _TAIL if tails is None else checks.number("tails", tails, at_least=0.0, at_most=0.5)
        low, high = float(finite.min()), float(finite.max())
        inner_low = float(np.quantile(finite, share, method="lower"))
        inner_high = float(np.quantile(finite, 1 - share, method="higher"))
        most = _HIDING * (high - low) if tails is None else 0.0
        low, high = (
            inner_low if inner_low - low > most else low,
            inner_high if high - inner_high > most else high,
        )
        return (low, high) if low < high else (f_min if f_min < high else high - 1.0, high)


def cell_values(elites: Filled, color: Color = "objective") -> CellValues:
    """Return the objectives of all cells, or the numbers that ``color`` stands for."""
    if isinstance(elites, Elites):
        archive, objectives = elites.archive, np.asarray(elites.store.objectives)
    else:
        archive, objectives = elites[0], np.asarray(elites[1])
        _check_cells("objectives", objectives, archive, "Empty cells have minus infinity.")
    if not isinstance(color, str):
        values = checks.real_array("color", color, "a number for each cell").astype(np.float64)
        _check_cells("color", values, archive, "Cells without a value have NaN.")
        return CellValues(archive, values, "")
    if color == "objective":
        is_corrected = isinstance(elites, Elites) and elites.is_corrected
        return CellValues(archive, objectives, f"{'corrected ' * is_corrected}{color}")
    fields = elites.store.fields if isinstance(elites, Elites) else {}
    known = {name: values for name, values in fields.items() if np.ndim(values) == 1}
    variables = _variables(elites) if isinstance(elites, Elites) else {}
    names = ("objective", *known, *variables)
    checks.choice("color", color, names, "Or give a number for each cell.")
    if color in known:
        values = np.where(np.isfinite(objectives), np.asarray(known[color], np.float64), np.nan)
        return CellValues(archive, values, color)
    assert isinstance(elites, Elites)
    values = np.full(archive.num_cells, np.nan)
    values[elites.cells], choices = variables[color]
    texts = [f"{number} is {choice}" for number, choice in enumerate(choices or [])]
    return CellValues(archive, values, f"{color} ({', '.join(texts)})" if texts else color)


def _variables(
    elites: Elites,
) -> dict[str, tuple[Float[np.ndarray, " elites"], list[str] | None]]:
    """Return numbers of the variables of a space by column, and the choices of categories."""
    if not isinstance(elites.form, Space):
        return {}
    numbers, choices = elites.form.numbers(elites.solutions)
    places = elites.form.places
    return {elites.column_of(name): (numbers[:, at], choices[at]) for name, at in places}


def _check_cells(name: str, values: np.ndarray, archive: Archive, fix: str) -> None:
    expected = f"one for each of the {archive.num_cells} cells"
    fits = values.shape == (archive.num_cells,)
    checks.expect(fits, name, expected, f"shape {values.shape}", fix)


class Plane:
    """The plane in which the measure space of an archive is drawn.

    With two measures, the axes are the measures. With one, the vertical axis has no meaning. With
    more, the axes are the first two principal components of the centers of the cells.

    Args:
        archive: The archive.
    """

    def __init__(self, archive: Archive):
        self.archive = archive
        self.is_projected = archive.measure_dim > 2
        """Whether the axes are principal components."""
        if self.is_projected:
            self._components = PrincipalComponents(self.centers)
            self.labels = self._components.labels
            margin = 0.04 * np.ptp(self.spots, axis=0) + 1e-9
            self.lower = self.spots.min(axis=0) - margin
            self.upper = self.spots.max(axis=0) + margin
        else:
            self.labels = (*measure_labels(archive.measure_names, archive.measure_dim), "")[:2]
            self.lower = np.append(np.asarray(archive.lower), 0.0)[:2]
            self.upper = np.append(np.asarray(archive.upper), 1.0)[:2]

    @cached_property
    def centers(self) -> Float[np.ndarray, "cells meas"]:
        """The centers of all cells."""
        cells = jnp.arange(self.archive.num_cells, dtype=jnp.int32)
        return np.asarray(self.archive.centers_of(cells))

    @cached_property
    def spots(self) -> Float[np.ndarray, "cells 2"]:
        """The places of the centers of all cells."""
        return self.place(self.centers)

    @property
    def aspect(self) -> float:
        """Height over width. Two measures have one scale, unless their extents differ much."""
        width, height = self.upper - self.lower
        is_equal = self.archive.measure_dim == 2 and 0.5 <= height / width <= 2
        return float(height / width) if is_equal else 1.0

    @property
    def raster_shape(self) -> tuple[int, int]:
        """Rows and columns of the raster."""
        return (_SIDE if self.archive.measure_dim == 2 else 1, _SIDE)

    @cached_property
    def sites(self) -> Float[np.ndarray, "sites meas"]:
        """The points at which a function of measures is evaluated to draw it.

        A raster over the bounds, row by row from below; the centers of the cells if the plane is
        projected.
        """
        if self.is_projected:
            return self.centers
        steps = (np.arange(_SIDE) + 0.5) / _SIDE
        x, y = (self.lower + steps[:, None] * (self.upper - self.lower)).T
        if self.archive.measure_dim == 1:
            return x[:, None].astype(np.float32)
        return np.stack([axis.ravel() for axis in np.meshgrid(x, y)], axis=1).astype(np.float32)

    @cached_property
    def cells_of_sites(self) -> Int[np.ndarray, " sites"]:
        """The cell of every site."""
        return in_chunks(eqx.filter_jit(self.archive.index_of), self.sites)

    def place(self, points: Float[np.ndarray, "n meas"]) -> Float[np.ndarray, "n 2"]:
        """Return the places of measures in the plane."""
        if self.is_projected:
            return self._components.place(points)
        if self.archive.measure_dim == 2:
            return np.asarray(points)
        # One measure: spread over the height, so that points do not hide one another.
        return np.stack([points[:, 0], (np.arange(len(points)) * 0.618034) % 1.0], axis=1)

    def frame(self, axes: Axes) -> None:
        """Set limits, labels, aspect and ticks of axes."""
        (left, bottom), (right, top) = self.lower, self.upper
        axes.set(xlim=(left, right), ylim=(bottom, top))
        axes.set(xlabel=self.labels[0], ylabel=self.labels[1])
        axes.set_aspect("auto")
        axes.set_box_aspect(self.aspect)
        axes.locator_params(nbins=5)
        if not self.labels[1]:
            axes.set_yticks([])
        style.dress(axes)


def in_chunks(function: Callable, points: Float[np.ndarray, "n meas"]) -> np.ndarray:
    """Evaluate a function of rows at many points, in chunks that bound its memory."""
    chunks = np.array_split(points, -(-len(points) // _CHUNK))
    return np.concatenate([np.asarray(function(jnp.asarray(chunk))) for chunk in chunks])


def installed_embeddings() -> dict[str, str]:
    """Return the titles of UMAP and t-SNE by method, if their packages are installed."""
    modules = {"umap": "umap", "tsne": "sklearn"}
    return {name: _TITLES[name] for name in modules if importlib.util.find_spec(modules[name])}


def project(
    points: Float[np.ndarray, "n meas"], method: Method
) -> tuple[Float[np.ndarray, "n 2"], tuple[str, str]]:
    """Project points onto two axes.

    Returns:
        The places of the points, and the names of the axes.

    Raises:
        ImportError: The package of the method is not installed.
    """
    checks.choice("method", method, ("pca", *_TITLES))
    if method == "pca":
        components = PrincipalComponents(points)
        return components.place(points), components.labels
    count = len(points)
    expected = f"'pca' for {count} points"
    fix = f"It needs {FEWEST_EMBEDDED} points or more."
    checks.expect(count >= FEWEST_EMBEDDED, "method", expected, f"'{method}'", fix)
    package = {"umap": "umap-learn", "tsne": "scikit-learn"}[method]
    try:
        if method == "umap":
            from umap import UMAP  # pyright: ignore[reportMissingImports]

            # With a seed UMAP runs on one thread, and warns unless it is told so.
            model = UMAP(n_neighbors=min(15, count - 1), random_state=0, n_jobs=1)
        else:
            from sklearn.manifold import TSNE

            model = TSNE(perplexity=min(30.0, (count - 1) / 3), init="pca", random_state=0)
    except ImportError:
        raise ImportError(
            f"method='{method}' needs the package {package}. Install it: pip install {package}. "
            "Or use method='pca', which needs no package."
        ) from None
    title = _TITLES[method]
    return np.asarray(model.fit_transform(points)), (f"{title} 1", f"{title} 2")
