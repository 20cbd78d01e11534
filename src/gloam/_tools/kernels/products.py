"""Matrix products with the accuracy of float32 on TF32 units, which are many times as fast.

TF32 keeps 10 bits of a number's fraction. The remainder is a number of which it keeps 10 bits
again. Of the four products of such parts, that of the two small parts is below the accuracy of
float32; the other three are enough. Inside kernels one preset of JAX does this; outside, the three
are one product of rows three times as long.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gloam._tools import kernels

_LEAST = 16  # rows and columns of a product in Triton
_LOST = 13  # bits of float32's fraction that TF32 drops
_ALIGNED = 8  # the length of rows must be a multiple of it


def similarities(
    points: Float[Array, "n numbers"], rows: Float[Array, "cells numbers"]
) -> Float[Array, "n cells"]:
    """Return ``points @ rows.T``, on TF32 units if there are any.

    >>> similarities(jnp.array([[1.0, 2.0]]), jnp.array([[3.0, 4.0], [0.5, 0.0]])).tolist()
    [[11.0, 0.5]]
    """
    if not kernels.usable():
        return points @ rows.T
    return by_parts(points, rows, jax.lax.DotAlgorithmPreset.TF32_TF32_F32)


def by_parts(
    points: Float[Array, "n numbers"],
    rows: Float[Array, "cells numbers"],
    precision: jax.lax.DotAlgorithmPreset | None,
) -> Float[Array, "n cells"]:
    """Return ``points @ rows.T`` as one product of the parts that TF32 holds."""
    large, small = _parts(points)
    left = jnp.concatenate([large, large, small], axis=1)
    large, small = _parts(rows)
    right = jnp.concatenate([large, small, large], axis=1)
    missing = ((0, 0), (0, -left.shape[1] % _ALIGNED))
    return jax.lax.dot_general(
        jnp.pad(left, missing),
        jnp.pad(right, missing),
        (((1,), (1,)), ((), ())),
        precision=precision,
        preferred_element_type=jnp.float32,
    )


def _parts(numbers: Float[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Each number rounded to TF32, and the remainder."""
    bits = jax.lax.bitcast_convert_type(numbers, jnp.uint32)
    kept = (bits + jnp.uint32(1 << (_LOST - 1))) >> _LOST << _LOST
    large = jax.lax.bitcast_convert_type(kept, jnp.float32)
    return large, numbers - large


def block_product(
    left: Float[Array, "a b"], right: Float[Array, "c d"], axes: tuple[int, int], *, interpret: bool
) -> Float[Array, "e f"]:
    """Return the product over one axis of each, inside a kernel.

    ``interpret`` is for devices without TF32.
    """
    passes = jax.lax.DotAlgorithmPreset.TF32_TF32_F32_X3
    return jax.lax.dot_general(
        left,
        right,
        (((axes[0],), (axes[1],)), ((), ())),
        precision=jax.lax.Precision.HIGHEST if interpret else passes,
        preferred_element_type=jnp.float32,
    )


def padded(size: int) -> int:
    """Return the size of a block that Triton accepts, a power of two, for ``size`` numbers.

    >>> [padded(size) for size in (3, 16, 50, 100)]
    [16, 16, 64, 128]
    """
    return max(_LEAST, 1 << (size - 1).bit_length())
