"""The first weights of a network's layers, drawn as PyTorch draws them."""

from functools import partial
from math import prod

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

Shapes = tuple[tuple[int, ...], ...]
Layers = tuple[list[Float[Array, "..."]], list[Float[Array, "..."]]]


def first_weights(shapes: Shapes, key: PRNGKeyArray | None) -> Layers:
    """Weights of the given shapes, whose last axis is the output's, and a bias for each output.

    All are uniform in ``+-1/sqrt(fan_in)``. Without a key they are always the same, and drawn by
    NumPy: a model's template, which every seed draws anew, should not wait for a compiler.

    >>> weights, biases = first_weights(((2, 8), (8, 1)), None)
    >>> [array.shape for array in weights + biases]
    [(2, 8), (8, 1), (8,), (1,)]
    """
    if key is not None:
        return _drawn_by_jax(shapes, key)
    draws = np.random.default_rng(0).uniform(-1.0, 1.0, _count(shapes)).astype(np.float32)
    weights, biases = _cut(shapes, draws)
    return [jnp.asarray(w) for w in weights], [jnp.asarray(b) for b in biases]


# One program with one draw for all layers compiles in a fraction of the time of many small ones.
@partial(jax.jit, static_argnums=0)
def _drawn_by_jax(shapes: Shapes, key: PRNGKeyArray) -> Layers:
    return _cut(shapes, jax.random.uniform(key, (_count(shapes),), jnp.float32, minval=-1.0))


def _count(shapes: Shapes) -> int:
    return sum(prod(shape) + shape[-1] for shape in shapes)


def _cut(shapes: Shapes, draws: Array | np.ndarray) -> tuple[list, list]:
    """Numbers in [-1, 1) as the weights and biases of one layer after another."""
    weights, biases = [], []
    for shape in shapes:
        limit, end, outputs = prod(shape[:-1]) ** -0.5, prod(shape), shape[-1]
        weights.append(limit * draws[:end].reshape(shape))
        biases.append(limit * draws[end : end + outputs])
        draws = draws[end + outputs :]
    return weights, biases
