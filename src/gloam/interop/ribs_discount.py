"""A discount model for pyribs' `DiscountArchive` that gloam's training loop trains in JAX."""

from typing import Any, Literal

import equinox as eqx
import jax
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from gloam import checks
from gloam.discounts.networks.mlp import outputs
from gloam.discounts.training import Trained, fit
from gloam.draws import root_key
from gloam.interop.torch_parts import copied_back, network_of, optimizer_of

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
