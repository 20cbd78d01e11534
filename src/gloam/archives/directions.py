"""Rows of measures as directions, for archives that compare by angle.

Lengths are found without overflow: rows are first divided by a power of two near their largest
number, which changes no digit of them.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

_SMALLEST = float(np.finfo(np.float32).tiny)  # below it processors take numbers for zero
_LARGEST_SCALE = 2.0**126  # the reciprocal of a larger power of two would be taken for zero
_EXPONENT = 0x7F800000  # the bits of float32 that hold the exponent


def has_direction(rows: Float[Array | np.ndarray, "n meas"]) -> Bool[Array | np.ndarray, " n"]:
    """True for rows of finite numbers that are not all zero, on the host or on the device.

    >>> has_direction(np.array([[0.0, 2.0], [0.0, 0.0], [np.inf, 1.0], [0.0, 1e-40]])).tolist()
    [True, False, False, False]
    """
    largest = abs(rows).max(axis=1)
    return (largest >= _SMALLEST) & (largest < np.inf)


def scaled_rows(rows: Float[Array, "n meas"]) -> Float[Array, "n meas"]:
    """Rows divided by a power of two each, so that their largest number is between 1 and 4.

    A row without a direction becomes zero.
    """
    rows = rows.astype(jnp.float32)
    largest = jnp.max(jnp.abs(rows), axis=1)
    bits = jax.lax.bitcast_convert_type(largest, jnp.uint32) & jnp.uint32(_EXPONENT)
    power = jax.lax.bitcast_convert_type(bits, jnp.float32)
    sound = has_direction(rows)
    scale = 1.0 / jnp.where(sound, jnp.minimum(power, _LARGEST_SCALE), 1.0)
    return jnp.where(sound[:, None], rows * scale[:, None], 0.0)


def unit_rows(rows: Float[Array, "n meas"]) -> Float[Array, "n meas"]:
    """Rows of length one. A row without a direction becomes zero.

    >>> unit_rows(jnp.array([[3e30, 4e30], [0.0, 0.0]])).round(3).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    scaled = scaled_rows(rows)
    length = jnp.sqrt(jnp.sum(jnp.square(scaled), axis=1, keepdims=True))
    return scaled / jnp.maximum(length, 1.0)
