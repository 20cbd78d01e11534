"""What a strategy is: sampling and learning of one emitter's Gaussian."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int


class Strategy(eqx.Module):
    """Frozen settings of a strategy.

    What it learns is in its state, which has a ``mean``, a ``sigma`` and a ``generation``. One
    state is one emitter: `gloam.emitters.CmaEmitters` runs many at once.
    """

    @abstractmethod
    def start(self, mean: Float[Array, " sol"], sigma0: float | Float[Array, ""]) -> Any:
        """An isotropic Gaussian around ``mean``."""

    @abstractmethod
    def steps(self, state: Any, noise: Float[Array, "each sol"]) -> Float[Array, "each sol"]:
        """Standard normal noise as steps from the mean, in units of sigma."""

    @abstractmethod
    def update(
        self,
        state: Any,
        solutions: Float[Array, "each sol"],
        noise: Float[Array, "each sol"],
        order: Int[Array, " each"],
        parents: int | Int[Array, ""],
    ) -> Any:
        """Learn from ranked solutions.

        Args:
            state: The Gaussian that the solutions were drawn from.
            solutions: What was evaluated (inside the bounds, if there are any).
            noise: The standard normal draws behind them.
            order: Row indices from best to worst.
            parents: How many of the best carry weight; with none, nothing is learned.
        """

    @abstractmethod
    def degenerate(self, state: Any) -> Bool[Array, ""]:
        """True when the Gaussian can no longer be searched with."""

    def renew(self, state: Any) -> Any:
        """The part of the update that is costly enough to be done only every `gap` iterations."""
        return state

    def gap(self, sol: int, each: int) -> int:
        """Iterations between two calls of `renew`; 0 for never."""
        return 0

    def check(self, sol: int, each: int) -> None:
        """Raise an error where the strategy cannot work with such sizes."""
