"""CMA-MEGA and CMA-MAEGA: points that branch by the gradients of objective and measures."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from gloam._tools import checks
from gloam._tools.draws import normals
from gloam._tools.registry import register
from gloam.algorithms.algorithm import Algorithm, checked_archive, register_algorithm
from gloam.archives import Archive
from gloam.discounts import NoDiscount, Thresholds
from gloam.emitters.cma_es import CMAES, Strategy, constants
from gloam.emitters.emitter import ElitesWanted, Emitter, checked_start
from gloam.emitters.rules import (
    BasicRestart,
    MuSelection,
    Progress,
    RestartRule,
    RestartWithoutImprovement,
    SelectionRule,
)
from gloam.records import DrawsTargets, Feedback, Proposal

MOST_MEASURES = 100
"""Largest number of measures. Each point needs a gradient of every measure in every iteration."""
MOST_NUMBERS = 2**28
"""Largest number of numbers in the Jacobians of all points of a seed: 1 GB."""
# Keeps the length of a gradient above zero when it is normalized, as in pyribs.
_SHORTEST = 1e-8
# Decay rates and smallest divisor of Adam.
_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-8
# Limit of pycma for a flat ranking.
_FLAT = 1e-12


class ArborescencesState(eqx.Module):
    """The points, and the Gaussians of their coefficients."""

    points: Float[Array, "emitters sol"]
    moments: tuple[Float[Array, "emitters sol"], Float[Array, "emitters sol"]] | None
    """Running means of steps and of their squares, for Adam."""
    gaussians: Any
    """State of the strategy, with a leading axis of emitters."""
    rule: Any
    """State of the restart rule."""
    restarts: Int[Array, ""]
    failed: Int[Array, ""]
    """Number of Jacobians that were not finite."""
    jacobians: Float[Array, "emitters outputs sol"] | None = None
    """Normalized gradients at the points, only within an iteration."""


@register
class Arborescences(Emitter):
    """Points that branch along the gradients of objective and measures (CMA-MEGA, CMA-MAEGA).

    Every emitter has a point ``x``. In each iteration it receives the gradients of the objective
    and of all measures at ``x``, scaled to length 1, and proposes ``x`` and branches

        x + c_0 grad f(x) + c_1 grad m_1(x) + ... + c_k grad m_k(x)

    with coefficients from a Gaussian that CMA-ES adapts. The point then moves by the weighted mean
    of the steps to the best branches. Each point needs ``1 + k`` gradients for ``k`` measures, so
    there are at most 100 measures; `gloam.emitters.GradientAscent` needs one.

    Only `gloam.run` can use it, because the gradients are needed before solutions are proposed.
    Points are evaluated and added to the archive like other solutions, and rank nowhere.

    Args:
        x0: ``(sol,)`` starting point of every emitter.
        sigma0: Standard deviation of the first coefficients, and after restarts. Since gradients
            have length 1, it is a distance between solutions.
        measure_dim: Number of measures of the archive.
        num_emitters: Number of points.
        batch_size: Number of solutions per emitter and iteration: its point, and branches.
        learning_rate: Share of the step to the mean of the best branches; with ``adam``, its
            step size.
        adam: Move points by Adam instead of plain gradient ascent.
        two_stage: Rank solutions in empty cells first, then those that beat the elite of their
            cell, and within these by the improvement over the elite, as CMA-MEGA does. By default
            they rank by the improvement over the discount, as in CMA-MAEGA.
        restart: Decides when emitters restart from a random elite; `gloam.emitters.BasicRestart`
            by default.
        selection: Decides which branches are parents; `gloam.emitters.MuSelection` by default.
        strategy: Evolution strategy of the coefficients; ``CMAES()`` by default.
    """

    x0: Float[Array, " sol"]
    sigma0: float
    measure_dim: int = eqx.field(static=True)
    num_emitters: int = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)
    learning_rate: float
    adam: bool = eqx.field(static=True)
    two_stage: bool = eqx.field(static=True)
    restart: RestartRule
    selection: SelectionRule
    strategy: Strategy

    def __init__(
        self,
        x0: Any,
        sigma0: float,
        measure_dim: int,
        *,
        num_emitters: int = 15,
        batch_size: int = 36,
        learning_rate: float = 1.0,
        adam: bool = False,
        two_stage: bool = False,
        restart: RestartRule | None = None,
        selection: SelectionRule | None = None,
        strategy: Strategy | None = None,
    ):
        self.x0, bounds = checked_start(x0, None)
        fix = "Use gloam.DMS for spaces and trees."
        checks.expect(bounds is None, "x0", "a flat vector", type(x0).__name__, fix)
        self.sigma0 = checks.number("sigma0", sigma0, above=1e-11, at_most=1e11)
        self.measure_dim = checks.count("measure_dim", measure_dim)
        self.num_emitters = checks.count("num_emitters", num_emitters)
        fix = "A point and at least two branches."
        self.batch_size = checks.count("batch_size", batch_size, minimum=3, maximum=10_000, fix=fix)
        check_jacobians(self.num_emitters, self.measure_dim, self.x0.size)
        self.learning_rate = checks.number("learning_rate", learning_rate, above=0.0)
        for name, value in (("adam", adam), ("two_stage", two_stage)):
            checks.instance(name, value, bool)
        self.adam, self.two_stage = adam, two_stage
        self.restart = BasicRestart() if restart is None else restart
        fix = "Use BasicRestart(), RestartWithoutImprovement() or others of gloam.emitters."
        checks.instance("restart", self.restart, RestartRule, fix)
        self.selection = MuSelection() if selection is None else selection
        fix = "Use MuSelection() or FilterSelection() of gloam.emitters."
        checks.instance("selection", self.selection, SelectionRule, fix)
        self.strategy = CMAES() if strategy is None else strategy
        checks.instance("strategy", self.strategy, Strategy, "Use CMAES() of gloam.emitters.")
        self.strategy.check(self._num_coefficients, self._num_branches)

    @property
    def num_solutions(self) -> int:
        """Number of points and branches."""
        return self.num_emitters * self.batch_size

    @property
    def num_gradients(self) -> int:
        """A gradient of the objective and of each measure at every point."""
        return self.num_emitters * self._num_coefficients

    @property
    def label(self) -> str:
        """Prefix of the metrics in a mixture."""
        return "arborescence"

    @property
    def elites_to_ask(self) -> tuple[ElitesWanted, ...]:
        """Always empty: points need no parents."""
        return ()

    @property
    def num_elites_to_adapt(self) -> int:
        """One elite for each emitter, in case it restarts."""
        return self.num_emitters

    def init(self, x0: Float[Array, " sol"] | None = None) -> ArborescencesState:
        """Return a state with all points at ``x0``, or at the emitter's own."""
        start = self.x0 if x0 is None else x0
        points = jnp.broadcast_to(start, (self.num_emitters, *start.shape))
        moments = (jnp.zeros_like(points), jnp.zeros_like(points)) if self.adam else None
        rule, zero = self.restart.init(self.num_emitters), jnp.zeros((), jnp.int32)
        return ArborescencesState(points, moments, self._fresh(), rule, zero, zero)

    def points(self, state: ArborescencesState) -> Float[Array, "emitters sol"]:
        """Return the points at which the emitter needs gradients before `ask`."""
        return state.points

    def with_jacobians(
        self, state: ArborescencesState, jacobians: Float[Array, "emitters outputs sol"]
    ) -> ArborescencesState:
        """Return the state for `ask` and `adapt`, with the gradients at its points.

        Gradients are scaled to length 1. Those of a point are zero if one of them is not finite;
        its branches are then equal, and the emitter restarts.
        """
        measures = jacobians.shape[1] - 1
        expected = f"{measures}, as the archive has"
        checks.expect(measures == self.measure_dim, "measure_dim", expected, self.measure_dim)
        is_finite = jnp.all(jnp.isfinite(jacobians), axis=(1, 2))
        jacobians = jnp.where(is_finite[:, None, None], jacobians, 0.0)
        # Divided by the largest number first, so that squares stay within float32.
        largest = jnp.max(jnp.abs(jacobians), axis=2, keepdims=True)
        scaled = jacobians / jnp.where(largest > 0, largest, 1.0)
        lengths = largest * jnp.linalg.norm(scaled, axis=2, keepdims=True)
        failed = state.failed + jnp.sum(~is_finite, dtype=jnp.int32)
        return ArborescencesState(
            state.points,
            state.moments,
            state.gaussians,
            state.rule,
            state.restarts,
            failed,
            jacobians / (lengths + _SHORTEST),
        )

    def ask(
        self,
        state: ArborescencesState,
        elites: Float[Array, "n sol"],
        *,
        key: PRNGKeyArray,
        targets: DrawsTargets | None = None,
    ) -> Proposal:
        """Propose the points of all emitters, then their branches."""
        del elites
        assert state.jacobians is not None, "`with_jacobians` comes first"
        gaussians = state.gaussians
        noise = normals(key, (self.num_emitters, self._num_branches, self._num_coefficients))
        steps = jax.vmap(self.strategy.steps)(gaussians, noise)
        coefficients = gaussians.mean[:, None] + gaussians.sigma[:, None, None] * steps
        branches = state.points[:, None] + coefficients @ state.jacobians
        solutions = jnp.concatenate([state.points, branches.reshape(-1, self.x0.shape[0])])
        return Proposal(solutions, (noise, coefficients))

    def adapt(
        self,
        state: ArborescencesState,
        proposal: Proposal,
        feedback: Feedback,
        elites: Float[Array, "emitters sol"],
    ) -> ArborescencesState:
        """Move every point, update its Gaussian, and restart emitters that are due."""
        assert state.jacobians is not None, "the state that `ask` had"
        noise, coefficients = proposal.aux
        order, improves, is_flat = self._ranking(feedback)
        valid = self._of_branches(feedback.valid)
        number_improving = jnp.sum(improves, axis=1, dtype=jnp.int32)
        parents = self.selection.parents(self._num_branches, number_improving)
        parents = jnp.minimum(parents, jnp.sum(valid, axis=1, dtype=jnp.int32))

        table = constants(self._num_coefficients, self._num_branches)
        by_rank = jnp.asarray(table.weights, jnp.float32)[parents]
        ranked = jnp.take_along_axis(coefficients, order[..., None], axis=1)
        mean = jnp.sum(by_rank[..., None] * ranked, axis=1)  # zero without parents
        steps = (mean[:, None] @ state.jacobians)[:, 0]
        gaussians = jax.vmap(self.strategy.update)(
            state.gaussians, coefficients, noise, order, parents
        )
        points, moments = self._moved(state, steps, gaussians.generation)
        gap = self.strategy.gap(self._num_coefficients, self._num_branches)
        if gap:
            renew = jax.vmap(self.strategy.renew)
            is_due = feedback.iteration % gap == 0
            gaussians = jax.lax.cond(is_due, renew, lambda same: same, gaussians)

        stops = is_flat | jax.vmap(self.strategy.degenerate)(gaussians)
        stops |= ~jnp.all(jnp.abs(points) <= checks.LARGEST, axis=1)
        filled = jnp.sum(self._of_branches(feedback.filled), axis=1, dtype=jnp.int32)
        progress = Progress(feedback.iteration, number_improving, filled)
        due, rule = self.restart.due(state.rule, progress)
        stops |= due

        def restarted(fresh: Array, old: Array) -> Array:
            return jnp.where(stops.reshape(-1, *[1] * (old.ndim - 1)), fresh, old)

        none = jax.tree.map(jnp.zeros_like, moments)
        new = elites, none, self._fresh()
        points, moments, gaussians = jax.tree.map(restarted, new, (points, moments, gaussians))
        restarts = state.restarts + jnp.sum(stops, dtype=jnp.int32)
        rule = self.restart.restarted(rule, stops)
        return ArborescencesState(points, moments, gaussians, rule, restarts, state.failed)

    def metrics(self, state: ArborescencesState) -> dict[str, Array]:
        """Return the number of restarts, and of points whose gradients were not finite."""
        return {"restarts": state.restarts, "gradients_failed": state.failed}

    @property
    def _num_coefficients(self) -> int:
        return 1 + self.measure_dim

    @property
    def _num_branches(self) -> int:
        return self.batch_size - 1

    def _fresh(self) -> Any:
        means = jnp.zeros((self.num_emitters, self._num_coefficients), jnp.float32)
        return jax.vmap(lambda mean: self.strategy.start(mean, self.sigma0))(means)

    def _of_branches(self, rows: Array) -> Array:
        """Return the values of branches by emitter."""
        return rows[self.num_emitters :].reshape(self.num_emitters, self._num_branches)

    def _ranking(
        self, feedback: Feedback
    ) -> tuple[Int[Array, "emitters each"], Bool[Array, "emitters each"], Bool[Array, " emitters"]]:
        """Return branches from best to worst, which of them improve, and who ranks all equal."""
        valid = self._of_branches(feedback.valid)
        if self.two_stage:
            assert feedback.was_empty is not None
            assert feedback.over_elites is not None
            is_new = self._of_branches(feedback.was_empty)
            values = self._of_branches(feedback.over_elites)
            improves = valid & (is_new | (values > 0))
            stages = improves.astype(jnp.int32) + (improves & is_new)
        else:
            values = self._of_branches(feedback.improvements)
            improves = valid & (values > 0)
            stages = jnp.zeros_like(values, jnp.int32)
        stages = jnp.where(valid, stages, -1)
        # Stable: equal branches rank by index.
        order = jnp.lexsort((-values, -stages), axis=1)

        def spread(rows: Array, low: Any, high: Any) -> Array:
            most = jnp.max(jnp.where(valid, rows, low), axis=1)
            return most - jnp.min(jnp.where(valid, rows, high), axis=1)

        # Written so that it is true also when no row is valid.
        is_flat = ~(spread(values, -jnp.inf, jnp.inf) >= _FLAT) & ~(spread(stages, -1, 3) > 0)
        return order, improves, is_flat

    def _moved(
        self,
        state: ArborescencesState,
        steps: Float[Array, "emitters sol"],
        number: Int[Array, " emitters"],
    ) -> tuple[Float[Array, "emitters sol"], Any]:
        """Return the points after their ``number``-th steps since the restart, and the moments."""
        if state.moments is None:
            return state.points + self.learning_rate * steps, None
        first, second = state.moments
        first = _BETA_1 * first + (1 - _BETA_1) * steps
        second = _BETA_2 * second + (1 - _BETA_2) * jnp.square(steps)
        count = number.astype(jnp.float32)[:, None]
        rate = self.learning_rate * jnp.sqrt(1 - _BETA_2**count) / (1 - _BETA_1**count)
        return state.points + rate * first / (jnp.sqrt(second) + _EPSILON), (first, second)


