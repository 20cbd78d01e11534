"""Networks for the discount model: the paper's MLP, a CNN, and a frozen embedding with a head.

Any Equinox module that maps one row of measures to a number (shape ``()`` or ``(1,)``) can be used.
A row has the shape of the archive's measures, ``(28, 28)`` for images; a network that does not
accept it gets the flat row ``(784,)``. Which of the two is determined when the model is built.

A network with a method ``reinitialized(key=...)`` gets new weights for every seed; others start
each seed with the weights they were built with. A network with a method ``of_batch(rows)`` is
called with many rows at once, ``(n, *shape)`` to ``(n,)``.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from gloam._tools import checks
from gloam._tools.devices import runs_on_cpu
from gloam._tools.registry import register

Shapes = tuple[tuple[int, ...], ...]
Layers = tuple[list[Float[Array, "..."]], list[Float[Array, "..."]]]

_MANY = 256  # points; minibatches are smaller


@runtime_checkable
class Reinitializable(Protocol):
    """A network that can draw new weights."""

    def reinitialized(self, *, key: PRNGKeyArray) -> Any:
        """Return the same network with new weights."""
        ...


@runtime_checkable
class TakesBatches(Protocol):
    """A network that takes many rows at once."""

    def of_batch(self, rows: Float[Array, "n *shape"]) -> Float[Array, " n"]:
        """Return the output for each row."""
        ...


@register(assembled=True)
class MLP(eqx.Module):
    """The paper's network: fully connected layers with ReLU in between.

    Weights and biases start uniform in ``+-1/sqrt(fan_in)``, which is PyTorch's default.

    Args:
        measure_dim: Number of measures; rows with a shape are flattened.
        hidden: Sizes of the hidden layers.
        key: Random key of the weights.

    Example:
        >>> network = MLP(10, key=jax.random.key(0))
        >>> network(jnp.zeros(10)).shape
        ()
    """

    weights: list[Float[Array, "..."]]
    biases: list[Float[Array, "..."]]

    def __init__(
        self,
        measure_dim: int,
        hidden: Sequence[int] = (128, 128),
        *,
        key: PRNGKeyArray | None = None,
    ):
        sizes = [checks.integer("measure_dim", measure_dim, minimum=1)]
        sizes += [*checks.integers("hidden", hidden, minimum=1), 1]
        self.weights, self.biases = first_weights(tuple(pairwise(sizes)), key)

    def __call__(self, measures: Float[Array, "*shape"]) -> Float[Array, ""]:
        """Return the output for one row of scaled measures."""
        x = jnp.ravel(measures)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = jax.nn.relu(x @ weight + bias)
        return jnp.squeeze(x @ self.weights[-1] + self.biases[-1], axis=-1)

    def of_batch(self, rows: Float[Array, "n *shape"]) -> Float[Array, " n"]:
        """Return the output for many rows."""
        if rows.shape[0] < _MANY or not runs_on_cpu():
            return jax.vmap(self)(rows)
        # With a row for each unit, XLA computes these products on all cores of a CPU; with a row
        # for each point, on one (0.42 ms instead of 0.64 for 540 points on two cores).
        units = jnp.reshape(rows, (rows.shape[0], -1)).T
        *hidden, last = zip(self.weights, self.biases, strict=True)
        for weight, bias in hidden:
            units = jax.nn.relu(weight.T @ units + bias[:, None])
        return (last[0].T @ units)[0] + last[1]

    def reinitialized(self, *, key: PRNGKeyArray) -> "MLP":
        """Return the same network with new weights."""
        hidden = [weight.shape[1] for weight in self.weights[:-1]]
        return MLP(self.weights[0].shape[0], hidden, key=key)


@register(assembled=True)
class CNN(eqx.Module):
    """A CNN for images: 3x3 convolutions with stride 2, then two linear layers, with ReLU.

    Each convolution halves height and width (rounded up, one pixel of zeros around the image), as
    PyTorch's ``Conv2d(..., 3, stride=2, padding=1)``. Weights and biases start uniform in
    ``+-1/sqrt(fan_in)``, which is PyTorch's default.

    Args:
        shape: Shape of an image, ``(height, width)`` or ``(height, width, colors)``, as in NumPy
            and Pillow.
        channels: Number of channels of each convolution.
        hidden: Size of the layer between the convolutions and the output.
        key: Random key of the weights.

    Example:
        >>> network = CNN((28, 28), key=jax.random.key(0))
        >>> network(jnp.zeros((28, 28))).shape, network(jnp.zeros(28 * 28)).shape
        ((), ())
    """

    weights: list[Float[Array, "..."]]
    biases: list[Float[Array, "..."]]
    shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self,
        shape: Sequence[int],
        *,
        channels: Sequence[int] = (16, 32),
        hidden: int = 64,
        key: PRNGKeyArray | None = None,
    ):
        self.shape = _image_shape(shape)
        checks.expect(
            isinstance(channels, Sequence) and len(channels) > 0,
            "channels",
            "the channels of each convolution",
            repr(channels),
            "For instance (16, 32).",
        )
        depths = [checks.integer("channels", depth, minimum=1) for depth in channels]
        hidden = checks.integer("hidden", hidden, minimum=1)
        height, width, colors = self.shape
        for _ in depths:
            height, width = _half(height), _half(width)
        shapes = [(3, 3, before, after) for before, after in pairwise([colors, *depths])]
        shapes += [(height * width * depths[-1], hidden), (hidden, 1)]
        self.weights, self.biases = first_weights(tuple(shapes), key)

    def __call__(self, measures: Float[Array, "*shape"]) -> Float[Array, ""]:
        """Return the output for one scaled image, in its shape or as a flat row."""
        height, width, colors = self.shape
        shapes = [self.shape, (math.prod(self.shape),)] + [(height, width)] * (colors == 1)
        checks.expect(
            measures.shape in shapes,
            "measures",
            f"{math.prod(self.shape)} numbers, an image of {self.shape}",
            f"shape {measures.shape}",
        )
        x = measures.reshape(self.shape)
        *convolutions, hidden, last = zip(self.weights, self.biases, strict=True)
        for weight, bias in convolutions:
            x = jax.nn.relu(_convolve(x, weight) + bias)
        x = jax.nn.relu(x.reshape(-1) @ hidden[0] + hidden[1])
        return jnp.squeeze(x @ last[0] + last[1], axis=-1)

    def reinitialized(self, *, key: PRNGKeyArray) -> "CNN":
        """Return the same network with new weights."""
        *convolutions, hidden, _ = (weight.shape[-1] for weight in self.weights)
        return CNN(self.shape, channels=convolutions, hidden=hidden, key=key)


def _half(size: int) -> int:
    return -(-size // 2)


def _convolve(
    image: Float[Array, "height width before"], weight: Float[Array, "3 3 before after"]
) -> Float[Array, "rows columns after"]:
    """Compute a 3x3 convolution with stride 2 and padding 1 as one matrix product.

    `jax.lax.conv_general_dilated` with weights for every seed becomes a grouped convolution, and
    its gradient a convolution with a huge kernel: a fit on the CPU takes 4 to 7 times as long.
    """
    height, width, before = image.shape
    rows, columns = _half(height), _half(width)
    # Padded to even sizes, so that a slice with stride 2 is a reshape of pixel pairs.
    padding = ((1, 2 * rows + 1 - height), (1, 2 * columns + 1 - width), (0, 0))
    x = jnp.pad(image, padding).reshape(rows + 1, 2, columns + 1, 2 * before)
    # Three adjacent pixels are a pair and the first of the next pair; rows likewise.
    x = jnp.concatenate([x[:, :, :-1], x[:, :, 1:, :before]], axis=-1)
    patches = jnp.concatenate([x[:-1, 0], x[:-1, 1], x[1:, 0]], axis=-1)
    return patches @ weight.reshape(9 * before, -1)


def _image_shape(shape: Sequence[int]) -> tuple[int, ...]:
    fix = "For instance (28, 28) or (64, 64, 3)."
    checks.expect(
        isinstance(shape, Sequence) and len(shape) in (2, 3),
        "shape",
        "(height, width) or (height, width, colors)",
        repr(shape),
        fix,
    )
    sizes = tuple(checks.integer("shape", size, minimum=1, fix=fix) for size in shape)
    return sizes if len(sizes) == 3 else (*sizes, 1)


@register(assembled=True)
class Frozen(eqx.Module):
    """``head(embed(m))``, where only ``head`` is trained.

    A point is embedded once for each fit, and the optimizer has no state for the embedding, so it
    may be far larger than a network that is trained during the search.

    Args:
        embed: Maps one row of measures, in the shape ``measure_shape``, to an array of any shape:
            an Equinox module, or a function. Measures are scaled to [-1, 1]. Prefer a module: run
            folders can store one that consists of gloam's own parts, such as the result of
            `from_torch`, and weights inside a function become constants of the compiled program.
        head: Maps the flattened embedding to a number; by default the paper's MLP.
        measure_shape: Number of measures, ``784``, or its shape, ``(28, 28)``.
        key: Random key of the default head's weights.

    Example:
        >>> embed = eqx.nn.Linear(784, 50, key=jax.random.key(0))
        >>> network = Frozen(embed, measure_shape=784)
        >>> network(jnp.zeros(784)).shape, network.head.weights[0].shape
        ((), (50, 128))
        >>> columns = Frozen(lambda image: image.mean(axis=0), measure_shape=(28, 28))
        >>> columns.head.weights[0].shape
        (28, 128)
    """

    embed: Callable[[Array], Array]
    head: eqx.Module
    shape: tuple[int, ...] = eqx.field(static=True)
    """Shape of a point as `embed` takes it; empty for a flat row."""

    def __init__(
        self,
        embed: Callable[[Array], Array],
        head: eqx.Module | None = None,
        *,
        measure_shape: int | Sequence[int],
        key: PRNGKeyArray | None = None,
    ):
        checks.expect(
            callable(embed), "embed", "an Equinox module or a function", type(embed).__name__
        )
        # NumPy weights would be transferred to the device with every call.
        self.embed = jax.tree.map(
            lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, embed
        )
        sizes = measure_shape if isinstance(measure_shape, Sequence) else (measure_shape,)
        sizes = tuple(checks.integer("measure_shape", size, minimum=1) for size in sizes)
        self.shape = sizes if len(sizes) > 1 else ()
        size = _output("embed", self.embed, self.features, sizes).shape[0]
        self.head = MLP(size, key=key) if head is None else head
        fix = f"It must map an embedding of {size} numbers to one number."
        good = isinstance(self.head, eqx.Module) and callable(self.head)
        checks.expect(
            good, "head", "an Equinox module that can be called", type(head).__name__, fix
        )
        shape = _output("head", self.head, self.head, (size,)).shape
        checks.expect(shape in ((), (1,)), "head", "one number", f"shape {shape}", fix)

    def features(self, measures: Float[Array, "*shape"]) -> Float[Array, " features"]:
        """Return the flattened embedding, the input of the head."""
        embedding = self.embed(jnp.reshape(measures, self.shape or (-1,)))
        return jax.lax.stop_gradient(jnp.ravel(embedding).astype(jnp.float32))

    def __call__(self, measures: Float[Array, "*shape"]) -> Float[Array, "..."]:
        """Return the output for one row of scaled measures."""
        return self.head(self.features(measures))  # pyright: ignore[reportCallIssue]

    def reinitialized(self, *, key: PRNGKeyArray) -> "Frozen":
        """Return the same network with new weights in its head, if that can draw them."""
        if not isinstance(self.head, Reinitializable):
            return self
        return eqx.tree_at(lambda network: network.head, self, self.head.reinitialized(key=key))


def outputs(network: Any, rows: Float[Array, "n *shape"]) -> Float[Array, " n"]:
    """Return the output of a network for each row.

    >>> outputs(jnp.sum, jnp.ones((3, 2, 2))).tolist()
    [4.0, 4.0, 4.0]
    """
    by_row = network.of_batch if isinstance(network, TakesBatches) else jax.vmap(network)
    return jnp.reshape(by_row(rows), (-1,))


def in_blocks(
    function: Callable[[Array], Array], rows: Float[Array, "n meas"], size: int
) -> Float[Array, " n"]:
    """Apply a function of rows to blocks of ``size`` rows.

    >>> in_blocks(lambda rows: rows.sum(axis=1), jnp.ones((5, 2)), size=2).tolist()
    [2.0, 2.0, 2.0, 2.0, 2.0]
    """
    count = rows.shape[0]
    if count <= size:
        return function(rows)
    # The last block is padded with repeated rows, whose results are dropped.
    indices = jnp.minimum(jnp.arange(-(-count // size) * size), count - 1).reshape(-1, size)
    return jax.lax.map(lambda block: function(rows[block]), indices).reshape(-1)[:count]


def stages(network: eqx.Module) -> tuple[Callable[[Array], Array], eqx.Module]:
    """Split a network into its fixed embedding and its trained part.

    >>> embed, head = stages(Frozen(jnp.tanh, measure_shape=3))
    >>> embed(jnp.zeros(3)).shape, type(head).__name__
    ((3,), 'MLP')
    """
    if isinstance(network, Frozen):
        return network.features, network.head
    return lambda measures: measures, network


def _output(name: str, part: Any, call: Any, sizes: tuple[int, ...]) -> jax.ShapeDtypeStruct:
    """Return the output shape of ``part`` for one row, without running it."""
    row = f"{sizes[0]} numbers" if len(sizes) == 1 else f"rows of shape {sizes}"
    try:
        return eqx.filter_eval_shape(call, jnp.zeros(sizes, jnp.float32))
    except Exception as error:
        raise ValueError(
            f"{name}: expected a network for {row} in operations that JAX can trace, got "
            f"{getattr(part, '__name__', type(part).__name__)}, which raises an error ({error}). "
            "It is called with one row, not with a batch; gloam.discounts.from_torch converts "
            "networks of PyTorch."
        ) from error


_ROW_TO_NUMBER = "It must map one row of measures to one number, without state."


def checked_network(network: Any) -> Any:
    """Check that a network can be called, and return it without float64.

    Weights have float64 if jax_enable_x64 was set.
    """
    is_module = isinstance(network, eqx.Module) and callable(network)
    expected, got = "an Equinox module that can be called", type(network).__name__
    checks.expect(is_module, "network", expected, got, _ROW_TO_NUMBER)

    def narrow(leaf: Any) -> Any:
        is_wide = eqx.is_array(leaf) and leaf.dtype == jnp.float64
        return leaf.astype(jnp.float32) if is_wide else leaf

    return jax.tree.map(narrow, network)


def checked_row_shape(
    network: eqx.Module, measures: int, shape: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the shape in which a network takes rows: ``shape``, or empty for flat rows."""
    shape = checks.integers("shape", shape, minimum=1)
    checks.expect(
        math.prod(shape or (measures,)) == measures,
        "shape",
        f"a shape of the {measures} measures",
        shape,
    )
    # A frozen embedding reshapes rows itself.
    shaped = len(shape) > 1 and not isinstance(network, Frozen)
    failures = []
    for row in [shape] * shaped + [(measures,)]:
        given = jax.ShapeDtypeStruct(row, jnp.float32)
        try:
            output = eqx.filter_eval_shape(network, given).shape  # pyright: ignore
        except Exception as error:
            failures.append((row, f"fails ({error})", error))
            continue
        if output in ((), (1,)):
            return row if len(row) > 1 else ()
        failures.append((row, f"gives shape {output}", None))
    reasons = "; ".join(f"for a row of shape {row} it {what}" for row, what, _ in failures)
    raise ValueError(
        f"network: expected a module that maps {measures} measures to one number, got "
        f"{type(network).__name__}: {reasons}. {_ROW_TO_NUMBER}"
    ) from failures[-1][2]


