"""Units of the objective, estimated from the elites: a discount model learns in them.

A network learns numbers around one. Objectives may be thousands or thousandths, and a user seldom
knows their range before a search. The model therefore learns ``(f - low) / scale``, and both are
estimated as the search runs. When they change, the last layer of the network changes with them, so
that the model says of every point what it said before (PopArt, van Hasselt et al., 2016).
"""

from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

# `low` is so many standard deviations below the mean objective of the elites: an empty cell is then
# worth more than a better solution in a covered one, whatever can be reached there.
_DEVIATIONS = 12.0
# Units stay while the estimate is within these limits, so that the floor of the model moves seldom.
_MOST_STRETCH, _MOST_SHIFT = 1.5, 0.25
# Objectives that differ by less than their rounding are equal.
_ROUNDING = 2.0 * float(np.finfo(np.float32).eps)


@runtime_checkable
class Rescalable(Protocol):
    """A network whose outputs can be scaled and shifted by its last layer."""

    def rescaled(self, factor: Any, offset: Any) -> Any:
        """The network that gives ``factor * y + offset`` where this one gives ``y``."""
        ...


class Units(eqx.Module):
    """Where the scale of objectives begins, and how long one unit is."""

    low: Float[Array, ""]
    scale: Float[Array, ""]
    is_known: Bool[Array, ""]
    """False until the archive has elites of different objectives."""

    def normalised(self, objectives: Float[Array, " n"]) -> Float[Array, " n"]:
        """Objectives in these units."""
        return (objectives - self.low) / self.scale

    def raw(self, heights: Float[Array, " n"]) -> Float[Array, " n"]:
        """The inverse of `normalised`."""
        return self.low + self.scale * heights


def first_units() -> Units:
    """Before anything was evaluated."""
    return Units(jnp.zeros(()), jnp.ones(()), jnp.zeros((), bool))


def estimated_units(
    objectives: Float[Array, " cells"], f_min: float | None = None, f_max: float | None = None
) -> Units:
    """Units that fit the elites.

    Args:
        objectives: Those of all cells, minus infinity where a cell is empty.
        f_min: The lowest objective, if it is known.
        f_max: The highest objective, if it is known.

    >>> units = estimated_units(jnp.asarray([2.0, 4.0, -jnp.inf]))
    >>> units.low.item(), units.scale.item()  # mean 3, deviation 1, highest 4
    (-9.0, 13.0)
    """
    occupied = objectives > -jnp.inf
    number = jnp.maximum(jnp.sum(occupied, dtype=jnp.float32), 1.0)
    mean = jnp.sum(jnp.where(occupied, objectives, 0.0)) / number
    deviation = jnp.sqrt(jnp.sum(jnp.where(occupied, jnp.square(objectives - mean), 0.0)) / number)
    highest = jnp.max(objectives)
    highest = jnp.where(jnp.isfinite(highest), highest, 0.0)
    is_known = deviation > _ROUNDING * jnp.abs(highest)
    # Equal objectives have no scale of their own: their size stands for it.
    size = jnp.where(highest == 0, 1.0, jnp.abs(highest))
    low = jnp.where(is_known, mean - _DEVIATIONS * deviation, highest - size)
    low = low if f_min is None else jnp.asarray(f_min, jnp.float32)
    high = highest if f_max is None else jnp.asarray(f_max, jnp.float32)
    return Units(low, jnp.where(high > low, high - low, size), is_known)


def renewed(old: Units, found: Units) -> Units:
    """The units to go on with: the old ones while they fit."""
    stretch = found.scale / old.scale
    fits = (stretch < _MOST_STRETCH) & (stretch > 1 / _MOST_STRETCH)
    fits &= jnp.abs(found.low - old.low) < _MOST_SHIFT * old.scale
    keep = fits & (old.is_known == found.is_known)
    # Elites that were found to differ can be replaced by equal ones. That is no new scale.
    keep |= old.is_known & ~found.is_known
    return Units(
        jnp.where(keep, old.low, found.low),
        jnp.where(keep, old.scale, found.scale),
        old.is_known | found.is_known,
    )


def in_new_units(params: Any, old: Units, new: Units) -> Any:
    """Weights of a network that says in new units what it said in old ones.

    Nothing changes at first, when the old ones were a guess. A network without `rescaled` keeps its
    weights and learns anew.
    """
    if not isinstance(params, Rescalable):
        return params
    factor = jnp.where(old.is_known, old.scale / new.scale, 1.0)
    offset = jnp.where(old.is_known, (old.low - new.low) / new.scale, 0.0)
    return params.rescaled(factor, offset)
