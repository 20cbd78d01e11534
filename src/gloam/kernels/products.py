"""Products of matrices in float32 by the units for TF32, which are many times as fast.

TF32 keeps 10 bits of a number's fraction. What it leaves out is a number of its own, of which it
keeps 10 bits again; of the four products of such parts the one of two small parts is below what
float32 can hold. The other three are one product of rows three times as long.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gloam import kernels

_LOST = 13  # bits of float32's fraction that TF32 does not keep
_ALIGNED = 8  # numbers; the units take rows of whole multiples


def similarities(
    points: Float[Array, "n numbers"], rows: Float[Array, "cells numbers"]
) -> Float[Array, "n cells"]:
    """``points @ rows.T`` with the digits of float32.

    >>> similarities(jnp.array([[1.0, 2.0]]), jnp.array([[3.0, 4.0], [0.5, 0.0]])).tolist()
    [[11.0, 0.5]]
    """
    return in_one_product(points, rows) if kernels.usable() else points @ rows.T


def in_one_product(
    points: Float[Array, "n numbers"], rows: Float[Array, "cells numbers"]
) -> Float[Array, "n cells"]:
    """The same by TF32; elsewhere than on an NVIDIA GPU only as exact, not as fast."""
    large, small = _parts(points)
    left = jnp.concatenate([large, large, small], axis=1)
    large, small = _parts(rows)
    right = jnp.concatenate([large, small, large], axis=1)
    missing = ((0, 0), (0, -left.shape[1] % _ALIGNED))
    precision = jax.lax.DotAlgorithmPreset.TF32_TF32_F32 if kernels.usable() else None
    return jax.lax.dot_general(
        jnp.pad(left, missing),
        jnp.pad(right, missing),
        (((1,), (1,)), ((), ())),
        precision=precision,
        preferred_element_type=jnp.float32,
    )


def _parts(numbers: Float[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Each number rounded to TF32, and the rest of it."""
    bits = jax.lax.bitcast_convert_type(numbers, jnp.uint32)
    kept = (bits + jnp.uint32(1 << (_LOST - 1))) >> _LOST << _LOST
    large = jax.lax.bitcast_convert_type(kept, jnp.float32)
    return large, numbers - large
