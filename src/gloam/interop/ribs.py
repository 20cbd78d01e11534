"""Bridges to pyribs: its archives as gloam's elites and back, and a discount model for its DMS.

`DiscountModelManager` replaces ``ribs.discount_models.DiscountModelManager`` and trains in JAX.
"""

import sys
import warnings
from functools import partial
from typing import Any, Literal

import equinox as eqx
import jax
import numpy as np
import optax
from jaxtyping import Array, Float

from gloam._tools import checks
from gloam._tools.draws import root_key
from gloam.archives import Archive, CVTArchive, Elites, GridArchive
from gloam.discounts import from_torch
from gloam.discounts.networks import outputs
from gloam.discounts.training import Trained, fit
from gloam.interop.tables import elites_from_arrays

Normalization = Literal["zero_one", "negative_one_one"] | None

# Fields of every pyribs archive.
_STANDARD_FIELDS = ("solution", "objective", "measures", "threshold", "index")
_SMALLEST = 128  # rows of the smallest program


def from_ribs(archive: Any) -> Elites:
    """Return the elites of a pyribs archive, each in the cell that it has there.

    ``archive.f_min`` is pyribs' ``qd_score_offset``, so that QD scores agree. 64-bit numbers become
    float32 and int32, and solutions become flat rows. The thresholds of CMA-MAE are left out.

    Args:
        archive: A ``ribs.archives.GridArchive`` or ``CVTArchive``, with or without extra fields.
    """
    peers = _archives()
    expected = "a GridArchive or a CVTArchive of pyribs"
    kinds = (peers.GridArchive, peers.CVTArchive)
    checks.expect(isinstance(archive, kinds), "archive", expected, type(archive).__name__)
    data = archive.data()
    extra = [name for name in archive.field_list if name not in _STANDARD_FIELDS]
    fields = {name: np.asarray(data[name]) for name in extra}
    specs = {name: _spec(name, values) for name, values in fields.items()}
    settings: Any = {"f_min": float(archive.qd_score_offset), "fields": specs}
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
        fields=fields,
    )


def to_ribs(elites: Elites, **settings: Any) -> Any:
    """Return a pyribs archive with the same cells, elites and fields, in float32.

    Elites are added by its ``add``. pyribs shifts the borders of a grid by its ``epsilon``, so an
    elite on a border may end up in another cell; a warning gives the number of these.

    Args:
        elites: Elites of a `gloam.GridArchive`, or of a `gloam.CVTArchive` with the Euclidean
            metric and flat measures.
        settings: Further arguments of pyribs' archive, such as ``learning_rate`` and
            ``threshold_min`` for CMA-MAE, or ``seed``.
    """
    peers, ours = _archives(), elites.archive
    settings = {"dtype": np.float32, "qd_score_offset": elites.f_min} | settings
    lower, upper = np.asarray(ours.lower, float), np.asarray(ours.upper, float)
    shared: Any = {
        "solution_dim": elites.store.solutions.shape[1],
        "ranges": list(zip(lower, upper, strict=True)),
        "extra_fields": {n: (spec.shape, np.dtype(spec.dtype)) for n, spec in ours.fields.items()},
    }
    if isinstance(ours, GridArchive):
        theirs = peers.GridArchive(dims=ours.shape, **shared, **settings)
    else:
        expected = "a GridArchive or a CVTArchive with the Euclidean metric"
        got = f"{type(ours).__name__} ({getattr(ours, 'metric', '')})"
        fits = isinstance(ours, CVTArchive) and ours.metric == "euclidean"
        checks.expect(fits, "archive", expected, got, "pyribs uses Euclidean distances.")
        cvt: Any = ours
        theirs = peers.CVTArchive(centroids=np.asarray(cvt.centroids), **shared, **settings)
    if len(elites) == 0:
        return theirs
    fields = {name: elites.field(name) for name in ours.fields}
    theirs.add(elites.solutions, elites.objectives, elites.flat_measures, **fields)
    moved = int(np.sum(theirs.index_of(elites.flat_measures) != elites.cells))
    if moved:
        warnings.warn(
            f"{moved} of {len(elites)} elites lie on a border and are in another cell of the "
            f"pyribs archive, which has {len(theirs)} elites.",
            stacklevel=2,
        )
    return theirs


