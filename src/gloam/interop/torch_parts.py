"""Networks and optimisers of PyTorch as those of Equinox and Optax, and weights back."""

import sys
from typing import Any

import equinox as eqx
import numpy as np
import optax

from gloam import checks
from gloam.discounts import from_torch


def _is_torch(part: Any, name: str) -> bool:
    """Whether a part is an instance of a class of PyTorch, which need not be installed."""
    torch: Any = sys.modules.get("torch")  # without it there is no such instance
    kinds = {"Module": "nn.Module", "Optimizer": "optim.Optimizer"}
    kind: Any = torch
    for step in kinds[name].split("."):
        kind = getattr(kind, step, None)
    return kind is not None and isinstance(part, kind)


def network_of(model: Any) -> Any:
    """A network in JAX with the weights of ``model``."""
    if _is_torch(model, "Module"):
        return from_torch(_sequence(model))
    fix = "Pass pyribs' MLP, an nn.Sequential, or an Equinox module such as gloam.discounts.MLP."
    fits = isinstance(model, eqx.Module) and callable(model)
    checks.expect(fits, "model", "a network", type(model).__name__, fix)
    return model


def copied_back(model: Any, network: Any) -> Any:
    """``model`` with the weights of ``network``: PyTorch's own is changed in place."""
    if not _is_torch(model, "Module"):
        return network
    torch: Any = sys.modules["torch"]
    # Both lists are in the order of the layers, each with its weight before its bias.
    learned = [leaf for layer in _flat(network) for leaf in (layer.weight, layer.bias)]
    arrays = [leaf for leaf in learned if leaf is not None]
    with torch.no_grad():
        for parameter, array in zip(_sequence(model).parameters(), arrays, strict=True):
            parameter.copy_(torch.from_numpy(np.array(array)))
    return model


def optimizer_of(optimizer: Any) -> optax.GradientTransformation:
    """An optimiser of Optax with the settings of ``optimizer``."""
    if not _is_torch(optimizer, "Optimizer"):
        fits = isinstance(optimizer, optax.GradientTransformation)
        fix = "Pass torch.optim.Adam, AdamW or SGD, or an optimiser of Optax."
        checks.expect(fits, "optimizer", "an optimiser", type(optimizer).__name__, fix)
        return optimizer
    groups, kind = optimizer.param_groups, type(optimizer).__name__
    checks.expect(len(groups) == 1, "optimizer", "one group of parameters", len(groups))
    fix = "Its memory of gradients cannot be converted: build a new one."
    checks.expect(not optimizer.state, "optimizer", "one without steps", "one with some", fix)
    group = groups[0]
    if kind in ("Adam", "AdamW"):
        return _adam(group, kind)
    if kind == "SGD":
        plain = not (group["weight_decay"] or group["dampening"] or group["maximize"])
        checks.expect(plain, "optimizer", "SGD with lr, momentum and nesterov only", "others")
        momentum = float(group["momentum"]) or None
        return optax.sgd(float(group["lr"]), momentum, nesterov=bool(group["nesterov"]))
    raise ValueError(
        f"optimizer: expected torch.optim.Adam, AdamW or SGD, got {kind}. Pass an optimiser of "
        "Optax instead."
    )


def _adam(group: Any, kind: str) -> optax.GradientTransformation:
    decay = float(group["weight_decay"])
    plain = not (group["amsgrad"] or group["maximize"]) and (decay == 0 or kind == "AdamW")
    fix = "For weight decay use AdamW; for others pass an optimiser of Optax."
    expected = "Adam with lr, betas and eps only, or AdamW also with weight_decay"
    checks.expect(plain, "optimizer", expected, "other settings", fix)
    settings: Any = dict(zip(("b1", "b2"), map(float, group["betas"]), strict=True))
    settings["eps"] = float(group["eps"])
    if decay:
        return optax.adamw(float(group["lr"]), weight_decay=decay, **settings)
    return optax.adam(float(group["lr"]), **settings)


def _sequence(model: Any) -> Any:
    """The layers of a network of PyTorch; pyribs' MLP holds them as ``model``."""
    nn: Any = sys.modules["torch"].nn
    inner = getattr(model, "model", None)
    return inner if isinstance(inner, nn.Sequential) else model


def _flat(network: Any) -> list[Any]:
    """Layers with weights, those inside others included, in order."""
    layers = getattr(network, "layers", None)
    if layers is None:
        return [network] if hasattr(network, "weight") else []
    return [inner for layer in layers for inner in _flat(layer)]
