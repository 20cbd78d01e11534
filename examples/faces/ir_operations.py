"""The operations of OpenVINO's graphs that MobileStyleGAN uses, in JAX.

An operation maps a list of inputs and the attributes, which are texts, to a tuple of outputs.
Shapes and axes are NumPy arrays on the host, which are known while JAX traces. All other values are
JAX arrays.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Attributes = dict[str, str]
Operation = Callable[[list[Any], Attributes], tuple[Any, ...]]

_MOST_NUMBERS = 1 << 28


class OperationError(ValueError):
    """An operation in a form that is not supported; the message says expected and got."""


def _expect(holds: bool, expected: str, got: Any) -> None:
    """Raise an `OperationError` unless ``holds``."""
    if not holds:
        raise OperationError(f"expected {expected}, got {got}")


def _host(value: Any) -> np.ndarray:
    """Return a shape or axes, which must be known before anything is computed."""
    _expect(isinstance(value, np.ndarray), "integers known in advance", "computed numbers")
    return value


def _ints(value: Any) -> tuple[int, ...]:
    return tuple(int(number) for number in _host(value).reshape(-1))


def _limited(factors: tuple[int, ...]) -> None:
    """Refuse to make an array too large by repetition."""
    total = math.prod(factors)
    _expect(0 <= total <= _MOST_NUMBERS, f"at most {_MOST_NUMBERS} numbers", total)


def _module(*values: Any) -> Any:
    """Return NumPy for values on the host, and otherwise JAX."""
    return np if all(isinstance(value, np.ndarray) for value in values) else jnp


def _add(inputs: list[Any], attributes: Attributes) -> tuple[Any, ...]:
    return (_module(*inputs).add(*_numpy_rule(inputs, attributes)),)


def _multiply(inputs: list[Any], attributes: Attributes) -> tuple[Any, ...]:
    return (_module(*inputs).multiply(*_numpy_rule(inputs, attributes)),)


def _power(inputs: list[Any], attributes: Attributes) -> tuple[Any, ...]:
    return (_module(*inputs).power(*_numpy_rule(inputs, attributes)),)


def _numpy_rule(inputs: list[Any], attributes: Attributes) -> list[Any]:
    rule = attributes.get("auto_broadcast", "numpy")
    _expect(rule == "numpy", "auto_broadcast 'numpy'", repr(rule))
    _expect(len(inputs) == 2, "two inputs", len(inputs))
    return inputs


def _prelu(inputs: list[Any], attributes: Attributes) -> tuple[Any, ...]:
    values, slope = inputs
    if slope.ndim == 1 and slope.size > 1:  # one slope for each channel
        slope = slope.reshape(-1, *(1,) * (values.ndim - 2))
    return (jnp.where(values < 0, slope * values, values),)


def _mat_mul(inputs: list[Any], attributes: Attributes) -> tuple[Any, ...]:
    first, second = inputs
    if _true(attributes, "transpose_a"):
        first = jnp.swapaxes(first, -1, -2)
    if _true(attributes, "transpose_b"):
        second = jnp.swapaxes(second, -1, -2)
    return (jnp.matmul(first, second),)


def _reduce_mean(inputs: list[Any], attributes: Attributes) -> tuple[Any, ...]:
    values, axes = inputs
    return (jnp.mean(values, axis=_ints(axes), keepdims=_true(attributes, "keep_dims")),)


def _true(attributes: Attributes, name: str) -> bool:
    text = attributes.get(name, "false").lower()
    _expect(text in ("true", "false", "1", "0"), f"{name} 'true' or 'false'", repr(text))
    return text in ("true", "1")


def _shape_of(inputs: list[Any], attributes: Attributes) -> tuple[Any, ...]:
    return (np.array(inputs[0].shape, np.int64),)


def _gather(inputs: list[Any], attributes: Attributes) -> tuple[Any, ...]:
    values, places, axis = inputs
    batch_dims = attributes.get("batch_dims", "0")
    _expect(batch_dims == "0", "batch_dims '0'", repr(batch_dims))
    (axis,), chosen = _ints(axis), _host(places)
    inside = bool(np.all((chosen >= 0) & (chosen < values.shape[axis])))
    _expect(inside, f"places below {values.shape[axis]}", chosen.tolist())
    return (_module(values).take(values, chosen, axis=axis),)


def _concat(inputs: list[Any], attributes: Attributes) -> tuple[Any, ...]:
    return (_module(*inputs).concatenate(inputs, axis=int(attributes["axis"])),)


def _squeeze(inputs: list[Any], attributes: Attributes) -> tuple[Any, ...]:
    values, *axes = inputs
    return (_module(values).squeeze(values, _ints(axes[0]) if axes else None),)


def _unsqueeze(inputs: list[Any], attributes: Attributes) -> tuple[Any, ...]:
    values, axes = inputs
    return (_module(values).expand_dims(values, _ints(axes)),)


def _reshape(inputs: list[Any], attributes: Attributes) -> tuple[Any, ...]:
    values, shape = inputs
    sides = list(_ints(shape))
    if _true(attributes, "special_zero"):
        sides = [values.shape[place] if side == 0 else side for place, side in enumerate(sides)]
    return (values.reshape(sides),)


def _broadcast(inputs: list[Any], attributes: Attributes) -> tuple[Any, ...]:
    values, shape = inputs
    sides, mode = _ints(shape), attributes.get("mode", "numpy")
    _expect(mode in ("numpy", "bidirectional"), "mode 'numpy' or 'bidirectional'", repr(mode))
    if mode == "bidirectional":
        sides = np.broadcast_shapes(values.shape, sides)
    _limited(sides)
    return (_module(values).broadcast_to(values, sides),)


def _tile(inputs: list[Any], attributes: Attributes) -> tuple[Any, ...]:
    values, repeats = inputs
    _limited(values.shape + _ints(repeats))
    return (_module(values).tile(values, _ints(repeats)),)


def _variadic_split(inputs: list[Any], attributes: Attributes) -> tuple[Any, ...]:
    values, axis, lengths = inputs
    (axis,), sizes = _ints(axis), list(_ints(lengths))
    total = values.shape[axis]
    if -1 in sizes:
        sizes[sizes.index(-1)] = total - sum(sizes) - 1
    fits = min(sizes) >= 0 and sum(sizes) == total
    _expect(fits, f"lengths that sum to {total}", list(_ints(lengths)))
    return tuple(_module(values).split(values, np.cumsum(sizes)[:-1].tolist(), axis=axis))


def _result(inputs: list[Any], attributes: Attributes) -> tuple[Any, ...]:
    return (inputs[0],)


def _convolution(inputs: list[Any], attributes: Attributes) -> tuple[Any, ...]:
    """Convolve all channels."""
    values, weights = inputs
    _expect(values.ndim == 4 and weights.ndim == 4, "images and kernels of 2 axes", weights.shape)
    window = _Window(attributes, weights.shape[2:])
    if weights.shape[2:] == (1, 1) and window.is_plain:
        # On a CPU, a matrix product is several times faster than a convolution.
        return (jnp.einsum("nchw,oc->nohw", values, weights[:, :, 0, 0]),)
    return (window.convolve(values, weights, 1),)


def _group_convolution(inputs: list[Any], attributes: Attributes) -> tuple[Any, ...]:
    """Convolve within groups of channels."""
    values, weights = inputs
    _expect(weights.ndim == 5, "weights (groups, out, in, height, width)", weights.shape)
    groups, out, per_group, height, width = weights.shape
    _expect(values.shape[1] == groups * per_group, "channels of the weights", values.shape)
    window = _Window(attributes, (height, width))
    if out == per_group == 1 and window.strides == window.dilations == (1, 1):
        return (shifted_sum(values, weights[:, 0, 0], window.pads),)
    kernels = weights.reshape(groups * out, per_group, height, width)
    return (window.convolve(values, kernels, groups),)


def shifted_sum(values: Any, kernels: Any, pads: Any, stride: int = 1) -> Any:
    """Convolve each channel with its own kernel, as a sum over the positions of the kernel.

    XLA fuses the sum into one loop, which is many times faster than its depthwise convolution.

    Args:
        values: Images ``(n, channels, height, width)``.
        kernels: One kernel for each channel, ``(channels, height, width)``.
        pads: Zeros before and after the rows, and before and after the columns.
        stride: Stride along both axes.
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


