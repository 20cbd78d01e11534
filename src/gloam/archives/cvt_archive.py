"""CVT archive: one cell for each centroid, which holds the points that are nearest to it.

With the cosine metric, centroids and measures are compared as unit vectors. The lengths of rows are
found without overflow: rows are first divided by a power of two near their largest number, which
changes no digit of them.
"""

import gc
import os
import threading
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from gloam._tools import checks, files
from gloam._tools.registry import register
from gloam.archives.archive import Archive, FieldSpecs, checked_measure_names, field_specs
from gloam.archives.faiss_index import LARGE, Faiss, FaissIndex, IndexName, chosen_index
from gloam.archives.nearest_centroids import Lanes, lanes, most_similar, scores_collide

_SMALLEST = float(np.finfo(np.float32).tiny)  # processors may flush smaller numbers to zero
_LARGEST_SCALE = 2.0**126  # the reciprocal of a larger power of two would be flushed to zero
_EXPONENT = 0x7F800000  # the bits of float32 that hold the exponent
_BLOCK = 65_536  # rows in float64 at once


@register(
    values={
        "centroids": lambda archive: archive.shaped_centroids,
        "index": lambda archive: archive.index_settings or "exact",
    }
)
class CVTArchive(Archive):
    """The Voronoi cells of ``centroids``.

    Args:
        centroids: ``(cells, measures)`` array, or the path of a ``.npy`` file with one. With a
            dataset, every item is a cell to fill. Measures may have a shape, as images
            ``(cells, 28, 28)`` or ``(cells, 28, 28, 3)``: then evaluations may return them in that
            shape, or as flat rows.
        lower, upper: Bounds of the measures, used to scale a discount model's input; by default
            the centroids' own extremes. With the cosine metric they are bounds of unit vectors.
        metric: ``"euclidean"``, or ``"cosine"`` for the angle: centroids are scaled to length one,
            discounts see measures of length one, and a row of zeros counts as failed. Elites keep
            their measures as they were evaluated.
        f_min, fields, measure_names: As in `GridArchive`.
        within: Largest distance from the centroid at which a solution counts: the Euclidean
            distance, or 1 minus the cosine. Farther solutions are infeasible; the excess of their
            distance is their violation, added to that of the evaluation if it returns one. By
            default, solutions count at any distance.
        index: How the nearest centroid is found. ``"exact"``: by comparison with all of them, on
            the device. ``"flat"``, ``"ivf"``, ``"hnsw"`` or `gloam.archives.Faiss` with settings:
            by FAISS on the host (``pip install 'gloam[faiss]'``), approximately except for
            ``"flat"``; the archive's ``index`` reports its recall. ``"auto"``: ``"ivf"`` on a CPU
            for archives of 100 million numbers (cells x measures) or more, else ``"exact"``.
            `gloam.Search` and `gloam.optimize` use FAISS, and build the index when they first need
            it; programs on the device search exactly.

    Example:
        >>> archive = CVTArchive(np.array([[0.0, 0.0], [1.0, 1.0]]))
        >>> archive.index_of(jnp.array([[0.2, 0.1], [0.9, 2.0]])).tolist()
        [0, 1]
        >>> images = CVTArchive(np.random.default_rng(0).random((50, 28, 28)))
        >>> images.measure_shape, images.measure_dim, images.centroids.shape
        ((28, 28), 784, (50, 784))
    """

    num_cells: int = eqx.field(static=True)
    metric: Literal["euclidean", "cosine"] = eqx.field(static=True)
    lower: Float[Array, " meas"]
    upper: Float[Array, " meas"]
    f_min: float | None
    within: float | None
    fields: dict[str, jax.ShapeDtypeStruct] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    centroids: Float[Array, "cells meas"]
    lanes: Lanes | None
    """The centroids laid out for the exact search; ``None`` until `for_programs` sets it."""
    item_shape: tuple[int, ...] = eqx.field(static=True)
    """Shape of one centroid; empty for flat rows."""
    index_settings: Faiss | None = eqx.field(static=True)
    """Settings of the index on the host; ``None`` for the exact search."""
    by_differences: bool = eqx.field(static=True)
    """Whether centroids are so close, for their distance from the origin, that only differences
    tell them apart in float32; see `gloam.archives.nearest_centroids`."""

    @checks.names_arguments
    def __init__(
        self,
        centroids: Any,
        lower: checks.Bounds | None = None,
        upper: checks.Bounds | None = None,
        metric: Literal["euclidean", "cosine"] = "euclidean",
        *,
        f_min: float | None = None,
        within: float | None = None,
        fields: FieldSpecs | None = None,
        index: IndexName | Faiss = "auto",
        measure_names: Sequence[str] | None = None,
    ):
        if isinstance(centroids, (str, os.PathLike)):
            path = checks.existing_file("centroids", centroids, "Give an array or a .npy file.")
            centroids = files.read_array(path, "centroids")
        fix = "Give one row of measures for each cell."
        array = checks.finite_array("centroids", centroids, ndim=2, or_more=True, fix=fix)
        checks.choice("metric", metric, ("euclidean", "cosine"))
        self.item_shape = array.shape[1:] if array.ndim > 2 else ()
        array = array.reshape(len(array), -1)
        self.num_cells, self.metric = array.shape[0], metric
        self.f_min = None if f_min is None else checks.objective("f_min", f_min)
        self.within = None if within is None else checks.number("within", within, above=0)
        self.fields = field_specs(fields)
        self.names = checked_measure_names(measure_names, array.shape[1], self.fields)
        settings = chosen_index(index, *array.shape)
        if metric == "cosine":
            array = _unit_centroids(array)
        extent = float(np.linalg.norm(np.ptp(array, axis=0).astype(np.float64)))
        checks.expect(
            extent < 1e18,
            "centroids",
            "distances that have squares in float32",
            f"distances up to {extent:g}",
            "Scale the measures.",
        )
        self.by_differences = scores_collide(array, self._middle(array))
        # The flat index compares scores in float32, too.
        is_exact = settings is None or (self.by_differences and settings.factory == "Flat")
        self.index_settings = None if is_exact else settings
        low, high = self._bounds(array, lower, upper)
        self.lower, self.upper = jnp.asarray(low, jnp.float32), jnp.asarray(high, jnp.float32)
        self.centroids = jax.device_put(array)  # jnp.asarray would hold one more copy for a while
        self.lanes = None

    def _bounds(
        self, array: np.ndarray, lower: checks.Bounds | None, upper: checks.Bounds | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The bounds given, checked; by default the extremes of the centroids."""
        low, high = array.min(axis=0), array.max(axis=0)
        # A measure that never varies has no extent of its own; any positive one will do.
        high = np.where(high > low, high, low + np.maximum(1, 1e-3 * np.abs(low)))
        low = low if lower is None else lower
        high = high if upper is None else upper
        low, high = checks.bounds(low, high, array.shape[1], self.item_shape)
        given = [bound for bound in (lower, upper) if bound is not None]
        checks.expect(
            self.metric == "euclidean" or all(np.max(np.abs(bound)) <= 2 for bound in given),
            "lower, upper",
            "bounds of unit vectors, such as -1 and 1, for cosine",
            f"{lower} and {upper}",
            "Leave them out.",
        )
        return low, high

    @property
    def measure_names(self) -> tuple[str, ...]:
        """Names of the measures; empty if none were given."""
        return self.names

    @property
    def measure_shape(self) -> tuple[int, ...]:
        """Shape of one centroid."""
        return self.item_shape or (self.measure_dim,)

    @property
    def shaped_centroids(self) -> Array:
        """Centroids of `measure_shape`, such as images."""
        return self.centroids.reshape(self.num_cells, *self.measure_shape)

    @property
    def division(self) -> tuple[Any, ...]:
        """Metric, centroids and the largest distance from them."""
        return self.metric, self.centroids, self.within

    @property
    def index(self) -> FaissIndex | None:
        """The index on the host, with the recall that it reached; ``None`` for the exact search.

        It is built lazily, and once for an archive and its copies.
        """
        settings = self.index_settings
        if settings is None:
            return None
        return _INDEXES.get(self.centroids, (settings, self.metric), self._built_index)

    def for_programs(self, *, cells_given: bool = False) -> "CVTArchive":
        """Return the archive with its index built, if that finds the cells, else with lanes."""
        if cells_given and self.index is not None:
            return self
        return eqx.tree_at(lambda a: a.lanes, self, self._lanes(), is_leaf=lambda x: x is None)

    def accepts(
        self, measures: Float[Array | np.ndarray, "batch meas"]
    ) -> Bool[Array | np.ndarray, " batch"]:
        """True for finite rows; for cosine, only those that have a direction."""
        return has_direction(measures) if self.metric == "cosine" else super().accepts(measures)

    def discount_space(self, measures: Float[Array, "n meas"]) -> Float[Array, "n meas"]:
        """Return measures unchanged; for cosine, scaled to length one."""
        return unit_rows(measures) if self.metric == "cosine" else measures

    def index_of(self, measures: Float[Array, "batch meas"]) -> Int[Array, " batch"]:
        """Return the cell of each row: exactly in compiled programs, else by the ``index``."""
        if self.metric == "cosine":  # products of huge or tiny numbers would be lost
            measures = unit_rows(measures) if self.by_differences else scaled_rows(measures)
        compiled = any(isinstance(x, jax.core.Tracer) for x in (measures, self.centroids))
        if self.lanes is None and self.index_settings is not None and not compiled:
            return jnp.asarray(self.index_on_host(np.asarray(measures)))
        return most_similar(self._lanes(), measures)

    def index_on_host(
        self, measures: Float[np.ndarray, "batch meas"]
    ) -> Int[np.ndarray, " batch"] | None:
        """Return the cell of each row by the ``index``, or ``None`` for the exact search."""
        index = self.index
        return None if index is None else index.nearest(measures, self._on_host())

    def centers_of(self, cells: Int[Array, " n"]) -> Float[Array, "n meas"]:
        """Return the centroid of each cell."""
        return self.centroids[cells]

    def closeness(
        self, measures: Float[Array, "batch meas"], cells: Int[Array, " batch"]
    ) -> Float[Array, " batch"]:
        """Return 1 - MSE between measures and the centers of their cells, or the cosine."""
        if self.metric == "euclidean":
            return super().closeness(measures, cells)
        return jnp.sum(unit_rows(measures) * self.centers_of(cells), axis=1)

    def excess(
        self, measures: Float[Array, "n meas"], cells: Int[Array, " n"]
    ) -> Float[Array, " n"] | None:
        """Return distances beyond ``within`` from the centroids of cells, 0 for nearer rows."""
        if self.within is None:
            return None
        squared = self.measure_dim * self.squared_distances(measures, cells)
        # The squared distance of unit vectors is twice 1 minus their cosine.
        distances = jnp.sqrt(squared) if self.metric == "euclidean" else squared / 2
        return jnp.maximum(distances - self.within, 0.0)

    def _lanes(self) -> Lanes:
        """The centroids laid out: from the field, the cache, or in the program being traced."""
        if self.lanes is not None:
            return self.lanes
        if isinstance(self.centroids, jax.core.Tracer):
            return self._laid_out(self.centroids)
        with jax.ensure_compile_time_eval():  # cached arrays must not be part of a program
            return _LANES.get(self.centroids, self.metric, lambda: self._laid_out(self._on_host()))

    def _laid_out(self, centroids: Float[Array | np.ndarray, "cells meas"]) -> Lanes:
        origin, cosine = self._origin(centroids), self.metric == "cosine"
        return lanes(centroids, origin, cosine=cosine, by_differences=self.by_differences)

    def _built_index(self) -> FaissIndex:
        assert self.index_settings is not None
        if self.num_cells * self.measure_dim >= LARGE:
            # JAX frees the array that centroids were copied from at the next garbage collection.
            self.centroids.block_until_ready()
            gc.collect()
        centroids = self._on_host()
        cosine = self.metric == "cosine"
        return FaissIndex(centroids, self._origin(centroids), self.index_settings, cosine=cosine)

    def _on_host(self) -> Float[np.ndarray, "cells meas"]:
        return np.asarray(self.centroids)  # on a CPU the same memory

    def _origin(self, centroids: Any) -> Any:
        """Point to subtract, so that float32 loses fewer bits; zero if that rounds centroids."""
        return 0.0 * centroids[0] if self.by_differences else self._middle(centroids)

    def _middle(self, centroids: Any) -> Any:
        if self.metric == "cosine":
            return 0.0 * centroids[0]
        wide = np.float64 if isinstance(centroids, np.ndarray) else np.float32
        return centroids.mean(axis=0, dtype=wide).astype(np.float32)


def has_direction(rows: Float[Array | np.ndarray, "n meas"]) -> Bool[Array | np.ndarray, " n"]:
    """True for rows of finite numbers that are not all zero, on the host or on the device.

    >>> has_direction(np.array([[0.0, 2.0], [0.0, 0.0], [np.inf, 1.0], [0.0, 1e-40]])).tolist()
    [True, False, False, False]
    """
    largest = abs(rows).max(axis=1)
    return (largest >= _SMALLEST) & (largest < np.inf)


def unit_rows(rows: Float[Array, "n meas"]) -> Float[Array, "n meas"]:
    """Scale rows to length one. A row without a direction becomes zero.

    >>> unit_rows(jnp.array([[3e30, 4e30], [0.0, 0.0]])).round(3).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    scaled = scaled_rows(rows)
    length = jnp.sqrt(jnp.sum(jnp.square(scaled), axis=1, keepdims=True))
    return scaled / jnp.maximum(length, 1.0)


def scaled_rows(rows: Float[Array, "n meas"]) -> Float[Array, "n meas"]:
    """Divide each row by a power of two, so that its largest number is between 1 and 4.

    A row without a direction becomes zero.
    """
    rows = rows.astype(jnp.float32)
    largest = jnp.max(jnp.abs(rows), axis=1)
    bits = jax.lax.bitcast_convert_type(largest, jnp.uint32) & jnp.uint32(_EXPONENT)
    power = jax.lax.bitcast_convert_type(bits, jnp.float32)
    sound = has_direction(rows)
    scale = 1.0 / jnp.where(sound, jnp.minimum(power, _LARGEST_SCALE), 1.0)
    return jnp.where(sound[:, None], rows * scale[:, None], 0.0)


def _unit_centroids(rows: Float[np.ndarray, "n meas"]) -> Float[np.ndarray, "n meas"]:
    """Scale centroids to length one, in float64: float32 cannot hold squares of its numbers.

    Rows of this length stay as they are, so that an archive round-trips through a file.
    """
    sound = has_direction(rows)
    checks.expect(
        bool(sound.all()),
        "centroids",
        "no zero rows for cosine distance",
        f"{int((~sound).sum())} of them",
    )
    units = np.empty_like(rows)
    for start in range(0, len(rows), _BLOCK):
        wide = rows[start : start + _BLOCK].astype(np.float64)
        norms = np.linalg.norm(wide, axis=1, keepdims=True)
        units[start : start + _BLOCK] = np.where(np.abs(norms - 1) < 1e-6, wide, wide / norms)
    return units


class _ArrayCache:
    """Lazy cache keyed by array identity: values are dropped together with their array.

    Archives are frozen, and copies share their arrays. What is kept here is not part of their
    equality, of files or of compiled programs. A value must not hold a reference to its array.
    """

    def __init__(self) -> None:
        self._values: dict[tuple[int, Hashable], Any] = {}
        self._lock = threading.RLock()

    def get(self, array: Array, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the value for ``array`` and ``key``, calling ``make`` the first time."""
        entry = (id(array), key)
        with self._lock:
            if entry not in self._values:
                self._values[entry] = make()
                # An id is free for another array only after this was called.
                weakref.finalize(array, self._values.pop, entry, None).atexit = False
            return self._values[entry]


_INDEXES, _LANES = _ArrayCache(), _ArrayCache()
