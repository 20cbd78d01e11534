"""CMA-ES emitters: sampling within bounds, ranking, adaptation and restarts, all in one batch."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from gloam import checks
from gloam.draws import normals
from gloam.emitters.cma_es import CMAES, Strategy
from gloam.emitters.emitter import (
    Bounds,
    Coordinates,
    ElitesWanted,
    Emitter,
    checked_start,
    checked_step,
    coordinates_of,
)
from gloam.emitters.lm_ma_es import LMMAES
from gloam.emitters.rules import (
    MuSelection,
    Progress,
    RestartRule,
    RestartWhenIdle,
    SelectionRule,
)
from gloam.records import Feedback, Proposal

# Largest solutions that get a full covariance by default: that of 15 emitters takes 120 MB for
# 1,000 numbers and 12 GB for 10,000.
FULL_UP_TO = 1000
# Number of times that a solution outside the bounds is sampled again before it is clipped.
_RESAMPLINGS = 16
# Smallest step with which CMA-ES is stable in float32.
_LEAST_STEP = 1e-11
# Limit of pycma for a flat ranking.
_FLAT = 1e-12


class CmaEmittersState(eqx.Module):
    """The Gaussians of all emitters, and the number of restarts."""

    gaussians: Any
    """State of the strategy, with a leading axis of emitters."""
    rule: Any
    """State of the restart rule."""
    restarts: Int[Array, ""]


class CmaEmitters(Emitter):
    """``num_emitters`` independent CMA-ES instances with ``batch_size`` solutions each.

    Args:
        x0: ``(sol,)`` starting solution of every emitter.
        sigma0: Standard deviation of the first solutions around ``x0``, and after restarts: one
            number, or one for each variable. With bounds on both sides it is a share of their
            width, by default a fifth.
        num_emitters: Number of CMA-ES instances.
        batch_size: Number of solutions per instance and iteration.
        restart: Decides when emitters restart from a random elite;
            `gloam.emitters.RestartWhenIdle` by default.
        selection: Decides which solutions are parents; `gloam.emitters.MuSelection` by default.
        bounds: Lower and upper bounds of the solutions, each a number, an array or ``None``.
            Solutions outside are sampled again a fixed number of times and then clipped, so that a
            mean on the boundary cannot stall the search.
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
        strategy: Strategy | None = None,
    ):
        self.x0, self.bounds = checked_start(x0, bounds)
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
        default = CMAES() if self.x0.size <= FULL_UP_TO else LMMAES()
        self.strategy = default if strategy is None else strategy
        fix = "Use CMAES(), SepCMAES() or LMMAES() of gloam.emitters."
        checks.instance("strategy", self.strategy, Strategy, fix)
        self.strategy.check(self.x0.size, self.batch_size)

    @property
    def num_solutions(self) -> int:
        """Number of solutions proposed in each iteration."""
        return self.num_emitters * self.batch_size

    @property
    def label(self) -> str:
        """Prefix of the metrics in a mixture."""
        return "cma_es"

    @property
    def elites_to_ask(self) -> tuple[ElitesWanted, ...]:
        """Always empty: Gaussians need no parents."""
        return ()

    @property
    def num_elites_to_adapt(self) -> int:
        """One elite for each emitter, in case it restarts."""
        return self.num_emitters

    def init(self, x0: Float[Array, " sol"] | None = None) -> CmaEmittersState:
        """Return a state with all emitters at ``x0``, or at the emitter's own."""
        start = self._points(self.x0 if x0 is None else x0)
        means = jnp.broadcast_to(start, (self.num_emitters, *start.shape))
        rule = self.restart.init(self.num_emitters)
        return CmaEmittersState(self._fresh(means), rule, jnp.zeros((), jnp.int32))

    def ask(
        self, state: CmaEmittersState, elites: Float[Array, "n sol"], *, key: PRNGKeyArray
    ) -> Proposal:
        """Sample ``batch_size`` solutions from every Gaussian."""
        del elites
        gaussians = state.gaussians

        def draw(key: PRNGKeyArray):
            noise = normals(key, (self.num_emitters, self.batch_size, self.x0.shape[0]))
            steps = jax.vmap(self.strategy.steps)(gaussians, noise)
            return noise, gaussians.mean[:, None] + gaussians.sigma[:, None, None] * steps

        noise, points = draw(key)
        if self.bounds is not None:
            lower, upper = self._points(self.bounds.lower), self._points(self.bounds.upper)
            noise, points = _within(lower, upper, noise, points, draw, key)
        solutions, coordinates = points.reshape(self.num_solutions, -1), self._coordinates
        if coordinates is not None:
            solutions = coordinates.solutions_of(solutions)
            solutions = solutions if self.bounds is None else self.bounds.clip(solutions)
        return Proposal(solutions, noise)

    def adapt(
        self,
        state: CmaEmittersState,
        proposal: Proposal,
        feedback: Feedback,
        elites: Float[Array, "emitters sol"],
    ) -> CmaEmittersState:
        """Update every Gaussian, and restart emitters that are due."""
        by_emitter = (self.num_emitters, self.batch_size)
        valid = feedback.valid.reshape(by_emitter)
        values = jnp.where(valid, feedback.improvements.reshape(by_emitter), -jnp.inf)
        number_valid = jnp.sum(valid, axis=1, dtype=jnp.int32)
        number_accepted = jnp.sum(feedback.accepted.reshape(by_emitter), axis=1, dtype=jnp.int32)
        parents = self.selection.parents(self.batch_size, number_accepted)
        parents = jnp.minimum(parents, number_valid)

        # Stable: equal improvements rank by index.
        order = jnp.argsort(-values, axis=1, stable=True)

        points = self._points(proposal.solutions).reshape(*by_emitter, -1)
        gaussians = jax.vmap(self.strategy.update)(
            state.gaussians, points, proposal.aux, order, parents
        )
        gap = self.strategy.gap(self.x0.shape[0], self.batch_size)
        if gap:
            renew = jax.vmap(self.strategy.renew)
            gaussians = jax.lax.cond(
                feedback.iteration % gap == 0, renew, lambda same: same, gaussians
            )

        lowest = jnp.min(jnp.where(valid, values, jnp.inf), axis=1)
        flat = ~(jnp.max(values, axis=1) - lowest >= _FLAT)  # also when no row is valid
        stop = flat | jax.vmap(self.strategy.degenerate)(gaussians)
        number_filled = jnp.sum(feedback.filled.reshape(by_emitter), axis=1, dtype=jnp.int32)
        progress = Progress(feedback.iteration, number_accepted, number_filled)
        due, rule = self.restart.due(state.rule, progress)
        stop |= due
        rule = self.restart.restarted(rule, stop)

        # Most iterations have no restart, and then nothing is copied on a CPU.
        def restarted(gaussians: Any) -> Any:
            return jax.tree.map(
                lambda fresh, old: jnp.where(stop.reshape(-1, *[1] * (old.ndim - 1)), fresh, old),
                self._fresh(self._points(elites)),
                gaussians,
            )

        gaussians = jax.lax.cond(jnp.any(stop), restarted, lambda same: same, gaussians)
        return CmaEmittersState(gaussians, rule, state.restarts + jnp.sum(stop, dtype=jnp.int32))

    def metrics(self, state: CmaEmittersState) -> dict[str, Array]:
        """Return the number of restarts of all emitters."""
        return {"restarts": state.restarts}

    @property
    def num_parts(self) -> int:
        """Number of CMA-ES instances."""
        return self.num_emitters

    def divides_into(self, num_parts: int) -> bool:
        """Return whether ``num_parts`` is the number of CMA-ES instances."""
        return num_parts == self.num_emitters

    def part(self, num_parts: int) -> "CmaEmitters":
        """Return the emitter with one CMA-ES instance."""
        return dataclasses.replace(self, num_emitters=1)

    def part_state(self, state: CmaEmittersState, index: Int[Array, ""]) -> CmaEmittersState:
        """Return one Gaussian, with the counts of all."""
        gaussians, rule = jax.tree.map(
            lambda all_: jax.lax.dynamic_slice_in_dim(all_, index, 1) if all_.ndim else all_,
            (state.gaussians, state.rule),
        )
        return CmaEmittersState(gaussians, rule, state.restarts)

    def with_part_state(
        self, state: CmaEmittersState, index: Int[Array, ""], part_state: CmaEmittersState
    ) -> CmaEmittersState:
        """Return the state with one Gaussian replaced."""
        update = jax.lax.dynamic_update_slice_in_dim
        gaussians, rule = jax.tree.map(
            lambda all_, one: update(all_, one, index, 0) if all_.ndim else one,
            (state.gaussians, state.rule),
            (part_state.gaussians, part_state.rule),
        )
        return CmaEmittersState(gaussians, rule, part_state.restarts)

    @property
    def _coordinates(self) -> Coordinates | None:
        return coordinates_of(self.sigma0, self.bounds)

    def _points(self, solutions: Float[Array, "*n sol"]) -> Float[Array, "*n sol"]:
        coordinates = self._coordinates
        return solutions if coordinates is None else coordinates.points_of(solutions)

    def _fresh(self, means: Float[Array, "emitters sol"]) -> Any:
        sigma0 = 1.0 if jnp.ndim(self.sigma0) else self.sigma0
        return jax.vmap(lambda mean: self.strategy.start(mean, sigma0))(means)


def _within(
    lower: Array, upper: Array, noise: Array, solutions: Array, draw: Any, key: PRNGKeyArray
) -> tuple[Array, Array]:
    """Sample solutions outside the bounds again, then clip those that are still outside."""

    def outside(solutions: Array) -> Bool[Array, "emitters each"]:
        return jnp.any((solutions < lower) | (solutions > upper), axis=-1)

    def unfinished(carry: tuple[Array, Array, Array]) -> Bool[Array, ""]:
        round_, _, solutions = carry
        return (round_ < _RESAMPLINGS) & jnp.any(outside(solutions))

    def again(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        round_, noise, solutions = carry
        new_noise, new_solutions = draw(jax.random.fold_in(key, round_ + 1))
        out = outside(solutions)[..., None]
        noise = jnp.where(out, new_noise, noise)
        return round_ + 1, noise, jnp.where(out, new_solutions, solutions)

    first = (jnp.zeros((), jnp.int32), noise, solutions)
    _, noise, solutions = jax.lax.while_loop(unfinished, again, first)
    return noise, jnp.clip(solutions, lower, upper)