def first_weights(shapes: Shapes, key: PRNGKeyArray | None) -> Layers:
    """Return weights of the given shapes, whose last axis is the output, and a bias per output.

    All are uniform in ``+-1/sqrt(fan_in)``, which is PyTorch's default. Without a key they are
    fixed and drawn by NumPy, so that building a model does not compile anything.

    >>> weights, biases = first_weights(((2, 8), (8, 1)), None)
    >>> [array.shape for array in weights + biases]
    [(2, 8), (8, 1), (8,), (1,)]
    """
    if key is not None:
        is_key = isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
        is_raw = isinstance(key, jax.Array) and key.dtype == jnp.uint32 and key.ndim == 1
        fix = "Make one by jax.random.key(0)."
        checks.expect(is_key or is_raw, "key", "a random key of JAX", checks.short(key), fix)
        return _drawn_by_jax(shapes, key)
    draws = np.random.default_rng(0).uniform(-1.0, 1.0, _count(shapes)).astype(np.float32)
    weights, biases = _cut(shapes, draws)
    return [jax.device_put(w) for w in weights], [jax.device_put(b) for b in biases]


# One draw for all layers compiles much faster than one per layer.
@partial(jax.jit, static_argnums=0)
def _drawn_by_jax(shapes: Shapes, key: PRNGKeyArray) -> Layers:
    return _cut(shapes, jax.random.uniform(key, (_count(shapes),), jnp.float32, minval=-1.0))


def _count(shapes: Shapes) -> int:
    return sum(math.prod(shape) + shape[-1] for shape in shapes)


def _cut(shapes: Shapes, draws: Array | np.ndarray) -> tuple[list, list]:
    """Split numbers in [-1, 1) into scaled weights and biases of the layers."""
    weights, biases = [], []
    for shape in shapes:
        limit, end, outputs = math.prod(shape[:-1]) ** -0.5, math.prod(shape), shape[-1]
        weights.append(limit * draws[:end].reshape(shape))
        biases.append(limit * draws[end : end + outputs])
        draws = draws[end + outputs :]
    return weights, biases
