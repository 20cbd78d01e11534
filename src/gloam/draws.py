"""Random numbers at a fraction of the price of `jax.random` on a CPU.

Drawing is a large part of an iteration there. Normal numbers gain because both words of a Threefry
block are used (`jax.random.bits` keeps one), and Box and Muller's method makes two numbers of one
logarithm and one root, with short polynomials for sine and cosine, because the range of the angle
is ours. Uniform numbers gain because the rounds of Threefry are written out: `jax.random` runs them
as a loop over arrays, which passes every number through memory each time. (For normal numbers that
loop is the faster way: both words would be worked out twice, once for each row.)
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import threefry_2x32
from jaxtyping import Array, Float, PRNGKeyArray, UInt32

GENERATOR = "threefry2x32"
"""Of every key that gloam makes; JAX's default may be another one."""
# Of Threefry-2x32 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def root_key(seed: int) -> PRNGKeyArray:
    """The key of a search: the 64 bits of its seed, whatever generator JAX is set to use.

    Below 2**32 it is `jax.random.key` of the seed, for Threefry.

    >>> jax.random.key_data(root_key(2**32 + 5)).tolist()
    [1, 5]
    """
    words = np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32)
    return jax.random.wrap_key_data(jnp.asarray(words), impl=GENERATOR)


def uniforms(key: PRNGKeyArray, size: int) -> Float[Array, " size"]:
    """Independent numbers in [0, 1): those of `jax.random.uniform`, bit by bit.

    >>> bool((uniforms(jax.random.key(0), 9) == jax.random.uniform(jax.random.key(0), (9,))).all())
    True
    """
    number = jax.lax.iota(jnp.uint32, size)
    first, second = _threefry(key, jnp.zeros_like(number), number)
    # 23 bits as the fraction of a number in [1, 2).
    bits = ((first ^ second) >> 9) | jnp.uint32(0x3F800000)
    return jax.lax.bitcast_convert_type(bits, jnp.float32) - 1.0


def normals(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Independent numbers from N(0, 1) in float32, up to 5.8 away from zero.

    >>> normals(jax.random.key(0), (2, 3)).shape
    (2, 3)
    """
    size = math.prod(shape)
    half = -(-size // 2)
    words = threefry_2x32(jax.random.key_data(key), jax.lax.iota(jnp.uint32, 2 * half))
    first, second = words[None, :half], words[None, half:]
    # 24 bits are what float32 holds; plus one, so that the logarithm is never of zero.
    uniform = ((first >> 8).astype(jnp.int32).astype(jnp.float32) + 1.0) * 2.0**-24
    radius = jnp.sqrt(-2.0 * jnp.log(uniform))
    # An angle within an eighth of a turn to each side; two of the other bits turn it by a quarter
    # and by a half.
    angle = (second >> 8).astype(jnp.int32).astype(jnp.float32) * 2.0**-23 - 1.0
    sine, cosine = _sine_and_cosine(angle * (math.pi / 4))
    radius = jnp.where((second & 2) == 2, -radius, radius)
    # The pair are sine and cosine, as two rows: chosen, not joined, so that the loop has no seam.
    row = jnp.array([[0], [1]], jnp.uint32)
    pair = radius * jnp.where(((second + row) & 1) == 1, sine, cosine)
    # Stored here: a user that takes them column by column would have the loop draw them one by one.
    pair = jax.lax.optimization_barrier(pair)
    return pair.reshape(-1)[:size].reshape(shape)


def _threefry(
    key: PRNGKeyArray, first: UInt32[Array, "..."], second: UInt32[Array, "..."]
) -> tuple[UInt32[Array, "..."], UInt32[Array, "..."]]:
    """Two random words for every pair of counters: 20 rounds, written out."""
    data = jax.random.key_data(key)
    keys = data[0], data[1], data[0] ^ data[1] ^ jnp.uint32(_PARITY)
    first, second = first + keys[0], second + keys[1]
    for group in range(5):
        for turn in _ROTATIONS[group % 2]:
            first = first + second
            second = first ^ ((second << turn) | (second >> (32 - turn)))
        first = first + keys[(group + 1) % 3]
        second = second + keys[(group + 2) % 3] + jnp.uint32(group + 1)
    return first, second


def _sine_and_cosine(angle: Float[Array, "*n"]) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
    """Taylor series, exact to float32 for angles up to pi / 4."""
    square = angle * angle
    sine = angle * (1 + square * (-1 / 6 + square * (1 / 120 + square * (-1 / 5040))))
    cosine = 1 + square * (-1 / 2 + square * (1 / 24 + square * (-1 / 720 + square / 40320)))
    return sine, cosine
