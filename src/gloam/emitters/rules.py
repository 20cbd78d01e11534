"""Restart rules and selection rules of CMA-ES instances."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gloam._tools import checks
from gloam._tools.registry import register

# Shortest wait of `RestartWhenIdle` in iterations, because CMA-ES needs a few to adapt.
_SHORTEST_WAIT = 5.0
# Keeps the wait finite before the first new cell, and when restarts no longer fill cells.
_FEWEST = 1e-6


class Progress(eqx.Module):
    """Success counts of every instance in one iteration."""

    iteration: Int[Array, ""]
    """Number of finished iterations, including this one."""
    accepted: Int[Array, " emitters"]
    """Number of solutions that beat the elite of their cell."""
    filled: Int[Array, " emitters"]
    """Number of solutions that filled an empty cell."""
    rests: Bool[Array, " emitters"] | bool = False
    """True for instances that proposed nothing."""


class RestartRule(eqx.Module):
    """Decides when an instance restarts, in addition to the convergence tests of CMA-ES."""

    def init(self, num_emitters: int) -> Any:
        """Return the state of the rule before the first iteration; ``None`` by default."""

    @abstractmethod
    def due(self, state: Any, progress: Progress) -> tuple[Bool[Array, " emitters"], Any]:
        """Return which instances restart after an iteration, and the new state of the rule."""

    def restarted(self, state: Any, which: Bool[Array, " emitters"]) -> Any:
        """Return the state after restarts, including those by the convergence tests."""
        return state


@register
class BasicRestart(RestartRule):
    """Restarts only by the convergence tests of CMA-ES."""

    def due(self, state: None, progress: Progress) -> tuple[Bool[Array, " emitters"], None]:
        """Return false for all instances."""
        return jnp.zeros_like(progress.accepted, bool), None


@register
class RestartEvery(RestartRule):
    """Also restarts all instances every ``iterations`` iterations.

    Args:
        iterations: Number of iterations between two restarts.
    """

    iterations: int

    def __init__(self, iterations: int):
        self.iterations = checks.integer("iterations", iterations, minimum=1)

    def due(self, state: None, progress: Progress) -> tuple[Bool[Array, " emitters"], None]:
        """Return true for all instances in every ``iterations``-th iteration."""
        due = progress.iteration % self.iterations == 0
        return jnp.broadcast_to(due, progress.accepted.shape), None


@register
class RestartWithoutImprovement(RestartRule):
    """Also restarts an instance if none of its solutions entered the archive."""

    def due(self, state: None, progress: Progress) -> tuple[Bool[Array, " emitters"], None]:
        """Return true for instances without an accepted solution."""
        return progress.accepted == 0, None


@register
class RestartWhenIdle(RestartRule):
    """Also restarts an instance that improves nothing for too long.

    An instance is idle while none of its solutions is accepted. It restarts when it has been idle
    for longer than the mean time from a restart to the first new cell. That time is estimated from
    all instances during the search: the number of iterations that they spent before their first
    new cell, divided by the number of first new cells, both over a recent window. It is short while
    every elite has empty neighbors, so instances restart soon. When few cells are left it is long,
    and instances stay to refine their region.

    Args:
        factor: Factor on the waiting time.
        window: Length of the window in iterations of single instances: 3,000 are 300 iterations
            of ten instances.
    """

    factor: float
    window: float

    def __init__(self, factor: float = 1.0, *, window: float = 3000.0):
        self.factor = checks.number("factor", factor, above=0.0)
        self.window = checks.number("window", window, above=1.0)

    def init(self, num_emitters: int) -> "Idle":
        """Return a state in which all instances wait for their first new cell."""
        zero = jnp.float32(0.0)
        return Idle(jnp.zeros(num_emitters, jnp.int32), jnp.ones(num_emitters, bool), zero, zero)

    def due(self, state: "Idle", progress: Progress) -> tuple[Bool[Array, " emitters"], "Idle"]:
        """Return which instances have been idle for too long."""
        has_filled = progress.filled > 0
        kept = (1.0 - 1.0 / self.window) ** has_filled.shape[0]
        is_waiting = state.is_waiting & ~jnp.asarray(progress.rests)
        waited = kept * state.waited + jnp.sum(is_waiting, dtype=jnp.float32)
        ended = kept * state.ended + jnp.sum(is_waiting & has_filled, dtype=jnp.float32)
        idle = jnp.where(progress.accepted > 0, 0, state.idle + 1)
        idle = jnp.where(progress.rests, state.idle, idle)
        wait = self.factor * waited / jnp.maximum(ended, _FEWEST)
        due = idle >= jnp.maximum(wait, _SHORTEST_WAIT)
        return due, Idle(idle, state.is_waiting & ~has_filled, waited, ended)

    def restarted(self, state: "Idle", which: Bool[Array, " emitters"]) -> "Idle":
        """Return a state in which the restarted instances wait for their first new cell again."""
        idle = jnp.where(which, 0, state.idle)
        return Idle(idle, state.is_waiting | which, state.waited, state.ended)


class Idle(eqx.Module):
    """State of `RestartWhenIdle`."""

    idle: Int[Array, " emitters"]
    """Iterations since the last accepted solution or restart of each instance."""
    is_waiting: Bool[Array, " emitters"]
    """True for instances that have not filled a cell since their restart."""
    waited: Float[Array, ""]
    """Recent number of iterations that instances spent waiting."""
    ended: Float[Array, ""]
    """Recent number of waits that ended with a new cell."""


class SelectionRule(eqx.Module):
    """Decides how many of an instance's best solutions become parents."""

    @abstractmethod
    def parents(
        self, batch_size: int, accepted: Int[Array, " emitters"]
    ) -> Int[Array, " emitters"]:
        """Return the number of parents of each instance.

        Args:
            batch_size: Number of solutions of an instance.
            accepted: Number of its solutions that beat the elite of their cell.
        """


@register
class MuSelection(SelectionRule):
    """Selects the best half."""

    def parents(
        self, batch_size: int, accepted: Int[Array, " emitters"]
    ) -> Int[Array, " emitters"]:
        """Return half of ``batch_size``."""
        return jnp.full_like(accepted, max(batch_size // 2, 1))


@register
class FilterSelection(SelectionRule):
    """Selects as many solutions as were accepted by the archive."""

    def parents(
        self, batch_size: int, accepted: Int[Array, " emitters"]
    ) -> Int[Array, " emitters"]:
        """Return ``accepted``."""
        return accepted
