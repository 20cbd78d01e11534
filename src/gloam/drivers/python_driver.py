"""A `Search` for each seed and an evaluation in Python, as a driver."""

import dataclasses
import warnings
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Literal

import jax
import numpy as np

from gloam import checks
from gloam.algorithms import Algorithm
from gloam.archives import Elites
from gloam.drivers.failures import (
    EvaluatedBatch,
    FailureLimit,
    FailureLog,
    all_failures,
    refuse_wrong_form,
    warn_of_failed_batch,
)
from gloam.drivers.search import Search
from gloam.drivers.seed_states import restore_states, stacked_state
from gloam.drivers.starts import start_of
from gloam.evaluators import AnswerForm, Evaluator, PerSolution, as_evaluator
from gloam.formats import DamagedFileError, RunFolder
from gloam.records import SearchState


class PythonDriver:
    """Asks, evaluates in Python and tells, one seed after the other."""

    kind: Literal["ask-tell"] = "ask-tell"

    def __init__(
        self,
        evaluate: Callable,
        algorithm: Algorithm,
        seeds: list[int],
        *,
        evaluator: Evaluator | Executor | None = None,
        per_solution: bool = False,
        max_failure_rate: float = 1.0,
    ):
        checks.expect(
            callable(evaluate),
            "evaluate",
            "a function of a batch of solutions",
            type(evaluate).__name__,
        )
        checks.instance("algorithm", algorithm, Algorithm, "Build one, for instance gloam.DMS.")
        declared = per_solution and not isinstance(evaluate, PerSolution)
        self._function = PerSolution(evaluate) if declared else evaluate
        self.evaluator = as_evaluator(evaluator)
        self.evaluator.check(self._function)
        self._form = AnswerForm.of(algorithm.archive)
        self._log = FailureLog()
        self._limit = FailureLimit(max_failure_rate)
        self._warned: set[int] = set()
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

        No seed learns before the evaluations of all seeds have been checked: when the evaluator
        raises an error, all seeds are at the iteration before.

        Raises:
            EvaluationError: Too many evaluations failed in the last iterations of the state, which
                is whole.
        """
        for iteration in range(self.iteration + 1, self.iteration + iterations + 1):
            told = [self._evaluated(search) for search in self.searches]
            if iteration == 1:
                refuse_wrong_form(told)
            for search, one in zip(self.searches, told, strict=True):
                search.learn(one.checked)
            for seed, one in zip(self.seeds, told, strict=True):
                self._log.add(seed, iteration, one.solutions, one.failures)
            self._limit.note(told, iteration)
            self._warn_of_failed_batches(told, iteration)
        jax.block_until_ready([search.state.iteration for search in self.searches])

    def _evaluated(self, search: Search) -> EvaluatedBatch:
        solutions = search.ask()
        answer = self.evaluator.evaluate(self._function, solutions, self._form)
        if self._form.has_objectives is None and len(answer.failures) < self.batch:
            given = answer.objectives is not None
            self._form = dataclasses.replace(self._form, has_objectives=given)
        checked = search.checked(
            answer.objectives, answer.measures, None, answer.fields, may_all_fail=True
        )
        return EvaluatedBatch(solutions, checked, all_failures(answer, checked.valid))

    def _warn_of_failed_batches(self, told: list[EvaluatedBatch], iteration: int) -> None:
        """Name the seeds of which a whole batch failed, each once."""
        for seed, one in zip(self.seeds, told, strict=True):
            if len(one.failures) == self.batch and seed not in self._warned:
                self._warned.add(seed)
                warn_of_failed_batch(self.batch, seed, iteration, stacklevel=4)

    def write_failures(self, folder: RunFolder) -> None:
        """Write the evaluations that failed, if there are new ones."""
        if self._log.is_changed:
            folder.write_failures(self._log.table())
            self._log.is_changed = False

    def read_failures(self, folder: RunFolder) -> None:
        """Go on with the failures of the iterations that are finished; later ones come again."""
        try:
            self._log.restore(folder.read_failures(), self.iteration)
        except DamagedFileError as error:
            warnings.warn(f"{error} The run goes on with a new one.", stacklevel=2)

    def metrics(self) -> list[dict[str, Any]]:
        """The metrics of each seed after the last iteration."""
        return [search.metrics for search in self.searches]

    def elites(self) -> list[Elites]:
        """The elites of each seed."""
        return [search.elites for search in self.searches]

    def snapshot(self) -> dict[str, np.ndarray]:
        """Arrays for a picture of the first seed."""
        return self.searches[0].snapshot()
