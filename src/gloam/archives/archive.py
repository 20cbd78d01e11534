"""What an archive is: a division of measure space into cells. Elites live in a `Store`."""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int


class Archive(eqx.Module):
    """Frozen description of an archive: its cells, the bounds of its measures, extra fields.

    Kinds of archive differ only in `index_of` and `centers_of`.
    """

    num_cells: eqx.AbstractVar[int]
    lower: eqx.AbstractVar[Float[Array, " meas"]]
    upper: eqx.AbstractVar[Float[Array, " meas"]]
    f_min: eqx.AbstractVar[float]
    fields: eqx.AbstractVar[dict[str, jax.ShapeDtypeStruct]]

    @property
    def measure_dim(self) -> int:
        """Number of measures."""
        return self.lower.shape[0]

    @property
    def measure_shape(self) -> tuple[int, ...]:
        """Shape of one row of measures, as evaluations may return it: (28, 28) for images.

        Inside gloam measures are flat rows; only here and there they are shown in this shape.
        """
        return (self.measure_dim,)

    @property
    def measure_names(self) -> tuple[str, ...]:
        """Names of the measures, which tables and figures show; empty where none were given."""
        return ()

    def accepts(
        self, measures: Float[Array | np.ndarray, "batch meas"]
    ) -> Bool[Array | np.ndarray, " batch"]:
        """True for rows that can have a cell; others count as failed. On host or device."""
        xp = np if isinstance(measures, np.ndarray) else jnp
        return xp.all(xp.isfinite(measures), axis=1)

    def discount_space(self, measures: Float[Array, "n meas"]) -> Float[Array, "n meas"]:
        """Measures in the space in which cells have their centres; discounts work there."""
        return measures

    @abstractmethod
    def index_of(self, measures: Float[Array, "batch meas"]) -> Int[Array, " batch"]:
        """The cell of each row of measures."""

    def index_on_host(
        self, measures: Float[np.ndarray, "batch meas"]
    ) -> Int[np.ndarray, " batch"] | None:
        """Cells found outside compiled programs; ``None`` when `index_of` is to find them there."""
        return None

    def for_programs(self, *, cells_given: bool = False) -> "Archive":
        """The archive as compiled programs take it: with the arrays that their search needs.

        Args:
            cells_given: Whether the cells are found by `index_on_host`, where it finds them. Called
                before the first of them, so that it can prepare itself.
        """
        return self

    @abstractmethod
    def centers_of(self, cells: Int[Array, " n"]) -> Float[Array, "n meas"]:
        """The centre of each cell in measure space."""

    def closeness(
        self, measures: Float[Array, "batch meas"], cells: Int[Array, " batch"]
    ) -> Float[Array, " batch"]:
        """How close measures come to the centres of their cells: 1 minus the mean squared error.

        It is the objective of searches that evaluate measures only.
        """
        return 1.0 - jnp.mean(jnp.square(measures - self.centers_of(cells)), axis=1)
