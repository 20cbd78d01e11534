"""Searches that can be timed: what a contender is, and gloam's own two drivers."""

from abc import ABC, abstractmethod

import jax

from gloam.drivers.fused_driver import FusedDriver
from gloam.drivers.search import Search
from gloam.peers.problem import Problem


class Contender(ABC):
    """A search that can be timed."""

    name: str
    num_cells: int
    """Cells of the archive, as the contender itself counts them."""
    evaluations: int = 0
    """Solutions evaluated so far."""

    @abstractmethod
    def __init__(self, problem: Problem, seed: int):
        """Set it up, ready to run."""

    @abstractmethod
    def advance(self, iterations: int) -> None:
        """Run some iterations and wait for the last of them to end."""

    @property
    @abstractmethod
    def qd_score(self) -> float:
        """QD score now."""

    def last_epochs(self) -> int:
        """Epochs that a discount model was trained for in the last iteration."""
        return 0

    def warm_up(self, iterations: int) -> float:
        """Compile and fill caches; returns the mean number of epochs per iteration."""
        total = 0
        for _ in range(iterations):
            self.advance(1)
            total += self.last_epochs()
        return total / iterations


class GloamFused(Contender):
    """gloam with the domain inside the compiled loop."""

    name = "gloam fused"

    def __init__(self, problem: Problem, seed: int):
        self.driver = FusedDriver(problem.domain, problem.ours, [seed])
        self.driver.start()
        self.num_cells = self.driver.state.store.objectives.shape[-1]

    def advance(self, iterations: int) -> None:
        """Run some iterations."""
        self.driver.advance(iterations)
        self.evaluations = self.driver.metrics()[0]["evaluations"]

    def last_epochs(self) -> int:
        """Epochs of the last iteration."""
        return self.driver.metrics()[0]["epochs"]

    @property
    def qd_score(self) -> float:
        """QD score now."""
        return self.driver.metrics()[0]["qd_score"]


class GloamAskTell(Contender):
    """gloam around the same NumPy evaluation that pyribs is given."""

    name = "gloam ask-tell"

    def __init__(self, problem: Problem, seed: int):
        self.search = Search(problem.ours, seed=seed)
        self.problem = problem
        self.num_cells = self.search.state.store.objectives.shape[-1]

    def advance(self, iterations: int) -> None:
        """Run some iterations."""
        for _ in range(iterations):
            solutions = self.search.ask()
            self.search.tell(*self.problem.evaluate(solutions))
            self.evaluations += len(solutions)
        jax.block_until_ready(self.search.state)

    def last_epochs(self) -> int:
        """Epochs of the last iteration."""
        return self.search.metrics["epochs"]

    @property
    def qd_score(self) -> float:
        """QD score now."""
        return self.search.metrics["qd_score"]
