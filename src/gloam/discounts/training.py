"""The training loop of discount models, and its fast path for the paper's network on a GPU."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from gloam._tools import kernels
from gloam._tools.devices import loop
from gloam._tools.draws import uniforms
from gloam.discounts.networks import MLP
from gloam.discounts.units import Units

Forward = Callable[[Any, Float[Array, "n meas"]], Float[Array, " n"]]
# Trains on all minibatches of an epoch; returns the sum of the losses of its rows, and the result.
Sweep = Callable[
    ["Trained", Float[Array, "n meas"], Float[Array, " n"], Int[Array, ""]],
    tuple[Float[Array, ""], "Trained"],
]


class Trained(eqx.Module):
    """Weights of a network and the state of their optimizer."""

    params: Any
    optimizer: optax.OptState
    units: Units | None = None
    """Units of the network's outputs, if they are estimated."""


def fit(
    forward: Forward,
    optimizer: optax.GradientTransformation,
    trained: Trained,
    inputs: Float[Array, "n meas"],
    targets: Float[Array, " n"],
    is_trained: Bool[Array, " n"],
    *,
    batch_size: int,
    epochs: int | Int[Array, ""],
    cutoff: float | Float[Array, ""],
    key: PRNGKeyArray,
    sweep: Sweep | None = None,
) -> tuple[Trained, Float[Array, ""], Int[Array, ""]]:
    """Regress ``forward`` to ``targets`` by mean squared error, in shuffled minibatches.

    Training stops when the mean loss of an epoch (computed while it trains) is at most ``cutoff``,
    or after ``epochs`` epochs. Rows with ``is_trained`` false are masked: the result is that of a
    data set without them. If all rows are masked, training is a no-op.

    Args:
        forward: Maps weights and inputs to outputs.
        optimizer: The optimizer.
        trained: Initial weights, with the state of the optimizer.
        inputs: ``(n, meas)`` inputs.
        targets: ``(n,)`` targets.
        is_trained: ``(n,)`` mask of rows to train on.
        batch_size: Number of rows in a minibatch.
        epochs: Largest number of epochs.
        cutoff: Loss at which training stops.
        key: Random key of the shuffles.
        sweep: Another implementation of an epoch with the same result, such as `fast_sweep`.

    Returns:
        The trained weights with the state of the optimizer, the loss of the last epoch and the
        number of epochs.
    """
    size = inputs.shape[0]
    padding = -size % batch_size
    total = jnp.sum(is_trained, dtype=jnp.int32)
    inputs = jnp.where(is_trained[:, None], inputs, 0.0)  # a NaN times zero is a NaN

    if sweep is None:
        sweep = partial(_descend, forward, optimizer, batch_size)

    def epoch(carry: tuple[Array, Array, Trained]) -> tuple[Array, Array, Trained]:
        number, _, trained = carry
        # Trained rows come first, in random order, so that minibatches do not contain masked rows.
        ticket = uniforms(jax.random.fold_in(key, number), size)
        order = jnp.argsort(jnp.where(is_trained, ticket, 2.0))
        order = jnp.concatenate([order, jnp.full((padding,), order[-1])])
        x, y = inputs[order], targets[order]

        loss, trained = sweep(trained, x, y, total)
        return number + 1, loss / jnp.maximum(total, 1).astype(jnp.float32), trained

    def unfinished(carry: tuple[Array, Array, Trained]) -> Bool[Array, ""]:
        number, loss, _ = carry
        return (number < epochs) & ~(loss <= cutoff) & (total > 0)

    first = (jnp.zeros((), jnp.int32), jnp.asarray(jnp.inf, jnp.float32), trained)
    number, loss, trained = jax.lax.while_loop(unfinished, epoch, first)
    return trained, loss, number


def _descend(
    forward: Forward,
    optimizer: optax.GradientTransformation,
    batch_size: int,
    trained: Trained,
    x: Float[Array, "n meas"],
    y: Float[Array, " n"],
    total: Int[Array, ""],
) -> tuple[Float[Array, ""], Trained]:
    """Train any network by any optimizer for one epoch."""

    def loss_of(params: Any, x: Array, y: Array, weight: Array) -> Float[Array, ""]:
        error = jnp.square(forward(params, x) - y)
        return jnp.sum(jnp.where(weight, error, 0.0)) / jnp.maximum(
            jnp.sum(weight, dtype=jnp.float32), 1.0
        )

    def step(batch: Int[Array, ""], carry: tuple[Array, Trained]) -> tuple[Array, Trained]:
        total_loss, old = carry
        start = batch * batch_size
        some_x = jax.lax.dynamic_slice_in_dim(x, start, batch_size)
        some_y = jax.lax.dynamic_slice_in_dim(y, start, batch_size)
        weight = start + jnp.arange(batch_size, dtype=jnp.int32) < total
        loss, gradient = jax.value_and_grad(loss_of)(old.params, some_x, some_y, weight)
        updates, state = optimizer.update(gradient, old.optimizer, old.params)
        new = Trained(optax.apply_updates(old.params, updates), state)
        return total_loss + loss * jnp.sum(weight, dtype=jnp.float32), new

    # Minibatches of padding are skipped, because Adam's moments would decay.
    needed, most = -(-total // batch_size), y.shape[0] // batch_size
    return loop(needed, most, step, (jnp.zeros((), jnp.float32), trained))


def fast_sweep(
    network: Any,
    *,
    batch_size: int,
    rate: float | Float[Array, ""],
    decay: float,
    decay_of_squares: float,
) -> Sweep | None:
    """Return a sweep for `fit` by the GPU kernel, or ``None`` if the kernel is not applicable."""
    if type(network) is not MLP or len(network.weights) != 3:
        return None
    kernel = kernels.load("minibatch")
    inputs, first, second = (weight.shape[0] for weight in network.weights)
    if kernel is None or not kernel.fits(inputs, first, second, batch_size):
        return None
    return partial(by_kernel, kernel.Adam(rate, decay, decay_of_squares), batch_size)


def by_kernel(
    adam: Any,
    batch_size: int,
    trained: Trained,
    x: Float[Array, "n inputs"],
    y: Float[Array, " n"],
    total: Int[Array, ""],
    *,
    interpret: bool = False,
) -> tuple[Float[Array, ""], Trained]:
    """Train an MLP for one epoch by `gloam._tools.kernels.minibatch`."""
    from gloam._tools.kernels.minibatch import sweep

    optimizer: Any = trained.optimizer  # of Optax's Adam
    moments, *rest = optimizer
    layers = _layers(trained.params), _layers(moments.mu), _layers(moments.nu)
    loss, layers = sweep(
        layers, x, y, total, moments.count, adam=adam, batch=batch_size, interpret=interpret
    )
    params, mu, nu = map(_with_layers, (trained.params, moments.mu, moments.nu), layers)
    count = moments.count + -(-total // batch_size)
    return loss, Trained(params, (moments._replace(count=count, mu=mu, nu=nu), *rest))


def _layers(network: MLP) -> Any:
    """Return the weights by layer, the last ones without their axis of one output."""
    from gloam._tools.kernels.minibatch import Layers

    (w1, w2, w3), (b1, b2, b3) = network.weights, network.biases
    return Layers(w1, b1, w2, b2, w3[:, 0], b3[0])


def _with_layers(network: MLP, layers: Any) -> MLP:
    weights = [layers.w1, layers.w2, layers.w3[:, None]]
    biases = [layers.b1, layers.b2, layers.b3[None]]
    return eqx.tree_at(lambda mlp: (mlp.weights, mlp.biases), network, (weights, biases))
