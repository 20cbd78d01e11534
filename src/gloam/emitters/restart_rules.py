"""Restart rules: when an emitter restarts."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from gloam import checks


class Progress(eqx.Module):
    """What every emitter brought in one iteration."""

    iteration: Int[Array, ""]
    """Iterations of the search finished, this one included."""
    improved: Int[Array, " emitters"]
    """Number of solutions that improved the archive."""
    filled: Int[Array, " emitters"]
    """Number of cells that were empty before."""


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
