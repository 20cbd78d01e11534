"""One training step of the paper's network in one kernel: gradients, Adam, and the next forward.

An epoch has about twenty minibatches, one after the other. Compiled from the plain training loop,
each takes about 16 small kernels and is dominated by launches. Here it takes one kernel of several
independent blocks: each block owns some units of the first layer, with the weights into and out of
them. From the sums of the second layer, which the previous call has written, it computes the
gradients of its weights and updates them; then it writes the contribution of its units to the
second layer for the next minibatch. The next call adds up the contributions of all blocks.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jaxtyping import Array, Float, Int

from gloam._tools.kernels.products import block_product, padded

UNITS = 32
"""Number of units of the first layer in a block."""
_WARPS = 8
_UNROLLED = 64  # calls; more would take long to compile
_EPSILON = 1e-8  # of Adam, as in Optax


class Layers(NamedTuple):
    """Weights and biases of two hidden layers and one output, or their moments."""

    w1: Any
    b1: Any
    w2: Any
    b2: Any
    w3: Any
    b3: Any


class Progress(NamedTuple):
    """State that one minibatch passes to the next."""

    weights: Layers
    means: Layers
    """First moments of Adam."""
    squares: Layers
    """Second moments of Adam."""
    loss: Float[Array, ""]
    """Sum of squared errors so far."""
    hidden: Float[Array, "batch first"]
    """Outputs of the first layer for the current minibatch."""
    sums: Float[Array, "blocks batch second"]
    """Contributions of each block to the second layer, before bias and ReLU."""


class Adam(NamedTuple):
    """Settings of Adam. The learning rate may be traced; the decays are compile-time constants."""

    rate: Float[Array, ""] | float
    decay: float
    decay_of_squares: float


def fits(inputs: int, first: int, second: int, batch: int) -> bool:
    """Whether the kernel can train a network of these sizes.

    >>> fits(10, 128, 128, 32), fits(784, 128, 128, 32), fits(10, 100, 128, 32)
    (True, False, False)
    """
    whole = first % UNITS == 0 and second == padded(second) and batch == padded(batch)
    return whole and inputs <= 64 and second <= 128 and batch <= 32


def sweep(
    layers: tuple[Layers, Layers, Layers],
    x: Float[Array, "n inputs"],
    y: Float[Array, " n"],
    total: Int[Array, ""],
    count: Int[Array, ""],
    *,
    adam: Adam,
    batch: int,
    interpret: bool = False,
) -> tuple[Float[Array, ""], tuple[Layers, Layers, Layers]]:
    """Train on all minibatches of an epoch.

    Args:
        layers: Weights, and the first and second moments of their gradients.
        x, y: Rows and their targets, padded to whole minibatches.
        total: Number of rows that are not padding.
        count: Number of earlier updates.
        adam: Settings of Adam.
        batch: Number of rows in a minibatch.
        interpret: Whether to run without a GPU.

    Returns:
        The sum of squared errors, each before its minibatch's update, and the updated layers.
    """
    first, second = layers[0].w2.shape
    rate = jnp.asarray(adam.rate, jnp.float32)
    # Zeros made from the total are batched like it under vmap, so all calls share one kernel.
    zero = (0 * total).astype(jnp.float32)
    progress = Progress(
        *layers,
        zero,
        jnp.broadcast_to(zero, (batch, first)),
        jnp.broadcast_to(zero, (first // UNITS, batch, second)),
    )
    kernel = pl.pallas_call(
        partial(_kernel, decays=adam[1:], batch=batch, interpret=interpret),
        [jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), progress)],
        grid=(progress.sums.shape[0],),
        compiler_params=plgpu.CompilerParams(num_warps=_WARPS, num_stages=1),
        interpret=interpret,
        name="minibatch",
    )

    @jax.jit  # traced once for all calls
    def step(number: Int[Array, ""], progress: Progress) -> Progress:
        return kernel(number, total, count, rate, x, y, progress)[0]

    # The first call has no previous minibatch to learn from.
    calls = x.shape[0] // batch + 1
    if calls > _UNROLLED:
        progress = jax.lax.fori_loop(0, calls, step, progress)
    else:  # a loop would copy the state between calls
        for number in range(calls):
            progress = step(jnp.int32(number), progress)
    return progress.loss, progress[:3]


def _kernel(number, total, count, rate, x, y, old, new, *, decays, batch, interpret) -> None:
    """Learn from minibatch ``number - 1``, and compute minibatch ``number`` up to layer two."""
    block, number, total, rate = pl.program_id(0), number[...], total[...], rate[...]
    decay, decay_of_squares = decays
    rows, inputs = x.shape
    blocks, width = old.sums.shape[0], padded(inputs)
    dot = partial(block_product, interpret=interpret)
    start = jnp.maximum(number - 1, 0) * batch
    live = (number > 0) & (start < total)

    mine, real = pl.ds(block * UNITS, UNITS), jnp.arange(width) < inputs
    into = (pl.ds(0, width), mine)
    inside = jnp.broadcast_to(real[:, None], (width, UNITS))

    def batch_at(start):
        inside = jnp.broadcast_to(real[None, :], (batch, width))
        place = x.at[pl.ds(start, batch), pl.ds(0, width)]
        return plgpu.load(place, mask=inside, other=0.0)

    time = (count[...] + number).astype(jnp.float32)
    unbias = 1.0 / (1.0 - jnp.exp(time * math.log(decay)))
    unbias_squares = 1.0 / (1.0 - jnp.exp(time * math.log(decay_of_squares)))

    def load(ref, place, mask=None):
        return plgpu.load(ref.at[place], mask=mask, other=None if mask is None else 0.0)

    def learn(name, place, gradient, mask=None):
        """Update some weights, and return them."""
        before = [load(getattr(layers, name), place, mask) for layers in old[:3]]
        weight, mean, square = before
        next_mean = decay * mean + (1 - decay) * gradient
        next_square = decay_of_squares * square
        next_square += (1 - decay_of_squares) * gradient * gradient
        step = next_mean * unbias / (jnp.sqrt(next_square * unbias_squares) + _EPSILON)
        after = weight - rate * step, next_mean, next_square
        after = [jnp.where(live, *pair) for pair in zip(after, before, strict=True)]
        for layers, value in zip(new[:3], after, strict=True):
            plgpu.store(getattr(layers, name).at[place], value, mask=mask)
        return after[0]

    # The previous minibatch: outputs, errors, and backpropagation to the first layer.
    sums = old.weights.b2[...][None, :] + old.sums[0]
    for other in range(1, blocks):
        sums += old.sums[other]
    second, w3 = jnp.maximum(sums, 0.0), old.weights.w3[...]
    outputs = jnp.sum(second * w3[None, :], axis=1) + old.weights.b3[...]
    known = start + jnp.arange(batch) < total
    error = jnp.where(known, outputs - y[pl.ds(start, batch)], 0.0)
    by_output = error * (2.0 / jnp.clip(total - start, 1, batch).astype(jnp.float32))
    by_sums = jnp.where(sums > 0, by_output[:, None] * w3[None, :], 0.0)
    hidden = old.hidden[:, mine]
    by_hidden = dot(by_sums, old.weights.w2[mine, :], (1, 1))
    by_hidden = jnp.where(hidden > 0, by_hidden, 0.0)

    w1 = learn("w1", into, dot(batch_at(start), by_hidden, (0, 0)), inside)
    b1 = learn("b1", (mine,), jnp.sum(by_hidden, axis=0))
    w2 = learn("w2", (mine, slice(None)), dot(hidden, by_sums, (0, 0)))

    # Weights that belong to no block are divided among them.
    @pl.when(block == 0)
    def _():
        learn("b2", (slice(None),), jnp.sum(by_sums, axis=0))

    @pl.when(block == 1 % blocks)
    def _():
        learn("w3", (slice(None),), jnp.sum(second * by_output[:, None], axis=0))

    @pl.when(block == 2 % blocks)
    def _():
        learn("b3", (), jnp.sum(by_output))
        new.loss[...] = old.loss[...] + jnp.where(live, jnp.sum(error * error), 0.0)

    # The next minibatch; after the last one, its result is not used.
    ahead = batch_at(jnp.minimum(number * batch, rows - batch))
    hidden = jnp.maximum(dot(ahead, w1, (1, 0)) + b1[None, :], 0.0)
    new.hidden[:, mine] = hidden
    new.sums[block] = dot(hidden, w2, (1, 0))
