"""A `Search` and an evaluation in Python, as a driver."""

from collections.abc import Callable
from typing import Any, Literal

import jax
import numpy as np

from gloam import checks
from gloam.algorithms import Algorithm
from gloam.archives import Elites
from gloam.drivers.evaluation import evaluation_parts
from gloam.drivers.search import Search
from gloam.drivers.starts import start_of
from gloam.records import SearchState


class PythonDriver:
    """Asks, evaluates in Python and tells, one seed."""

    kind: Literal["fused", "ask-tell"] = "ask-tell"

    def __init__(self, evaluate: Callable, algorithm: Algorithm, seed: int):
        checks.expect(
            callable(evaluate),
            "evaluate",
            "a function of a batch of solutions",
            type(evaluate).__name__,
        )
        self.evaluate = evaluate
        self.search = Search(algorithm, seed, x0=start_of(evaluate, algorithm, seed))
        self.batch = algorithm.emitter.num_solutions
        self.seeds = [self.search.seed]

    @property
    def state(self) -> SearchState:
        """The state of the search."""
        return self.search.state

    @property
    def iteration(self) -> int:
        """Iterations finished."""
        return self.search.iteration

    def start(self) -> None:
        """Begin at iteration 0, where a new `Search` is."""

    def restore(self, read: Callable[[Any], SearchState]) -> None:
        """Begin where a checkpoint ended; ``read`` is given the shapes of the state."""
        self.search.state = read(self.search.state)

    def advance(self, iterations: int) -> None:
        """Ask, evaluate and tell some times."""
        for _ in range(iterations):
            objectives, measures, fields = evaluation_parts(self.evaluate(self.search.ask()))
            self.search.tell(objectives, measures, **fields)
        jax.block_until_ready(self.search.state.iteration)

    def metrics(self) -> list[dict[str, Any]]:
        """The metrics after the last iteration."""
        return [self.search.metrics]

    def elites(self) -> list[Elites]:
        """The elites."""
        return [self.search.elites]

    def snapshot(self) -> dict[str, np.ndarray]:
        """Arrays for a picture."""
        return self.search.snapshot()
