"""Restart rules: when an emitter restarts.

Selection rules: how many of an emitter's solutions are parents.
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gloam import checks

# Of `RestartWhenIdle`, in iterations: how long a restart takes to pay before one has, and the least
# that an emitter waits, because CMA-ES needs a few iterations to adapt at all.
_FIRST_WAIT, _SHORTEST_WAIT = 20.0, 5.0
# Where restarts do not pay any more, the wait is long but finite.
_FEWEST = 1e-6


class Progress(eqx.Module):
    """What every emitter brought in one iteration."""

    iteration: Int[Array, ""]
    """Iterations of the search finished, this one included."""
    improved: Int[Array, " emitters"]
    """Number of solutions that improved the archive."""
    filled: Int[Array, " emitters"]
    """Number of solutions that landed in an empty cell."""


class RestartRule(eqx.Module):
    """When an emitter restarts, besides CMA-ES's own signs of convergence."""

    def init(self, num_emitters: int) -> Any:
        """What the rule remembers, before the first iteration; nothing by default."""

    @abstractmethod
    def due(self, state: Any, progress: Progress) -> tuple[Bool[Array, " emitters"], Any]:
        """Which emitters restart after an iteration, and what the rule remembers of it."""

    def restarted(self, state: Any, which: Bool[Array, " emitters"]) -> Any:
        """What the rule remembers after restarts, its own and those of CMA-ES."""
        return state


class BasicRestart(RestartRule):
    """Only CMA-ES's own signs of convergence."""

    def due(self, state: None, progress: Progress) -> tuple[Bool[Array, " emitters"], None]:
        """Never."""
        return jnp.zeros_like(progress.improved, bool), None


class RestartEvery(RestartRule):
    """Also every ``iterations`` iterations, all emitters together."""

    iterations: int

    def __init__(self, iterations: int):
        self.iterations = checks.integer("iterations", iterations, minimum=1)

    def due(self, state: None, progress: Progress) -> tuple[Bool[Array, " emitters"], None]:
        """Every so many iterations."""
        due = progress.iteration % self.iterations == 0
        return jnp.broadcast_to(due, progress.improved.shape), None


class RestartWithoutImprovement(RestartRule):
    """Also when none of the emitter's solutions entered the archive."""

    def due(self, state: None, progress: Progress) -> tuple[Bool[Array, " emitters"], None]:
        """When nothing improved."""
        return progress.improved == 0, None


class RestartWhenIdle(RestartRule):
    """Also when an emitter improves nothing for as long as a restart takes to pay.

    A restart pays when the emitter fills its first empty cell. How long that takes is estimated
    from all emitters as the search runs: the iterations that they spent before their first cell,
    divided by the number of first cells, of late. It is short where every elite has empty
    neighbours, and then emitters restart soon. Where little is left to find it is long, and they
    stay to refine what they have found.

    Args:
        factor: How many times as long an idle emitter waits.
        memory: Number of iterations over which the estimate is taken, those of all emitters
            counted: 3,000 are 300 iterations of ten emitters.
    """

    factor: float
    memory: float

    def __init__(self, factor: float = 1.0, *, memory: float = 3000.0):
        self.factor = checks.number("factor", factor, above=0.0)
        self.memory = checks.number("memory", memory, above=1.0)

    def init(self, num_emitters: int) -> "Idle":
        """No emitter was idle, and none has filled a cell."""
        waits = jnp.asarray(_FIRST_WAIT), jnp.ones(())
        return Idle(jnp.zeros(num_emitters, jnp.int32), jnp.ones(num_emitters, bool), *waits)

    def due(self, state: "Idle", progress: Progress) -> tuple[Bool[Array, " emitters"], "Idle"]:
        """When the emitter was idle for long enough."""
        has_filled = progress.filled > 0
        kept = (1.0 - 1.0 / self.memory) ** has_filled.shape[0]
        waited = kept * state.waited + jnp.sum(state.is_waiting, dtype=jnp.float32)
        paid = kept * state.paid + jnp.sum(state.is_waiting & has_filled, dtype=jnp.float32)
        idle = jnp.where(progress.improved > 0, 0, state.idle + 1)
        wait = self.factor * waited / jnp.maximum(paid, _FEWEST)
        due = idle >= jnp.maximum(wait, _SHORTEST_WAIT)
        return due, Idle(idle, state.is_waiting & ~has_filled, waited, paid)

    def restarted(self, state: "Idle", which: Bool[Array, " emitters"]) -> "Idle":
        """Emitters that restart wait for their first cell again."""
        idle = jnp.where(which, 0, state.idle)
        return Idle(idle, state.is_waiting | which, state.waited, state.paid)


class Idle(eqx.Module):
    """What `RestartWhenIdle` remembers, of each emitter and of all."""

    idle: Int[Array, " emitters"]
    """Iterations since its last improvement or restart."""
    is_waiting: Bool[Array, " emitters"]
    """Whether it has filled no cell since its restart."""
    waited: Float[Array, ""]
    """Iterations that emitters spent waiting, of late."""
    paid: Float[Array, ""]
    """Restarts after which an emitter filled a cell, of late."""


class SelectionRule(eqx.Module):
    """How many of an emitter's best solutions become parents."""

    @abstractmethod
    def parents(
        self, batch_size: int, improved: Int[Array, " emitters"]
    ) -> Int[Array, " emitters"]:
        """Number of parents of each emitter.

        Args:
            batch_size: Number of solutions of an emitter.
            improved: How many of them improved the archive.
        """


class MuSelection(SelectionRule):
    """The best half."""

    def parents(
        self, batch_size: int, improved: Int[Array, " emitters"]
    ) -> Int[Array, " emitters"]:
        """Half of ``batch_size``, whatever improved."""
        return jnp.full_like(improved, max(batch_size // 2, 1))


class FilterSelection(SelectionRule):
    """As many as improved the archive."""

    def parents(
        self, batch_size: int, improved: Int[Array, " emitters"]
    ) -> Int[Array, " emitters"]:
        """``improved`` itself."""
        return improved
