"""Rules of an emitter: which of its solutions are parents, and when it restarts."""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from gloam import checks


class SelectionRule(eqx.Module):
    """How many of an emitter's best solutions become parents."""

    @abstractmethod
    def parents(
        self, batch_size: int, improved: Int[Array, " emitters"]
    ) -> Int[Array, " emitters"]:
        """Number of parents of each emitter; ``improved`` of its solutions improved the archive."""


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


class RestartRule(eqx.Module):
    """When an emitter restarts, besides CMA-ES's own signs of convergence."""

    @abstractmethod
    def due(
        self, finished: Int[Array, ""], improved: Int[Array, " emitters"]
    ) -> Bool[Array, " emitters"]:
        """True for emitters to restart after ``finished`` iterations of the search."""


class BasicRestart(RestartRule):
    """Only CMA-ES's own signs of convergence."""

    def due(
        self, finished: Int[Array, ""], improved: Int[Array, " emitters"]
    ) -> Bool[Array, " emitters"]:
        """Never."""
        return jnp.zeros_like(improved, bool)


class RestartEvery(RestartRule):
    """Also every ``iterations`` iterations, all emitters together."""

    iterations: int

    def __init__(self, iterations: int):
        self.iterations = checks.integer("iterations", iterations, minimum=1)

    def due(
        self, finished: Int[Array, ""], improved: Int[Array, " emitters"]
    ) -> Bool[Array, " emitters"]:
        """Every so many iterations."""
        return jnp.broadcast_to(finished % self.iterations == 0, improved.shape)


class RestartWithoutImprovement(RestartRule):
    """Also when none of the emitter's solutions entered the archive."""

    def due(
        self, finished: Int[Array, ""], improved: Int[Array, " emitters"]
    ) -> Bool[Array, " emitters"]:
        """When nothing improved."""
        return improved == 0
