"""What a discount is: it says how well each region of measure space is already covered."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from gloam.records import Batch, Fit, Scored


class Discount(eqx.Module):
    """Frozen settings of a discount. What it has learned is in its state."""

    def check(self, num_cells: int, measure_dim: int) -> None:
        """Raise an error where the discount was made for an archive of other sizes."""

    @property
    @abstractmethod
    def num_initial_centers(self) -> int:
        """Centres of random cells that `init` wants."""

    @property
    @abstractmethod
    def num_empty_centers(self) -> int:
        """Centres of random empty cells that `train` wants in each iteration."""

    @abstractmethod
    def init(
        self, centers: Float[Array, "n meas"], is_real: Bool[Array, " n"], *, key: PRNGKeyArray
    ) -> Any:
        """State before the first iteration; ``is_real`` is false for padding among the centres."""

    @property
    def starts_at_f_min(self) -> bool:
        """Whether objectives below the archive's ``f_min`` count as no improvement."""
        return True

    def in_units_of(self, state: Any, objectives: Float[Array, " cells"]) -> Any:
        """The state after the elites' objectives changed (minus infinity where a cell is empty)."""
        return state

    def floor(self, state: Any, f_min: float) -> float | Float[Array, ""]:
        """The discount of what is empty; the archive's ``f_min`` where nothing else is known."""
        return f_min

    @abstractmethod
    def at_cells(
        self, state: Any, cells: Int[Array, " n"], centers: Float[Array, "n meas"]
    ) -> Float[Array, " n"]:
        """The discount of some cells, for diagnosis and pictures; NaN where it has none."""

    @abstractmethod
    def score(self, state: Any, batch: Batch) -> Scored:
        """Discount and improvement of each solution, by the state before this iteration."""

    @abstractmethod
    def train(
        self,
        state: Any,
        batch: Batch,
        scored: Scored,
        centers: Float[Array, "n meas"],
        is_real: Bool[Array, " n"],
        *,
        key: PRNGKeyArray,
    ) -> tuple[Any, Fit]:
        """Learn from the batch and from the centres of empty cells.

        ``is_real`` is false for padding among the centres.
        """


def untrained(batch: Batch) -> Fit:
    """The report of a discount that trains nothing."""
    nothing = jnp.zeros((0, batch.measures.shape[1]), jnp.float32)
    return Fit(
        jnp.asarray(jnp.nan, jnp.float32),
        jnp.zeros((), jnp.int32),
        nothing,
        nothing[:, 0],
        jnp.zeros(0, bool),
    )
