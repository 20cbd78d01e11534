"""Upsampling and downsampling by FIR filters, and the filtered leaky ReLU between them.

Images are ``(n, height, width, channels)``: all shifts are then along axes whose elements are whole
rows of channels, which vectorise. Filters are applied in polyphase form: an output is a sum of
shifted slices, and no zero that upsampling inserts is ever multiplied. XLA makes one loop of each
sum. What else was measured: ``docs/generators.md``.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Num

# XLA merges two sums into one loop while that copies the inner sum at most 15 times. A filter of
# 12 taps inside another of 12 would be one sum of 144. Two halves of the result make 24 copies.
_HALVES = 2


def upsample(
    images: Num[Array, "n height width channels"],
    taps: Float[Array, " taps"],
    *,
    factor: int,
    axis: int,
    padding: tuple[int, int],
) -> Float[Array, "n new_height new_width channels"]:
    """Insert zeros, pad and filter along one axis.

    Each element is followed by ``factor - 1`` zeros, ``padding`` zeros are added before and after
    (cut off where negative), and the result is convolved with ``factor * taps``; only places where
    the whole filter lies inside are kept.

    Returns:
        In float32, whatever ``images`` are: the caller rounds once.
    """
    size, num_taps, before = images.shape[axis], taps.shape[0], padding[0]
    length = size * factor + sum(padding) - num_taps + 1
    rows = -(-length // factor)
    # Output `factor * q + phase` is the sum over taps t of element q + (start - t) / factor, for
    # those t that meet an element and not an inserted zero.
    sources = []
    for phase in range(factor):
        start = phase + num_taps - 1 - before
        meeting = [t for t in range(num_taps) if (start - t) % factor == 0]
        sources.append([(t, (start - t) // factor) for t in meeting])
    shifts = [shift for terms in sources for _, shift in terms]
    lead = max(0, -min(shifts))
    padded = _padded(images, axis, lead, max(0, max(shifts) + rows - size))
    gain = jnp.float32(factor) * taps
    phases = []
    for terms in sources:
        slices = (
            jax.lax.slice_in_dim(padded, lead + shift, lead + shift + rows, axis=axis)
            for _, shift in terms
        )
        shape = (*images.shape[:axis], rows, *images.shape[axis + 1 :])
        # A phase that no tap reaches consists of inserted zeros.
        total = _weighted_sum(slices, [gain[t] for t, _ in terms]) if terms else jnp.zeros(shape)
        phases.append(total)
    return jax.lax.slice_in_dim(_interleaved(phases, axis), 0, length, axis=axis)


def downsample(
    images: Num[Array, "n height width channels"],
    taps: Float[Array, " taps"],
    *,
    factor: int,
    axis: int,
) -> Float[Array, "n new_height new_width channels"]:
    """Filter along one axis where the whole filter lies inside; keep every ``factor``-th element.

    Returns:
        In float32.
    """
    num_taps = taps.shape[0]
    length = (images.shape[axis] - num_taps) // factor + 1
    num_halves = _HALVES if num_taps > 1 else 1
    rows = -(-length // num_halves)
    step = num_halves * factor
    # The second half may end one element after the first: the missing inputs are zeros.
    needed = num_taps + (rows * num_halves - 1) * factor
    padded = _padded(images, axis, 0, max(0, needed - images.shape[axis]))
    halves = []
    for half in range(num_halves):
        starts = [half * factor + num_taps - 1 - t for t in range(num_taps)]
        slices = (
            jax.lax.slice_in_dim(padded, start, start + (rows - 1) * step + 1, step, axis=axis)
            for start in starts
        )
        halves.append(_weighted_sum(slices, [taps[t] for t in range(num_taps)]))
    return jax.lax.slice_in_dim(_interleaved(halves, axis), 0, length, axis=axis)


def downsample_both(
    images: Num[Array, "n height width channels"], taps: Float[Array, "taps taps"], *, factor: int
) -> Float[Array, "n new_height new_width channels"]:
    """As `downsample` along both axes, by a filter that is not separable.

    Returns:
        In float32.
    """
    size = taps.shape[0]
    n, height, width, channels = images.shape
    rows, columns = (height - size) // factor + 1, (width - size) // factor + 1
    ends = ((rows - 1) * factor + 1, (columns - 1) * factor + 1)
    places = [(i, j) for i in range(size) for j in range(size)]
    slices = (
        jax.lax.slice(
            images, (0, i, j, 0), (n, i + ends[0], j + ends[1], channels), (1, factor, factor, 1)
        )
        for i, j in places
    )
    return _weighted_sum(slices, [taps[size - 1 - i, size - 1 - j] for i, j in places])


def filtered_leaky_relu(
    images: Num[Array, "n height width channels"],
    up_taps: Float[Array, " up_taps"],
    down_taps: Float[Array, "down_taps *down_taps"],
    *,
    up: int,
    down: int,
    padding: tuple[int, int],
    gain: float,
    slope: float,
    clamp: float | None,
) -> Num[Array, "n new_height new_width channels"]:
    """Upsample, apply a leaky ReLU, clamp, downsample: the nonlinearity of StyleGAN3.

    Args:
        images: In float32 or a half precision, which the result has, too.
        up_taps: Separable filter of the upsampling.
        down_taps: Filter of the downsampling; with two axes it is not separable.
        up, down: Factors.
        padding: Zeros before and after each axis of the upsampled images; negative cuts off.
        gain: Factor of the leaky ReLU's result.
        slope: Slope of the leaky ReLU below zero.
        clamp: Largest magnitude after the leaky ReLU, or ``None``.
    """
    kind = images.dtype
    tall = upsample(images, up_taps, factor=up, axis=1, padding=padding).astype(kind)
    large = upsample(tall, up_taps, factor=up, axis=2, padding=padding)
    large = gain * jnp.where(large > 0, large, slope * large)
    if clamp is not None:
        large = jnp.clip(large, -clamp, clamp)
    large = large.astype(kind)
    if down_taps.ndim == 2:
        return downsample_both(large, down_taps, factor=down).astype(kind)
    wide = downsample(large, down_taps, factor=down, axis=1).astype(kind)
    return downsample(wide, down_taps, factor=down, axis=2).astype(kind)


def _weighted_sum(slices, weights) -> Array:
    # In float32 also for half precision: the casts become part of the loop.
    terms = (part.astype(jnp.float32) * w for part, w in zip(slices, weights, strict=True))
    total = next(terms)
    for term in terms:
        total = total + term
    return total


def _padded(images: Array, axis: int, before: int, after: int) -> Array:
    if before == after == 0:
        return images
    widths = [(0, 0)] * images.ndim
    widths[axis] = (before, after)
    return jnp.pad(images, widths)


def _interleaved(phases: list[Array], axis: int) -> Array:
    """Element ``len(phases) * q + p`` of the result is element ``q`` of ``phases[p]``."""
    if len(phases) == 1:
        return phases[0]
    shape = list(phases[0].shape)
    stacked = jnp.stack(phases, axis + 1)
    shape[axis] = math.prod(stacked.shape[axis : axis + 2])
    return stacked.reshape(shape)
