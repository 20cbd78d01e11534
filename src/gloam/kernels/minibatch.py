"""One minibatch of the paper's network in one kernel: gradients, Adam, and the next batch forward.

An epoch is some twenty minibatches that wait for one another. Compiled from the plain training loop
each is about 16 kernels, which do little but wait. Here it is one, of several blocks, cut so that
no block needs what another computes at the same time: a block owns some units of the first layer,
with the weights into and out of them. From the sums of the second layer, which the kernel before
has left, it finds the gradients of its weights; it updates them; and it leaves what its units give
to the second layer for the next batch. All blocks' parts are added up by the next kernel.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jaxtyping import Array, Float, Int

from gloam.kernels.blocks import padded, product

UNITS = 32
"""Units of the first layer in a block."""
_WARPS = 8
_WRITTEN_OUT = 64  # calls; more would take long to compile
_EPSILON = 1e-8  # of Adam, as in Optax


class Layers(NamedTuple):
    """Weights and biases of two hidden layers and one output, or something for each of them."""

    w1: Any
    b1: Any
    w2: Any
    b2: Any
    w3: Any
    b3: Any


class Progress(NamedTuple):
    """What one minibatch hands to the next."""

    weights: Layers
    means: Layers
    """First moments of Adam."""
    squares: Layers
    """Second moments."""
    loss: Float[Array, ""]
    """Squared errors so far."""
    hidden: Float[Array, "batch first"]
    """The first layer for the batch at hand."""
    sums: Float[Array, "blocks batch second"]
    """What each block's units give to the second layer, before bias and ReLU."""


class Adam(NamedTuple):
    """Settings of the optimiser. The rate may be traced; the decays are part of the program."""

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
    """Train by all minibatches of an epoch.

    Args:
        layers: Weights, and the first and second moments of their gradients.
        x, y: Rows and their targets, as many as fill the last batch.
        total: How many rows, from the first on, are real; others change nothing.
        count: Updates before.
        adam: Settings.
        batch: Rows in a minibatch.
        interpret: Without a GPU.

    Returns:
        The sum of squared errors, each before its batch's update, and the layers after.
    """
    first, second = layers[0].w2.shape
    rate, *decays = adam
    rate, decays = jnp.asarray(rate, jnp.float32), tuple(decays)
    # Seeds each have their own total, and so their own zeros: one kernel then serves every call.
    zero = (0 * total).astype(jnp.float32)
    progress = Progress(
        *layers,
        zero,
        jnp.broadcast_to(zero, (batch, first)),
        jnp.broadcast_to(zero, (first // UNITS, batch, second)),
    )

    def step(number: Int[Array, ""], progress: Progress) -> Progress:
        return _step(number, total, count, rate, x, y, progress, decays, batch, interpret)

    # The first call has no batch behind it, and only goes forward.
    calls = x.shape[0] // batch + 1
    if calls > _WRITTEN_OUT:
        progress = jax.lax.fori_loop(0, calls, step, progress)
    else:  # without a loop, which would copy what one call hands to the next
        for number in range(calls):
            progress = step(jnp.int32(number), progress)
    return progress.loss, progress[:3]


@partial(jax.jit, static_argnames=("decays", "batch", "interpret"))  # traced once for all calls
def _step(
    number: Int[Array, ""],
    total: Int[Array, ""],
    count: Int[Array, ""],
    rate: Float[Array, ""],
    x: Float[Array, "n inputs"],
    y: Float[Array, " n"],
    progress: Progress,
    decays: tuple[float, float],
    batch: int,
    interpret: bool,
) -> Progress:
    return pl.pallas_call(
        partial(_kernel, decays=decays, batch=batch, interpret=interpret),
        [jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), progress)],
        grid=(progress.sums.shape[0],),
        compiler_params=plgpu.CompilerParams(num_warps=_WARPS, num_stages=1),
        interpret=interpret,
        name="minibatch",
    )(number, total, count, rate, x, y, progress)[0]


def _kernel(
    number: Any,
    total: Any,
    count: Any,
    rate: Any,
    x: Any,
    y: Any,
    old: Any,
    new: Any,
    *,
    decays: tuple[float, float],
    batch: int,
    interpret: bool,
) -> None:
    """Learn from batch ``number - 1``, and take batch ``number`` to the second layer."""
    block, number, total, rate = pl.program_id(0), number[...], total[...], rate[...]
    decay, decay_of_squares = decays
    rows, inputs = x.shape
    blocks, width = old.sums.shape[0], padded(inputs)
    dot = partial(product, interpret=interpret)
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
        """Update some weights, and give them back."""
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

    # The batch behind: outputs, errors, and the way back to the first layer.
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

    # What belongs to no block is dealt out.
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

    # The batch ahead; after the last one, that one again, for nothing.
    ahead = batch_at(jnp.minimum(number * batch, rows - batch))
    hidden = jnp.maximum(dot(ahead, w1, (1, 0)) + b1[None, :], 0.0)
    new.hidden[:, mine] = hidden
    new.sums[block] = dot(hidden, w2, (1, 0))
