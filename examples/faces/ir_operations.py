"""The operations of OpenVINO's graphs that MobileStyleGAN uses, in JAX.

An operation maps a list of inputs and the attributes, which are texts, to a tuple of outputs.
Shapes and axes are NumPy arrays on the host, known while JAX traces; all else are JAX arrays.
"""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from ir_checks import Attributes, expect
from ir_convolutions import convolution, group_convolution, group_convolution_backprop

Operation = Callable[[list[Any], Attributes], tuple[Any, ...]]

_MOST_NUMBERS = 1 << 28


def _host(value: Any) -> np.ndarray:
    """A shape or axes, which have to be known before anything is computed."""
    expect(isinstance(value, np.ndarray), "integers known in advance", "computed numbers")
    return value


def _ints(value: Any) -> tuple[int, ...]:
    return tuple(int(number) for number in _host(value).reshape(-1))


def _limited(factors: tuple[int, ...]) -> None:
    """Refuse to repeat an array without end."""
    total = math.prod(factors)
    expect(0 <= total <= _MOST_NUMBERS, f"at most {_MOST_NUMBERS} numbers", total)


def _module(*values: Any) -> Any:
    """NumPy for what is on the host, JAX for the rest."""
    return np if all(isinstance(value, np.ndarray) for value in values) else jnp


def _add(inputs: list[Any], attributes: Attributes) -> tuple[Any, ...]:
    return (_module(*inputs).add(*_numpy_rule(inputs, attributes)),)


def _multiply(inputs: list[Any], attributes: Attributes) -> tuple[Any, ...]:
    return (_module(*inputs).multiply(*_numpy_rule(inputs, attributes)),)


def _power(inputs: list[Any], attributes: Attributes) -> tuple[Any, ...]:
    return (_module(*inputs).power(*_numpy_rule(inputs, attributes)),)


def _numpy_rule(inputs: list[Any], attributes: Attributes) -> list[Any]:
    rule = attributes.get("auto_broadcast", "numpy")
    expect(rule == "numpy", "auto_broadcast 'numpy'", repr(rule))
    expect(len(inputs) == 2, "two inputs", len(inputs))
    return inputs


def _prelu(inputs: list[Any], attributes: Attributes) -> tuple[Any, ...]:
    values, slope = inputs
    if slope.ndim == 1 and slope.size > 1:  # a slope for each channel
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
    expect(text in ("true", "false", "1", "0"), f"{name} 'true' or 'false'", repr(text))
    return text in ("true", "1")


def _shape_of(inputs: list[Any], attributes: Attributes) -> tuple[Any, ...]:
    return (np.array(inputs[0].shape, np.int64),)


def _gather(inputs: list[Any], attributes: Attributes) -> tuple[Any, ...]:
    values, places, axis = inputs
    batch_dims = attributes.get("batch_dims", "0")
    expect(batch_dims == "0", "batch_dims '0'", repr(batch_dims))
    (axis,), chosen = _ints(axis), _host(places)
    inside = bool(np.all((chosen >= 0) & (chosen < values.shape[axis])))
    expect(inside, f"places below {values.shape[axis]}", chosen.tolist())
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
    expect(mode in ("numpy", "bidirectional"), "mode 'numpy' or 'bidirectional'", repr(mode))
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
    expect(fits, f"lengths that sum to {total}", list(_ints(lengths)))
    return tuple(_module(values).split(values, np.cumsum(sizes)[:-1].tolist(), axis=axis))


def _result(inputs: list[Any], attributes: Attributes) -> tuple[Any, ...]:
    return (inputs[0],)


OPERATIONS: dict[str, Operation] = {
    "Add": _add,
    "Broadcast": _broadcast,
    "Concat": _concat,
    "Convolution": convolution,
    "Gather": _gather,
    "GroupConvolution": group_convolution,
    "GroupConvolutionBackpropData": group_convolution_backprop,
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
