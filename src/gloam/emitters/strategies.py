"""What an emitter's Gaussian is made of: full, separable or limited-memory CMA-ES.

A strategy holds settings; what it learns is in its state, which has a ``mean``, a ``sigma`` and a
``generation``. One state is one emitter: `gloam.emitters.CmaEmitters` runs many at once.
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int

from gloam import checks
from gloam.emitters import cma_es, lm_ma_es, sep_cma_es

# Solutions of more numbers than this get the limited-memory strategy unless another is named: a
# full covariance of 15 emitters takes 120 MB for 1,000 numbers, and 12 GB for 10,000.
FULL_UP_TO = 1000


class Strategy(eqx.Module):
    """Sampling and learning of one Gaussian."""

    @abstractmethod
    def start(self, mean: Float[Array, " sol"], sigma0: float) -> Any:
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
        parents: Int[Array, ""],
    ) -> Any:
        """Learn from solutions ranked by ``order``, best first; ``parents`` carry weight."""

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


class CMAES(Strategy):
    """Canonical CMA-ES with a full covariance: best up to some hundred numbers in a solution.

    Args:
        pyribs_covariance: Reproduce pyribs' covariance update, with which the paper's figures were
            made; see `cma_es.update`.
    """

    pyribs_covariance: bool = eqx.field(static=True, default=False)

    def start(self, mean: Float[Array, " sol"], sigma0: float) -> cma_es.CmaState:
        """An isotropic Gaussian around ``mean``."""
        return cma_es.start(mean, sigma0)

    def steps(
        self, state: cma_es.CmaState, noise: Float[Array, "each sol"]
    ) -> Float[Array, "each sol"]:
        """The noise, turned and stretched by the Cholesky factor."""
        return noise @ state.factor.T

    def update(
        self, state: cma_es.CmaState, solutions: Any, noise: Any, order: Any, parents: Any
    ) -> cma_es.CmaState:
        """One CMA-ES update, without the factorisation."""
        return cma_es.update(
            state, solutions, noise, order, parents, pyribs_covariance=self.pyribs_covariance
        )

    def degenerate(self, state: cma_es.CmaState) -> Bool[Array, ""]:
        """Too narrow, too flat or broken."""
        return cma_es.degenerate(state)

    def renew(self, state: cma_es.CmaState) -> cma_es.CmaState:
        """The factorisation."""
        return cma_es.refactor(state)

    def gap(self, sol: int, each: int) -> int:
        """Pycma's rule."""
        return cma_es.lazy_gap(sol, each)


class SepCMAES(Strategy):
    """CMA-ES with a diagonal covariance: linear in the size of the solution, quick to learn scales.

    It cannot learn that numbers depend on one another.
    """

    def start(self, mean: Float[Array, " sol"], sigma0: float) -> sep_cma_es.SepState:
        """An isotropic Gaussian around ``mean``."""
        return sep_cma_es.start(mean, sigma0)

    def steps(
        self, state: sep_cma_es.SepState, noise: Float[Array, "each sol"]
    ) -> Float[Array, "each sol"]:
        """The noise times the standard deviations."""
        return noise * sep_cma_es.deviations(state)

    def update(
        self, state: sep_cma_es.SepState, solutions: Any, noise: Any, order: Any, parents: Any
    ) -> sep_cma_es.SepState:
        """One update of sep-CMA-ES."""
        return sep_cma_es.update(state, solutions, noise, order, parents)

    def degenerate(self, state: sep_cma_es.SepState) -> Bool[Array, ""]:
        """Too narrow, too flat or broken."""
        return sep_cma_es.degenerate(state)


class LMMAES(Strategy):
    """Limited-memory matrix adaptation: a few directions instead of a covariance.

    For solutions of thousands of numbers and more.

    Args:
        vectors: Directions to remember; by default ``4 + 3 ln(sol)``, as its authors advise.

    It needs solutions of more than twice as many numbers as an emitter's ``batch_size``.
    """

    vectors: int | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        if self.vectors is not None:
            checks.integer("vectors", self.vectors, minimum=1)

    def start(self, mean: Float[Array, " sol"], sigma0: float) -> lm_ma_es.LmState:
        """An isotropic Gaussian around ``mean``."""
        return lm_ma_es.start(mean, sigma0, self.vectors)

    def steps(
        self, state: lm_ma_es.LmState, noise: Float[Array, "each sol"]
    ) -> Float[Array, "each sol"]:
        """The noise, stretched along the remembered directions."""
        return lm_ma_es.steps(state, noise)

    def update(
        self, state: lm_ma_es.LmState, solutions: Any, noise: Any, order: Any, parents: Any
    ) -> lm_ma_es.LmState:
        """One update of LM-MA-ES."""
        return lm_ma_es.update(state, solutions, noise, order, parents)

    def degenerate(self, state: lm_ma_es.LmState) -> Bool[Array, ""]:
        """Too narrow or broken."""
        return lm_ma_es.degenerate(state)

    def check(self, sol: int, each: int) -> None:
        """The rate of its step-size path, ``2 each / sol``, has to be below 1."""
        expected = f"less than half of {sol}, the size of a solution, for LMMAES"
        fix = "Use strategy=CMAES() for small solutions, or a smaller batch_size."
        checks.expect(2 * each < sol, "batch_size", expected, str(each), fix)


def default_strategy(sol: int) -> Strategy:
    """A full covariance while it is affordable."""
    return CMAES() if sol <= FULL_UP_TO else LMMAES()
