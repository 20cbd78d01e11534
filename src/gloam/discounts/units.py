"""Units of the objective, estimated from the elites, in which a discount model learns.

Networks learn numbers near one, but objectives may be thousands or thousandths, and users seldom
know their range before a search. The model therefore learns heights ``(f - low) / scale``, with
both numbers estimated as the search runs.

When the range grows downwards, the network is kept. It then predicts lower objectives for covered
regions than before (except for the best), so that nothing looks better covered than it is, and
empty regions stay at height 0. Adjusting the last layer so that predictions stay the same (PopArt)
would leave empty regions above the new floor; `research/default-search.md` compares both.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

# Number of mean deviations from the mean objective of the elites down to `low`. An empty cell is
# then worth more than a better solution in a covered cell. A few elites far below the others change
# the mean deviation less than the standard deviation.
_DEVIATIONS = 10.0
# Smallest factor by which the range grows, so that the floor of the model seldom moves.
_STEP = 1.2
# Objectives that differ by less than their rounding are equal.
_ROUNDING = 2.0 * float(np.finfo(np.float32).eps)


class Units(eqx.Module):
    """Offset and scale of the objectives."""

    low: Float[Array, ""]
    scale: Float[Array, ""]
    is_known: Bool[Array, ""]
    """False until the archive has elites with different objectives."""

    def normalized(self, objectives: Float[Array, " n"]) -> Float[Array, " n"]:
        """Convert objectives to heights."""
        return (objectives - self.low) / self.scale

    def raw(self, heights: Float[Array, " n"]) -> Float[Array, " n"]:
        """Convert heights to objectives."""
        return self.low + self.scale * heights


def first_units() -> Units:
    """Return the units before the first evaluation."""
    return Units(jnp.float32(0.0), jnp.float32(1.0), jnp.zeros((), bool))


def estimated_units(
    objectives: Float[Array, " cells"],
    floor: float | None = None,
    ceiling: float | None = None,
    f_min: float | None = None,
) -> Units:
    """Estimate units from the elites.

    Args:
        objectives: Objectives of all cells, minus infinity for empty ones.
        floor: Lowest objective, if it is known.
        ceiling: Highest objective, if it is known.
        f_min: Reference of QD scores, if there is one. An empty cell counts as much as a solution
            of this objective, so an estimated ``low`` is not above it.

    >>> units = estimated_units(jnp.asarray([2.0, 4.0, -jnp.inf]))
    >>> units.low.item(), units.scale.item()  # mean 3, mean deviation 1, highest 4
    (-7.0, 11.0)
    """
    occupied = objectives > -jnp.inf
    number = jnp.maximum(jnp.sum(occupied, dtype=jnp.float32), 1.0)
    mean = jnp.sum(jnp.where(occupied, objectives, 0.0)) / number
    deviation = jnp.sum(jnp.where(occupied, jnp.abs(objectives - mean), 0.0)) / number
    highest = jnp.max(objectives)
    highest = jnp.where(jnp.isfinite(highest), highest, 0.0)
    is_known = deviation > _ROUNDING * jnp.abs(highest)
    # Equal objectives have no spread; their magnitude is the scale.
    size = jnp.where(highest == 0, 1.0, jnp.abs(highest))
    high = highest if ceiling is None else jnp.asarray(ceiling, jnp.float32)
    if floor is None:
        low = jnp.where(is_known, mean - _DEVIATIONS * deviation, highest - size)
        low = low if f_min is None else jnp.minimum(low, f_min)
    else:
        low = jnp.asarray(floor, jnp.float32)
    return Units(low, jnp.where(high > low, high - low, size), is_known)


def grown(
    old: Units,
    objectives: Float[Array, " cells"],
    floor: float | None = None,
    ceiling: float | None = None,
    f_min: float | None = None,
) -> Units:
    """Return the old units, or larger ones if the range of the elites has grown.

    A range that shrinks, as when all elites come close to the best, is kept. Otherwise regions with
    worse solutions would fall below the floor. Arguments are those of `estimated_units`.
    """
    estimate = estimated_units(objectives, floor, ceiling, f_min)
    length = old.low - estimate.low
    keep = old.is_known & (~estimate.is_known | (length < (_STEP - 1.0) * old.scale))
    # The best elite keeps its height.
    height = (jnp.max(objectives) - old.low) / old.scale
    longer = jnp.where(height > 0, old.scale + length / height, estimate.scale)
    # The units before the first estimate are arbitrary and are dropped.
    return Units(
        jnp.where(keep, old.low, estimate.low),
        jnp.where(keep, old.scale, jnp.where(old.is_known, longer, estimate.scale)),
        old.is_known | estimate.is_known,
    )