@register_algorithm
class CMAMEGA(Algorithm):
    """CMA-MEGA (Fontaine and Nikolaidis, 2021), for few measures and an evaluation in JAX.

    Points branch along the gradients of objective and measures. Solutions in empty cells rank
    first. Only `gloam.run` can use it.

    Args:
        archive: The cells to fill.
        x0: ``(sol,)`` starting point of every emitter.
        sigma0: Standard deviation of the first coefficients, and after restarts. Since gradients
            have length 1, it is a distance between solutions.
        num_emitters: Number of points.
        batch_size: Number of solutions per point and iteration: the point and its branches.
        learning_rate: Share of the step to the mean of the best branches; with ``adam``, its
            step size.
        adam: Move points by Adam instead of plain gradient ascent.
        restart: Decides when a point restarts from a random elite;
            `gloam.emitters.RestartWithoutImprovement` by default.
        strategy: Evolution strategy of the coefficients; ``CMAES()`` by default.

    Example:
        >>> import gloam, gloam_lab
        >>> domain = gloam.domains.LinearProjection(measure_dim=2)
        >>> algorithm = gloam_lab.CMAMEGA(domain.archive(), domain.x0, sigma0=10.0)
        >>> result = gloam.run(domain, algorithm, iterations=3, progress=False)
        >>> result.metrics["evaluations"].tolist()
        [1620]
    """

    @checks.names_arguments
    def __init__(
        self,
        archive: Archive,
        x0: Any,
        sigma0: float,
        *,
        num_emitters: int = 15,
        batch_size: int = 36,
        learning_rate: float = 1.0,
        adam: bool = False,
        restart: RestartRule | None = None,
        strategy: Strategy | None = None,
    ):
        emitter = Arborescences(
            x0,
            sigma0,
            checked_archive(archive).measure_dim,
            num_emitters=num_emitters,
            batch_size=batch_size,
            learning_rate=learning_rate,
            adam=adam,
            two_stage=True,
            restart=RestartWithoutImprovement() if restart is None else restart,
            strategy=strategy,
        )
        super().__init__(emitter, archive, NoDiscount(), "CMA-MEGA")


