"""What the kernels share: sizes that Triton takes, and products in float32."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

LEAST = 16
"""Rows and columns that a product has at least."""


def padded(size: int) -> int:
    """The size of a block that holds ``size`` numbers: a power of two.

    >>> [padded(size) for size in (3, 16, 50, 100)]
    [16, 16, 64, 128]
    """
    return max(LEAST, 1 << (size - 1).bit_length())


def product(
    left: Float[Array, "a b"], right: Float[Array, "c d"], axes: tuple[int, int], *, interpret: bool
) -> Float[Array, "e f"]:
    """The product over one axis of each.

    On a GPU in three passes of TF32, which together have the digits of float32 and are faster than
    its own units. ``interpret`` is for machines that do not know them.
    """
    passes = jax.lax.DotAlgorithmPreset.TF32_TF32_F32_X3
    return jax.lax.dot_general(
        left,
        right,
        (((axes[0],), (axes[1],)), ((), ())),
        precision=jax.lax.Precision.HIGHEST if interpret else passes,
        preferred_element_type=jnp.float32,
    )