def _group_convolution_backprop(inputs: list[Any], attributes: Attributes) -> tuple[Any, ...]:
    """Apply a transposed convolution: each number adds its kernel, scaled by it."""
    _expect(len(inputs) == 2, "no output shape", f"{len(inputs)} inputs")
    values, weights = inputs
    _expect(weights.ndim == 5, "weights (groups, in, out, height, width)", weights.shape)
    groups, per_group, out, height, width = weights.shape
    _expect(values.shape[1] == groups * per_group, "channels of the weights", values.shape)
    window = _Window(attributes, (height, width))
    extra = _pair(attributes, "output_padding", 0)
    if out == per_group == 1 and window.tiles and extra == (0, 0):
        # Kernels do not overlap, as in an inverse Haar transform.
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
    """Strides, dilations and pads of a convolution with two axes."""

    def __init__(self, attributes: Attributes, sides: tuple[int, ...]):
        rule = attributes.get("auto_pad", "explicit")
        _expect(rule == "explicit", "auto_pad 'explicit'", repr(rule))
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
        """Whether the kernels of a transposed convolution lie side by side."""
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
    """Parse two integers, such as ``"2, 1"``; both are ``lowest`` if the attribute is missing."""
    text = attributes.get(name, f"{lowest}, {lowest}")
    parts = [part.strip() for part in text.split(",")]
    fits = len(parts) == 2 and all(part.isdecimal() and len(part) < 4 for part in parts)
    _expect(fits and min(map(int, parts)) >= lowest, f"{name}: two small integers", repr(text))
    return int(parts[0]), int(parts[1])


OPERATIONS: dict[str, Operation] = {
    "Add": _add,
    "Broadcast": _broadcast,
    "Concat": _concat,
    "Convolution": _convolution,
    "Gather": _gather,
    "GroupConvolution": _group_convolution,
    "GroupConvolutionBackpropData": _group_convolution_backprop,
    "MatMul": _mat_mul,
    "Multiply": _multiply,
    "PReLU": _prelu,
    "Power": _power,
    "ReduceMean": _reduce_mean,
    "Reshape": _reshape,
    "Result": _result,
    "ShapeOf": _shape_of,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Unsqueeze": _unsqueeze,
    "VariadicSplit": _variadic_split,
}
