"""The paper's network trained by a kernel of its own, where there is a GPU for it."""

from functools import partial
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, Int

from gloam import kernels
from gloam.discounts.networks.mlp import MLP
from gloam.discounts.training import Sweep, Trained


def fast_sweep(
    network: Any,
    *,
    batch_size: int,
    rate: float | Float[Array, ""],
    decay: float,
    decay_of_squares: float,
) -> Sweep | None:
    """A sweep for `fit` by Adam with these settings, or ``None`` where the plain one has to do."""
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
    """A sweep of an MLP by `gloam.kernels.minibatch`."""
    from gloam.kernels.minibatch import sweep

    optimizer: Any = trained.optimizer  # of Optax's Adam
    memory, *rest = optimizer
    layers = _layers(trained.params), _layers(memory.mu), _layers(memory.nu)
    loss, layers = sweep(
        layers, x, y, total, memory.count, adam=adam, batch=batch_size, interpret=interpret
    )
    params, mu, nu = map(_with_layers, (trained.params, memory.mu, memory.nu), layers)
    count = memory.count + -(-total // batch_size)
    return loss, Trained(params, (memory._replace(count=count, mu=mu, nu=nu), *rest))


def _layers(network: MLP) -> Any:
    """Weights by layer; the last ones without their axis of one output."""
    from gloam.kernels.minibatch import Layers

    (w1, w2, w3), (b1, b2, b3) = network.weights, network.biases
    return Layers(w1, b1, w2, b2, w3[:, 0], b3[0])


def _with_layers(network: MLP, layers: Any) -> MLP:
    weights = [layers.w1, layers.w2, layers.w3[:, None]]
    biases = [layers.b1, layers.b2, layers.b3[None]]
    return eqx.tree_at(lambda mlp: (mlp.weights, mlp.biases), network, (weights, biases))
