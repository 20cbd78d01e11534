"""The state of a search as arrays by their place in the tree, and back."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gloam.draws import GENERATOR


def state_arrays(state: Any) -> dict[str, np.ndarray]:
    """The arrays of a state by their place in it. Random keys are stored as their raw words.

    >>> list(state_arrays({"a": jnp.zeros(2), "b": [jnp.ones(1)]}))
    ["['a']", "['b'][0]"]
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {jax.tree_util.keystr(path): _raw(leaf) for path, leaf in leaves}


def state_from(like: Any, arrays: dict[str, np.ndarray]) -> Any:
    """A state of the structure of ``like`` (arrays or shapes) from `state_arrays`.

    Raises:
        ValueError: The arrays are of another structure.
    """
    expected, structure = jax.tree_util.tree_flatten_with_path(like)
    places = [jax.tree_util.keystr(path) for path, _ in expected]
    if set(places) != set(arrays):
        missing, more = sorted(set(places) - set(arrays)), sorted(set(arrays) - set(places))
        raise ValueError(
            f"it was written for another algorithm: missing are {missing[:3]}, unknown {more[:3]}"
        )
    leaves = [
        _leaf(place, shape, arrays[place])
        for place, (_, shape) in zip(places, expected, strict=True)
    ]
    return jax.tree.unflatten(structure, leaves)


def _leaf(place: str, like: Any, array: np.ndarray) -> jax.Array:
    is_key = jnp.issubdtype(like.dtype, jax.dtypes.prng_key)
    raw = jax.eval_shape(jax.random.key_data, like) if is_key else like
    if array.shape != raw.shape or array.dtype != raw.dtype:
        raise ValueError(
            f"its array {place} is {array.dtype}{list(array.shape)} instead of "
            f"{raw.dtype}{list(raw.shape)}: it was written for another algorithm"
        )
    leaf = jnp.asarray(array)
    return jax.random.wrap_key_data(leaf, impl=GENERATOR) if is_key else leaf


def _raw(leaf: Any) -> np.ndarray:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)
