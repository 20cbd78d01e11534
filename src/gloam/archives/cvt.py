"""CVT archive: a cell for every centroid; each point belongs to the nearest one."""

import os
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gloam import checks
from gloam.archives.base import Archive, FieldSpecs, field_specs
from gloam.archives.neighbors import Lanes, lanes, most_similar


class CVTArchive(Archive):
    """The Voronoi cells of ``centroids``.

    Args:
        centroids: ``(cells, measures)`` array, or the path of a ``.npy`` file with one. A dataset
            can stand here as it is: then every item is a cell to fill. Measures may have a shape,
            as images ``(cells, 28, 28)`` or ``(cells, 28, 28, 3)``: then evaluations may return
            them in that shape, or flat as before.
        lower, upper: Bounds of the measures, used to scale a discount model's input; by default
            the centroids' own extremes.
        metric: ``"euclidean"`` or ``"cosine"``.
        f_min: As in `GridArchive`.
        fields: As in `GridArchive`.

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
    lanes: Lanes
    # Empty for flat rows, and so in files that were written before there were others.
    item_shape: tuple[int, ...] = eqx.field(static=True, default=())

    def __init__(
        self,
        centroids: Any,
        lower: checks.Bounds | None = None,
        upper: checks.Bounds | None = None,
        metric: Literal["euclidean", "cosine"] = "euclidean",
        *,
        f_min: float = 0.0,
        fields: FieldSpecs | None = None,
    ):
        if isinstance(centroids, (str, os.PathLike)):
            path = checks.existing_file("centroids", centroids, "Give an array or a .npy file.")
            centroids = np.load(path, allow_pickle=False)
        array = checks.finite_array("centroids", centroids, ndim=2, or_more=True,
                                    fix="Give one row of measures for each cell.")  # fmt: skip
        self.item_shape = array.shape[1:] if array.ndim > 2 else ()
        array = array.reshape(len(array), -1)
        checks.expect(metric in ("euclidean", "cosine"), "metric", "'euclidean' or 'cosine'",
                      repr(metric))  # fmt: skip
        self.cells = array.shape[0]
        self.metric = metric
        self.f_min = checks.number("f_min", f_min)
        self.fields = field_specs(fields)
        if metric == "cosine":
            norms = np.linalg.norm(array, axis=1, keepdims=True)
            checks.expect(bool((norms > 0).all()), "centroids", "no zero rows for cosine distance",
                          f"{int((norms == 0).sum())} of them")  # fmt: skip
            array = array / norms
            origin = np.zeros(array.shape[1], np.float32)
            offsets = np.zeros(self.cells, np.float32)
        else:
            origin = array.mean(axis=0, dtype=np.float64).astype(np.float32)
            offsets = 0.5 * np.square(array - origin, dtype=np.float64).sum(axis=1)
        low, high = array.min(axis=0), array.max(axis=0)
        # A measure that never varies has no extent of its own; any positive one will do.
        high = np.where(high > low, high, low + np.maximum(1, 1e-3 * np.abs(low)))
        low, high = checks.bounds(
            low if lower is None else lower, high if upper is None else upper, array.shape[1],
            self.item_shape,
        )  # fmt: skip
        self.lower, self.upper = jnp.asarray(low), jnp.asarray(high)
        self.centroids = jnp.asarray(array)
        self.lanes = lanes(array, origin, offsets)

    @property
    def measure_shape(self) -> tuple[int, ...]:
        """Shape of one centroid."""
        return self.item_shape or (self.measures,)

    def index_of(self, measures: Float[Array, "batch meas"]) -> Int[Array, " batch"]:
        """The cell of each row of measures."""
        return most_similar(self.lanes, measures)

    def centers_of(self, cells: Int[Array, " n"]) -> Float[Array, "n meas"]:
        """The centre of each cell in measure space."""
        return self.centroids[cells]

    def closeness(
        self, measures: Float[Array, "batch meas"], cells: Int[Array, " batch"]
    ) -> Float[Array, " batch"]:
        """How close measures come to the centres of their cells: 1 - MSE, or the cosine."""
        if self.metric == "euclidean":
            return super().closeness(measures, cells)
        product = jnp.sum(measures * self.centers_of(cells), axis=1)
        # The direction of a row of zeros is not defined: such a row counts as failed.
        return product / jnp.linalg.norm(measures, axis=1)
