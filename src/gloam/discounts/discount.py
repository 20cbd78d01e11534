"""The interface of discounts, the discount that does nothing, and metrics of a discount."""

from abc import abstractmethod
from typing import Any, Self

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from gloam._tools.registry import register
from gloam.records import Batch, Cells, Fit, Scored


class Discount(eqx.Module):
    """Frozen settings of a discount, which says how well each region of measure space is covered.

    Everything that it learns is in its state.
    """

    def for_archive(self, archive: Cells) -> Self:
        """Return the discount with the sizes and bounds of an archive, where it depends on them.

        Raises:
            ValueError: It was made for an archive of other sizes.
        """
        return self

    @property
    def num_initial_centers(self) -> int:
        """Number of centers of random cells that `init` receives."""
        return 0

    @property
    def num_empty_centers(self) -> int:
        """Number of centers of random empty cells that `train` receives in each iteration."""
        return 0

    @property
    def has_fixed_floor(self) -> bool:
        """True if solutions below a fixed objective are not improvements in empty cells."""
        return False

    @abstractmethod
    def init(
        self, centers: Float[Array, "n meas"], is_real: Bool[Array, " n"], *, key: PRNGKeyArray
    ) -> Any:
        """Return the state before the first iteration; ``is_real`` is false for padded centers."""

    def rescaled(
        self, state: Any, objectives: Float[Array, " cells"], f_min: float | None = None
    ) -> Any:
        """Return the state after the elites have changed.

        Args:
            state: The state.
            objectives: Objectives of all cells, minus infinity for empty ones.
            f_min: Reference of QD scores, if the archive has one.
        """
        return state

    def empty_value(self, state: Any, f_min: float) -> float | Float[Array, ""]:
        """Return the discount that empty cells should have; ``f_min`` by default."""
        return f_min

    @abstractmethod
    def at_cells(
        self, state: Any, cells: Int[Array, " n"], centers: Float[Array, "n meas"]
    ) -> Float[Array, " n"]:
        """Return the discount of cells, for metrics and figures; NaN if it is not defined there."""

    @abstractmethod
    def score(self, state: Any, batch: Batch) -> Scored:
        """Return the discount and the improvement of each solution."""

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
        """Learn from the batch and from the centers of empty cells.

        ``is_real`` is false for padded centers.
        """


@register
class NoDiscount(Discount):
    """The discount that is zero everywhere: solutions rank by their objective, as in MAP-Elites."""

    def init(
        self, centers: Float[Array, "n meas"], is_real: Bool[Array, " n"], *, key: PRNGKeyArray
    ) -> None:
        """Return ``None``: there is no state."""

    def at_cells(
        self, state: None, cells: Int[Array, " n"], centers: Float[Array, "n meas"]
    ) -> Float[Array, " n"]:
        """Return NaN."""
        return jnp.full(cells.shape, jnp.nan, jnp.float32)

    def score(self, state: None, batch: Batch) -> Scored:
        """Return the objectives as improvements."""
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
        """Do nothing."""
        return None, untrained(batch)


def untrained(batch: Batch) -> Fit:
    """Return the report of a discount without training."""
    nothing = jnp.zeros((0, batch.measures.shape[1]), jnp.float32)
    return Fit(
        jnp.asarray(jnp.nan, jnp.float32),
        jnp.zeros((), jnp.int32),
        nothing,
        nothing[:, 0],
        jnp.zeros(0, bool),
    )


class DiscountMetrics(eqx.Module):
    """How well the discount agrees with the archive."""

    empty_discount: Float[Array, ""]
    """Mean discount at the centers of empty cells, which should be near `Discount.empty_value`.
    NaN if no cell is empty."""
    rank_correlation: Float[Array, ""]
    """Spearman's correlation over cells between the discount at the center and the objective of
    the elite (`Discount.empty_value` for empty cells). It should be well above 0."""


def discount_metrics(
    discounts: Float[Array, " cells"],
    objectives: Float[Array, " cells"],
    occupied: Bool[Array, " cells"],
    empty_value: float | Float[Array, ""],
) -> DiscountMetrics:
    """Compare the discount at the centers of cells with the elites of the cells."""
    empty = ~occupied
    number = jnp.sum(empty, dtype=jnp.int32)
    mean = jnp.sum(jnp.where(empty, discounts, 0.0)) / number.astype(jnp.float32)
    thresholds = jnp.where(occupied, objectives, empty_value)
    return DiscountMetrics(mean, spearman(discounts, thresholds))


def spearman(a: Float[Array, " n"], b: Float[Array, " n"]) -> Float[Array, ""]:
    """Return Spearman's rank correlation; ties get their mean rank. NaN if one side is constant."""
    x, y = _ranks(a), _ranks(b)
    x, y = x - jnp.mean(x), y - jnp.mean(y)
    return jnp.sum(x * y) / jnp.sqrt(jnp.sum(x * x) * jnp.sum(y * y))


def _ranks(values: Float[Array, " n"]) -> Float[Array, " n"]:
    ordered = jnp.sort(values)
    below = jnp.searchsorted(ordered, values, side="left")
    upto = jnp.searchsorted(ordered, values, side="right")
    # Scaled to [0, 1], so that sums of squares stay small in float32.
    return (below + upto).astype(jnp.float32) / (2 * values.shape[0])
