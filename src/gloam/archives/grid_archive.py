"""Grid archive: measure space divided into equal boxes."""

import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from gloam._tools import checks
from gloam._tools.registry import register
from gloam.archives.archive import Archive, FieldSpecs, checked_measure_names, field_specs


@register
class GridArchive(Archive):
    """A grid of ``shape`` cells over ``[lower, upper]``, numbered in C order.

    Measures outside the bounds go to the edge cell next to them.

    Args:
        shape: Number of cells along each measure.
        lower, upper: Bounds of the measures; a scalar applies to every measure.
        f_min: Lowest objective that you expect: the QD score sums ``objective - f_min`` over the
            elites. By default it is counted from 0, or from a negative power of ten if most elites
            are below 0, and elites below that count as 0 (`gloam.archives.qd_score`).
        fields: Extra arrays stored with each elite, ``{"image": (28, 28)}``; a
            ``jax.ShapeDtypeStruct`` instead of a shape sets the dtype.
        measure_names: Names of the measures, for tables and figures.

    Example:
        >>> archive = GridArchive(shape=(10, 10), lower=-1, upper=1)
        >>> archive.num_cells, archive.measure_dim
        (100, 2)
        >>> archive.index_of(jnp.array([[-0.99, -0.99], [5.0, 5.0]])).tolist()
        [0, 99]
    """

    shape: tuple[int, ...] = eqx.field(static=True)
    num_cells: int = eqx.field(static=True)
    lower: Float[Array, " meas"]
    upper: Float[Array, " meas"]
    f_min: float | None
    fields: dict[str, jax.ShapeDtypeStruct] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)

    @checks.names_arguments
    def __init__(
        self,
        shape: Sequence[int],
        lower: checks.Bounds,
        upper: checks.Bounds,
        *,
        f_min: float | None = None,
        fields: FieldSpecs | None = None,
        measure_names: Sequence[str] | None = None,
    ):
        checks.expect(
            isinstance(shape, Sequence) and len(shape) > 0,
            "shape",
            "the number of cells along each measure",
            repr(shape),
            "For two measures: shape=(100, 100).",
        )
        self.shape = tuple(checks.integer("shape", n, minimum=1) for n in shape)
        self.num_cells = math.prod(self.shape)
        checks.expect(
            self.num_cells < 2**31,
            "shape",
            "fewer than 2**31 cells",
            self.num_cells,
            "With many measures, use a CVTArchive.",
        )
        low, high = checks.bounds(lower, upper, len(self.shape))
        self.lower, self.upper = jnp.asarray(low, jnp.float32), jnp.asarray(high, jnp.float32)
        self.f_min = None if f_min is None else checks.objective("f_min", f_min)
        self.fields = field_specs(fields)
        self.names = checked_measure_names(measure_names, len(self.shape), self.fields)

    @property
    def measure_names(self) -> tuple[str, ...]:
        """Names of the measures; empty if none were given."""
        return self.names

    @property
    def division(self) -> tuple[Any, ...]:
        """Shape and bounds."""
        return self.shape, self.lower, self.upper

    @property
    def units(self) -> Float[Array, " meas"]:
        """Widths of a cell."""
        return (self.upper - self.lower) / jnp.asarray(self.shape, jnp.float32)

    def index_of(self, measures: Float[Array, "batch meas"]) -> Int[Array, " batch"]:
        """Return the cell of each row of measures."""
        shape = jnp.asarray(self.shape, jnp.float32)
        position = (measures - self.lower) / (self.upper - self.lower) * shape
        # Clip before the cast: a float beyond the integers would wrap.
        index = jnp.clip(jnp.floor(position), 0, shape - 1).astype(jnp.int32)
        return jnp.ravel_multi_index(tuple(index.T), self.shape, mode="clip").astype(jnp.int32)

    def centers_of(self, cells: Int[Array, " n"]) -> Float[Array, "n meas"]:
        """Return the center of each cell in measure space."""
        index = jnp.stack(jnp.unravel_index(cells, self.shape), axis=-1).astype(jnp.float32)
        shares = (index + 0.5) / jnp.asarray(self.shape, jnp.float32)
        return self.lower + shares * (self.upper - self.lower)
