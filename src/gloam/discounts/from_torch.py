"""Networks of PyTorch as Equinox modules with the same weights.

The result compiles into the search, on any device and in both drivers, and run folders
store it.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gloam._tools import checks
from gloam._tools.registry import register

_FIX = (
    "Supported are Sequential, Linear, Conv2d, ReLU, LeakyReLU, Tanh, GELU, Flatten and Unflatten. "
    "Write other modules as an Equinox module."
)


def from_torch(module: Any) -> "Stack":
    """A PyTorch ``nn.Sequential`` as an Equinox module with the same weights.

    Train or load a network in PyTorch and use it as the ``network`` of a `DiscountModel` or as the
    ``embed`` of a `Frozen` one. PyTorch is not needed after the conversion, nor to resume a run.
    The weights are copies in float32; as a ``network`` every seed starts from them.

    PyTorch's layers see batches, the result sees one row; the outputs are the same.

    Args:
        module: An ``nn.Sequential``, also nested, of ``Linear``, ``Conv2d`` (padded with zeros),
            ``ReLU``, ``LeakyReLU``, ``Tanh``, ``GELU``, ``Flatten`` and ``Unflatten``. For images
            begin with ``Unflatten(1, (channels, height, width))``: it is given flat rows then.

    Example:
        >>> from torch import nn  # doctest: +SKIP
        >>> network = from_torch(nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 1)))
        ... # doctest: +SKIP
        >>> network(jnp.zeros(10)).shape  # doctest: +SKIP
        (1,)
    """
    nn = pytorch("from_torch").nn
    checks.expect(
        isinstance(module, nn.Sequential),
        "module",
        "a torch.nn.Sequential",
        type(module).__name__,
        _FIX,
    )
    return _converted("module", module, nn)


def pytorch(name: str) -> Any:
    """The library, which gloam does without until someone uses it."""
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError(
            f"{name}: expected PyTorch to be installed, got no module 'torch'. "
            "Install it: pip install torch."
        ) from error
    return torch


@register
class Linear(eqx.Module):
    """``x W^T + b`` over the last axis."""

    weight: Float[Array, "out in"]
    bias: Float[Array, " out"] | None

    def __call__(self, x: Float[Array, "*shape in"]) -> Float[Array, "*shape out"]:
        """The output."""
        x = x @ self.weight.T
        return x if self.bias is None else x + self.bias


@register
class Convolution(eqx.Module):
    """A two-dimensional convolution of one image, channels first.

    As a part that is trained on the CPU it is slow; `CNN` is not.
    """

    weight: Float[Array, "out in rows columns"]
    bias: Float[Array, " out"] | None
    stride: tuple[int, int] = eqx.field(static=True)
    padding: tuple[tuple[int, int], tuple[int, int]] = eqx.field(static=True)
    dilation: tuple[int, int] = eqx.field(static=True)
    groups: int = eqx.field(static=True)

    def __call__(self, x: Float[Array, "in height width"]) -> Float[Array, "out high wide"]:
        """The output."""
        x = jax.lax.conv_general_dilated(
            x[None],
            self.weight,
            self.stride,
            self.padding,
            rhs_dilation=self.dilation,
            feature_group_count=self.groups,
        )[0]
        return x if self.bias is None else x + self.bias[:, None, None]


@register
class Rectifier(eqx.Module):
    """ReLU, or LeakyReLU with a slope."""

    slope: float = eqx.field(static=True)

    def __call__(self, x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """The output; at 0 the gradient is the slope, as in PyTorch."""
        return jnp.where(x > 0, x, self.slope * x)


@register
class Tanh(eqx.Module):
    """The hyperbolic tangent."""

    def __call__(self, x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """The output."""
        return jnp.tanh(x)


@register
class Gelu(eqx.Module):
    """GELU, exact or by its approximation with tanh."""

    approximate: bool = eqx.field(static=True)

    def __call__(self, x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """The output."""
        return jax.nn.gelu(x, approximate=self.approximate)


@register
class Flatten(eqx.Module):
    """Makes one axis of the axes ``start`` to ``end``, both included."""

    start: int = eqx.field(static=True)
    end: int = eqx.field(static=True)

    def __call__(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """The output."""
        start, end = range(x.ndim)[self.start], range(x.ndim)[self.end] + 1
        return x.reshape(*x.shape[:start], math.prod(x.shape[start:end]), *x.shape[end:])


@register
class Unflatten(eqx.Module):
    """Makes axes of the given sizes of one axis."""

    axis: int = eqx.field(static=True)
    sizes: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """The output."""
        axis = range(x.ndim)[self.axis]
        return x.reshape(*x.shape[:axis], *self.sizes, *x.shape[axis + 1 :])


@register
class Stack(eqx.Module):
    """Layers one after another."""

    layers: list[eqx.Module]

    def __call__(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """The output of the last layer."""
        for layer in self.layers:
            x = layer(x)  # pyright: ignore[reportCallIssue]
        return x


def _converted(name: str, layer: Any, nn: Any) -> Any:
    """One layer of PyTorch, and those inside it, as ours."""

    def is_a(kind: type) -> bool:
        # A subclass may do something else; one that only names a Sequential does not.
        return isinstance(layer, kind) and type(layer).forward is kind.forward  # pyright: ignore

    hooks = (layer._forward_hooks, layer._forward_pre_hooks)
    checks.expect(
        not any(hooks),
        name,
        "a layer without forward hooks",
        f"{type(layer).__name__} with some",
        "Remove them before the conversion, as they would be lost in it.",
    )
    if is_a(nn.Sequential):
        # Not its named children: a layer that comes twice is named once.
        return Stack([_converted(f"{name}[{i}]", part, nn) for i, part in enumerate(layer)])
    if is_a(nn.Linear):
        return Linear(_array(layer.weight), _array(layer.bias))
    if is_a(nn.Conv2d):
        return _convolution(name, layer)
    if is_a(nn.ReLU):
        return Rectifier(0.0)
    if is_a(nn.LeakyReLU):
        return Rectifier(float(layer.negative_slope))
    if is_a(nn.Tanh):
        return Tanh()
    if is_a(nn.GELU):
        return Gelu(layer.approximate == "tanh")
    if is_a(nn.Flatten):
        return Flatten(_axis(name, layer.start_dim), _axis(name, layer.end_dim))
    if is_a(nn.Unflatten):
        return Unflatten(_axis(name, layer.dim), tuple(int(n) for n in layer.unflattened_size))
    raise ValueError(
        f"{name}: expected a layer that can be converted, got {type(layer).__name__}. {_FIX}"
    )


def _convolution(name: str, layer: Any) -> Convolution:
    checks.expect(
        layer.padding_mode == "zeros",
        name,
        "a Conv2d padded with zeros",
        f"padding_mode {layer.padding_mode!r}",
        _FIX,
    )
    if layer.padding == "valid":
        padding = [(0, 0), (0, 0)]
    elif layer.padding == "same":
        extents = zip(layer.dilation, layer.kernel_size, strict=True)
        whole = [dilation * (size - 1) for dilation, size in extents]
        padding = [(size // 2, size - size // 2) for size in whole]
    else:
        padding = [(size, size) for size in layer.padding]
    return Convolution(
        _array(layer.weight),
        _array(layer.bias),
        tuple(layer.stride),
        (padding[0], padding[1]),
        tuple(layer.dilation),
        layer.groups,
    )


def _axis(name: str, axis: int) -> int:
    """An axis of a batch as an axis of one of its rows."""
    checks.expect(
        axis != 0,
        name,
        "an axis other than the batch's",
        "axis 0",
        "Each row is converted on its own: use axis 1 for a row's first.",
    )
    return axis - 1 if axis > 0 else axis


def _array(parameter: Any) -> Any:
    if parameter is None:
        return None
    # A copy, because training in PyTorch changes its own in place.
    return jnp.array(parameter.detach().cpu().float().numpy(), copy=True)
