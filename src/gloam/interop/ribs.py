"""Networks and optimisers of PyTorch as those of Equinox and Optax, and weights back.

A discount model for pyribs' `DiscountArchive` that gloam's training loop trains in JAX.

pyribs: its archives as gloam's elites and back, and a discount model that trains in JAX.

`DiscountModelManager` takes the place of ``ribs.discount_models.DiscountModelManager``.
"""

import sys
import warnings
from typing import Any, Literal

import equinox as eqx
import jax
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from gloam import checks
from gloam.archives import Archive, CVTArchive, Elites, GridArchive
from gloam.discounts import from_torch
from gloam.discounts.networks import outputs
from gloam.discounts.training import Trained, fit
from gloam.draws import root_key
from gloam.interop.tables import elites_from_arrays


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


Normalization = Literal["zero_one", "negative_one_one"] | None
# Sizes of compiled programs: an archive that fills up gives ever fewer empty points.
_SMALLEST = 128


class DiscountModelManager:
    """Takes the place of ``ribs.discount_models.DiscountModelManager``, with the same methods.

    The network and the optimiser of PyTorch that pyribs' manager takes are converted; those of
    Equinox and Optax are taken as they are, and need no PyTorch.

    Args:
        model: pyribs' ``MLP``, an ``nn.Sequential`` that `gloam.discounts.from_torch` can convert,
            or an Equinox module for one row of measures, such as `gloam.discounts.MLP`.
        optimizer: ``torch.optim.Adam``, ``AdamW`` or ``SGD`` that has not made a step, or an
            optimiser of Optax.
        device: As in pyribs, for the signature only. Programs run on JAX's default device.
        train_epochs: Largest number of epochs of `training_loop`.
        train_cutoff_loss: Training ends after an epoch whose loss is at most this.
        train_batch_size: Number of rows of a minibatch.
        normalize_measures: ``"zero_one"``, ``"negative_one_one"`` or ``None``: the range to which
            measures are brought from ``measures_low`` and ``measures_high``.
        measures_low, measures_high: Bounds of the measures.
        normalize_discount: The same for discount values.
        discount_low, discount_high: Bounds of the discount values.
        seed: Seed of the order of the minibatches.
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        device: Any = None,
        *,
        train_epochs: int,
        train_cutoff_loss: float,
        train_batch_size: int,
        normalize_measures: Normalization = None,
        measures_low: Any = None,
        measures_high: Any = None,
        normalize_discount: Normalization = None,
        discount_low: Any = None,
        discount_high: Any = None,
        seed: int = 0,
    ):
        self.optimizer, self.device = optimizer, device
        self.train_epochs = checks.integer("train_epochs", train_epochs, minimum=1)
        self.train_cutoff_loss = float(train_cutoff_loss)
        self.train_batch_size = checks.integer("train_batch_size", train_batch_size, minimum=1)
        self.normalize_measures: Normalization = normalize_measures
        self.normalize_discount: Normalization = normalize_discount
        low, high = _bounds("measures", normalize_measures, measures_low, measures_high)
        self.measures_low, self.measures_high = low, high
        low, high = _bounds("discount", normalize_discount, discount_low, discount_high)
        self.discount_low, self.discount_high = low, high
        self._model = model
        params, self._rest = eqx.partition(network_of(model), eqx.is_inexact_array)
        rule = optimizer_of(optimizer)
        self._trained = Trained(params, rule.init(params))
        self._has_news = False
        self._key, self._epochs = root_key(checks.seed("seed", seed)), 0
        self._train, self._infer = _programs(self._rest, rule, self.train_batch_size)

    @property
    def model(self) -> Any:
        """The network as it was given, with the weights learned so far."""
        if self._has_news:
            self._model = copied_back(self._model, self.network)
            self._has_news = False
        return self._model

    @property
    def network(self) -> Any:
        """The network in JAX, with the weights learned so far."""
        return eqx.combine(self._trained.params, self._rest)

    def training_loop(self, measures: Any, targets: Any) -> list[float]:
        """Regress the model to targets at measures, by mean squared error.

        Args:
            measures: ``(n, measure_dim)`` array.
            targets: ``(n,)`` array.

        Returns:
            The mean loss of each epoch, taken while it trains.
        """
        rows = self._normalize(
            measures, self.normalize_measures, self.measures_low, self.measures_high
        )
        goals = self._normalize(
            targets, self.normalize_discount, self.discount_low, self.discount_high
        )
        number = len(rows)
        expected = f"shape ({number},), one for each row of measures"
        checks.expect(goals.shape == (number,), "targets", expected, f"shape {goals.shape}")
        size = _padded(number)
        inputs, heights = _filled(rows, size), _filled(goals, size)
        is_trained = np.arange(size) < number
        losses: list[float] = []
        while len(losses) < self.train_epochs:
            key = jax.random.fold_in(self._key, self._epochs)
            self._trained, loss = self._train(self._trained, inputs, heights, is_trained, key)
            self._epochs += 1
            losses.append(float(loss))
            if losses[-1] <= self.train_cutoff_loss:
                break
        self._has_news = True
        return losses

    def inference(self, measures: Any, batch_size: int | None = None) -> np.ndarray:
        """The discount values at measures.

        Args:
            measures: ``(n, measure_dim)`` array.
            batch_size: Number of rows that are computed at a time. Default: all.
        """
        rows = self._normalize(
            measures, self.normalize_measures, self.measures_low, self.measures_high
        )
        number = len(rows)
        each = checks.integer("batch_size", batch_size or max(number, 1), minimum=1)
        params, parts = self._trained.params, []
        for start in range(0, number, each):
            some = rows[start : start + each]
            parts.append(
                np.asarray(self._infer(params, _filled(some, _padded(len(some)))))[: len(some)]
            )
        found = np.concatenate(parts) if parts else np.zeros(0, np.float32)
        return self._unnormalize(
            found, self.normalize_discount, self.discount_low, self.discount_high
        )

    def _normalize(self, x: Any, normalize: Normalization, low: Any, high: Any) -> np.ndarray:
        x = np.asarray(x, np.float32)
        if normalize is None:
            return x
        shares = (x - low) / (high - low)
        return shares if normalize == "zero_one" else 2 * shares - 1

    def _unnormalize(self, x: Any, normalize: Normalization, low: Any, high: Any) -> np.ndarray:
        x = np.asarray(x, np.float32)
        if normalize is None:
            return x
        shares = x if normalize == "zero_one" else (x + 1) / 2
        return shares * (high - low) + low


def _bounds(name: str, normalize: Normalization, low: Any, high: Any) -> tuple[Any, Any]:
    if normalize is None:
        return low, high
    checks.choice(f"normalize_{name}", normalize, ("zero_one", "negative_one_one"))
    if low is None or high is None:
        raise ValueError(
            f"If normalize_{name} is not None, {name}_low and {name}_high are expected, got None."
        )
    return np.asarray(low, np.float32), np.asarray(high, np.float32)


def _programs(rest: Any, rule: optax.GradientTransformation, batch_size: int) -> tuple[Any, Any]:
    """One epoch of training, and inference, compiled for each size."""

    def forward(params: Any, rows: Float[Array, "n meas"]) -> Float[Array, " n"]:
        return outputs(eqx.combine(params, rest), rows)

    def epoch(
        trained: Trained,
        rows: Float[Array, "n meas"],
        goals: Float[Array, " n"],
        is_trained: Bool[Array, " n"],
        key: PRNGKeyArray,
    ) -> tuple[Trained, Float[Array, ""]]:
        options: Any = {"batch_size": batch_size, "epochs": 1, "cutoff": 0.0, "key": key}
        trained, loss, _ = fit(forward, rule, trained, rows, goals, is_trained, **options)
        return trained, loss

    return jax.jit(epoch), jax.jit(forward)


def _padded(number: int) -> int:
    """The size of the program for this number of rows: a power of two."""
    return max(_SMALLEST, 1 << max(number - 1, 0).bit_length())


def _filled(rows: np.ndarray, size: int) -> np.ndarray:
    return np.concatenate([rows, np.zeros((size - len(rows), *rows.shape[1:]), np.float32)])


# Fields that every archive of pyribs has.
_OWN = ("solution", "objective", "measures", "threshold", "index")


def _archives() -> Any:
    try:
        import ribs.archives  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError(
            f"interop: expected pyribs, got none ({error}). "
            "Install it by: pip install 'gloam[ribs]'"
        ) from error
    return ribs.archives


def from_ribs(archive: Any) -> Elites:
    """The elites of a pyribs archive, each in the cell that it has there.

    ``archive.f_min`` is pyribs' ``qd_score_offset``, so that QD scores are the same. Numbers of 64
    bits become float32 and int32, and solutions with a shape flat rows. Thresholds of CMA-MAE,
    which guide a search and are no part of an elite, are left out.

    Args:
        archive: A ``ribs.archives.GridArchive`` or ``CVTArchive``, also with extra fields.
    """
    peers = _archives()
    expected = "a GridArchive or a CVTArchive of pyribs"
    kinds = (peers.GridArchive, peers.CVTArchive)
    checks.expect(isinstance(archive, kinds), "archive", expected, type(archive).__name__)
    data = archive.data()
    extra = {name: np.asarray(data[name]) for name in archive.field_list if name not in _OWN}
    fields = {name: _spec(name, values) for name, values in extra.items()}
    settings: Any = {"f_min": float(archive.qd_score_offset), "fields": fields}
    bounds = archive.lower_bounds, archive.upper_bounds
    if isinstance(archive, peers.GridArchive):
        ours: Archive = GridArchive(tuple(int(n) for n in archive.dims), *bounds, **settings)
    else:
        ours = CVTArchive(np.asarray(archive.centroids), *bounds, **settings)
    solutions = np.asarray(data["solution"])
    return elites_from_arrays(
        ours,
        solutions.reshape(len(solutions), -1),
        data["objective"],
        data["measures"],
        cells=np.asarray(data["index"], np.int64),
        fields=extra,
    )


def to_ribs(elites: Elites, **settings: Any) -> Any:
    """A pyribs archive with the same cells, elites and fields, in float32.

    Elites are given to its ``add``. pyribs shifts the borders of a grid by its ``epsilon``, so that
    an elite on a border may get another cell; a warning says how many did.

    Args:
        elites: Elites of a `gloam.GridArchive`, or of a `gloam.CVTArchive` with the Euclidean
            metric and flat measures.
        settings: Further arguments of pyribs' archive, such as ``learning_rate`` and
            ``threshold_min`` for CMA-MAE, or ``seed``.
    """
    peers, ours = _archives(), elites.archive
    settings = {"dtype": np.float32, "qd_score_offset": ours.f_min} | settings
    settings["extra_fields"] = {
        name: (spec.shape, np.dtype(spec.dtype)) for name, spec in ours.fields.items()
    }
    size = elites.store.solutions.shape[1]
    box = list(zip(np.asarray(ours.lower, float), np.asarray(ours.upper, float), strict=True))
    if isinstance(ours, GridArchive):
        theirs = peers.GridArchive(solution_dim=size, dims=ours.shape, ranges=box, **settings)
    else:
        fits = isinstance(ours, CVTArchive) and ours.metric == "euclidean"
        fix = "pyribs compares by Euclidean distances."
        expected = "a GridArchive or a CVTArchive with the Euclidean metric"
        got = f"{type(ours).__name__} ({getattr(ours, 'metric', '')})"
        checks.expect(fits, "archive", expected, got, fix)
        points: Any = ours
        theirs = peers.CVTArchive(
            solution_dim=size, centroids=np.asarray(points.centroids), ranges=box, **settings
        )
    if len(elites) == 0:
        return theirs
    fields = {name: elites.field(name) for name in ours.fields}
    theirs.add(elites.solutions, elites.objectives, elites.flat_measures, **fields)
    moved = int(np.sum(theirs.index_of(elites.flat_measures) != elites.cells))
    if moved:
        warnings.warn(
            f"{moved} of {len(elites)} elites lie on a border and are in another cell of the "
            f"archive of pyribs, which has {len(theirs)} elites.",
            stacklevel=2,
        )
    return theirs


def _spec(name: str, values: np.ndarray) -> jax.ShapeDtypeStruct:
    """A field of pyribs as ours: with 32 bits where it has 64."""
    narrow = {"float64": "float32", "int64": "int32", "uint64": "uint32"}
    kind = str(values.dtype)
    fix = "Leave the field out: gloam keeps numbers and booleans."
    checks.expect(values.dtype.kind in "fiub", f"field '{name}'", "numbers", kind, fix)
    return jax.ShapeDtypeStruct(values.shape[1:], np.dtype(narrow.get(kind, kind)))
