"""The discount model of Discount Model Search: a small network trained as the search runs."""

import math
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from gloam import checks
from gloam.discounts.discount import Discount
from gloam.discounts.networks import MLP, Reinitializable, in_blocks, outputs, row_shape_of, stages
from gloam.discounts.training import Trained, fast_sweep, fit
from gloam.discounts.units import Units, first_units, grown
from gloam.records import Batch, Fit, Scored

_BLOCK = 512  # rows; a batch has about as many
# Of Adam's moments.
_DECAY, _DECAY_OF_SQUARES = 0.9, 0.999
# Limits of targets above f_min and of scaled measures: squares of gradients stay finite.
_HIGHEST, _FARTHEST = 1e12, 1e4


def targets(
    objectives: Float[Array, " batch"],
    discounts: Float[Array, " batch"],
    alpha: float,
    first_visit: float | None = None,
) -> Float[Array, " batch"]:
    """Training targets, equation 1 of the paper: the discount, raised towards better objectives.

    With ``first_visit``, and objectives and discounts above a floor of 0, a better objective raises
    the discount at least to that share of itself.
    """
    raised = (1 - alpha) * discounts + alpha * objectives
    if first_visit is not None:
        at_least = jnp.maximum(raised, first_visit * objectives)
        raised = jnp.where(objectives > 0, at_least, raised)
    return jnp.where(objectives > discounts, raised, discounts)