class DiscountModelManager:
    """Drop-in replacement for ``ribs.discount_models.DiscountModelManager`` that trains in JAX.

    PyTorch networks and optimisers are converted; those of Equinox and Optax are used as they are
    and do not need PyTorch.

    Args:
        model: pyribs' ``MLP``, an ``nn.Sequential`` that `gloam.discounts.from_torch` can convert,
            or an Equinox module for one row of measures, such as `gloam.discounts.MLP`.
        optimizer: ``torch.optim.Adam``, ``AdamW`` or ``SGD`` that has not made a step, or an Optax
            optimiser.
        device: Ignored; programs run on JAX's default device.
        train_epochs: Largest number of epochs of `training_loop`.
        train_cutoff_loss: Training ends after an epoch whose loss is at most this.
        train_batch_size: Number of rows in a minibatch.
        normalize_measures: ``"zero_one"``, ``"negative_one_one"`` or ``None``: the range to which
            measures are scaled from ``measures_low`` and ``measures_high``.
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
        self._measures = _scale("measures", normalize_measures, measures_low, measures_high)
        self._discount = _scale("discount", normalize_discount, discount_low, discount_high)
        self.normalize_measures, self.measures_low, self.measures_high = self._measures
        self.normalize_discount, self.discount_low, self.discount_high = self._discount
        self._model = model
        params, self._rest = eqx.partition(_to_equinox(model), eqx.is_inexact_array)
        rule = _to_optax(optimizer)
        self._trained = Trained(params, rule.init(params))
        self._is_stale = False
        self._key, self._epochs = root_key(checks.seed("seed", seed)), 0
        forward = partial(_forward, self._rest)
        options: Any = {"batch_size": self.train_batch_size, "epochs": 1, "cutoff": 0.0}
        self._infer, self._train = jax.jit(forward), jax.jit(partial(fit, forward, rule, **options))

    @property
    def model(self) -> Any:
        """The network that was given, with the weights learned so far."""
        layers = _torch_layers(self._model)
        if layers is None:
            return self.network
        if self._is_stale:
            torch: Any = sys.modules["torch"]
            # Both are in the order of the layers, with the weight before the bias.
            learned = jax.tree.leaves(self._trained.params)
            with torch.no_grad():
                for parameter, array in zip(layers.parameters(), learned, strict=True):
                    parameter.copy_(torch.from_numpy(np.array(array)))
            self._is_stale = False
        return self._model

    @property
    def network(self) -> Any:
        """The network in JAX, with the weights learned so far."""
        return eqx.combine(self._trained.params, self._rest)

    def training_loop(self, measures: Any, targets: Any) -> list[float]:
        """Train the model to output the targets at the measures, by mean squared error.

        Args:
            measures: ``(n, measure_dim)`` array.
            targets: ``(n,)`` array.

        Returns:
            The mean loss of each epoch, accumulated during training.
        """
        rows = self._normalize(measures, *self._measures)
        goals = self._normalize(targets, *self._discount)
        expected = f"shape ({len(rows)},), one for each row of measures"
        checks.expect(goals.shape == (len(rows),), "targets", expected, f"shape {goals.shape}")
        data = _padded(rows), _padded(goals), _padded(np.ones(len(rows), np.float32)) > 0
        losses: list[float] = []
        while len(losses) < self.train_epochs:
            key = jax.random.fold_in(self._key, self._epochs)
            self._trained, loss, _ = self._train(self._trained, *data, key=key)
            self._epochs += 1
            losses.append(float(loss))
            if losses[-1] <= self.train_cutoff_loss:
                break
        self._is_stale = True
        return losses

    def inference(self, measures: Any, batch_size: int | None = None) -> np.ndarray:
        """Return the discount values at the measures.

        Args:
            measures: ``(n, measure_dim)`` array.
            batch_size: Number of rows that are computed at a time. Default: all.
        """
        rows = self._normalize(measures, *self._measures)
        each = checks.integer("batch_size", batch_size or max(len(rows), 1), minimum=1)
        parts = [np.zeros(0, np.float32)]
        for start in range(0, len(rows), each):
            part = rows[start : start + each]
            found = self._infer(self._trained.params, _padded(part))
            parts.append(np.asarray(found)[: len(part)])
        return self._unnormalize(np.concatenate(parts), *self._discount)

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


def _archives() -> Any:
    try:
        import ribs.archives  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError(f"This needs pyribs ({error}). Run: pip install 'gloam[ribs]'") from error
    return ribs.archives


def _spec(name: str, values: np.ndarray) -> jax.ShapeDtypeStruct:
    """Return the shape and dtype of a field, with 32 bits for 64."""
    narrow = {"float64": "float32", "int64": "int32", "uint64": "uint32"}
    kind = str(values.dtype)
    fix = "Leave the field out: gloam supports numbers and booleans."
    checks.expect(values.dtype.kind in "fiub", f"field '{name}'", "numbers", kind, fix)
    return jax.ShapeDtypeStruct(values.shape[1:], np.dtype(narrow.get(kind, kind)))


def _scale(name: str, normalize: Normalization, low: Any, high: Any) -> tuple[Any, Any, Any]:
    """Return the arguments of a normalization, after checking them."""
    if normalize is None:
        return None, low, high
    checks.choice(f"normalize_{name}", normalize, ("zero_one", "negative_one_one"))
    if low is None or high is None:
        raise ValueError(f"normalize_{name}: {name}_low and {name}_high must be given as well.")
    return normalize, np.asarray(low, np.float32), np.asarray(high, np.float32)


def _forward(rest: Any, params: Any, rows: Float[Array, "n meas"]) -> Float[Array, " n"]:
    return outputs(eqx.combine(params, rest), rows)


def _padded(rows: np.ndarray) -> np.ndarray:
    """Append rows of zeros up to a power of two, so that few programs are compiled."""
    size = max(_SMALLEST, 1 << max(len(rows) - 1, 0).bit_length())
    return np.concatenate([rows, np.zeros((size - len(rows), *rows.shape[1:]), np.float32)])


# Conversion from PyTorch. It is not imported here: whoever passes its objects has imported it.


def _to_equinox(model: Any) -> Any:
    """Return a JAX network with the weights of ``model``."""
    layers = _torch_layers(model)
    if layers is not None:
        return from_torch(layers)
    fix = "Pass pyribs' MLP, an nn.Sequential, or an Equinox module such as gloam.discounts.MLP."
    fits = isinstance(model, eqx.Module) and callable(model)
    checks.expect(fits, "model", "a network", type(model).__name__, fix)
    return model


def _torch_layers(model: Any) -> Any:
    """Return a PyTorch module, of pyribs' MLP its ``model``; ``None`` for other objects."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        return None
    inner = getattr(model, "model", None)
    return inner if isinstance(inner, torch.nn.Sequential) else model


