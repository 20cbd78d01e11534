"""Gradient ascent: points that climb the improvement, or the objective, by its gradient."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from gloam import checks
from gloam.draws import normals, uniforms
from gloam.emitters.emitter import (
    Bounds,
    ElitesWanted,
    Emitter,
    checked_start,
    checked_step,
    coordinates_of,
)
from gloam.records import Feedback, Proposal

# Decay rates of the moments of gradients, as in Adam.
# Standard deviation of the noise, in units of sigma0.

# Standard deviation of the logarithm of step lengths, and its first mean, in units of sigma0.

# Number of iterations over which gains are averaged.

# Limits of the share of points that climb the objective.
_FEWEST, _MOST = 0.05, 0.95


class Points(eqx.Module):
    """What each point remembers."""

    solutions: Float[Array, "points sol"]
    momentum: Float[Array, "points sol"]
    square: Float[Array, " points"]
    """Running mean of the squared length of the gradient."""
    age: Int[Array, " points"]
    """Number of steps since the start; 0 for a point that starts anew."""
    idle: Int[Array, " points"]
    """Number of steps without an improvement of the archive."""
    log_step: Float[Array, " points"]
    refines: Bool[Array, " points"]
    """True if the point climbs the objective instead of the improvement."""


class GradientAscentState(eqx.Module):
    """The points, and what steps of which kind and length have brought recently.

    Arrays of two are for points that climb the improvement and for those that climb the objective.
    """

    points: Points
    log_step: Float[Array, "2"]
    """Mean logarithm of new steps."""
    gain: Float[Array, "2"]
    number: Float[Array, "2"]
    """Number of points that the gain is from."""
    restarts: Int[Array, ""]
    failed: Int[Array, ""]
    """Number of gradients that were not finite."""

    def refining(self, fewest) -> Float[Array, ""]:
        """Share of new points that climb the objective."""
        worth = self.gain / self.number
        total = jnp.sum(worth)
        share = jnp.where(total > 0, worth[1] / jnp.where(total > 0, total, 1.0), 0.5)
        return jnp.clip(share, fewest, 1 - fewest)


class GradientAscent(Emitter):
    """Points that climb by the gradient of the evaluation, one step in each iteration.

    A point starts at an elite. It climbs either the improvement ``f(x) - fhat(m(x))`` over the
    discount, which leads to solutions that the archive lacks, or the objective ``f(x)`` alone. Both
    gradients cost one vector-Jacobian product, whatever the number of measures. Steps follow a
    running mean of gradients of one length for all variables, so that the search does not depend
    on rotations. A point that has not improved the archive for ``patience`` steps starts again.

    The length of steps and the share of points that climb the objective follow what they bring to
    the QD score. Discounts without a gradient, such as `gloam.discounts.Thresholds`, leave the
    gradient of the objective for both.

    Args:
        x0: ``(sol,)`` solution from which points start while the archive is empty.
        sigma0: Step size of the search, as for `gloam.emitters.CmaEmitters`.
        batch_size: Number of points.
        patience: Number of steps without an improvement of the archive after which a point starts
            again.
        best_of: Tournament size: a point starts at the elite with the largest improvement of this
            many random ones.
        bounds: Lower and upper bounds of the solutions, to which they are clipped; each a number,
            an array or ``None``.
    """

    x0: Float[Array, " sol"]
    sigma0: float | Float[Array, " sol"]
    batch_size: int = eqx.field(static=True)
    patience: int
    best_of: int = eqx.field(static=True)
    bounds: Bounds | None
    noise: float = 0.01
    spread: float = 0.7
    first_step: float = 0.3
    window: float = 100.0
    decay: float = 0.9
    squares: float = 0.999
    fewest: float = 0.05
    rate: float = 1.0

    def __init__(
        self,
        x0: Any,
        sigma0: float | ArrayLike | None = None,
        *,
        batch_size: int = 180,
        patience: int = 20,
        best_of: int = 4,
        bounds: checks.SolutionBounds | None = None,
        **tuned: float,
    ):
        for name in ("noise","spread","first_step","window","decay","squares","fewest","rate"):
            setattr(self, name, float(tuned.get(name, getattr(type(self), name))))
        self.x0, self.bounds = checked_start(x0, bounds)
        self.sigma0 = checked_step("sigma0", sigma0, self.x0.size, self.bounds, default=0.2)
        self.batch_size = checks.count("batch_size", batch_size)
        self.patience = checks.count("patience", patience)
        self.best_of = checks.count("best_of", best_of)

    @property
    def num_solutions(self) -> int:
        """Number of points."""
        return self.batch_size

    @property
    def gradient_rows(self) -> Int[np.ndarray, " n"]:
        """All solutions."""
        return np.arange(self.batch_size)

    @property
    def label(self) -> str:
        """Prefix of the metrics in a mixture."""
        return "ascent"

    @property
    def elites_to_ask(self) -> tuple[ElitesWanted, ...]:
        """An elite for each point, in case it starts again."""
        return (ElitesWanted(self.batch_size, self.best_of),)

    @property
    def num_elites_to_adapt(self) -> int:
        """Always 0: points start again at elites of the next `ask`."""
        return 0

    def init(self, x0: Float[Array, " sol"] | None = None) -> GradientAscentState:
        """Return a state in which every point starts anew."""
        number, start = self.batch_size, self.x0 if x0 is None else x0
        zeros, none = jnp.zeros(number, jnp.float32), jnp.zeros(number, jnp.int32)
        solutions = jnp.broadcast_to(start, (number, *start.shape))
        log_step = jnp.log(jnp.asarray(self.first_step, jnp.float32)) * jnp.ones(2, jnp.float32)
        points = Points(
            solutions, jnp.zeros_like(solutions), zeros, none, none, zeros, zeros.astype(bool)
        )
        count = jnp.zeros((), jnp.int32)
        ones = jnp.ones(2, jnp.float32)
        return GradientAscentState(points, log_step, jnp.zeros(2, jnp.float32), ones, count, count)

    def ask(
        self, state: GradientAscentState, elites: Float[Array, "n sol"], *, key: PRNGKeyArray
    ) -> Proposal:
        """Propose the points. Those that start again take an elite, a kind and a step length."""
        points, number = state.points, self.batch_size
        key_noise, key_kind, key_step = jax.random.split(key, 3)
        is_new = points.age == 0
        drawn = uniforms(key_kind, number) < state.refining(self.fewest)
        refines = jnp.where(is_new, drawn, points.refines)
        log_step = state.log_step[refines.astype(jnp.int32)]
        log_step += self.spread * normals(key_step, (number,))
        log_step = jnp.where(is_new, log_step, points.log_step)
        solutions = jnp.where(is_new[:, None], elites, points.solutions)
        scale = self._scale * self._sigma
        solutions += self.noise * scale * normals(key_noise, solutions.shape)
        solutions = solutions if self.bounds is None else self.bounds.clip(solutions)
        return Proposal(solutions, (refines, log_step), refines)

    def adapt(
        self,
        state: GradientAscentState,
        proposal: Proposal,
        feedback: Feedback,
        elites: Float[Array, "n sol"],
    ) -> GradientAscentState:
        """Take a step from every point, and update what steps of each kind have brought."""
        assert feedback.climb is not None
        points, climb = state.points, feedback.climb
        refines, log_step = proposal.aux
        scale = self._scale
        gradient = climb.gradients * scale
        # The momentum of the last start is forgotten.
        is_old = points.age > 0
        age = points.age + 1
        momentum = self.decay * jnp.where(is_old[:, None], points.momentum, 0.0)
        momentum += (1 - self.decay) * gradient
        square = self.squares * jnp.where(is_old, points.square, 0.0)
        square += (1 - self.squares) * jnp.mean(jnp.square(gradient), axis=1)
        mean = momentum / (1 - self.decay ** age[:, None].astype(jnp.float32))
        length = jnp.sqrt(square / (1 - self.squares ** age.astype(jnp.float32)))
        direction = mean / jnp.where(length > 0, length, 1.0)[:, None]
        step = self._sigma * jnp.exp(log_step)[:, None] * direction
        solutions = proposal.solutions + scale * step
        solutions = solutions if self.bounds is None else self.bounds.clip(solutions)

        idle = jnp.where(feedback.accepted, 0, points.idle + 1)
        is_usable = climb.is_finite & feedback.valid & jnp.all(jnp.isfinite(solutions), axis=1)
        stops = ~is_usable | (idle >= self.patience)
        points = Points(
            jnp.where(is_usable[:, None], solutions, proposal.solutions),
            momentum,
            square,
            jnp.where(stops, 0, age),
            jnp.where(stops, 0, idle),
            log_step,
            refines,
        )
        restarts = state.restarts + jnp.sum(stops, dtype=jnp.int32)
        failed = state.failed + jnp.sum(~climb.is_finite & feedback.valid, dtype=jnp.int32)
        return self._learned(state, points, climb.gains, restarts, failed)

    def _learned(
        self,
        state: GradientAscentState,
        points: Points,
        gains: Float[Array, " points"],
        restarts: Int[Array, ""],
        failed: Int[Array, ""],
    ) -> GradientAscentState:
        """Return the state with averages of what points of each kind have brought."""
        is_kind = jnp.stack([~points.refines, points.refines]).astype(jnp.float32)
        number, gain = jnp.sum(is_kind, axis=1), jnp.sum(is_kind * gains, axis=1)
        # Steps move to those that brought more than the others of their kind.
        mean = jnp.sum(is_kind * points.log_step, axis=1) / jnp.maximum(number, 1.0)
        worthy = jnp.sum(is_kind * gains * points.log_step, axis=1)
        kept = 1.0 - 1.0 / self.window
        expected = kept * state.gain + gain
        change = (worthy - gain * mean) / jnp.where(expected > 0, expected, 1.0)
        return GradientAscentState(
            points,
            state.log_step + self.rate * change,
            expected,
            kept * state.number + number,
            restarts,
            failed,
        )

    def metrics(self, state: GradientAscentState) -> dict[str, Array]:
        """Return restarts, gradients that failed, steps and the share that climbs the objective."""
        return {
            "restarts": state.restarts,
            "gradients_failed": state.failed,
            "step": jnp.exp(state.log_step[0]),
            "refining_step": jnp.exp(state.log_step[1]),
            "refining_share": state.refining(self.fewest),
        }

    @property
    def _scale(self) -> Float[Array, " sol"] | float:
        """Unit of each variable."""
        found = coordinates_of(self.sigma0, self.bounds)
        return 1.0 if found is None else found.scale

    @property
    def _sigma(self) -> float | Float[Array, ""]:
        return 1.0 if jnp.ndim(self.sigma0) else self.sigma0
