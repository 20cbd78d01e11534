"""Restart rules: when an emitter restarts."""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from gloam import checks


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