@register_algorithm
class CMAMAEGA(Algorithm):
    """CMA-MAEGA (Fontaine and Nikolaidis, 2023), for few measures and an evaluation in JAX.

    Points branch along the gradients of objective and measures. Solutions rank by their
    improvement over the thresholds of CMA-MAE. Only `gloam.run` can use it.

    Args:
        archive: The cells to fill.
        x0: ``(sol,)`` starting point of every emitter.
        sigma0: Standard deviation of the first coefficients, and after restarts. Since gradients
            have length 1, it is a distance between solutions.
        num_emitters: Number of points.
        batch_size: Number of solutions per point and iteration: the point and its branches.
        learning_rate: Share of the step to the mean of the best branches; with ``adam``, its
            step size.
        adam: Move points by Adam instead of plain gradient ascent.
        restart: Decides when a point restarts from a random elite;
            `gloam.emitters.BasicRestart` by default.
        strategy: Evolution strategy of the coefficients; ``CMAES()`` by default.
        alpha: Archive learning rate: 1 only explores, 0 only optimizes.
        floor: Initial threshold of a cell: at or below the lowest objective that you expect. By
            default ``f_min`` of the archive, or 0.

    Example:
        >>> import gloam, gloam_lab, numpy as np
        >>> archive = gloam.GridArchive(shape=(20, 20), lower=-1, upper=1)
        >>> gloam_lab.CMAMAEGA(archive, x0=np.zeros(4), sigma0=0.2).discount.alpha
        0.01
    """

    @checks.names_arguments
    def __init__(
        self,
        archive: Archive,
        x0: Any,
        sigma0: float,
        *,
        num_emitters: int = 15,
        batch_size: int = 36,
        learning_rate: float = 1.0,
        adam: bool = False,
        restart: RestartRule | None = None,
        strategy: Strategy | None = None,
        alpha: float = 0.01,
        floor: float | None = None,
    ):
        emitter = Arborescences(
            x0,
            sigma0,
            checked_archive(archive).measure_dim,
            num_emitters=num_emitters,
            batch_size=batch_size,
            learning_rate=learning_rate,
            adam=adam,
            restart=restart,
            strategy=strategy,
        )
        super().__init__(emitter, archive, Thresholds(alpha=alpha, floor=floor), "CMA-MAEGA")


def check_jacobians(num_emitters: int, measure_dim: int, solution_dim: int) -> None:
    """Raise if the Jacobians of all points would be too large."""
    fix = "Use gloam.DMS(..., gradients=True), which needs one gradient for any number of measures."
    few = f"at most {MOST_MEASURES} measures, of which each needs a gradient"
    checks.expect(measure_dim <= MOST_MEASURES, "archive", few, f"{measure_dim:,}", fix)
    numbers = num_emitters * (1 + measure_dim) * solution_dim
    expected = f"Jacobians of at most {MOST_NUMBERS:,} numbers"
    got = f"{numbers:,} ({num_emitters} emitters x {1 + measure_dim} gradients x {solution_dim:,})"
    checks.expect(numbers <= MOST_NUMBERS, "x0", expected, got, f"Use fewer emitters. {fix}")
