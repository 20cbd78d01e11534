"""CVT archive: a cell for every centroid; each point belongs to the nearest one."""

import gc
import os
from typing import Any, Literal

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from gloam import checks
from gloam.archives.base import Archive
from gloam.archives.directions import has_direction, scaled_rows, unit_rows
from gloam.archives.faiss_building import build_index
from gloam.archives.faiss_index import FaissIndex
from gloam.archives.fields import FieldSpecs, field_specs
from gloam.archives.index_choice import Faiss, IndexName, chosen_index
from gloam.archives.neighbors import Lanes, lanes, most_similar, scores_collide

_BLOCK = 65_536  # rows that are in float64 at once


class CVTArchive(Archive):
    """The Voronoi cells of ``centroids``.

    Args:
        centroids: ``(cells, measures)`` array, or the path of a ``.npy`` file with one. A dataset
            can stand here as it is: then every item is a cell to fill. Measures may have a shape,
            as images ``(cells, 28, 28)`` or ``(cells, 28, 28, 3)``: then evaluations may return
            them in that shape, or flat as before.
        lower, upper: Bounds of the measures, used to scale a discount model's input; by default
            the centroids' own extremes. With the cosine metric they are bounds of unit vectors.
        metric: ``"euclidean"``, or ``"cosine"`` for the angle: centroids are brought to length one,
            discounts see measures of length one, and a row of zeros counts as failed. Elites keep
            their measures as they were evaluated.
        f_min: As in `GridArchive`.
        fields: As in `GridArchive`.
        index: How the nearest centroid is found. ``"exact"``: by comparison with all of them, on
            the device. ``"flat"``, ``"ivf"``, ``"hnsw"`` or `gloam.archives.Faiss` with settings:
            by FAISS on the host (``pip install 'gloam[faiss]'``), approximately but for
            ``"flat"``; what it reaches is in the archive's ``index``. ``"auto"``: exactly, but for
            archives of `gloam.archives.LARGE` numbers and more on a CPU, which get ``"ivf"``.
            `gloam.Search` and `gloam.optimize` use it; programs on the device search exactly.

    Example:
        >>> archive = CVTArchive(np.array([[0.0, 0.0], [1.0, 1.0]]))
        >>> archive.index_of(jnp.array([[0.2, 0.1], [0.9, 2.0]])).tolist()
        [0, 1]
        >>> images = CVTArchive(np.random.default_rng(0).random((50, 28, 28)))
        >>> images.measure_shape, images.measures, images.centroids.shape
        ((28, 28), 784, (50, 784))
    """

    cells: int = eqx.field(static=True)
    metric: Literal["euclidean", "cosine"] = eqx.field(static=True)
    lower: Float[Array, " meas"]
    upper: Float[Array, " meas"]
    f_min: float = eqx.field(static=True)
    fields: dict[str, jax.ShapeDtypeStruct] = eqx.field(static=True)
    centroids: Float[Array, "cells meas"]
    lanes: Lanes | None
    """The centroids laid out for the exact search; an archive with an ``index`` does without this
    second copy."""
    # The defaults are what files say that were written before there were these fields.
    item_shape: tuple[int, ...] = eqx.field(static=True, default=())
    """Empty for flat rows."""
    index: FaissIndex | None = eqx.field(static=True, default=None)
    """The index on the host, with the recall that it reached; ``None`` for the exact search."""
    by_differences: bool = eqx.field(static=True, default=False)
    """Whether centroids are so close, for their distance from the origin, that only differences
    tell them apart in float32; see `gloam.archives.neighbors`."""

    def __init__(
        self,
        centroids: Any,
        lower: checks.Bounds | None = None,
        upper: checks.Bounds | None = None,
        metric: Literal["euclidean", "cosine"] = "euclidean",
        *,
        f_min: float = 0.0,
        fields: FieldSpecs | None = None,
        index: IndexName | Faiss = "auto",
    ):
        if isinstance(centroids, (str, os.PathLike)):
            path = checks.existing_file("centroids", centroids, "Give an array or a .npy file.")
            centroids = np.load(path, allow_pickle=False)
        array = checks.finite_array("centroids", centroids, ndim=2, or_more=True,
                                    fix="Give one row of measures for each cell.")  # fmt: skip
        self.item_shape = array.shape[1:] if array.ndim > 2 else ()
        array = array.reshape(len(array), -1)
        checks.choice("metric", metric, ("euclidean", "cosine"))
        settings = chosen_index(index, *array.shape)
        self.cells = array.shape[0]
        self.metric = metric
        self.f_min = checks.objective("f_min", f_min)
        self.fields = field_specs(fields)
        if metric == "cosine":
            sound = has_direction(array)
            checks.expect(
                bool(sound.all()),
                "centroids",
                "no zero rows for cosine distance",
                f"{int((~sound).sum())} of them",
            )
            array = _unit_length(array)
            origin = np.zeros(array.shape[1], np.float32)
        else:
            origin = array.mean(axis=0, dtype=np.float64).astype(np.float32)
        extent = float(np.linalg.norm(np.ptp(array, axis=0).astype(np.float64)))
        checks.expect(
            extent < 1e18,
            "centroids",
            "distances that have squares in float32",
            f"distances up to {extent:g}",
            "Scale the measures.",
        )
        self.by_differences = scores_collide(array, origin)
        if self.by_differences:  # a shift would round the centroids
            origin = np.zeros_like(origin)
        low, high = array.min(axis=0), array.max(axis=0)
        # A measure that never varies has no extent of its own; any positive one will do.
        high = np.where(high > low, high, low + np.maximum(1, 1e-3 * np.abs(low)))
        low, high = checks.bounds(
            low if lower is None else lower, high if upper is None else upper, array.shape[1],
            self.item_shape,
        )  # fmt: skip
        given = [bound for bound in (lower, upper) if bound is not None]
        fits = metric == "euclidean" or all(np.max(np.abs(bound)) <= 1 for bound in given)
        checks.expect(
            fits,
            "lower, upper",
            "bounds of unit vectors, from -1 to 1, for cosine",
            f"{lower} and {upper}",
            "Leave them out.",
        )
        self.lower, self.upper = jnp.asarray(low, jnp.float32), jnp.asarray(high, jnp.float32)
        self.centroids = jax.device_put(array)  # jnp.asarray would hold one more copy for a while
        self.lanes = self.index = None
        if settings is not None:
            # JAX lets go of an array at the first collection of garbage after it was copied.
            self.centroids.block_until_ready()
            del array, centroids
            gc.collect()
            self.index = build_index(
                self._on_host(),
                origin,
                settings,
                cosine=metric == "cosine",
                by_differences=self.by_differences,
            )
            return
        offsets = np.zeros(self.cells, np.float32)
        if metric == "euclidean":
            offsets = 0.5 * np.square(array - origin, dtype=np.float64).sum(axis=1)
        self.lanes = lanes(array, origin, offsets, by_differences=self.by_differences)

    @property
    def measure_shape(self) -> tuple[int, ...]:
        """Shape of one centroid."""
        return self.item_shape or (self.measures,)

    def accepts(
        self, measures: Float[Array | np.ndarray, "batch meas"]
    ) -> Bool[Array | np.ndarray, " batch"]:
        """True for finite rows, for cosine only those that have a direction."""
        return has_direction(measures) if self.metric == "cosine" else super().accepts(measures)

    def discount_space(self, measures: Float[Array, "n meas"]) -> Float[Array, "n meas"]:
        """Measures as they are, for cosine brought to length one."""
        return unit_rows(measures) if self.metric == "cosine" else measures

    def index_of(self, measures: Float[Array, "batch meas"]) -> Int[Array, " batch"]:
        """The cell of each row of measures: exact in compiled programs, else by the ``index``."""
        if self.metric == "cosine":  # products of huge or tiny numbers would be lost
            measures = unit_rows(measures) if self.by_differences else scaled_rows(measures)
        if self.lanes is not None:
            return most_similar(self.lanes, measures)
        assert self.index is not None
        if not any(isinstance(array, jax.core.Tracer) for array in (measures, self.centroids)):
            return jnp.asarray(self.index.nearest(np.asarray(measures), self._on_host()))
        origin = jnp.asarray(self.index.origin)
        offsets = jnp.zeros(self.cells, jnp.float32)
        if self.metric == "euclidean":
            offsets = 0.5 * jnp.sum(jnp.square(self.centroids - origin), axis=1)
        laid_out = lanes(self.centroids, origin, offsets, by_differences=self.by_differences)
        return most_similar(laid_out, measures)

    def index_on_host(
        self, measures: Float[np.ndarray, "batch meas"]
    ) -> Int[np.ndarray, " batch"] | None:
        """The cell of each row where an index on the host finds it."""
        return None if self.index is None else self.index.nearest(measures, self._on_host())

    def _on_host(self) -> Float[np.ndarray, "cells meas"]:
        return np.asarray(self.centroids)  # on a CPU the same memory

    def centers_of(self, cells: Int[Array, " n"]) -> Float[Array, "n meas"]:
        """The centre of each cell in measure space."""
        return self.centroids[cells]

    def closeness(
        self, measures: Float[Array, "batch meas"], cells: Int[Array, " batch"]
    ) -> Float[Array, " batch"]:
        """How close measures come to the centres of their cells: 1 - MSE, or the cosine."""
        if self.metric == "euclidean":
            return super().closeness(measures, cells)
        return jnp.sum(unit_rows(measures) * self.centers_of(cells), axis=1)


def _unit_length(rows: Float[np.ndarray, "n meas"]) -> Float[np.ndarray, "n meas"]:
    """Rows of length one, by blocks, in float64: float32 cannot hold squares of its numbers."""
    units = np.empty_like(rows)
    for start in range(0, len(rows), _BLOCK):
        wide = rows[start : start + _BLOCK].astype(np.float64)
        units[start : start + _BLOCK] = wide / np.linalg.norm(wide, axis=1, keepdims=True)
    return units
