"""A live PyTorch module as the network of a discount model, in the ask-tell driver."""

import copy
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from gloam import checks
from gloam.discounts.networks.from_torch import pytorch
from gloam.discounts.networks.host_call import host_call

# A call puts its weights into the module and takes them out again, and drawing weights sets
# PyTorch's one random state: only one call at a time.
_ONE_CALL = threading.Lock()


class TorchNetwork(eqx.Module):
    """Any ``torch.nn.Module`` as a network: PyTorch computes it, gloam trains it.

    The module's parameters become arrays of the search's state: gloam's own training loop and Adam
    change them, checkpoints hold them, and a resumed search goes on to the same bits. Outputs and
    gradients come from PyTorch, a minibatch at a time. The module itself is copied and stays as it
    is.

    Works with `gloam.Search` and `gloam.optimize`. `gloam.run`, which has no Python in its loop,
    refuses it. Where `from_torch` can convert the module, that is faster: with an MLP of
    784-128-128-1 on two CPU cores, an iteration of `Search` takes 111 ms with this class instead of
    61 (docs/performance.md). PyTorch computes on the CPU, whatever JAX does.

    Args:
        module: Maps rows ``(n, meas)``, or ``(n, *shape)`` where the archive's measures have a
            shape, to ``(n,)`` or ``(n, 1)``, each row from itself alone. Rows are scaled to
            [-1, 1]. It is used in evaluation mode and in float32: dropout does nothing, and buffers
            (BatchNorm's running statistics) stay as they are. Parameters that do not require a
            gradient are not trained.
        fresh: Whether every seed draws its own weights by the layers' ``reset_parameters``. Where
            a layer has none, and always with ``fresh=False``, each seed starts with the module's
            own weights, as one would want for a network that was trained before.
        threads: How many PyTorch may use. JAX has threads of its own for the rest of an iteration:
            where cores are few, more than one of PyTorch's make a small network slower by far.

    Example:
        >>> import gloam
        >>> from torch import nn  # doctest: +SKIP
        >>> module = nn.Sequential(nn.Linear(2, 8), nn.SiLU(), nn.Linear(8, 1))  # doctest: +SKIP
        >>> archive = gloam.GridArchive(shape=(10, 10), lower=-1, upper=1)
        >>> algorithm = gloam.DMS(  # doctest: +SKIP
        ...     archive, x0=np.zeros(3), sigma0=0.3, network=TorchNetwork(module)
        ... )
        >>> search = gloam.Search(algorithm, seed=7)  # doctest: +SKIP
        >>> solutions = search.ask()  # doctest: +SKIP
        >>> search.tell(None, solutions[:, :2])  # doctest: +SKIP
        >>> search.metrics["epochs"]  # doctest: +SKIP
        1
    """

    weights: dict[str, Float[Array, "..."]]
    module: Any = eqx.field(static=True)
    fresh: bool = eqx.field(static=True)
    threads: int = eqx.field(static=True)

    def __init__(self, module: Any, *, fresh: bool = True, threads: int = 1):
        torch = _torch()
        checks.expect(
            isinstance(module, torch.nn.Module),
            "module",
            "a torch.nn.Module",
            type(module).__name__,
        )
        lazy = torch.nn.parameter.is_lazy
        checks.expect(
            not any(lazy(part) for part in module.parameters()),
            "module",
            "parameters that have a shape",
            "some of lazy layers",
            "Call the module once before.",
        )
        checks.instance("fresh", fresh, bool)
        self.module = copy.deepcopy(module).cpu().float().eval()
        self.fresh = fresh
        self.threads = checks.integer("threads", threads, minimum=1)
        trained = {name: part for name, part in self.module.named_parameters() if _trains(part)}
        checks.expect(len(trained) > 0, "module", "parameters that require a gradient", "none")
        self.weights = {
            name: jnp.array(part.detach().numpy(), copy=True) for name, part in trained.items()
        }

    def __call__(self, row: Float[Array, "*shape"]) -> Float[Array, ""]:
        """The discount at one point of (normalised) measure space."""
        return self.of_batch(row[None])[0]

    def of_batch(self, rows: Float[Array, "n *shape"]) -> Float[Array, " n"]:
        """The discount at each row."""
        _check_module(self.module, rows.shape[1:])
        call = _Call(self.module, tuple(self.weights), self.threads)
        return _outputs(call, rows, list(self.weights.values()))

    def reinitialized(self, *, key: PRNGKeyArray) -> "TorchNetwork":
        """The same network with fresh weights, where ``fresh`` and the layers allow it."""
        if not (self.fresh and all(hasattr(part, "reset_parameters") for part in self._layers)):
            return self
        draw = partial(_drawn, self.module, tuple(self.weights))
        # PyTorch's generator looks at 32 bits of a seed, so that is what it gets.
        drawn = host_call(draw, _like(self.weights.values()), jax.random.bits(key))
        weights = dict(zip(self.weights, drawn, strict=True))
        return eqx.tree_at(lambda network: network.weights, self, weights)

    @property
    def _layers(self) -> list[Any]:
        return _trained_layers(self.module)


