"""The parts of StyleGAN3: mapping network, Fourier features, synthesis layers.

Images inside are ``(n, height, width, channels)``. A part is built from tensors by their official
names (``tensors["bias"]``), and gives them back by `tensors`.
"""

import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from gloam.generators.resampling import filtered_leaky_relu
from gloam.generators.stylegan3_settings import LayerSettings, StyleGAN3Settings

Tensors = Mapping[str, Any]
_EXACT = jax.lax.Precision.HIGHEST


class FullyConnected(eqx.Module):
    """A linear layer whose weights are stored divided by their learning rate's multiplier."""

    weight: Float[Array, "out_features in_features"]
    bias: Float[Array, " out_features"]
    multiplier: float = eqx.field(static=True)

    def __init__(self, tensors: Tensors, multiplier: float = 1.0):
        self.weight, self.bias = jnp.asarray(tensors["weight"]), jnp.asarray(tensors["bias"])
        self.multiplier = multiplier

    def __call__(self, rows: Float[Array, "n in_features"]) -> Float[Array, "n out_features"]:
        """Apply the layer."""
        gain = self.multiplier / math.sqrt(self.weight.shape[1])
        return _product(rows, gain * self.weight.T) + self.multiplier * self.bias

    def tensors(self) -> dict[str, Array]:
        """By official names."""
        return {"weight": self.weight, "bias": self.bias}


class MappingNetwork(eqx.Module):
    """From normal numbers z (and labels) to styles w."""

    layers: list[FullyConnected]
    embed: FullyConnected | None
    average: Float[Array, " w"]

    def __init__(self, settings: StyleGAN3Settings, tensors: Tensors):
        multiplier = settings.mapping_lr_multiplier
        names = [f"fc{index}" for index in range(settings.mapping_layers)]
        self.layers = [FullyConnected(part_of(tensors, name), multiplier) for name in names]
        self.embed = FullyConnected(part_of(tensors, "embed")) if settings.c_dim else None
        self.average = jnp.asarray(tensors["w_avg"])

    def __call__(
        self, z: Float[Array, "n z"], labels: Float[Array, "n c"] | None
    ) -> Float[Array, "n w"]:
        """Styles, not truncated."""
        rows = _unit_power(z)
        if self.embed is not None:
            assert labels is not None
            rows = jnp.concatenate([rows, _unit_power(self.embed(labels))], axis=1)
        for layer in self.layers:
            rows = math.sqrt(2) * jax.nn.leaky_relu(layer(rows), 0.2)
        return rows

    def tensors(self) -> dict[str, Array]:
        """By official names."""
        found = {"w_avg": self.average}
        for index, layer in enumerate(self.layers):
            found |= {f"fc{index}.{name}": value for name, value in layer.tensors().items()}
        if self.embed is not None:
            found |= {f"embed.{name}": value for name, value in self.embed.tensors().items()}
        return found


class FourierInput(eqx.Module):
    """Fourier features at sampling points that an affine function of w rotates and shifts."""

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
            jnp.asarray(tensors[name]) for name in ("weight", "transform", "freqs", "phases")
        )

    def __call__(self, w: Float[Array, "n w"]) -> Float[Array, "n size size channels"]:
        """Features of style vectors."""
        size, rate, bandwidth = (
            self.layer.in_size,
            self.layer.in_sampling_rate,
            self.layer.in_cutoff,
        )
        move = self.affine(w)
        move = move / jnp.linalg.norm(move[:, :2], axis=1, keepdims=True)
        cosine, sine, x, y = move.T
        zero, one = jnp.zeros_like(x), jnp.ones_like(x)
        rotate = _matrices([[cosine, -sine, zero], [sine, cosine, zero], [zero, zero, one]])
        shift = _matrices([[one, zero, -x], [zero, one, -y], [zero, zero, one]])
        # The image is rotated first, then shifted, then moved by the user's transform.
        matrices = _product(_product(rotate, shift), self.transform)
        phases = self.phases + _product(self.freqs, matrices[:, :2, 2:])[..., 0]
        freqs = _product(self.freqs, matrices[:, :2, :2])
        # Frequencies that the user's transform moves out of the band fade.
        outside = (jnp.linalg.norm(freqs, axis=2) - bandwidth) / (rate / 2 - bandwidth)
        amplitudes = jnp.clip(1 - outside, 0, 1)
        places = (jnp.arange(size) + 0.5 - size / 2) / rate
        along_x = freqs[:, None, None, :, 0] * places[None, None, :, None]
        along_y = freqs[:, None, None, :, 1] * places[None, :, None, None]
        waves = jnp.sin(2 * jnp.pi * (along_x + along_y + phases[:, None, None, :]))
        waves = waves * amplitudes[:, None, None, :]
        weight = self.weight.T / math.sqrt(self.weight.shape[0])
        return _product(waves, weight)

    def tensors(self) -> dict[str, Array]:
        """By official names."""
        names = ("weight", "transform", "freqs", "phases")
        found = {name: getattr(self, name) for name in names}
        return found | {f"affine.{name}": value for name, value in self.affine.tensors().items()}


