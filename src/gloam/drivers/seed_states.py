"""The states of several searches as one state, as the fused driver has them."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from gloam.records import SearchState


def stacked_state(searches: Sequence[Any]) -> SearchState:
    """The states of all seeds in one: they share the iteration."""
    states = [search.state for search in searches]
    stacked = jax.tree.map(_stack, *states)
    return eqx.tree_at(lambda s: s.iteration, stacked, states[0].iteration)


def restore_states(searches: Sequence[Any], read: Callable[[Any], SearchState]) -> None:
    """Set the states of searches; ``read`` is given the shapes of the stacked state."""
    one, number = searches[0].state, len(searches)
    shapes = jax.tree.map(lambda s: jax.ShapeDtypeStruct((number, *s.shape), s.dtype), one)
    state = read(eqx.tree_at(lambda s: s.iteration, shapes, one.iteration))
    # Each seed has arrays of its own, because they are donated to the next iteration.
    iterations = jnp.stack([state.iteration] * number)
    state = eqx.tree_at(lambda s: s.iteration, state, iterations)
    for place, search in enumerate(searches):
        search.state = jax.tree.map(lambda leaf, i=place: leaf[i], state)


def _stack(*leaves: Any) -> Any:
    """One array of all seeds' arrays; on the host, where they are written from.

    That of one seed is not copied: it may be large.
    """
    if jnp.issubdtype(leaves[0].dtype, jax.dtypes.prng_key):
        return jnp.stack(leaves)
    arrays = [np.asarray(leaf) for leaf in leaves]
    return arrays[0][None] if len(arrays) == 1 else np.stack(arrays)
