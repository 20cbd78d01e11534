"""Units of the objective, estimated from the elites: a discount model learns in them.

A network learns numbers around one. Objectives may be thousands or thousandths, and a user seldom
knows their range before a search. The model therefore learns heights ``(f - low) / scale``, and
both are estimated as the search runs.

When the range grows downwards, the network stays as it is and says less of covered regions than
before, except of the best: nothing looks better covered than it is, and empty regions stay at 0.
With a last layer that is changed so that the network says the same objectives as before (PopArt),
empty regions would lie above the new floor; `docs/research/default-search.md` compares both.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

# `low` is so many mean deviations below the mean objective of the elites: an empty cell is then
# worth more than a better solution in a covered one, whatever can be reached there. Few elites far
# below the others move a mean deviation less than a standard deviation.
_DEVIATIONS = 10.0
# The range grows in steps of at least this factor, so that the floor of the model moves seldom.
_STEP = 1.2
# The first elites are all near the start, and their range is far too small: it is taken ten times.
_FIRST = 10.0
# Objectives that differ by less than their rounding are equal.
_ROUNDING = 2.0 * float(np.finfo(np.float32).eps)


class Units(eqx.Module):
    """Where the scale of objectives begins, and how long one unit is."""

    low: Float[Array, ""]
    scale: Float[Array, ""]
    is_known: Bool[Array, ""]
    """False until the archive has elites of different objectives."""

    def normalised(self, objectives: Float[Array, " n"]) -> Float[Array, " n"]:
        """Objectives as heights."""
        return (objectives - self.low) / self.scale

    def raw(self, heights: Float[Array, " n"]) -> Float[Array, " n"]:
        """The inverse of `normalised`."""
        return self.low + self.scale * heights


def first_units() -> Units:
    """Before anything was evaluated."""
    return Units(jnp.zeros(()), jnp.ones(()), jnp.zeros((), bool))


def estimated_units(
    objectives: Float[Array, " cells"],
    f_min: float | None = None,
    f_max: float | None = None,
    *,
    stretch: float | Float[Array, ""] = 1.0,
) -> Units:
    """Units that fit the elites.

    Args:
        objectives: Those of all cells, minus infinity where a cell is empty.
        f_min: The lowest objective, if it is known.
        f_max: The highest objective, if it is known.
        stretch: How many times the range is taken, downwards, where ``f_min`` is not known.

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
    # Equal objectives have no scale of their own: their size stands for it.
    size = jnp.where(highest == 0, 1.0, jnp.abs(highest))
    high = highest if f_max is None else jnp.asarray(f_max, jnp.float32)
    if f_min is None:
        length = stretch * (highest - mean + _DEVIATIONS * deviation)
        low = highest - jnp.where(is_known, length, size)
    else:
        low = jnp.asarray(f_min, jnp.float32)
    return Units(low, jnp.where(high > low, high - low, size), is_known)


def grown(
    old: Units,
    objectives: Float[Array, " cells"],
    f_min: float | None = None,
    f_max: float | None = None,
) -> Units:
    """The units to go on with: the old ones, unless the range of the elites has grown.

    A range that shrank, as when all elites come close to the best, is kept: regions where only
    worse solutions are possible would fall below the floor. Arguments are those of
    `estimated_units`.
    """
    stretch = jnp.where(old.is_known, 1.0, _FIRST)
    found = estimated_units(objectives, f_min, f_max, stretch=stretch)
    length = old.low - found.low
    keep = old.is_known & (~found.is_known | (length < (_STEP - 1.0) * old.scale))
    # The best elite keeps its height.
    height = (jnp.max(objectives) - old.low) / old.scale
    longer = jnp.where(height > 0, old.scale + length / height, found.scale)
    # What was there before the first estimate was a guess, and leaves no trace.
    return Units(
        jnp.where(keep, old.low, found.low),
        jnp.where(keep, old.scale, jnp.where(old.is_known, longer, found.scale)),
        old.is_known | found.is_known,
    )