@dataclass(frozen=True)
class _Call:
    """What a call needs besides arrays: they are the rows, then a weight for each name."""

    module: Any
    names: tuple[str, ...]
    threads: int


# The operation and its gradients. Those by weights and by rows are two calls, because nobody asks
# for the second in training, and the compiler leaves it out.


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _outputs(
    call: _Call, rows: Float[Array, "n *shape"], weights: list[Array]
) -> Float[Array, " n"]:
    result = [jax.ShapeDtypeStruct(rows.shape[:1], jnp.float32)]
    return host_call(partial(_forward, call), result, rows, *weights)[0]


def _outputs_forward(call: _Call, rows: Array, weights: list[Array]) -> tuple[Array, Any]:
    return _outputs(call, rows, weights), (rows, weights)


def _outputs_backward(call: _Call, kept: Any, slopes: Array) -> tuple[Array, list[Array]]:
    rows, weights = kept
    by_rows, by_weights = partial(_gradients, call, False), partial(_gradients, call, True)
    return (
        host_call(by_rows, _like([rows]), slopes, rows, *weights)[0],
        list(host_call(by_weights, _like(weights), slopes, rows, *weights)),
    )


_outputs.defvjp(_outputs_forward, _outputs_backward)


def _like(arrays: Any) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(array.shape, jnp.float32) for array in arrays]


# What PyTorch does, in NumPy arrays


def _forward(call: _Call, rows: np.ndarray, *weights: np.ndarray) -> list[np.ndarray]:
    with _alone(call.threads), _torch().no_grad():
        return [_called(call, _tensor(rows), [_tensor(weight) for weight in weights]).numpy()]


def _gradients(
    call: _Call, by_weights: bool, slopes: np.ndarray, rows: np.ndarray, *weights: np.ndarray
) -> list[np.ndarray]:
    torch = _torch()
    with _alone(call.threads), torch.enable_grad():
        x, tensors = _tensor(rows), [_tensor(weight) for weight in weights]
        sought = tensors if by_weights else [x]
        for tensor in sought:
            tensor.requires_grad_()
        found = torch.autograd.grad(
            _called(call, x, tensors),
            sought,
            _tensor(slopes),
            allow_unused=True,
            materialize_grads=True,
        )
        return [gradient.numpy() for gradient in found]


def _called(call: _Call, rows: Any, weights: Sequence[Any]) -> Any:
    state = dict(zip(call.names, weights, strict=True))
    # A copy of the rows: a layer may change its input in place.
    outputs = _torch().func.functional_call(call.module, state, (rows.clone(),))
    return outputs.reshape(-1).float()


@contextmanager
def _alone(threads: int) -> Iterator[None]:
    torch = _torch()
    with _ONE_CALL:
        usual = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            yield
        finally:
            torch.set_num_threads(usual)


def _tensor(array: np.ndarray) -> Any:
    # PyTorch warns of memory that it may not write to.
    return _torch().from_numpy(array if array.flags.writeable else array.copy())


def _drawn(module: Any, names: tuple[str, ...], seed: np.ndarray) -> list[np.ndarray]:
    """Weights by the layers' own rules."""
    torch = _torch()
    mine = copy.deepcopy(module)
    # Layers draw from PyTorch's one random state, which is the user's: it is put back.
    with _alone(1), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(seed))
        for layer in _trained_layers(mine):
            layer.reset_parameters()
    parts = dict(mine.named_parameters())
    return [parts[name].detach().numpy() for name in names]


def _trained_layers(module: Any) -> list[Any]:
    """The layers that have trained parameters of their own."""
    return [part for part in module.modules() if any(map(_trains, part.parameters(recurse=False)))]


def _trains(parameter: Any) -> bool:
    return parameter.requires_grad


def _check_module(module: Any, shape: tuple[int, ...]) -> None:
    """Call the module on three rows, as it will be in the search, and see that it can serve."""
    torch = _torch()
    rows = torch.linspace(-1, 1, 3 * int(np.prod(shape))).reshape(3, *shape)
    before = {name: part.clone() for name, part in module.state_dict().items()}
    with _alone(1), torch.enable_grad():
        first, again, alone = (module(x.clone()) for x in (rows, rows, rows[:1]))
    name = type(module).__name__
    checks.expect(
        tuple(first.shape) in ((3,), (3, 1)),
        "module",
        "one number for each row",
        f"shape {tuple(first.shape)} for 3 rows of {shape} from {name}",
    )
    checks.expect(
        first.requires_grad,
        "module",
        "outputs that depend on trained parameters",
        f"others from {name}",
    )
    after = module.state_dict()
    same = torch.equal(first, again) and all(torch.equal(after[k], before[k]) for k in before)
    checks.expect(
        same,
        "module",
        "the same output each time, without state",
        f"others from {name}",
        "In evaluation mode nothing may be random or remembered.",
    )
    checks.expect(
        torch.allclose(first[:1], alone, rtol=1e-3, atol=1e-5),
        "module",
        "each row's output from that row alone",
        f"others from {name}",
        "Rows of a minibatch may not mix.",
    )


def _torch() -> Any:
    return pytorch("TorchNetwork")
