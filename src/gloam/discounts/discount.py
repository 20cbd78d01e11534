"""What a discount is: it says how well each region of measure space is already covered.

Is the discount healthy? Two figures that say so, cheap enough to log with the metrics.

No discount: solutions are scored by their objective, and nothing is learned (MAP-Elites).
"""

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


class DiscountMetrics(eqx.Module):
    """How the discount stands to the archive."""

    empty_discount: Float[Array, ""]
    """Mean discount at the centres of empty cells; healthy near the floor. NaN without any."""
    rank_correlation: Float[Array, ""]
    """Spearman's correlation over cells between the discount at the centre and the cell's own
    threshold: its elite's objective, the floor when it is empty. Healthy well above 0."""


def discount_metrics(
    discounts: Float[Array, " cells"],
    objectives: Float[Array, " cells"],
    occupied: Bool[Array, " cells"],
    floor: float | Float[Array, ""],
) -> DiscountMetrics:
    """Compare the discount at cell centres with what the cells hold; empty ones the ``floor``."""
    empty = ~occupied
    number = jnp.sum(empty, dtype=jnp.int32)
    mean = jnp.sum(jnp.where(empty, discounts, 0.0)) / number.astype(jnp.float32)
    thresholds = jnp.where(occupied, objectives, floor)
    return DiscountMetrics(mean, spearman(discounts, thresholds))


def spearman(a: Float[Array, " n"], b: Float[Array, " n"]) -> Float[Array, ""]:
    """Spearman's rank correlation; ties share their mean rank. NaN when one side is constant."""
    x, y = _ranks(a), _ranks(b)
    x, y = x - jnp.mean(x), y - jnp.mean(y)
    return jnp.sum(x * y) / jnp.sqrt(jnp.sum(x * x) * jnp.sum(y * y))


def _ranks(values: Float[Array, " n"]) -> Float[Array, " n"]:
    ordered = jnp.sort(values)
    below = jnp.searchsorted(ordered, values, side="left")
    upto = jnp.searchsorted(ordered, values, side="right")
    # Scaled to [0, 1], so that sums of squares stay small in float32.
    return (below + upto).astype(jnp.float32) / (2 * values.shape[0])


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
