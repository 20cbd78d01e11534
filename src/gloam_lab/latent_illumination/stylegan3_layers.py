"""Layers of StyleGAN3: mapping network, Fourier features, synthesis layers, filtered nonlinearity.

Layers are built from tensors by their official names (``tensors["bias"]``) and return them by
`tensors`. Images have the layout ``(n, height, width, channels)``: shifts along height and width
then move whole rows of channels, and vectorize.

Filters are applied in polyphase form: an output is a sum of shifted slices, and the zeros that
upsampling inserts are never multiplied. XLA fuses each sum into one loop. Alternatives and their
timings: ``research/latent-space-illumination.md``.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from gloam_lab.generator import on_device
from gloam_lab.latent_illumination.stylegan3_settings import LayerSettings, StyleGAN3Settings

Tensors = Mapping[str, Any]
_EXACT = jax.lax.Precision.HIGHEST
# XLA fuses two sums into one loop as long as this duplicates the inner sum at most 15 times: two
# filters of 12 taps would become one sum of 144 terms. Computing the result in two halves needs 24
# duplicates, which prevents the fusion.
_HALVES = 2


class FullyConnected(eqx.Module):
    """A linear layer whose weights are stored divided by a learning rate multiplier."""

    weight: Float[Array, "out_features in_features"]
    bias: Float[Array, " out_features"]
    multiplier: float = eqx.field(static=True)

    def __init__(self, tensors: Tensors, multiplier: float = 1.0):
        self.weight, self.bias = on_device(tensors["weight"]), on_device(tensors["bias"])
        self.multiplier = multiplier

    def __call__(self, rows: Float[Array, "n in_features"]) -> Float[Array, "n out_features"]:
        """Apply the layer."""
        gain = self.multiplier / math.sqrt(self.weight.shape[1])
        return _product(rows, gain * self.weight.T) + self.multiplier * self.bias

    def tensors(self) -> dict[str, Array]:
        """Return the tensors by their official names."""
        return {"weight": self.weight, "bias": self.bias}


class MappingNetwork(eqx.Module):
    """Maps normal vectors z (and labels) to styles w."""

    layers: list[FullyConnected]
    embed: FullyConnected | None
    average: Float[Array, " w"]

    def __init__(self, settings: StyleGAN3Settings, tensors: Tensors):
        multiplier = settings.mapping_lr_multiplier
        names = [f"fc{index}" for index in range(settings.mapping_layers)]
        self.layers = [FullyConnected(part_of(tensors, name), multiplier) for name in names]
        self.embed = FullyConnected(part_of(tensors, "embed")) if settings.c_dim else None
        self.average = on_device(tensors["w_avg"])

    def __call__(
        self, z: Float[Array, "n z"], labels: Float[Array, "n c"] | None
    ) -> Float[Array, "n w"]:
        """Return styles without truncation."""
        rows = _unit_power(z)
        if self.embed is not None:
            assert labels is not None
            rows = jnp.concatenate([rows, _unit_power(self.embed(labels))], axis=1)
        for layer in self.layers:
            rows = math.sqrt(2) * jax.nn.leaky_relu(layer(rows), 0.2)
        return rows

    def tensors(self) -> dict[str, Array]:
        """Return the tensors by their official names."""
        named = {"w_avg": self.average}
        for index, layer in enumerate(self.layers):
            named |= prefixed(f"fc{index}", layer)
        return named if self.embed is None else named | prefixed("embed", self.embed)


class FourierInput(eqx.Module):
    """Fourier features on a grid that an affine function of w rotates and translates."""

    weight: Float[Array, "channels channels"]
    affine: FullyConnected
    transform: Float[Array, "3 3"]
    freqs: Float[Array, "channels 2"]
    phases: Float[Array, " channels"]
    layer: LayerSettings

    def __init__(self, layer: LayerSettings, tensors: Tensors):
        self.layer = layer
        self.affine = FullyConnected(part_of(tensors, "affine"))
        self.weight, self.transform, self.freqs, self.phases = (
            on_device(tensors[name]) for name in ("weight", "transform", "freqs", "phases")
        )

    def __call__(self, w: Float[Array, "n w"]) -> Float[Array, "n size size channels"]:
        """Return the features of style vectors."""
        size, rate = self.layer.in_size, self.layer.in_sampling_rate
        bandwidth = self.layer.in_cutoff
        move = self.affine(w)
        move = move / jnp.linalg.norm(move[:, :2], axis=1, keepdims=True)
        cosine, sine, x, y = move.T
        zero, one = jnp.zeros_like(x), jnp.ones_like(x)
        rotate = _matrices([[cosine, -sine, zero], [sine, cosine, zero], [zero, zero, one]])
        shift = _matrices([[one, zero, -x], [zero, one, -y], [zero, zero, one]])
        # The image is rotated first, then translated, then transformed by the user's matrix.
        matrices = _product(_product(rotate, shift), self.transform)
        phases = self.phases + _product(self.freqs, matrices[:, :2, 2:])[..., 0]
        freqs = _product(self.freqs, matrices[:, :2, :2])
        # Frequencies that the user's matrix moves out of the band are faded out.
        outside = (jnp.linalg.norm(freqs, axis=2) - bandwidth) / (rate / 2 - bandwidth)
        amplitudes = jnp.clip(1 - outside, 0, 1)
        positions = (jnp.arange(size) + 0.5 - size / 2) / rate
        along_x = freqs[:, None, None, :, 0] * positions[None, None, :, None]
        along_y = freqs[:, None, None, :, 1] * positions[None, :, None, None]
        waves = jnp.sin(2 * jnp.pi * (along_x + along_y + phases[:, None, None, :]))
        waves = waves * amplitudes[:, None, None, :]
        weight = self.weight.T / math.sqrt(self.weight.shape[0])
        return _product(waves, weight)

    def tensors(self) -> dict[str, Array]:
        """Return the tensors by their official names."""
        names = ("weight", "transform", "freqs", "phases")
        return {name: getattr(self, name) for name in names} | prefixed("affine", self.affine)


class SynthesisLayer(eqx.Module):
    """A modulated convolution, then a filtered leaky ReLU; the last layer is ToRGB."""

    kernel: Float[Array, "rows columns in_channels out_channels"]
    power: Float[Array, "in_channels out_channels"]
    """Sum of the squared kernel over its rows and columns, used by the demodulation."""
    bias: Float[Array, " out_channels"]
    affine: FullyConnected
    magnitude_ema: Float[Array, ""]
    up_filter: Float[Array, " up_taps"] | None
    down_filter: Float[Array, "down_taps *down_taps"] | None
    layer: LayerSettings

    def __init__(self, layer: LayerSettings, tensors: Tensors):
        self.layer = layer
        kernel = np.asarray(tensors["weight"]).transpose(2, 3, 1, 0)
        self.kernel = on_device(kernel)
        self.power = on_device(np.square(kernel).sum(axis=(0, 1)))
        self.bias = on_device(tensors["bias"])
        self.affine = FullyConnected(part_of(tensors, "affine"))
        self.magnitude_ema = on_device(tensors["magnitude_ema"])
        self.up_filter = None if layer.up_taps == 1 else on_device(tensors["up_filter"])
        self.down_filter = None if layer.down_taps == 1 else on_device(tensors["down_filter"])

    def __call__(
        self, images: Num[Array, "n size size in_channels"], w: Float[Array, "n w"], half: Any
    ) -> Num[Array, "n new_size new_size out_channels"]:
        """Apply the layer, with dtype ``half`` (if given) in layers that have ``use_fp16``."""
        layer = self.layer
        dtype = half if half is not None and layer.use_fp16 else jnp.float32
        images = self._modulated(images, w, dtype, None if half is not None else _EXACT)
        one = jnp.ones(1)
        return filtered_leaky_relu(
            images,
            one if self.up_filter is None else self.up_filter,
            one if self.down_filter is None else self.down_filter,
            up=layer.up_factor,
            down=layer.down_factor,
            padding=layer.padding,
            gain=1.0 if layer.is_torgb else math.sqrt(2),
            slope=1.0 if layer.is_torgb else 0.2,
            clamp=layer.conv_clamp,
        )

    def _modulated(
        self,
        images: Num[Array, "n size size in_channels"],
        w: Float[Array, "n w"],
        dtype: Any,
        precision: Any,
    ) -> Num[Array, "n new_size new_size out_channels"]:
        """Apply the modulated convolution and the bias.

        The official network computes a kernel for each image. Here the input is scaled by the
        styles and the output by the demodulation, which gives the same result with one kernel.
        """
        fan_in = math.prod(self.kernel.shape[:3])
        styles = self.affine(w)
        if self.layer.is_torgb:
            styles = styles / math.sqrt(fan_in)
            kernel, scale = self.kernel, jnp.ones((1, self.kernel.shape[3]))
        else:
            styles = styles * jax.lax.rsqrt(jnp.mean(jnp.square(styles), axis=1, keepdims=True))
            level = jax.lax.rsqrt(jnp.sum(self.power, axis=0))
            squares = _product(jnp.square(styles), fan_in * jnp.square(level) * self.power)
            scale = math.sqrt(fan_in) * jax.lax.rsqrt(squares + 1e-8)
            if dtype == jnp.float32:
                kernel, scale = self.kernel, scale * level
            else:  # a small kernel keeps the sums within the range of half precision
                kernel = self.kernel * level
        styles = styles * jax.lax.rsqrt(self.magnitude_ema)
        images = (images * styles[:, None, None, :]).astype(dtype)
        border = self.layer.conv_kernel - 1
        images = jax.lax.conv_general_dilated(
            images,
            kernel.astype(dtype),
            (1, 1),
            [(border, border)] * 2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            precision=precision,
        )
        return (images * scale[:, None, None, :] + self.bias).astype(dtype)

    def tensors(self) -> dict[str, Array]:
        """Return the tensors by their official names."""
        named = {"weight": self.kernel.transpose(3, 2, 0, 1), "bias": self.bias}
        named |= {"magnitude_ema": self.magnitude_ema} | prefixed("affine", self.affine)
        filters = {"up_filter": self.up_filter, "down_filter": self.down_filter}
        return named | {name: taps for name, taps in filters.items() if taps is not None}


def part_of(tensors: Tensors, name: str) -> dict[str, Any]:
    """Return the tensors of a submodule: ``affine.bias`` becomes ``bias`` for ``"affine"``."""
    start = f"{name}."
    return {key.removeprefix(start): tensors[key] for key in tensors if key.startswith(start)}


def prefixed(name: str, module: Any) -> dict[str, Array]:
    """Return the tensors of a submodule under its name, the inverse of `part_of`."""
    return {f"{name}.{key}": tensor for key, tensor in module.tensors().items()}


def _product(a: Array, b: Array) -> Array:
    """Multiply matrices in full float32: they are small, and phases need the precision."""
    return jnp.matmul(a, b, precision=_EXACT)


def _unit_power(rows: Float[Array, "n d"]) -> Float[Array, "n d"]:
    return rows * jax.lax.rsqrt(jnp.mean(jnp.square(rows), axis=1, keepdims=True) + 1e-8)


def _matrices(entries: list[list[Array]]) -> Float[Array, "n 3 3"]:
    return jnp.stack([jnp.stack(row, axis=-1) for row in entries], axis=-2)


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
    """Upsample, apply a leaky ReLU, clamp and downsample: the nonlinearity of StyleGAN3.

    Args:
        images: In float32 or half precision, which is also the precision of the result.
        up_taps: Separable upsampling filter.
        down_taps: Downsampling filter: separable, or not if it has two axes.
        up, down: Factors.
        padding: Zeros before and after each axis of the upsampled images; negative values crop.
        gain: Factor applied after the leaky ReLU.
        slope: Slope of the leaky ReLU below zero.
        clamp: Largest magnitude after the gain, or ``None``.
    """
    dtype = images.dtype
    tall = upsample(images, up_taps, factor=up, axis=1, padding=padding).astype(dtype)
    large = upsample(tall, up_taps, factor=up, axis=2, padding=padding)
    large = gain * jnp.where(large > 0, large, slope * large)
    if clamp is not None:
        large = jnp.clip(large, -clamp, clamp)
    large = large.astype(dtype)
    if down_taps.ndim == 2:
        return downsample_both(large, down_taps, factor=down).astype(dtype)
    wide = downsample(large, down_taps, factor=down, axis=1).astype(dtype)
    return downsample(wide, down_taps, factor=down, axis=2).astype(dtype)


def upsample(
    images: Num[Array, "n height width channels"],
    taps: Float[Array, " taps"],
    *,
    factor: int,
    axis: int,
    padding: tuple[int, int],
) -> Float[Array, "n new_height new_width channels"]:
    """Insert zeros, pad and filter along one axis.

    Each element is followed by ``factor - 1`` zeros, the axis is padded with zeros (or cropped if
    ``padding`` is negative), and the result is convolved with ``factor * taps``, without the
    positions where the filter overlaps the edge.

    Returns:
        float32 for every input precision, so that the caller rounds once.
    """
    return _upsampled(images, taps, factor, axis, padding)


# Gradients go through the filters by their transposes, which are filters of the same kind: the
# derivative of each shifted slice would be padded to the whole size, which is five times slower.
# Filters themselves are constants and have no gradient.
@partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def _upsampled(
    images: Array, taps: Array, factor: int, axis: int, padding: tuple[int, int]
) -> Array:
    size, num_taps, before = images.shape[axis], taps.shape[0], padding[0]
    length = size * factor + sum(padding) - num_taps + 1
    rows = -(-length // factor)
    # Output `factor * q + phase` is the sum over taps t of element q + (start - t) / factor, for
    # those t that coincide with an element and not with an inserted zero.
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
        # A phase without terms consists of inserted zeros.
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
    """Filter along one axis without padding, and keep every ``factor``-th element, in float32."""
    return _downsampled(images, taps, factor, axis)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _downsampled(images: Array, taps: Array, factor: int, axis: int) -> Array:
    num_taps = taps.shape[0]
    length = (images.shape[axis] - num_taps) // factor + 1
    num_halves = _HALVES if num_taps > 1 else 1
    rows = -(-length // num_halves)
    step = num_halves * factor
    # The second half may end one element after the first; missing inputs are zeros.
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


def _of_upsampled(
    factor: int, axis: int, padding: tuple[int, int], saved: tuple[Array, Array], gradient: Array
) -> tuple[Array, Array]:
    """Transpose of `upsample`: element i meets tap t in output ``factor i + before - last + t``."""
    taps, like = saved
    size, num_taps = like.shape[0], taps.shape[0]
    lead, needed = num_taps - 1 - padding[0], (size - 1) * factor + num_taps
    placed = _placed(gradient, axis, lead, needed)
    result = downsample(placed, jnp.flip(factor * taps), factor=factor, axis=axis)
    return result.astype(like.dtype), jnp.zeros_like(taps)


def _of_downsampled(
    factor: int, axis: int, saved: tuple[Array, Array], gradient: Array
) -> tuple[Array, Array]:
    """Transpose of `downsample`: result i came from elements ``factor i + last - t``."""
    taps, like = saved
    padding = taps.shape[0] - 1, like.shape[0] - gradient.shape[axis] * factor
    flipped = jnp.flip(taps) / factor
    result = upsample(gradient, flipped, factor=factor, axis=axis, padding=padding)
    return result.astype(like.dtype), jnp.zeros_like(taps)


def _kept(images: Array, taps: Array, axis: int) -> tuple[Array, Array]:
    """Return what the transposes need: the filter, and size and dtype of the images as an array."""
    return taps, jnp.zeros((images.shape[axis], 0), images.dtype)


_upsampled.defvjp(
    lambda images, taps, factor, axis, padding: (
        _upsampled(images, taps, factor, axis, padding),
        _kept(images, taps, axis),
    ),
    _of_upsampled,
)
_downsampled.defvjp(
    lambda images, taps, factor, axis: (
        _downsampled(images, taps, factor, axis),
        _kept(images, taps, axis),
    ),
    _of_downsampled,
)


def downsample_both(
    images: Num[Array, "n height width channels"], taps: Float[Array, "taps taps"], *, factor: int
) -> Float[Array, "n new_height new_width channels"]:
    """Downsample both axes with a filter that is not separable, in float32."""
    size = taps.shape[0]
    n, height, width, channels = images.shape
    rows, columns = (height - size) // factor + 1, (width - size) // factor + 1
    ends = ((rows - 1) * factor + 1, (columns - 1) * factor + 1)
    offsets = [(i, j) for i in range(size) for j in range(size)]
    slices = (
        jax.lax.slice(
            images, (0, i, j, 0), (n, i + ends[0], j + ends[1], channels), (1, factor, factor, 1)
        )
        for i, j in offsets
    )
    return _weighted_sum(slices, [taps[size - 1 - i, size - 1 - j] for i, j in offsets])


def _weighted_sum(slices: Iterable[Array], weights: Sequence[Array]) -> Array:
    # Sums are in float32 for half precision, too: the casts are fused into the loop.
    terms = (piece.astype(jnp.float32) * w for piece, w in zip(slices, weights, strict=True))
    total = next(terms)
    for term in terms:
        total = total + term
    return total


def _placed(images: Array, axis: int, before: int, length: int) -> Array:
    """Return images after ``before`` zeros (or without their first elements), of a given length."""
    widths = [(0, 0, 0)] * images.ndim
    widths[axis] = (before, length - before - images.shape[axis], 0)
    return jax.lax.pad(images, jnp.zeros((), images.dtype), widths)


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
