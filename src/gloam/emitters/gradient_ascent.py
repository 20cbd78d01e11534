"""Gradient ascent: points that climb the improvement, or the objective, by its gradient."""

import dataclasses
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from gloam._tools import checks
from gloam._tools.draws import normals
from gloam._tools.registry import register
from gloam.emitters.emitter import (
    Bounds,
    ElitesWanted,
    Emitter,
    Outside,
    checked_start,
    checked_step,
    coordinates_of,
    rows_of_part,
    with_rows_of_part,
)
from gloam.records import Aims, DrawsTargets, Feedback, Proposal

# Largest number of new targets of a proposal, which starting points share.
_MOST_TARGETS = 8
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
# Number of steps without an improvement of the archive after which points start again.
_PATIENCE = {"improvement": 20, "objective": 4, "target": 20}

Goal = Literal["improvement", "objective", "target"]
"""What points climb."""


class Points(eqx.Module):
    """What each point remembers."""

    solutions: Float[Array, "points sol"]
    momentum: Float[Array, "points sol"]
    square: Float[Array, " points"]
    """Running mean of the squared length of the gradient."""
    age: Int[Array, " points"]
    """Number of steps since the start; 0 for a point that starts anew."""
    idle: Int[Array, " points"]
    """Number of steps without progress."""
    logs: Float[Array, "points 2"]
    """Logarithms of its step and of its pull."""
    cells: Int[Array, " points"]
    """The cell that it aims at."""


class GradientAscentState(eqx.Module):
    """The points, and what steps of which length have brought recently."""

    points: Points
    logs: Float[Array, "2"]
    """Mean logarithms of new steps and pulls."""
    gain: Float[Array, ""]
    restarts: Int[Array, ""]
    failed: Int[Array, ""]
    """Number of gradients that were not finite."""


