"""The discount model of Discount Model Search: a network trained during the search."""

import dataclasses
import math
from functools import partial
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from gloam._tools import checks
from gloam._tools.registry import register
from gloam.discounts.discount import Discount
from gloam.discounts.networks import (
    MLP,
    Reinitializable,
    checked_network,
    checked_row_shape,
    in_blocks,
    outputs,
    stages,
)
from gloam.discounts.training import Trained, fast_sweep, fit
from gloam.discounts.units import Units, first_units, grown
from gloam.records import Batch, Cells, Fit, MeasureSpace, Scored

_BLOCK = 512  # rows, about as many as a batch has
# Decay rates of Adam's moments.
_DECAY, _DECAY_OF_SQUARES = 0.9, 0.999
# Limits of targets above the floor and of scaled measures, so that squared gradients stay finite.
_HIGHEST, _FARTHEST = 1e12, 1e4


@register
class DiscountModel(Discount):
    """A network ``fhat`` over measures that predicts how well they are covered.

    With ``floor`` and ``ceiling`` given, ``fhat(m) = floor + network(m)``. Without one of them,
    ``fhat(m) = low + scale * network(m)``, in units that are estimated from the elites.

    Args:
        alpha: Archive learning rate (equation 1): 1 only explores, 0 only optimizes.
        first_visit: A solution above the discount raises it at once to this share of the objective,
            both counted from ``floor``, and from there by ``alpha``. Visited regions then differ
            from empty ones, and can still be refined. ``None`` or 0 for the paper's form.
        floor: Discount of empty regions: at or below the lowest objective that you expect. By
            default it is estimated from the elites as the search runs, and is at most the archive's
            ``f_min``, if that is given.
        ceiling: Largest objective that you expect, which scales the loss at which training stops;
            estimated by default.
        network: Any Equinox module from one row of measures to a number, see
            `gloam.discounts.networks`; by default the paper's MLP.
        num_empty_points: Number of empty cells trained to ``floor`` in each iteration.
        num_init_points: Number of cells for the first fit of the model.
        learning_rate: Learning rate of Adam, whose state is kept through the run.
        train_batch_size: Number of rows in a minibatch.
        max_epochs: Largest number of epochs in an iteration.
        cutoff: Training stops early at a loss of ``cutoff * (ceiling - floor)``, or of ``cutoff``
            in estimated units.
        space: Bounds and shape of the measures, by default those of the archive. The network sees
            measures scaled from the bounds to [-1, 1].
    """

    alpha: float
    first_visit: float | None
    floor: float | None
    ceiling: float | None
    network: Any
    num_empty_points: int = eqx.field(static=True)
    num_init_points: int = eqx.field(static=True)
    learning_rate: float
    train_batch_size: int = eqx.field(static=True)
    max_epochs: int
    cutoff: float
    space: MeasureSpace | None
    row_shape: tuple[int, ...] = eqx.field(static=True, init=False)
    """Shape of a point as the network takes it; empty for flat rows."""

    def __init__(
        self,
        *,
        alpha: float = 0.01,
        first_visit: float | None = None,
        floor: float | None = None,
        ceiling: float | None = None,
        network: eqx.Module | None = None,
        num_empty_points: int = 10,
        num_init_points: int = 1000,
        learning_rate: float = 3e-4,
        train_batch_size: int = 32,
        max_epochs: int = 5,
        cutoff: float = 0.05,
        space: MeasureSpace | None = None,
    ):
        self.alpha = checks.number("alpha", alpha, at_least=0.0, at_most=1.0)
        share = 0.0 if first_visit is None else first_visit
        share = checks.number("first_visit", share, at_least=0.0, at_most=1.0)
        self.first_visit = share if share > 0 else None
        self.floor = None if floor is None else checks.objective("floor", floor)
        least = -math.inf if self.floor is None else self.floor
        fix = "It is the largest objective that you expect."
        self.ceiling = (
            None if ceiling is None else checks.objective("ceiling", ceiling, above=least, fix=fix)
        )
        self.num_empty_points = checks.count("num_empty_points", num_empty_points, minimum=0)
        self.num_init_points = checks.count("num_init_points", num_init_points)
        self.learning_rate = checks.number("learning_rate", learning_rate, above=0.0, at_most=1.0)
        self.train_batch_size = checks.count("train_batch_size", train_batch_size)
        self.max_epochs = checks.integer("max_epochs", max_epochs, minimum=1)
        self.cutoff = checks.number("cutoff", cutoff, at_least=0.0)
        self.space = space
        network = None if network is None else checked_network(network)
        if space is None:
            self.network, self.row_shape = network, ()
        else:
            checks.instance("space", space, MeasureSpace, "Leave it out.")
            size = space.lower.shape[0]
            self.network = MLP(size) if network is None else network
            self.row_shape = checked_row_shape(self.network, size, space.shape)

    def for_archive(self, archive: Cells) -> Self:
        """Return the model for the measures of an archive."""
        space = archive.measure_space
        if self.space is None:
            return dataclasses.replace(self, space=space)
        expected, number = f"{space.lower.shape[0]}, as the archive has", self.space.lower.shape[0]
        fits = self.space.lower.shape == space.lower.shape
        checks.expect(fits, "measures of DiscountModel", expected, number, "Leave out space.")
        return self

    @property
    def has_fixed_floor(self) -> bool:
        """True if ``floor`` is given."""
        return self.floor is not None

    @property
    def num_initial_centers(self) -> int:
        """Number of centers for the first fit."""
        return self.num_init_points

    @property
    def num_empty_centers(self) -> int:
        """Number of empty centers for each iteration."""
        return self.num_empty_points

    def init(
        self, centers: Float[Array, "n meas"], is_real: Bool[Array, " n"], *, key: PRNGKeyArray
    ) -> Trained:
        """Return new weights, fitted to the floor at the centers (algorithm 1, line 2)."""
        key_weights, key_fit = jax.random.split(key)
        network = self.network
        if isinstance(network, Reinitializable):
            network = network.reinitialized(key=key_weights)
        params = eqx.filter(stages(network)[1], eqx.is_inexact_array)
        is_known = self.floor is not None and self.ceiling is not None
        units = None if is_known else first_units()
        trained = Trained(params, self._optimizer.init(params), units)
        floor = jnp.zeros(centers.shape[:1], jnp.float32)
        return self._fit(trained, self._inputs(centers), floor, is_real, key=key_fit)[0]

    def rescaled(
        self, state: Trained, objectives: Float[Array, " cells"], f_min: float | None = None
    ) -> Trained:
        """Return the model with units that fit the elites."""
        if state.units is None:
            return state
        units = grown(state.units, objectives, self.floor, self.ceiling, f_min)
        return Trained(state.params, state.optimizer, units)

    def empty_value(self, state: Trained, f_min: float) -> float | Float[Array, ""]:
        """Return the floor, given or estimated."""
        return self._offset if state.units is None else state.units.low

    def discount(self, state: Trained, measures: Float[Array, "n meas"]) -> Float[Array, " n"]:
        """Return the discount ``fhat`` at measures."""
        return self._raw(state.units, self._forward(state.params, self._inputs(measures)))

    def at_cells(
        self, state: Trained, cells: Int[Array, " n"], centers: Float[Array, "n meas"]
    ) -> Float[Array, " n"]:
        """Return ``fhat`` at the centers."""
        if type(self.network) is MLP:
            return self.discount(state, centers)
        # Activations of other networks may be far larger than a row: 20,000 images in a CNN take a
        # gigabyte for each seed.
        return in_blocks(partial(self.discount, state), centers, _BLOCK)

    def score(self, state: Trained, batch: Batch) -> Scored:
        """Return the discount of each solution, and the improvement ``f - fhat(m)`` over it."""
        if state.units is None:
            discounts = self.discount(state, batch.measures)
            return Scored(discounts, batch.objectives - discounts)
        heights = self._forward(state.params, self._inputs(batch.measures))
        improvements = state.units.normalized(batch.objectives) - heights
        return Scored(state.units.raw(heights), improvements)

    def train(
        self,
        state: Trained,
        batch: Batch,
        scored: Scored,
        centers: Float[Array, "n meas"],
        is_real: Bool[Array, " n"],
        *,
        key: PRNGKeyArray,
    ) -> tuple[Trained, Fit]:
        """Fit the network to the targets of this iteration, and to the floor at empty centers."""
        points = jnp.concatenate([batch.measures, centers])
        floor = jnp.zeros(centers.shape[:1], jnp.float32)
        heights = jnp.concatenate([self._heights(state.units, batch, scored), floor])
        is_trained = jnp.concatenate([batch.valid, is_real])
        # Separately, as in `score`, so that the compiler embeds the batch once for both.
        inputs = jnp.concatenate([self._inputs(batch.measures), self._inputs(centers)])
        heights = jnp.clip(heights, -_HIGHEST, _HIGHEST)
        trained, loss, epochs = self._fit(state, inputs, heights, is_trained, key=key)
        return trained, Fit(loss, epochs, points, self._raw(state.units, heights), is_trained)

    def _heights(self, units: Units | None, batch: Batch, scored: Scored) -> Float[Array, " batch"]:
        """Return the targets of the network for the batch."""
        if units is None and self.first_visit is None:
            return targets(batch.objectives, scored.discounts, self.alpha) - self._offset
        objectives = self._above_floor(units, batch.objectives)
        # From the improvements, because discounts lose digits to a large offset.
        heights = objectives - scored.improvements
        return targets(objectives, heights, self.alpha, self.first_visit)

    def _above_floor(
        self, units: Units | None, objectives: Float[Array, " n"]
    ) -> Float[Array, " n"]:
        """Convert objectives to outputs of the network."""
        return objectives - self._offset if units is None else units.normalized(objectives)

    def _raw(self, units: Units | None, heights: Float[Array, " n"]) -> Float[Array, " n"]:
        """Convert outputs of the network to objectives."""
        return self._offset + heights if units is None else units.raw(heights)

    @property
    def _offset(self) -> float:
        return 0.0 if self.floor is None else self.floor

    @property
    def _optimizer(self) -> optax.GradientTransformation:
        return optax.adam(self.learning_rate, b1=_DECAY, b2=_DECAY_OF_SQUARES)

    def _inputs(self, measures: Float[Array, "n meas"]) -> Float[Array, "n inputs"]:
        """Return the inputs of the trained part of the network: scaled measures, or embeddings."""
        assert self.space is not None
        lower, upper = self.space.lower, self.space.upper
        scaled = 2.0 * (measures - lower) / (upper - lower) - 1.0
        scaled = jnp.clip(scaled, -_FARTHEST, _FARTHEST)
        return jax.vmap(stages(self.network)[0])(scaled)

    def _forward(self, params: Any, inputs: Float[Array, "n inputs"]) -> Float[Array, " n"]:
        network = eqx.combine(params, stages(self.network)[1])
        return outputs(network, inputs.reshape(-1, *self.row_shape) if self.row_shape else inputs)

    def _fit(
        self, trained: Trained, inputs: Array, goals: Array, is_trained: Array, *, key: PRNGKeyArray
    ) -> tuple[Trained, Array, Array]:
        sweep = fast_sweep(
            stages(self.network)[1],
            batch_size=self.train_batch_size,
            rate=self.learning_rate,
            decay=_DECAY,
            decay_of_squares=_DECAY_OF_SQUARES,
        )
        length = 1.0 if self.floor is None or self.ceiling is None else self.ceiling - self.floor
        learned, loss, epochs = fit(
            self._forward,
            self._optimizer,
            Trained(trained.params, trained.optimizer),
            inputs,
            goals,
            is_trained,
            batch_size=self.train_batch_size,
            epochs=self.max_epochs,
            cutoff=self.cutoff * length,
            key=key,
            sweep=sweep,
        )
        return Trained(learned.params, learned.optimizer, trained.units), loss, epochs


def targets(
    objectives: Float[Array, " batch"],
    discounts: Float[Array, " batch"],
    alpha: float,
    first_visit: float | None = None,
) -> Float[Array, " batch"]:
    """Return the training targets (equation 1): discounts, raised towards better objectives.

    With ``first_visit``, objectives and discounts are counted from a floor of 0, and a better
    objective raises the discount to at least that share of itself.
    """
    raised = (1 - alpha) * discounts + alpha * objectives
    if first_visit is not None:
        at_least = jnp.maximum(raised, first_visit * objectives)
        raised = jnp.where(objectives > 0, at_least, raised)
    return jnp.where(objectives > discounts, raised, discounts)
