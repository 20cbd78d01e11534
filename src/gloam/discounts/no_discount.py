"""No discount: solutions are scored by their objective, and nothing is learned (MAP-Elites)."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from gloam.discounts.discount import Discount, untrained
from gloam.records import Batch, Fit, Scored


class NoDiscount(Discount):
    """The discount that is zero everywhere and stays so."""

    @property
    def num_initial_centers(self) -> int:
        """None."""
        return 0

    @property
    def num_empty_centers(self) -> int:
        """None."""
        return 0

    def init(
        self, centers: Float[Array, "n meas"], is_real: Bool[Array, " n"], *, key: PRNGKeyArray
    ) -> None:
        """Nothing to remember."""

    def at_cells(
        self, state: None, cells: Int[Array, " n"], centers: Float[Array, "n meas"]
    ) -> Float[Array, " n"]:
        """It has none."""
        return jnp.full(cells.shape, jnp.nan, jnp.float32)

    def score(self, state: None, batch: Batch) -> Scored:
        """The objective itself."""
        return Scored(jnp.zeros_like(batch.objectives), batch.objectives)

    def train(
        self,
        state: None,
        batch: Batch,
        scored: Scored,
        centers: Float[Array, "n meas"],
        is_real: Bool[Array, " n"],
        *,
        key: PRNGKeyArray,
    ) -> tuple[None, Fit]:
        """Nothing to learn."""
        return None, untrained(batch)
