"""Is the discount healthy? Two figures that say so, cheap enough to log with the metrics."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


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