@register
class GradientAscent(Emitter):
    """Points that climb by the gradient of the evaluation, one step in each iteration.

    A point starts at an elite. All points of an emitter climb the same quantity, its ``goal``:

    * ``"improvement"``: the improvement ``f(x) - fhat(m(x))`` over the discount, which leads to
      solutions that the archive lacks.
    * ``"objective"``: the objective, less ``pull`` times the squared distance between the measures
      and the center of their cell, so that the point stays there and refines it.
    * ``"target"``: the same with the center of an empty cell, at whose nearest elite the point
      starts. It starts again when the cell is filled.

    The gradient costs one vector-Jacobian product, whatever the number of measures. Steps follow a
    running mean of gradients, scaled by one length for all variables, so that the search does not
    depend on rotations. Steps and pulls follow what they bring to the QD score. A point that has
    not improved the archive for a while starts again.

    Discounts without a gradient, such as `gloam.discounts.Thresholds`, leave the gradient of the
    objective for ``"improvement"``. In a `gloam.Space`, real variables climb; integers and choices
    stay those of the elite.

    Args:
        x0: ``(sol,)`` solution from which points start while the archive is empty.
        sigma0: Step size of the search, as for `gloam.emitters.CmaEmitters`.
        goal: What the points climb.
        batch_size: Number of points.
        patience: Number of steps without an improvement of the archive after which points start
            again; 4 for ``"objective"``, 20 otherwise.
        best_of: Tournament size: a point starts at the elite with the largest improvement of this
            many random ones. It does not matter for ``"target"``.
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
    goal: Goal = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)
    patience: int
    best_of: int = eqx.field(static=True)
    bounds: Bounds | None

    def __init__(
        self,
        x0: Any,
        sigma0: float | ArrayLike | None = None,
        *,
        goal: Goal = "improvement",
        batch_size: int = 270,
        patience: int | None = None,
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
        checks.choice("goal", goal, get_args(Goal))
        self.goal = goal
        self.patience = checks.count("patience", _PATIENCE[goal] if patience is None else patience)
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
        return {"improvement": "ascent", "objective": "refinement", "target": "aimed_ascent"}[
            self.goal
        ]

    @property
    def elites_to_ask(self) -> tuple[ElitesWanted, ...]:
        """An elite for each point, in case it starts again; none for targets."""
        return () if self.goal == "target" else (ElitesWanted(self.batch_size, self.best_of),)

    @property
    def num_elites_to_adapt(self) -> int:
        """Always 0: points start again at elites of the next `ask`."""
        return 0

    def init(self, x0: Float[Array, " sol"] | None = None) -> GradientAscentState:
        """Return a state in which every point starts anew."""
        number, start = self.batch_size, self.x0 if x0 is None else x0
        zeros, none = jnp.zeros(number, jnp.float32), jnp.zeros(number, jnp.int32)
        solutions = jnp.broadcast_to(start, (number, *start.shape))
        points = Points(
            solutions,
            jnp.zeros_like(solutions),
            zeros,
            none,
            none,
            jnp.zeros((number, 2), jnp.float32),
            none,
        )
        count, logs = jnp.zeros((), jnp.int32), jnp.log(jnp.asarray(_FIRST, jnp.float32))
        return GradientAscentState(points, logs, jnp.zeros((), jnp.float32), count, count)

    def ask(
        self,
        state: GradientAscentState,
        elites: Float[Array, "n sol"],
        *,
        key: PRNGKeyArray,
        targets: DrawsTargets | None = None,
    ) -> Proposal:
        """Propose the points. Those that start again take an elite, a step length and a pull."""
        points, number = state.points, self.batch_size
        key_noise, key_step, key_targets = jax.random.split(key, 3)
        is_new, cells = points.age == 0, points.cells
        if self.goal == "target":
            assert targets is not None
            new = targets(min(_MOST_TARGETS, number), key=key_targets)
            target = jnp.arange(number) % len(new.cells)
            elites = new.solutions[target, 0]
            cells = jnp.where(is_new, new.cells[target], cells)
        logs = state.logs + jnp.asarray(_SPREADS, jnp.float32) * normals(key_step, (number, 2))
        logs = jnp.where(is_new[:, None], logs, points.logs)
        noise = _NOISE * self._scale * self._sigma * normals(key_noise, points.solutions.shape)
        solutions = jnp.where(is_new[:, None], elites + noise, points.solutions)
        solutions = solutions if self.bounds is None else self.bounds.keep(solutions)
        is_pulled = jnp.full(number, self.goal != "improvement")
        has_targets = self.goal == "target"
        pulled_to = cells if has_targets else jnp.full(number, -1)  # -1: their own cells
        aims = Aims(is_pulled, jnp.exp(logs[:, 1]), pulled_to)
        return Proposal(solutions, (logs, cells), aims, cells if has_targets else None)

    def adapt(
        self,
        state: GradientAscentState,
        proposal: Proposal,
        feedback: Feedback,
        elites: Float[Array, "n sol"],
    ) -> GradientAscentState:
        """Take a step from every point, and update what steps of each length have brought."""
        assert feedback.climb is not None
        assert feedback.gains is not None
        points, climb = state.points, feedback.climb
        logs, cells = proposal.aux
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

        is_used = jnp.ones(self.batch_size, bool) if feedback.is_used is None else feedback.is_used
        idle = jnp.where(feedback.accepted, 0, points.idle + 1)
        distances = feedback.distances if self.goal == "target" else None
        has_weight = feedback.valid if distances is None else distances.are_known
        is_usable = climb.is_finite & has_weight & jnp.all(jnp.isfinite(solutions), axis=1)
        stops = ~is_usable | (idle >= self.patience)
        if distances is not None:
            stops |= distances.are_filled
        moved = Points(
            jnp.where(is_usable[:, None], solutions, proposal.solutions),
            momentum,
            square,
            jnp.where(stops, 0, age),
            jnp.where(stops, 0, idle),
            logs,
            cells,
        )
        # Points that were not used stay as they are.
        points = jax.tree.map(
            lambda new, old: jnp.where(is_used.reshape(-1, *[1] * (new.ndim - 1)), new, old),
            moved,
            points,
        )
        restarts = state.restarts + jnp.sum(stops & is_used, dtype=jnp.int32)
        has_failed = ~climb.is_finite & has_weight & is_used
        failed = state.failed + jnp.sum(has_failed, dtype=jnp.int32)
        # Steps move to those that brought more than the others.
        gains = jnp.where(is_used, feedback.gains, 0.0)
        number, gain = jnp.sum(is_used, dtype=jnp.float32), jnp.sum(gains)
        mean_logs = is_used.astype(jnp.float32) @ logs / jnp.maximum(number, 1.0)
        expected = (1.0 - 1.0 / _WINDOW) * state.gain + gain
        change = (gains @ logs - gain * mean_logs) / jnp.where(expected > 0, expected, 1.0)
        learned = jnp.clip(state.logs + change, -_LARGEST_LOG, _LARGEST_LOG)
        return GradientAscentState(points, learned, expected, restarts, failed)

    @property
    def num_parts(self) -> int:
        """Always 1: the points learn the lengths of their steps together."""
        return 1

    def divides_into(self, num_parts: int) -> bool:
        """Return whether the batch has ``num_parts`` equal parts."""
        return self.batch_size % num_parts == 0

    def part(self, num_parts: int) -> "GradientAscent":
        """Return the emitter with fewer points."""
        return dataclasses.replace(self, batch_size=self.batch_size // num_parts)

    def part_state(
        self, state: GradientAscentState, index: Int[Array, ""], num_parts: int
    ) -> GradientAscentState:
        """Return the state of some points, with what all have learned."""
        return dataclasses.replace(state, points=rows_of_part(state.points, index, num_parts))

    def with_part_state(
        self,
        state: GradientAscentState,
        index: Int[Array, ""],
        num_parts: int,
        part_state: GradientAscentState,
    ) -> GradientAscentState:
        """Return the state with some points replaced."""
        points = with_rows_of_part(state.points, index, part_state.points)
        return dataclasses.replace(part_state, points=points)

    def metrics(self, state: GradientAscentState) -> dict[str, Array]:
        """Return restarts, failed gradients, the step, and the pull if there is one."""
        metrics = {
            "restarts": state.restarts,
            "gradients_failed": state.failed,
            "step": jnp.exp(state.logs[0]),
        }
        return metrics if self.goal == "improvement" else metrics | {"pull": jnp.exp(state.logs[1])}

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
