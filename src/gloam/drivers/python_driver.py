"""A `Search` for each seed and an evaluation in Python, as a driver."""

from collections.abc import Callable
from typing import Any, Literal

import jax
import numpy as np

from gloam import checks
from gloam.algorithms import Algorithm
from gloam.archives import Elites
from gloam.drivers.evaluation import evaluation_parts
from gloam.drivers.search import Search
from gloam.drivers.seed_states import restore_states, stacked_state
from gloam.drivers.starts import start_of
from gloam.records import SearchState


class PythonDriver:
    """Asks, evaluates in Python and tells, one seed after the other."""

    kind: Literal["ask-tell"] = "ask-tell"

    def __init__(self, evaluate: Callable, algorithm: Algorithm, seeds: list[int]):
        checks.expect(
            callable(evaluate),
            "evaluate",
            "a function of a batch of solutions",
            type(evaluate).__name__,
        )
        checks.instance("algorithm", algorithm, Algorithm, "Build one, for instance gloam.DMS.")
        self.evaluate = evaluate
        self.seeds = seeds
        self.batch = algorithm.emitter.num_solutions
        self.searches = [
            Search(algorithm, seed, x0=start_of(evaluate, algorithm, seed)) for seed in seeds
        ]

    @property
    def state(self) -> SearchState:
        """The states of all seeds, as the fused driver has them: they share the iteration."""
        return stacked_state(self.searches)

    @property
    def iteration(self) -> int:
        """Iterations finished."""
        return self.searches[0].iteration

    def start(self) -> None:
        """Begin at iteration 0, where a new `Search` is."""

    def restore(self, read: Callable[[Any], SearchState]) -> None:
        """Begin where a checkpoint ended; ``read`` is given the shapes of the state."""
        restore_states(self.searches, read)

    def advance(self, iterations: int) -> None:
        """Ask, evaluate and tell some times.

        No seed learns before the evaluations of all seeds have been checked: when one of them
        raises an error, all seeds are at the iteration before.
        """
        for _ in range(iterations):
            told = []
            for search in self.searches:
                objectives, measures, fields = evaluation_parts(self.evaluate(search.ask()))
                told.append(search.checked(objectives, measures, None, fields))
            for search, one in zip(self.searches, told, strict=True):
                search.learn(one)
        jax.block_until_ready([search.state.iteration for search in self.searches])

    def metrics(self) -> list[dict[str, Any]]:
        """The metrics of each seed after the last iteration."""
        return [search.metrics for search in self.searches]

    def elites(self) -> list[Elites]:
        """The elites of each seed."""
        return [search.elites for search in self.searches]

    def snapshot(self) -> dict[str, np.ndarray]:
        """Arrays for a picture of the first seed."""
        return self.searches[0].snapshot()
