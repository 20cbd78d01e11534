"""A frozen embedding under a trained head: a network that knows something before it is trained."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from gloam import checks
from gloam.discounts.networks.mlp import MLP, Reinitializable


class Frozen(eqx.Module):
    """``head(embed(m))``, where only ``head`` is trained.

    The discount model embeds a point once for each fit, and the optimiser has no memory for the
    embedding: it may be far larger than a network that could be trained as the search runs.

    Args:
        embed: Maps one row of measures, in the shape ``measure_shape``, to an array of any shape:
            an Equinox module, or a function. It sees measures scaled to [-1, 1], as every network
            does. Prefer a module: a run folder can store it if it is made of gloam's own parts, as
            `from_torch` makes them; and weights inside a function become
            constants of the compiled program.
        head: Maps the embedding, as a flat row, to a number; by default the paper's MLP.
        measure_shape: Number of measures, ``784``, or its shape, ``(28, 28)``.
        key: Randomness of the default head's weights.

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
        # Weights in NumPy would travel to the device again with every call.
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
        """The embedding as a flat row: what the head sees."""
        embedding = self.embed(jnp.reshape(measures, self.shape or (-1,)))
        return jax.lax.stop_gradient(jnp.ravel(embedding).astype(jnp.float32))

    def __call__(self, measures: Float[Array, "*shape"]) -> Float[Array, "..."]:
        """The discount at one point of (normalised) measure space."""
        return self.head(self.features(measures))  # pyright: ignore[reportCallIssue]

    def reinitialized(self, *, key: PRNGKeyArray) -> "Frozen":
        """The same network with fresh weights in its head, if that can draw them."""
        if not isinstance(self.head, Reinitializable):
            return self
        return eqx.tree_at(lambda network: network.head, self, self.head.reinitialized(key=key))


def stages(network: eqx.Module) -> tuple[Callable[[Array], Array], eqx.Module]:
    """A network as what is computed of a point once, and what training changes.

    >>> embed, head = stages(Frozen(jnp.tanh, measure_shape=3))
    >>> embed(jnp.zeros(3)).shape, type(head).__name__
    ((3,), 'MLP')
    """
    if isinstance(network, Frozen):
        return network.features, network.head
    return lambda measures: measures, network


def _output(name: str, part: Any, call: Any, sizes: tuple[int, ...]) -> jax.ShapeDtypeStruct:
    """What ``part`` makes of a row of the given shape, found without running it."""
    row = f"{sizes[0]} numbers" if len(sizes) == 1 else f"rows of shape {sizes}"
    try:
        return eqx.filter_eval_shape(call, jnp.zeros(sizes, jnp.float32))
    except Exception as error:
        raise ValueError(
            f"{name}: expected a network for {row} in operations that JAX can trace, got "
            f"{getattr(part, '__name__', type(part).__name__)}, which fails on them ({error}). "
            "It is called with one row, not with a batch; gloam.discounts.from_torch converts "
            "networks of PyTorch."
        ) from error