class DiscountModel(Discount):
    """A network over measures that says how well they are covered, and how it is trained.

    With ``f_min`` and ``f_max`` given, ``fhat(m) = f_min + network(m)``: the network learns what
    lies above ``f_min``. Without one of them the model learns in units of the elites' objectives
    (`gloam.discounts.units`): ``fhat(m) = low + scale * network(m)``.

    Args:
        lower, upper: Bounds of the measures; the network sees them scaled to [-1, 1].
        alpha: Archive learning rate (equation 1): 1 explores only, 0 optimises only.
        first_visit: A solution above the discount raises it at once to this share of the objective,
            both counted from ``f_min``, and from there by ``alpha``: what was visited is told from
            what was not, and can still be refined. ``None`` or 0 for the paper's form.
        f_min: Where the model starts: at or below the lowest objective that you expect. ``None``
            to estimate it from the elites as the search runs.
        f_max: Largest objective that you expect; it scales the loss at which training stops.
            ``None`` to estimate it.
        network: Any Equinox module from one row of measures to a number, see
            `gloam.discounts.networks`; by default the paper's MLP.
        shape: Shape of one row of measures, ``(28, 28)`` for images; by default they are flat.
        num_empty_points: Number of empty cells trained to ``f_min`` in each iteration.
        num_init_points: Number of cells for the model's first fit.
        learning_rate: Learning rate of Adam, whose memory is kept through the run.
        train_batch_size: Number of rows in a minibatch.
        max_epochs: Largest number of epochs in an iteration.
        cutoff: Training stops early at a loss of ``cutoff * (f_max - f_min)``, or of ``cutoff`` in
            units that are estimated.
    """

    lower: Float[Array, " meas"]
    upper: Float[Array, " meas"]
    network: eqx.Module
    alpha: float
    first_visit: float | None
    f_min: float | None
    f_max: float | None
    num_empty_points: int = eqx.field(static=True)
    num_init_points: int = eqx.field(static=True)
    learning_rate: float
    train_batch_size: int = eqx.field(static=True)
    max_epochs: int
    cutoff: float
    row_shape: tuple[int, ...] = eqx.field(static=True)
    """Shape of a point as the network takes it; empty for flat rows."""

    def __init__(
        self,
        lower: Float[Array, " meas"],
        upper: Float[Array, " meas"],
        *,
        alpha: float = 0.1,
        first_visit: float | None = None,
        f_min: float | None = 0.0,
        f_max: float | None = 1.0,
        network: eqx.Module | None = None,
        shape: tuple[int, ...] = (),
        num_empty_points: int = 100,
        num_init_points: int = 1000,
        learning_rate: float = 1e-3,
        train_batch_size: int = 32,
        max_epochs: int = 5,
        cutoff: float = 0.05,
    ):
        low = checks.finite_array("lower", lower, ndim=1, largest=3e38)
        given: Any = upper
        low, high = checks.bounds(low, given, len(low))
        self.lower, self.upper = jnp.asarray(low), jnp.asarray(high)
        self.alpha = checks.number("alpha", alpha, at_least=0.0, at_most=1.0)
        share = 0.0 if first_visit is None else first_visit
        share = checks.number("first_visit", share, at_least=0.0, at_most=1.0)
        self.first_visit = share if share > 0 else None
        self.f_min = None if f_min is None else checks.objective("f_min", f_min)
        fix = "It is the largest objective you expect."
        least = -math.inf if self.f_min is None else self.f_min
        self.f_max = (
            None if f_max is None else checks.objective("f_max", f_max, above=least, fix=fix)
        )
        self.network = MLP(len(low)) if network is None else network
        self.row_shape = row_shape_of(self.network, len(low), shape)
        self.num_empty_points = checks.integer("num_empty_points", num_empty_points, minimum=0)
        self.num_init_points = checks.integer("num_init_points", num_init_points, minimum=1)
        self.learning_rate = checks.number("learning_rate", learning_rate, above=0.0, at_most=1.0)
        self.train_batch_size = checks.integer("train_batch_size", train_batch_size, minimum=1)
        self.max_epochs = checks.integer("max_epochs", max_epochs, minimum=1)
        self.cutoff = checks.number("cutoff", cutoff, at_least=0.0)

    def check(self, num_cells: int, measure_dim: int) -> None:
        """Its bounds are those of the archive's measures."""
        expected, number = f"{measure_dim}, as the archive has", len(self.lower)
        fix = "Give it archive.lower and .upper."
        checks.expect(number == measure_dim, "bounds of DiscountModel", expected, number, fix)

    @property
    def estimates_units(self) -> bool:
        """Whether the range of objectives is estimated as the search runs."""
        return self.f_min is None or self.f_max is None

    @property
    def starts_at_f_min(self) -> bool:
        """True where ``f_min`` is given."""
        return self.f_min is not None

    @property
    def num_initial_centers(self) -> int:
        """Centres for the first fit."""
        return self.num_init_points

    @property
    def num_empty_centers(self) -> int:
        """Empty centres for each iteration."""
        return self.num_empty_points

    def init(
        self, centers: Float[Array, "n meas"], is_real: Bool[Array, " n"], *, key: PRNGKeyArray
    ) -> Trained:
        """Fresh weights, ``fhat`` regressed to ``f_min`` at the centres (algorithm 1, line 2)."""
        key_weights, key_fit = jax.random.split(key)
        network = self.network
        if isinstance(network, Reinitializable):
            network = network.reinitialized(key=key_weights)
        params = eqx.filter(stages(network)[1], eqx.is_inexact_array)
        units = first_units() if self.estimates_units else None
        trained = Trained(params, self._optimizer.init(params), units)
        floor = jnp.zeros(centers.shape[:1], jnp.float32)
        return self._fit(trained, self._inputs(centers), floor, is_real, key=key_fit)[0]

    def in_units_of(self, state: Trained, objectives: Float[Array, " cells"]) -> Trained:
        """The model with units that fit the elites."""
        if state.units is None:
            return state
        found = grown(state.units, objectives, self.f_min, self.f_max)
        return Trained(state.params, state.optimizer, found)

    def floor(self, state: Trained, f_min: float) -> float | Float[Array, ""]:
        """Where its units begin, or ``f_min``."""
        return f_min if state.units is None else state.units.low

    def discount(self, state: Trained, measures: Float[Array, "n meas"]) -> Float[Array, " n"]:
        """The discount function ``fhat`` at any measures."""
        return self._raw(state.units, self._forward(state.params, self._inputs(measures)))

    def at_cells(
        self, state: Trained, cells: Int[Array, " n"], centers: Float[Array, "n meas"]
    ) -> Float[Array, " n"]:
        """``fhat`` at the centres."""
        if type(self.network) is MLP:
            return self.discount(state, centers)
        # Layers of other networks may be far larger than a row: 20,000 pictures in a CNN take a
        # gigabyte for each seed. Blocks bound that.
        return in_blocks(partial(self.discount, state), centers, _BLOCK)

    def score(self, state: Trained, batch: Batch) -> Scored:
        """Discount and improvement ``f - fhat(m)`` of each solution, the latter in the units."""
        if state.units is None:
            discounts = self.discount(state, batch.measures)
            return Scored(discounts, batch.objectives - discounts)
        heights = self._forward(state.params, self._inputs(batch.measures))
        improvements = state.units.normalised(batch.objectives) - heights
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
        """Regress the network to this iteration's targets, and to ``f_min`` at empty centres."""
        points = jnp.concatenate([batch.measures, centers])
        floor = jnp.zeros(centers.shape[:1], jnp.float32)
        heights = jnp.concatenate([self._heights(state.units, batch, scored), floor])
        is_trained = jnp.concatenate([batch.valid, is_real])
        # Each part as it is scored, so that the compiler embeds the batch once for both.
        inputs = jnp.concatenate([self._inputs(batch.measures), self._inputs(centers)])
        heights = jnp.clip(heights, -_HIGHEST, _HIGHEST)
        trained, loss, epochs = self._fit(state, inputs, heights, is_trained, key=key)
        return trained, Fit(loss, epochs, points, self._raw(state.units, heights), is_trained)

    def _heights(self, units: Units | None, batch: Batch, scored: Scored) -> Float[Array, " batch"]:
        """What the network shall say of the batch."""
        if units is None and self.first_visit is None:
            return targets(batch.objectives, scored.discounts, self.alpha) - self._floor
        objectives = self._above_floor(units, batch.objectives)
        # From the improvements, which have all digits; discounts lose them to a large offset.
        heights = objectives - scored.improvements
        return targets(objectives, heights, self.alpha, self.first_visit)

    def _above_floor(
        self, units: Units | None, objectives: Float[Array, " n"]
    ) -> Float[Array, " n"]:
        """Objectives as the network says them."""
        return objectives - self._floor if units is None else units.normalised(objectives)

    def _raw(self, units: Units | None, heights: Float[Array, " n"]) -> Float[Array, " n"]:
        """Outputs of the network as objectives."""
        return self._floor + heights if units is None else units.raw(heights)

    @property
    def _floor(self) -> float:
        return 0.0 if self.f_min is None else self.f_min

    @property
    def _optimizer(self) -> optax.GradientTransformation:
        return optax.adam(self.learning_rate, b1=_DECAY, b2=_DECAY_OF_SQUARES)

    def _inputs(self, measures: Float[Array, "n meas"]) -> Float[Array, "n inputs"]:
        """What the trained part of the network sees: scaled measures, or their embedding."""
        scaled = 2.0 * (measures - self.lower) / (self.upper - self.lower) - 1.0
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
        length = 1.0 if self.f_min is None or self.f_max is None else self.f_max - self.f_min
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
