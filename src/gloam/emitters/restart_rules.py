"""Restart rules: when an emitter restarts."""

from abc import abstractmethod
from collections.abc import Sequence
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
    """Also when none of the emitter's solutions improved the archive for many iterations.

    Args:
        patience: Iterations without an improvement after which an emitter restarts; several
            numbers are given to the emitters in turn. Little patience opens new regions where
            all objectives are alike, and much of it refines what is found.

    Example:
        >>> RestartWhenIdle((30, 30, 320)).init(4).patience.tolist()
        [30, 30, 320, 30]
    """

    patience: tuple[int, ...]

    def __init__(self, patience: int | Sequence[int] = (30, 30, 320)):
        given = (patience,) if isinstance(patience, int) else patience
        self.patience = checks.integers("patience", given, minimum=1)
        checks.expect(len(self.patience) > 0, "patience", "at least one number", patience)

    def init(self, num_emitters: int) -> "Idle":
        """The patience of each emitter, none of which was idle."""
        patience = [self.patience[i % len(self.patience)] for i in range(num_emitters)]
        return Idle(jnp.asarray(patience, jnp.int32), jnp.zeros(num_emitters, jnp.int32))

    def due(self, state: "Idle", progress: Progress) -> tuple[Bool[Array, " emitters"], "Idle"]:
        """When the emitter was idle for as long as its patience."""
        iterations = jnp.where(progress.improved > 0, 0, state.iterations + 1)
        return iterations >= state.patience, Idle(state.patience, iterations)

    def restarted(self, state: "Idle", which: Bool[Array, " emitters"]) -> "Idle":
        """Emitters that restart begin with full patience."""
        return Idle(state.patience, jnp.where(which, 0, state.iterations))


class Idle(eqx.Module):
    """What `RestartWhenIdle` remembers."""

    patience: Int[Array, " emitters"]
    iterations: Int[Array, " emitters"]
    """Iterations since the last improvement or restart."""
