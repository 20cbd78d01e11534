"""Many CMA-ES emitters at once: sampling inside bounds, ranking, restarts."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from gloam import checks
from gloam.draws import normals
from gloam.emitters.cma_es import CMAES, Strategy
from gloam.emitters.emitter import ElitesWanted, Emitter
from gloam.emitters.lm_ma_es import LMMAES
from gloam.emitters.rules import BasicRestart, MuSelection, Progress, RestartRule, SelectionRule
from gloam.records import Feedback, Proposal

# Solutions of more numbers than this get the limited-memory strategy unless another is named: a
# full covariance of 15 emitters takes 120 MB for 1,000 numbers, and 12 GB for 10,000.
FULL_UP_TO = 1000
# Rounds of resampling before a solution is clipped into the box.
_RESAMPLINGS = 16
# pycma's limit for a flat ranking.
_FLAT = 1e-12


class CmaEmittersState(eqx.Module):
    """The Gaussians of all emitters, and how often they were restarted."""

    gaussians: Any
    """One state of the strategy whose arrays have a leading axis of emitters."""
    rule: Any
    """What the restart rule remembers of each emitter."""
    restarts: Int[Array, ""]


class CmaEmitters(Emitter):
    """``num_emitters`` independent CMA-ES instances of ``batch_size`` solutions each.

    Args:
        x0: ``(sol,)`` starting solution of every emitter.
        sigma0: Standard deviation of the first solutions around ``x0``, and after restarts. By
            default a fifth of the box's width (the median, where widths differ).
        num_emitters: Number of CMA-ES instances.
        batch_size: Number of solutions per instance and iteration.
        restart: When emitters restart from a random elite; `gloam.emitters.BasicRestart` by
            default.
        selection: Which solutions are parents; `gloam.emitters.MuSelection` by default.
        lower, upper: Optional box of the solutions. Draws outside are repeated a fixed number of
            times, then clipped: a mean on the edge of the box cannot stall the search.
        strategy: What each Gaussian is made of: ``CMAES()``, ``SepCMAES()`` or ``LMMAES()`` of
            `gloam.emitters`; by default the first for solutions of up to 1,000 numbers and the
            last beyond.
    """

    x0: Float[Array, " sol"]
    sigma0: float
    num_emitters: int = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)
    restart: RestartRule
    selection: SelectionRule
    lower: Float[Array, " sol"] | None
    upper: Float[Array, " sol"] | None
    strategy: Strategy

    def __init__(
        self,
        x0: Any,
        sigma0: float | None = None,
        *,
        num_emitters: int = 15,
        batch_size: int = 36,
        restart: RestartRule | None = None,
        selection: SelectionRule | None = None,
        lower: checks.Bounds | None = None,
        upper: checks.Bounds | None = None,
        strategy: Strategy | None = None,
    ):
        start = checks.finite_array("x0", x0, ndim=1, fix="Give one starting solution.")
        self.x0 = jnp.asarray(start, jnp.float32)
        low, high = checks.solution_bounds(lower, upper, start)
        if sigma0 is None:
            sigma0 = _default_step(low, high)
        self.sigma0 = checks.number("sigma0", sigma0, above=0.0)
        limits = "a number between 1e-11 and 1e11, within which CMA-ES goes on"
        checks.expect(1e-11 < self.sigma0 < 1e11, "sigma0", limits, sigma0, "Scale the solutions.")
        self.num_emitters = checks.integer("num_emitters", num_emitters, minimum=1)
        self.batch_size = checks.integer(
            "batch_size", batch_size, minimum=2, fix="CMA-ES ranks solutions."
        )
        self.restart = BasicRestart() if restart is None else restart
        checks.instance(
            "restart",
            self.restart,
            RestartRule,
            "Use BasicRestart(), RestartEvery(100) or RestartWithoutImprovement() "
            "of gloam.emitters.",
        )
        self.selection = MuSelection() if selection is None else selection
        checks.instance(
            "selection",
            self.selection,
            SelectionRule,
            "Use MuSelection() or FilterSelection() of gloam.emitters.",
        )
        self.lower = None if low is None else jnp.asarray(low, jnp.float32)
        self.upper = None if high is None else jnp.asarray(high, jnp.float32)
        self.strategy = _default_strategy(len(start)) if strategy is None else strategy
        checks.instance(
            "strategy",
            self.strategy,
            Strategy,
            "Use CMAES(), SepCMAES() or LMMAES() of gloam.emitters.",
        )
        self.strategy.check(len(start), self.batch_size)

    @property
    def num_solutions(self) -> int:
        """Solutions proposed in each iteration."""
        return self.num_emitters * self.batch_size

    @property
    def elites_to_ask(self) -> tuple[ElitesWanted, ...]:
        """None: a Gaussian needs no parents."""
        return ()

    @property
    def num_elites_to_adapt(self) -> int:
        """One for each emitter that may restart."""
        return self.num_emitters

    def init(self, x0: Float[Array, " sol"] | None = None) -> CmaEmittersState:
        """Every emitter at ``x0``, or else at the emitter's own."""
        start = self.x0 if x0 is None else x0
        means = jnp.broadcast_to(start, (self.num_emitters, *start.shape))
        rule = self.restart.init(self.num_emitters)
        return CmaEmittersState(self._fresh(means), rule, jnp.zeros((), jnp.int32))

    def ask(
        self, state: CmaEmittersState, elites: Float[Array, "n sol"], *, key: PRNGKeyArray
    ) -> Proposal:
        """Draw ``batch_size`` solutions from every Gaussian."""
        del elites
        gaussians = state.gaussians

        def draw(key: PRNGKeyArray):
            noise = normals(key, (self.num_emitters, self.batch_size, self.x0.shape[0]))
            steps = jax.vmap(self.strategy.steps)(gaussians, noise)
            return noise, gaussians.mean[:, None] + gaussians.sigma[:, None, None] * steps

        noise, solutions = draw(key)
        if self.lower is not None and self.upper is not None:
            noise, solutions = self._into_box(noise, solutions, draw, key)
        return Proposal(solutions.reshape(self.num_solutions, -1), noise)

    def _into_box(self, noise: Array, solutions: Array, draw: Any, key: PRNGKeyArray):
        lower, upper = self.lower, self.upper
        assert lower is not None
        assert upper is not None

        def outside(solutions: Array) -> Bool[Array, "emitters each"]:
            return jnp.any((solutions < lower) | (solutions > upper), axis=-1)

        def unfinished(carry: tuple[Array, Array, Array]) -> Bool[Array, ""]:
            round_, _, solutions = carry
            return (round_ < _RESAMPLINGS) & jnp.any(outside(solutions))

        def again(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            round_, noise, solutions = carry
            new_noise, new_solutions = draw(jax.random.fold_in(key, round_ + 1))
            out = outside(solutions)[..., None]
            return (
                round_ + 1,
                jnp.where(out, new_noise, noise),
                jnp.where(out, new_solutions, solutions),
            )

        first = (jnp.zeros((), jnp.int32), noise, solutions)
        _, noise, solutions = jax.lax.while_loop(unfinished, again, first)
        return noise, jnp.clip(solutions, lower, upper)

    def adapt(
        self,
        state: CmaEmittersState,
        proposal: Proposal,
        feedback: Feedback,
        elites: Float[Array, "emitters sol"],
    ) -> CmaEmittersState:
        """One CMA-ES update of every emitter, and restarts where they are due."""
        by_emitter = (self.num_emitters, self.batch_size)
        valid = feedback.valid.reshape(by_emitter)
        values = jnp.where(valid, feedback.improvements.reshape(by_emitter), -jnp.inf)
        number_valid = jnp.sum(valid, axis=1, dtype=jnp.int32)
        number_improved = jnp.sum(feedback.improved.reshape(by_emitter), axis=1, dtype=jnp.int32)
        parents = self.selection.parents(self.batch_size, number_improved)
        parents = jnp.minimum(parents, number_valid)

        # Stable: equal improvements rank by index.
        order = jnp.argsort(-values, axis=1, stable=True)

        solutions = proposal.solutions.reshape(*by_emitter, -1)
        gaussians = jax.vmap(self.strategy.update)(
            state.gaussians, solutions, proposal.memory, order, parents
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
        progress = Progress(feedback.iteration, number_improved, number_filled)
        due, rule = self.restart.due(state.rule, progress)
        stop |= due
        rule = self.restart.restarted(rule, stop)

        # In most iterations none is due, and on a CPU nothing is copied then.
        def restarted(gaussians: Any) -> Any:
            return jax.tree.map(
                lambda fresh, old: jnp.where(stop.reshape(-1, *[1] * (old.ndim - 1)), fresh, old),
                self._fresh(elites),
                gaussians,
            )

        gaussians = jax.lax.cond(jnp.any(stop), restarted, lambda same: same, gaussians)
        return CmaEmittersState(gaussians, rule, state.restarts + jnp.sum(stop, dtype=jnp.int32))

    def num_restarts(self, state: CmaEmittersState) -> Int[Array, ""]:
        """Restarts of all emitters since the start of the search."""
        return state.restarts

    @property
    def num_parts(self) -> int:
        """Every CMA-ES instance is a part."""
        return self.num_emitters

    def divides_into(self, num_parts: int) -> bool:
        """Into its instances."""
        return num_parts == self.num_emitters

    def part(self, num_parts: int | None = None) -> "CmaEmitters":
        """The emitter with one CMA-ES instance."""
        return CmaEmitters(
            self.x0,
            self.sigma0,
            num_emitters=1,
            batch_size=self.batch_size,
            restart=self.restart,
            selection=self.selection,
            lower=None if self.lower is None else np.asarray(self.lower),
            upper=None if self.upper is None else np.asarray(self.upper),
            strategy=self.strategy,
        )

    def part_state(self, state: CmaEmittersState, index: Int[Array, ""]) -> CmaEmittersState:
        """One Gaussian, and what is counted of all."""
        gaussians, rule = jax.tree.map(
            lambda all_: jax.lax.dynamic_slice_in_dim(all_, index, 1) if all_.ndim else all_,
            (state.gaussians, state.rule),
        )
        return CmaEmittersState(gaussians, rule, state.restarts)

    def with_part_state(
        self, state: CmaEmittersState, index: Int[Array, ""], part_state: CmaEmittersState
    ) -> CmaEmittersState:
        """The Gaussians with another one in its place."""
        put = jax.lax.dynamic_update_slice_in_dim
        gaussians, rule = jax.tree.map(
            lambda all_, one: put(all_, one, index, 0) if all_.ndim else one,
            (state.gaussians, state.rule),
            (part_state.gaussians, part_state.rule),
        )
        return CmaEmittersState(gaussians, rule, part_state.restarts)

    def _fresh(self, means: Float[Array, "emitters sol"]) -> Any:
        return jax.vmap(lambda mean: self.strategy.start(mean, self.sigma0))(means)


def _default_step(lower: np.ndarray | None, upper: np.ndarray | None) -> float:
    """A step size for a box."""
    if lower is None or upper is None:
        raise ValueError(
            "sigma0: expected a number where solutions have no bounds, got None. Give about a "
            "fifth of the range that you expect good solutions in, or lower= and upper=."
        )
    return 0.2 * float(np.median(upper - lower))


def _default_strategy(sol: int) -> Strategy:
    """A full covariance while it is affordable."""
    return CMAES() if sol <= FULL_UP_TO else LMMAES()
