"""Convolutions of OpenVINO's graphs in JAX, for images with two axes."""

from typing import Any

import jax
import jax.numpy as jnp
from ir_checks import Attributes, expect


def convolution(inputs: list[Any], attributes: Attributes) -> tuple[Any, ...]:
    """A convolution of all channels."""
    values, weights = inputs
    expect(values.ndim == 4 and weights.ndim == 4, "images and kernels of 2 axes", weights.shape)
    window = _Window(attributes, weights.shape[2:])
    if weights.shape[2:] == (1, 1) and window.is_plain:
        # As a product of matrices: on a CPU several times as fast as a convolution.
        return (jnp.einsum("nchw,oc->nohw", values, weights[:, :, 0, 0]),)
    return (window.convolve(values, weights, 1),)


def group_convolution(inputs: list[Any], attributes: Attributes) -> tuple[Any, ...]:
    """A convolution within groups of channels."""
    values, weights = inputs
    expect(weights.ndim == 5, "weights (groups, out, in, height, width)", weights.shape)
    groups, out, per_group, height, width = weights.shape
    expect(values.shape[1] == groups * per_group, "channels of the weights", values.shape)
    window = _Window(attributes, (height, width))
    if out == per_group == 1 and window.strides == window.dilations == (1, 1):
        return (shifted_sum(values, weights[:, 0, 0], window.pads),)
    kernels = weights.reshape(groups * out, per_group, height, width)
    return (window.convolve(values, kernels, groups),)


def shifted_sum(values: Any, kernels: Any, pads: Any, stride: int = 1) -> Any:
    """A convolution of each channel by itself, as a sum over the places of its kernel.

    XLA makes one loop of the sum. Its own convolution of single channels is many times slower.

    Args:
        values: Images ``(n, channels, height, width)``.
        kernels: One for each channel ``(channels, height, width)``.
        pads: Zeros before and after the rows, and the columns.
        stride: Distance of two results.
    """
    padded = jnp.pad(values, ((0, 0), (0, 0), *pads))
    height, width = kernels.shape[1:]
    last_row, last_column = padded.shape[2] - height + 1, padded.shape[3] - width + 1
    total = jnp.zeros((), values.dtype)
    for row in range(height):
        for column in range(width):
            rows = slice(row, row + last_row, stride)
            columns = slice(column, column + last_column, stride)
            total = total + kernels[:, row, column, None, None] * padded[:, :, rows, columns]
    return total


def group_convolution_backprop(inputs: list[Any], attributes: Attributes) -> tuple[Any, ...]:
    """A transposed convolution: each number becomes a kernel, scaled by it."""
    expect(len(inputs) == 2, "no output shape", f"{len(inputs)} inputs")
    values, weights = inputs
    expect(weights.ndim == 5, "weights (groups, in, out, height, width)", weights.shape)
    groups, per_group, out, height, width = weights.shape
    expect(values.shape[1] == groups * per_group, "channels of the weights", values.shape)
    window = _Window(attributes, (height, width))
    extra = _pair(attributes, "output_padding", 0)
    if out == per_group == 1 and window.tiles and extra == (0, 0):
        # Kernels do not overlap, as in the inverse of a Haar transform.
        spread = values[:, :, :, None, :, None] * weights[:, 0, 0][:, None, :, None, :]
        count, channels, rows, columns = values.shape
        return (spread.reshape(count, channels, rows * height, columns * width),)
    flipped = jnp.moveaxis(weights[..., ::-1, ::-1], 2, 1)
    kernels = flipped.reshape(groups * out, per_group, height, width)
    reach = [
        dilation * (side - 1)
        for dilation, side in zip(window.dilations, (height, width), strict=True)
    ]
    pads = [
        (size - begin, size - end + more)
        for size, (begin, end), more in zip(reach, window.pads, extra, strict=True)
    ]
    return (
        jax.lax.conv_general_dilated(
            values,
            kernels,
            (1, 1),
            pads,
            lhs_dilation=window.strides,
            rhs_dilation=window.dilations,
            feature_group_count=groups,
        ),
    )


class _Window:
    """Strides, dilations and pads of a convolution in two axes."""

    def __init__(self, attributes: Attributes, sides: tuple[int, ...]):
        rule = attributes.get("auto_pad", "explicit")
        expect(rule == "explicit", "auto_pad 'explicit'", repr(rule))
        self.sides = tuple(sides)
        self.strides = _pair(attributes, "strides", 1)
        self.dilations = _pair(attributes, "dilations", 1)
        begin, end = (_pair(attributes, name, 0) for name in ("pads_begin", "pads_end"))
        self.pads = tuple(zip(begin, end, strict=True))

    @property
    def is_plain(self) -> bool:
        return self.strides == self.dilations == (1, 1) and self.pads == ((0, 0), (0, 0))

    @property
    def tiles(self) -> bool:
        """Whether kernels of a transposed convolution lie side by side."""
        return (
            self.strides == self.sides
            and self.dilations == (1, 1)
            and self.pads == ((0, 0), (0, 0))
        )

    def convolve(self, values: Any, kernels: Any, groups: int) -> Any:
        return jax.lax.conv_general_dilated(
            values,
            kernels,
            self.strides,
            self.pads,
            rhs_dilation=self.dilations,
            feature_group_count=groups,
        )


def _pair(attributes: Attributes, name: str, lowest: int) -> tuple[int, int]:
    """Two integers, such as ``"2, 1"``; both are ``lowest`` where the attribute is missing."""
    text = attributes.get(name, f"{lowest}, {lowest}")
    parts = [part.strip() for part in text.split(",")]
    fits = len(parts) == 2 and all(part.isdecimal() and len(part) < 4 for part in parts)
    expect(fits and min(map(int, parts)) >= lowest, f"{name}: two small integers", repr(text))
    return int(parts[0]), int(parts[1])