def _to_optax(optimizer: Any) -> optax.GradientTransformation:
    """Return an Optax optimiser with the settings of ``optimizer``."""
    if isinstance(optimizer, optax.GradientTransformation):
        return optimizer
    torch: Any = sys.modules.get("torch")
    fits = torch is not None and isinstance(optimizer, torch.optim.Optimizer)
    fix = "Pass torch.optim.Adam, AdamW or SGD, or an Optax optimiser."
    checks.expect(fits, "optimizer", "an optimiser", type(optimizer).__name__, fix)
    kind, groups = type(optimizer).__name__, optimizer.param_groups
    known = kind in ("Adam", "AdamW", "SGD")
    checks.expect(known, "optimizer", "torch.optim.Adam, AdamW or SGD", kind, fix)
    checks.expect(len(groups) == 1, "optimizer", "one group of parameters", len(groups))
    reset = "Its state cannot be converted: build a new one."
    checks.expect(not optimizer.state, "optimizer", "one without steps", "one with some", reset)
    group = groups[0]
    rate, decay = float(group["lr"]), float(group["weight_decay"])
    if kind == "SGD":
        is_plain = not (decay or group["dampening"] or group["maximize"])
        expected = "SGD with lr, momentum and nesterov only"
        momentum = float(group["momentum"]) or None
        rule = optax.sgd(rate, momentum, nesterov=bool(group["nesterov"]))
    else:
        is_plain = not (group["amsgrad"] or group["maximize"]) and (decay == 0 or kind == "AdamW")
        expected = "Adam with lr, betas and eps only, or AdamW also with weight_decay"
        betas = map(float, group["betas"])
        rule = optax.adamw(rate, *betas, float(group["eps"]), weight_decay=decay)
    checks.expect(is_plain, "optimizer", expected, "other settings", "Pass an Optax optimiser.")
    return rule
