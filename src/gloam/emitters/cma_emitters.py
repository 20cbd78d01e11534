"""CMA-ES instances in one batch: sampling within bounds, ranking, adaptation and restarts."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from gloam._tools import checks
from gloam._tools.devices import runs_on_cpu
from gloam._tools.draws import normals
from gloam._tools.registry import register
from gloam.emitters.cma_es import CMAES, Strategy, constants
from gloam.emitters.discrete import Categories, least, with_margin, without_gaps
from gloam.emitters.emitter import (
    Bounds,
    Coordinates,
    ElitesWanted,
    Emitter,
    Outside,
    checked_start,
    checked_step,
    coordinates_of,
    kept_between,
    rows_of_part,
    with_rows_of_part,
)
from gloam.emitters.lm_ma_es import LMMAES
from gloam.emitters.rules import (
    MuSelection,
    Progress,
    RestartRule,
    RestartWhenIdle,
    SelectionRule,
)
from gloam.records import DrawsTargets, Feedback, Proposal
from gloam.spaces import Discrete

# Largest solutions that get a full covariance by default: that of 15 instances takes 120 MB for
# 1,000 numbers and 12 GB for 10,000.
FULL_UP_TO = 1000
# Smallest step with which CMA-ES is stable in float32.
_LEAST_STEP = 1e-11
# Limit of pycma for a flat ranking.
_FLAT = 1e-12
# Folded into the key for categories; no other draw uses it.
_CATEGORIES = 2**32 - 1


class CmaEmittersState(eqx.Module):
    """The Gaussians of all instances, and the number of restarts."""

    gaussians: Any
    """State of the strategy, with a leading axis of instances."""
    rule: Any
    """State of the restart rule."""
    restarts: Int[Array, ""]
    choices: Float[Array, "emitters cats most"] | None = None
    """Probabilities of categories, if the space has some."""


Learned = tuple[Any, Float[Array, "emitters cats most"] | None]
"""Gaussians of the strategy, and probabilities of categories, if the space has some."""


class Ranking(NamedTuple):
    """Solutions of each instance by rank."""

    order: Int[Array, "emitters each"]
    """Indices of the solutions of an instance, the best first."""
    num_parents: Int[Array, " emitters"]
    is_flat: Bool[Array, " emitters"]
    """True for instances whose solutions rank equal, or that have none to rank."""
    num_accepted: Int[Array, " emitters"]


@register
class CmaEmitters(Emitter):
    """``num_emitters`` independent CMA-ES instances with ``batch_size`` solutions each.

    Args:
        x0: ``(sol,)`` starting solution of every instance.
        sigma0: Standard deviation of the first solutions around ``x0``, and after restarts: one
            number, or one for each variable. With bounds on both sides it is a share of their
            width, by default a fifth.
        num_emitters: Number of CMA-ES instances.
        batch_size: Number of solutions per instance and iteration.
        restart: Decides when an instance restarts from a random elite;
            `gloam.emitters.RestartWhenIdle` by default.
        selection: Decides which solutions are parents; `gloam.emitters.MuSelection` by default.
        bounds: Lower and upper bounds of the solutions, each a number, an array or ``None``.
        outside: What happens to numbers outside the bounds: ``"clip"`` moves them to the bound,
            ``"reflect"`` as far inside as they were outside.
        strategy: ``CMAES()``, ``SepCMAES()`` or ``LMMAES()`` of `gloam.emitters`; by default
            ``CMAES()`` for solutions of up to 1,000 numbers and ``LMMAES()`` for larger ones.
    """

    x0: Float[Array, " sol"]
    sigma0: float | Float[Array, " sol"]
    num_emitters: int = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)
    restart: RestartRule
    selection: SelectionRule
    bounds: Bounds | None
    strategy: Strategy

    def __init__(
        self,
        x0: Any,
        sigma0: float | ArrayLike | None = None,
        *,
        num_emitters: int = 9,
        batch_size: int = 36,
        restart: RestartRule | None = None,
        selection: SelectionRule | None = None,
        bounds: checks.SolutionBounds | None = None,
        outside: Outside | None = None,
        strategy: Strategy | None = None,
    ):
        self.x0, self.bounds = checked_start(x0, bounds, outside)
        self.sigma0 = checked_step(
            "sigma0", sigma0, self.x0.size, self.bounds, default=0.2, least=_LEAST_STEP
        )
        self.num_emitters = checks.count("num_emitters", num_emitters)
        # There are weights for every number of parents, so memory grows with its square.
        fix = "CMA-ES ranks solutions."
        self.batch_size = checks.count("batch_size", batch_size, minimum=2, maximum=10_000, fix=fix)
        self.restart = RestartWhenIdle() if restart is None else restart
        fix = "Use RestartWhenIdle(), RestartEvery(100) or BasicRestart() of gloam.emitters."
        checks.instance("restart", self.restart, RestartRule, fix)
        self.selection = MuSelection() if selection is None else selection
        fix = "Use MuSelection() or FilterSelection() of gloam.emitters."
        checks.instance("selection", self.selection, SelectionRule, fix)
        default = CMAES() if self._gaussian_dim <= FULL_UP_TO else LMMAES()
        self.strategy = default if strategy is None else strategy
        fix = "Use CMAES(), SepCMAES() or LMMAES() of gloam.emitters."
        checks.instance("strategy", self.strategy, Strategy, fix)
        self.strategy.check(self._gaussian_dim, self.batch_size)

    @property
    def num_solutions(self) -> int:
        """Number of solutions proposed in each iteration."""
        return self.num_emitters * self.batch_size

    @property
    def label(self) -> str:
        """Prefix of the metrics in a mixture."""
        return "cma_es"

    @property
    def instance_size(self) -> int:
        """Number of solutions of a CMA-ES instance."""
        return self.batch_size

    @property
    def elites_to_ask(self) -> tuple[ElitesWanted, ...]:
        """Always empty: Gaussians need no elites."""
        return ()

    @property
    def num_elites_to_adapt(self) -> int:
        """One elite for each instance, in case it restarts."""
        return self.num_emitters

    def init(self, x0: Float[Array, " sol"] | None = None) -> CmaEmittersState:
        """Return a state with all instances at ``x0``, or at the emitter's own."""
        start = self.x0 if x0 is None else x0
        starts = jnp.broadcast_to(start, (self.num_emitters, *start.shape))
        gaussians, choices = self.started(starts)
        rule = self.restart.init(self.num_emitters)
        return CmaEmittersState(gaussians, rule, jnp.zeros((), jnp.int32), choices)

    def ask(
        self,
        state: CmaEmittersState,
        elites: Float[Array, "n sol"],
        *,
        key: PRNGKeyArray,
        targets: DrawsTargets | None = None,
    ) -> Proposal:
        """Sample ``batch_size`` solutions from every Gaussian."""
        del elites, targets
        gaussians, discrete = state.gaussians, self._discrete
        mean, scale = gaussians.mean[:, None], gaussians.sigma[:, None, None]
        if discrete is not None:
            deviations = jax.vmap(self.strategy.deviations)(gaussians)
            sigma = gaussians.sigma[:, None] * deviations
            mean, sigma = with_margin(
                discrete.columns(self._ordered), gaussians.mean, sigma, least(discrete)
            )
            mean, scale = mean[:, None], (sigma / deviations)[:, None]

        noise = normals(key, (self.num_emitters, self.batch_size, self._gaussian_dim))
        points = mean + scale * jax.vmap(self.strategy.steps)(gaussians, noise)
        if self.bounds is not None and not self.bounds.is_open:
            lower, upper = self._points(self.bounds.lower), self._points(self.bounds.upper)
            drawn, points = points, kept_between(points, lower, upper, self.bounds.outside)
            # CMA-ES adapts to the steps that were made: raw samples would inflate sigma at a bound.
            kept = jax.vmap(self.strategy.noise_of)(gaussians, (points - mean) / scale)
            noise = jnp.where(jnp.any(points != drawn, axis=-1, keepdims=True), kept, noise)
        solutions, coordinates = points.reshape(self.num_solutions, -1), self._coordinates
        if state.choices is not None:
            all_columns = jnp.zeros((self.num_solutions, self.x0.shape[0]), jnp.float32)
            solutions = all_columns.at[:, self._ordered].set(solutions)
        if coordinates is not None:
            solutions = coordinates.solutions_of(solutions)
            solutions = solutions if self.bounds is None else self.bounds.snap(solutions)
        if discrete is None:
            return Proposal(solutions, noise)
        if state.choices is not None:
            categories = Categories(discrete)
            drawn = categories.draw(
                state.choices, self.batch_size, key=jax.random.fold_in(key, _CATEGORIES)
            )
            drawn = drawn.reshape(self.num_solutions, -1)
            solutions = without_gaps(discrete, solutions.at[:, categories.columns].set(drawn))
        # The Gaussians adapt to the points before rounding.
        return Proposal(solutions, (noise, points))

    def adapt(
        self,
        state: CmaEmittersState,
        proposal: Proposal,
        feedback: Feedback,
        elites: Float[Array, "emitters sol"],
    ) -> CmaEmittersState:
        """Update every Gaussian, and restart instances that are due.

        Instances whose solutions were not used stay as they are.
        """
        ranking, resting = self.ranking(feedback), self.resting(feedback)
        learned = self.updated(state, proposal, ranking, resting, feedback.iteration)
        is_degenerate = jax.vmap(self.strategy.degenerate)(learned[0])
        rests = jnp.zeros(self.num_emitters, bool) if resting is None else resting
        due, rule = self._due(state.rule, feedback, ranking, rests)
        stops = (ranking.is_flat | is_degenerate | due) & ~rests
        rule = self.restart.restarted(rule, stops)

        def restarted(learned: Learned) -> Learned:
            return where_instances(stops, self.started(elites), learned)

        # In most iterations no instance restarts, and then nothing is copied on a CPU.
        gaussians, choices = jax.lax.cond(jnp.any(stops), restarted, lambda same: same, learned)
        restarts = state.restarts + jnp.sum(stops, dtype=jnp.int32)
        return CmaEmittersState(gaussians, rule, restarts, choices)

    def by_instance(self, rows: Array) -> Array:
        """Return values of solutions as a table with a row for each instance."""
        return rows.reshape(self.num_emitters, self.batch_size)

    def resting(self, feedback: Feedback) -> Bool[Array, " emitters"] | None:
        """Return which instances rest: their solutions were not used. ``None`` if none rests."""
        return None if feedback.is_used is None else ~self.by_instance(feedback.is_used)[:, 0]

    def ranking(self, feedback: Feedback) -> Ranking:
        """Rank the solutions of each instance: valid ones by improvement, then infeasible ones."""
        valid = self.by_instance(feedback.valid)
        values = jnp.where(valid, self.by_instance(feedback.improvements), -jnp.inf)
        num_ranked = jnp.sum(valid, axis=1, dtype=jnp.int32)
        # Stable: equal improvements rank by index.
        order = jnp.argsort(-values, axis=1, stable=True)
        lowest = jnp.min(jnp.where(valid, values, jnp.inf), axis=1)
        is_flat = ~(jnp.max(values, axis=1) - lowest >= _FLAT)  # also when no row is valid
        if feedback.violations is not None:
            violations = self.by_instance(feedback.violations)
            is_infeasible = (violations > 0) & ~valid
            num_ranked += jnp.sum(is_infeasible, axis=1, dtype=jnp.int32)
            # Infeasible solutions follow the valid ones, the smallest violation first.
            kind = jnp.where(valid, 0, 2 - is_infeasible.astype(jnp.int32))
            order = jnp.lexsort((jnp.where(valid, -values, violations), kind), axis=1)
            smallest = jnp.min(jnp.where(is_infeasible, violations, jnp.inf), axis=1)
            largest = jnp.max(jnp.where(is_infeasible, violations, 0.0), axis=1)
            is_even = ~jnp.any(valid, axis=1) & (largest - smallest < _FLAT)
            is_flat = jnp.where(jnp.any(is_infeasible, axis=1), is_even, is_flat)
        num_accepted = jnp.sum(self.by_instance(feedback.accepted), axis=1, dtype=jnp.int32)
        parents = self.selection.parents(self.batch_size, num_accepted)
        return Ranking(order, jnp.minimum(parents, num_ranked), is_flat, num_accepted)

    def updated(
        self,
        state: CmaEmittersState,
        proposal: Proposal,
        ranking: Ranking,
        resting: Bool[Array, " emitters"] | None,
        iteration: Int[Array, ""],
    ) -> Learned:
        """Return Gaussians and probabilities of categories after a ranked batch.

        Those of resting instances stay as they are; ``None`` if no instance rests.
        """
        order, parents = ranking.order, ranking.num_parents
        if self._discrete is None:
            noise, points = proposal.aux, self._points(proposal.solutions)
        else:
            noise, points = proposal.aux
        points = points.reshape(self.num_emitters, self.batch_size, -1)
        gap = self.strategy.gap(self._gaussian_dim, self.batch_size)

        def update(gaussian: Any, *ranked: Array) -> Any:
            new = self.strategy.update(gaussian, *ranked)
            if not gap:
                return new
            renews = iteration % gap == 0
            return jax.lax.cond(renews, self.strategy.renew, lambda same: same, new)

        rows = points, noise, order, parents
        gaussians = _of_working(update, resting, state.gaussians, rows)
        choices = state.choices
        if choices is not None:
            learned = self._learned_choices(choices, proposal.solutions, order, parents)
            choices = learned if resting is None else where_instances(resting, choices, learned)
        return gaussians, choices

    def _due(
        self,
        rule: Any,
        feedback: Feedback,
        ranking: Ranking,
        resting: Bool[Array, " emitters"],
    ) -> tuple[Bool[Array, " emitters"], Any]:
        """Return which instances the restart rule stops, and its new state."""
        num_filled = jnp.sum(self.by_instance(feedback.filled), axis=1, dtype=jnp.int32)
        progress = Progress(feedback.iteration, ranking.num_accepted, num_filled, resting)
        due, rule = self.restart.due(rule, progress)
        if feedback.violations is not None:
            # An instance on its way to feasible solutions cannot fill cells, and is not idle.
            is_valid = jnp.any(self.by_instance(feedback.valid), axis=1)
            due &= is_valid | ~jnp.any(self.by_instance(feedback.violations) > 0, 1)
        return due, rule

    def started_at(
        self, state: CmaEmittersState, elites: Float[Array, "emitters sol"]
    ) -> CmaEmittersState:
        """Return a state with one Gaussian around each elite."""
        gaussians, choices = self.started(elites)
        return CmaEmittersState(gaussians, state.rule, state.restarts, choices)

    def metrics(self, state: CmaEmittersState) -> dict[str, Array]:
        """Return the number of restarts of all instances."""
        return {"restarts": state.restarts}

    @property
    def num_parts(self) -> int:
        """Number of CMA-ES instances."""
        return self.num_emitters

    def divides_into(self, num_parts: int) -> bool:
        """Return whether every part has the same number of CMA-ES instances."""
        return self.num_emitters % num_parts == 0

    def part(self, num_parts: int) -> "CmaEmitters":
        """Return the emitter with some of the CMA-ES instances."""
        return dataclasses.replace(self, num_emitters=self.num_emitters // num_parts)

    def part_state(
        self, state: CmaEmittersState, index: Int[Array, ""], num_parts: int
    ) -> CmaEmittersState:
        """Return the state of some instances, with the counts of all."""
        return rows_of_part(state, index, num_parts)

    def with_part_state(
        self,
        state: CmaEmittersState,
        index: Int[Array, ""],
        num_parts: int,
        part_state: CmaEmittersState,
    ) -> CmaEmittersState:
        """Return the state with some instances replaced."""
        return with_rows_of_part(state, index, part_state)

    @property
    def _discrete(self) -> Discrete | None:
        return None if self.bounds is None else self.bounds.discrete

    def started(self, solutions: Float[Array, "emitters sol"]) -> Learned:
        """Return first Gaussians and probabilities of categories around solutions."""
        sigma0 = 1.0 if jnp.ndim(self.sigma0) else self.sigma0
        means = self._points(solutions)
        gaussians = jax.vmap(lambda mean: self.strategy.start(mean, sigma0))(means)
        discrete = self._discrete
        if discrete is None or not discrete.is_category.any():
            return gaussians, None
        return gaussians, Categories(discrete).fresh(solutions)

    def _learned_choices(
        self,
        choices: Float[Array, "emitters cats most"],
        solutions: Float[Array, "batch sol"],
        order: Int[Array, "emitters each"],
        parents: Int[Array, " emitters"],
    ) -> Float[Array, "emitters cats most"]:
        """Return the probabilities of categories after a ranked batch."""
        assert self._discrete is not None
        categories = Categories(self._discrete)
        table = constants(self._gaussian_dim, self.batch_size)
        ranked = jnp.asarray(table.weights, jnp.float32)[parents]
        weights = jax.vmap(lambda order, row: jnp.zeros_like(row).at[order].set(row))(order, ranked)
        by_instance = solutions.reshape(self.num_emitters, self.batch_size, -1)
        mu_eff = float(table.mu_eff[self.batch_size // 2])
        rate = mu_eff / (mu_eff + len(categories.columns))
        active = None if self.bounds is None else self.bounds.active(by_instance)
        return categories.learned(choices, by_instance, weights, rate, active)

    @property
    def _coordinates(self) -> Coordinates | None:
        return coordinates_of(self.sigma0, self.bounds)

    def _points(self, solutions: Float[Array, "*n sol"]) -> Float[Array, "*n dim"]:
        """Return the variables that the Gaussians sample, in their coordinates."""
        coordinates, ordered = self._coordinates, self._ordered
        points = solutions if coordinates is None else coordinates.points_of(solutions)
        return points if len(ordered) == points.shape[-1] else points[..., ordered]

    @property
    def _ordered(self) -> Int[np.ndarray, " dim"]:
        """Columns of the variables that the Gaussians sample."""
        discrete = self._discrete
        is_ordered = np.ones(self.x0.size, bool) if discrete is None else ~discrete.is_category
        # A Gaussian has at least one variable, although nothing uses it if all are categories.
        return np.flatnonzero(is_ordered) if is_ordered.any() else np.arange(1)

    @property
    def _gaussian_dim(self) -> int:
        return len(self._ordered)


def where_instances(which: Bool[Array, " emitters"], chosen: Any, otherwise: Any) -> Any:
    """Choose between two pytrees with leading axes of instances, for each instance."""
    return jax.tree.map(
        lambda this, other: jnp.where(which.reshape(-1, *[1] * (this.ndim - 1)), this, other),
        chosen,
        otherwise,
    )


def _of_working(
    update: Callable[..., Any], resting: Bool[Array, " emitters"] | None, states: Any, rows: Any
) -> Any:
    """Return ``update(state, *rows)`` of each instance, or its state if it rests."""
    if resting is None:
        return jax.vmap(update)(states, *rows)
    if not runs_on_cpu():
        return where_instances(resting, states, jax.vmap(update)(states, *rows))
    # One after the other, so that a CPU spends no time on those that rest.
    order = jnp.argsort(resting, stable=True)

    def update_one(number: Int[Array, ""], states: Any) -> Any:
        index = order[number]
        updated = update(*jax.tree.map(lambda leaf: leaf[index], (states, *rows)))
        return jax.tree.map(lambda leaf, new: leaf.at[index].set(new), states, updated)

    return jax.lax.fori_loop(0, jnp.sum(~resting), update_one, states)
