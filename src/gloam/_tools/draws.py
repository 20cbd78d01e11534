"""Random numbers that cost less on a CPU than those of `jax.random`.

Normal numbers use both words of a Threefry block (`jax.random.bits` keeps one), and the Box-Muller
transform with short polynomials for sine and cosine. Uniform numbers unroll the rounds of Threefry:
`jax.random` loops over arrays, which passes every number through memory in each round. (For normal
numbers the loop is faster, because unrolling would compute both words twice.)
"""

import math
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import threefry_2x32
from jaxtyping import Array, Float, Int, Int64, Key, PRNGKeyArray, UInt32

GENERATOR = "threefry2x32"
"""Generator of every key that gloam makes; JAX's default may be another one."""
# Numbers folded into the root key instead of an iteration's, for draws outside of iterations.
FIRST, PARTS, STARTS, REEVALUATION, PROPOSALS = (2**32 - number for number in range(1, 6))
# Folded into the key that draws elites, for the tournaments among them.
TOURNAMENTS = 2**32 - 1
# Constants of Threefry-2x32 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def root_key(seed: int) -> PRNGKeyArray:
    """Return the key of a search, which does not depend on JAX's default generator.

    Below 2**32 it is `jax.random.key` of the seed, for Threefry.

    >>> jax.random.key_data(root_key(2**32 + 5)).tolist()
    [1, 5]
    """
    return jax.random.wrap_key_data(jax.device_put(_words(seed)), impl=GENERATOR)


def root_keys(seeds: Sequence[int]) -> Key[Array, " seeds"]:
    """Return the keys of several searches."""
    words = np.stack([_words(seed) for seed in seeds])
    return jax.random.wrap_key_data(jax.device_put(words), impl=GENERATOR)


def evaluation_key(key: PRNGKeyArray, iteration: Int[Array, ""] | int) -> PRNGKeyArray:
    """Return the random key for the evaluation of a batch."""
    # The other keys of an iteration are numbered from 0, so keys cannot collide.
    return jax.random.fold_in(jax.random.fold_in(key, iteration), 2**32 - 1)


def evaluation_seeds(key: PRNGKeyArray, number: int) -> Int64[np.ndarray, " number"]:
    """Return a seed below 2**31 for each of ``number`` evaluations in Python.

    >>> evaluation_seeds(jax.random.key(0), 2).tolist()
    [2035099603, 2101484361]
    """
    # 31 bits, because some simulators keep a seed as a signed integer of 32 bits.
    return np.asarray(jax.random.bits(key, (number,), jnp.uint32)).astype(np.int64) >> 1


def _words(seed: int) -> UInt32[np.ndarray, "2"]:
    return np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32)


# Both are traced once for each size, because an iteration draws many times.
@partial(jax.jit, static_argnums=1)
def uniforms(key: PRNGKeyArray, size: int) -> Float[Array, " size"]:
    """Draw from the uniform distribution on [0, 1), with the bits of `jax.random.uniform`.

    >>> bool((uniforms(jax.random.key(0), 9) == jax.random.uniform(jax.random.key(0), (9,))).all())
    True
    """
    number = jax.lax.iota(jnp.uint32, size)
    first, second = _threefry(key, jnp.zeros_like(number), number)
    # 23 bits as the fraction of a number in [1, 2).
    bits = ((first ^ second) >> 9) | jnp.uint32(0x3F800000)
    return jax.lax.bitcast_convert_type(bits, jnp.float32) - 1.0


@partial(jax.jit, static_argnums=1)
def normals(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Draw from the standard normal distribution, in float32; absolute values are below 5.8.

    >>> normals(jax.random.key(0), (2, 3)).shape
    (2, 3)
    """
    size = math.prod(shape)
    half = -(-size // 2)
    words = threefry_2x32(jax.random.key_data(key), jax.lax.iota(jnp.uint32, 2 * half))
    first, second = words[None, :half], words[None, half:]
    # float32 holds 24 bits; plus one, so that the logarithm is never of zero.
    uniform = ((first >> 8).astype(jnp.int32).astype(jnp.float32) + 1.0) * 2.0**-24
    radius = jnp.sqrt(-2.0 * jnp.log(uniform))
    # An angle of at most an eighth of a turn; two other bits rotate it by a quarter and a half.
    angle = (second >> 8).astype(jnp.int32).astype(jnp.float32) * 2.0**-23 - 1.0
    sine, cosine = _sine_and_cosine(angle * (math.pi / 4))
    radius = jnp.where((second & 2) == 2, -radius, radius)
    # Sine and cosine as two rows, by selection instead of concatenation: one loop for both.
    row = jnp.array([[0], [1]], jnp.uint32)
    pair = radius * jnp.where(((second + row) & 1) == 1, sine, cosine)
    # The barrier stores the pair. Otherwise XLA may compute it again for each column that is read.
    pair = jax.lax.optimization_barrier(pair)
    return pair.reshape(-1)[:size].reshape(shape)


def _threefry(
    key: PRNGKeyArray, first: UInt32[Array, "..."], second: UInt32[Array, "..."]
) -> tuple[UInt32[Array, "..."], UInt32[Array, "..."]]:
    """Return two random words for each pair of counters, by 20 unrolled rounds."""
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
    """Return Taylor series for angles up to pi / 4, in absolute value.

    The largest errors, 4e-7 of the sine and 1e-7 of the cosine (7 and 2 units in the last place of
    float32), are at pi / 4, where the sine lacks its next term. Normal numbers have no use for more
    digits.
    """
    square = angle * angle
    sine = angle * (1 + square * (-1 / 6 + square * (1 / 120 + square * (-1 / 5040))))
    cosine = 1 + square * (-1 / 2 + square * (1 / 24 + square * (-1 / 720 + square / 40320)))
    return sine, cosine