class SynthesisLayer(eqx.Module):
    """Modulated convolution, then a filtered leaky ReLU; the last layer is ToRGB."""

    kernel: Float[Array, "rows columns in_channels out_channels"]
    power: Float[Array, "in_channels out_channels"]
    """Sum of the squared kernel over its rows and columns, for the demodulation."""
    bias: Float[Array, " out_channels"]
    affine: FullyConnected
    magnitude_ema: Float[Array, ""]
    up_filter: Float[Array, " up_taps"] | None
    down_filter: Float[Array, "down_taps *down_taps"] | None
    layer: LayerSettings

    def __init__(self, layer: LayerSettings, tensors: Tensors):
        self.layer = layer
        self.kernel = jnp.asarray(np.asarray(tensors["weight"]).transpose(2, 3, 1, 0))
        self.power = jnp.sum(jnp.square(self.kernel), axis=(0, 1))
        self.bias = jnp.asarray(tensors["bias"])
        self.affine = FullyConnected(part_of(tensors, "affine"))
        self.magnitude_ema = jnp.asarray(tensors["magnitude_ema"])
        self.up_filter = None if layer.up_taps == 1 else jnp.asarray(tensors["up_filter"])
        self.down_filter = None if layer.down_taps == 1 else jnp.asarray(tensors["down_filter"])

    def __call__(
        self, images: Num[Array, "n size size in_channels"], w: Float[Array, "n w"], half: Any
    ) -> Num[Array, "n new_size new_size out_channels"]:
        """Apply the layer; with ``half`` (a dtype) in that precision where the table says so."""
        layer = self.layer
        kind = half if half is not None and layer.use_fp16 else jnp.float32
        images = self._modulated(images, w, kind, None if half is not None else _EXACT)
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
        kind: Any,
        precision: Any,
    ) -> Num[Array, "n new_size new_size out_channels"]:
        """Modulated convolution and bias.

        The official network makes a kernel for each image. Scaling the input by the styles and the
        output by the demodulation gives the same, by one convolution with one kernel.
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
            if kind == jnp.float32:
                kernel, scale = self.kernel, scale * level
            else:  # small kernels keep the sums within the range of half precision
                kernel = self.kernel * level
        styles = styles * jax.lax.rsqrt(self.magnitude_ema)
        images = (images * styles[:, None, None, :]).astype(kind)
        border = self.layer.conv_kernel - 1
        images = jax.lax.conv_general_dilated(
            images,
            kernel.astype(kind),
            (1, 1),
            [(border, border)] * 2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            precision=precision,
        )
        return (images * scale[:, None, None, :] + self.bias).astype(kind)

    def tensors(self) -> dict[str, Array]:
        """By official names."""
        found = {"weight": self.kernel.transpose(3, 2, 0, 1), "bias": self.bias}
        found |= {"magnitude_ema": self.magnitude_ema}
        filters = {"up_filter": self.up_filter, "down_filter": self.down_filter}
        found |= {name: taps for name, taps in filters.items() if taps is not None}
        return found | {f"affine.{name}": value for name, value in self.affine.tensors().items()}


def part_of(tensors: Tensors, name: str) -> dict[str, Any]:
    """Tensors below ``name``, without it: ``affine.bias`` becomes ``bias``."""
    start = f"{name}."
    return {key.removeprefix(start): tensors[key] for key in tensors if key.startswith(start)}


def _product(a: Array, b: Array) -> Array:
    """Matrix product in full float32; these are small, and phases need all digits."""
    return jnp.matmul(a, b, precision=_EXACT)


def _unit_power(rows: Float[Array, "n d"]) -> Float[Array, "n d"]:
    return rows * jax.lax.rsqrt(jnp.mean(jnp.square(rows), axis=1, keepdims=True) + 1e-8)


def _matrices(entries: list[list[Array]]) -> Float[Array, "n 3 3"]:
    return jnp.stack([jnp.stack(row, axis=-1) for row in entries], axis=-2)
