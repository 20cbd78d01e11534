"""Gradient ascent: points that climb the improvement, or the objective, by its gradient."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from gloam._tools import checks
from gloam._tools.draws import normals, uniforms
from gloam._tools.registry import register
from gloam.emitters.emitter import (
    Bounds,
    ElitesWanted,
    Emitter,
    Outside,
    checked_start,
    checked_step,
    coordinates_of,
)
from gloam.records import Aims, Feedback, Proposal

# Decay rates of the moments of gradients, as in Adam.
_DECAY, _DECAY_OF_SQUARES = 0.9, 0.999
# Standard deviation of the noise at a start, in units of sigma0.
_NOISE = 0.01
# First means of steps (in units of sigma0) and of pulls, and the spread of their logarithms.
_FIRST = (0.3, 10.0)
_SPREADS = (0.7, 1.0)
_LARGEST_LOG = 15.0
# Number of iterations over which gains are averaged.
_WINDOW = 100.0
# Limits of the share of points that refine, so that both kinds are always tried.
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
    logs: Float[Array, "points 2"]
    """Logarithms of its step and of its pull."""
    refines: Bool[Array, " points"]
    """True if the point refines, false if it climbs the improvement."""


class GradientAscentState(eqx.Module):
    """The points, and what steps of which kind and length have brought recently.

    Arrays of two are for points that climb the improvement and for those that refine.
    """

    points: Points
    logs: Float[Array, "2 2"]
    """Mean logarithms of new steps and pulls, by kind."""
    gain: Float[Array, "2"]
    number: Float[Array, "2"]
    """Number of points that the gain is from."""
    restarts: Int[Array, ""]
    failed: Int[Array, ""]
    """Number of gradients that were not finite."""

    @property
    def refining(self) -> Float[Array, ""]:
        """Share of new points that refine."""
        worth = self.gain / self.number
        total = jnp.sum(worth)
        share = jnp.where(total > 0, worth[1] / jnp.where(total > 0, total, 1.0), 0.5)
        return jnp.clip(share, _FEWEST, _MOST)


@register
class GradientAscent(Emitter):
    """Points that climb by the gradient of the evaluation, one step in each iteration.

    A point starts at an elite, and is of one of two kinds:

    * It climbs the improvement ``f(x) - fhat(m(x))`` over the discount, which leads to solutions
      that the archive lacks.
    * It refines: it climbs the objective, less ``pull`` times the squared distance between the
      measures and the center of their cell, so that it stays there.

    Both gradients cost one vector-Jacobian product, whatever the number of measures. Steps follow a
    running mean of gradients, scaled by one length for all variables, so that the search does not
    depend on rotations. Steps, pulls and the share of points that refine follow what they bring to
    the QD score. A point that has not improved the archive for a while starts again.

    Discounts without a gradient, such as `gloam.discounts.Thresholds`, leave the gradient of the
    objective for both kinds. In a `gloam.Space`, real variables climb; integers and choices stay
    those of the elite.

    Args:
        x0: ``(sol,)`` solution from which points start while the archive is empty.
        sigma0: Step size of the search, as for `gloam.emitters.CmaEmitters`.
        batch_size: Number of points.
        patience: Numbers of steps without an improvement of the archive after which points start
            again: those that climb the improvement, and those that refine.
        best_of: Tournament size: a point starts at the elite with the largest improvement of this
            many random ones.
        bounds: Lower and upper bounds of the solutions, each a number, an array or ``None``.
        outside: What happens to numbers outside the bounds, as for `gloam.emitters.CmaEmitters`.

    Example:
        >>> import gloam
        >>> domain = gloam.domains.LinearProjection(measure_dim=2)
        >>> ascent = GradientAscent(domain.x0, sigma0=0.5, batch_size=20)
        >>> model = gloam.discounts.DiscountModel(num_init_points=30)
        >>> algorithm = gloam.Algorithm(ascent, domain.archive(), model)
        >>> result = gloam.run(domain, algorithm, iterations=5, progress=False)
        >>> result.elites.coverage > 0
        True
    """

    x0: Float[Array, " sol"]
    sigma0: float | Float[Array, " sol"]
    batch_size: int = eqx.field(static=True)
    patience: tuple[int, int]
    best_of: int = eqx.field(static=True)
    bounds: Bounds | None

    def __init__(
        self,
        x0: Any,
        sigma0: float | ArrayLike | None = None,
        *,
        batch_size: int = 270,
        patience: tuple[int, int] = (20, 4),
        best_of: int = 4,
        bounds: checks.SolutionBounds | None = None,
        outside: Outside | None = None,
    ):
        self.x0, self.bounds = checked_start(x0, bounds, outside)
        discrete = None if self.bounds is None else self.bounds.discrete
        has_real = discrete is None or not discrete.is_discrete.all()
        expected, got = "a real variable, because it climbs by gradients", "a space without one"
        checks.expect(has_real, "x0", expected, got, "Use gloam.DMS without gradients.")
        self.sigma0 = checked_step("sigma0", sigma0, self.x0.size, self.bounds, default=0.2)
        self.batch_size = checks.count("batch_size", batch_size)
        is_pair = isinstance(patience, (list, tuple)) and len(patience) == 2
        checks.expect(is_pair, "patience", "two numbers of steps", checks.short(patience))
        self.patience = (
            checks.count("patience", patience[0]),
            checks.count("patience", patience[1]),
        )
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
        logs = jnp.log(jnp.asarray(_FIRST, jnp.float32))
        points = Points(
            solutions,
            jnp.zeros_like(solutions),
            zeros,
            none,
            none,
            jnp.zeros((number, 2), jnp.float32),
            zeros.astype(bool),
        )
        count = jnp.zeros((), jnp.int32)
        ones = jnp.ones(2, jnp.float32)
        return GradientAscentState(
            points, jnp.stack([logs, logs]), jnp.zeros(2, jnp.float32), ones, count, count
        )

    def ask(
        self, state: GradientAscentState, elites: Float[Array, "n sol"], *, key: PRNGKeyArray
    ) -> Proposal:
        """Propose the points. Those that start again take an elite, a kind and a step length."""
        points, number = state.points, self.batch_size
        key_noise, key_kind, key_step = jax.random.split(key, 3)
        is_new = points.age == 0
        drawn = uniforms(key_kind, number) < state.refining
        refines = jnp.where(is_new, drawn, points.refines)
        logs = state.logs[refines.astype(jnp.int32)]
        logs += jnp.asarray(_SPREADS, jnp.float32) * normals(key_step, (number, 2))
        logs = jnp.where(is_new[:, None], logs, points.logs)
        noise = _NOISE * self._scale * self._sigma * normals(key_noise, points.solutions.shape)
        solutions = jnp.where(is_new[:, None], elites + noise, points.solutions)
        solutions = solutions if self.bounds is None else self.bounds.keep(solutions)
        return Proposal(solutions, (refines, logs), Aims(refines, jnp.exp(logs[:, 1])))

    def adapt(
        self,
        state: GradientAscentState,
        proposal: Proposal,
        feedback: Feedback,
        elites: Float[Array, "n sol"],
    ) -> GradientAscentState:
        """Take a step from every point, and update what steps of each kind have brought."""
        assert feedback.climb is not None
        assert feedback.gains is not None
        points, climb = state.points, feedback.climb
        refines, logs = proposal.aux
        scale = self._scale
        gradient = climb.gradients * scale
        # The momentum of the last start is forgotten.
        is_old = points.age > 0
        age = points.age + 1
        momentum = _DECAY * jnp.where(is_old[:, None], points.momentum, 0.0)
        momentum += (1 - _DECAY) * gradient
        square = _DECAY_OF_SQUARES * jnp.where(is_old, points.square, 0.0)
        square += (1 - _DECAY_OF_SQUARES) * jnp.mean(jnp.square(gradient), axis=1)
        mean = momentum / (1 - _DECAY ** age[:, None].astype(jnp.float32))
        length = jnp.sqrt(square / (1 - _DECAY_OF_SQUARES ** age.astype(jnp.float32)))
        direction = mean / jnp.where(length > 0, length, 1.0)[:, None]
        step = self._sigma * jnp.exp(logs[:, :1]) * direction
        solutions = proposal.solutions + scale * step
        solutions = solutions if self.bounds is None else self.bounds.keep(solutions)

        idle = jnp.where(feedback.accepted, 0, points.idle + 1)
        is_usable = climb.is_finite & feedback.valid & jnp.all(jnp.isfinite(solutions), axis=1)
        stops = ~is_usable | (idle >= jnp.where(refines, self.patience[1], self.patience[0]))
        points = Points(
            jnp.where(is_usable[:, None], solutions, proposal.solutions),
            momentum,
            square,
            jnp.where(stops, 0, age),
            jnp.where(stops, 0, idle),
            logs,
            refines,
        )
        restarts = state.restarts + jnp.sum(stops, dtype=jnp.int32)
        failed = state.failed + jnp.sum(~climb.is_finite & feedback.valid, dtype=jnp.int32)
        return self._learned(state, points, feedback.gains, restarts, failed)

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
        mean = is_kind @ points.logs / jnp.maximum(number, 1.0)[:, None]
        worthy = (is_kind * gains) @ points.logs
        kept = 1.0 - 1.0 / _WINDOW
        expected = kept * state.gain + gain
        change = (worthy - gain[:, None] * mean) / jnp.where(expected > 0, expected, 1.0)[:, None]
        return GradientAscentState(
            points,
            jnp.clip(state.logs + change, -_LARGEST_LOG, _LARGEST_LOG),
            expected,
            kept * state.number + number,
            restarts,
            failed,
        )

    def metrics(self, state: GradientAscentState) -> dict[str, Array]:
        """Return restarts, failed gradients, steps, pull, and the share of points that refine."""
        return {
            "restarts": state.restarts,
            "gradients_failed": state.failed,
            "step": jnp.exp(state.logs[0, 0]),
            "refining_step": jnp.exp(state.logs[1, 0]),
            "pull": jnp.exp(state.logs[1, 1]),
            "refining_share": state.refining,
        }

    @property
    def _scale(self) -> Float[Array, " sol"] | float:
        """Unit of each variable; 0 for integers and choices, which stay as they are."""
        found = coordinates_of(self.sigma0, self.bounds)
        if found is None:
            return 1.0
        discrete = None if self.bounds is None else self.bounds.discrete
        return found.scale if discrete is None else jnp.where(discrete.is_discrete, 0, found.scale)

    @property
    def _sigma(self) -> float | Float[Array, ""]:
        return 1.0 if jnp.ndim(self.sigma0) else self.sigma0
