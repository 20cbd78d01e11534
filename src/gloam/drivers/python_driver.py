"""A `Search` for each seed and an evaluation in Python, as a driver."""

import dataclasses
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from gloam import checks
from gloam.algorithms import Algorithm
from gloam.drivers.failures import (
    FailureLimit,
    FailureLog,
    Outcome,
    all_failures,
    refuse_wrong_form,
)
from gloam.drivers.host_driver import HostDriver
from gloam.drivers.search import Checked, Search
from gloam.drivers.seed_states import restore_states, stacked_state
from gloam.drivers.starts import start_of
from gloam.evaluators import AnswerForm, Evaluator, as_evaluator
from gloam.evaluators.blocks import declared
from gloam.formats import RunFolder
from gloam.records import SearchState


class EvaluatedBatch(NamedTuple):
    """The batch of one seed: evaluated and checked."""

    solutions: np.ndarray
    checked: Checked
    outcome: Outcome


class PythonDriver(HostDriver[Search]):
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
        self._function = declared(evaluate, per_solution)
        self.evaluator = as_evaluator(evaluator)
        self.evaluator.check(self._function)
        self._form = AnswerForm.of(algorithm.archive)
        self._log = FailureLog()
        self._limit = FailureLimit(max_failure_rate)
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
            outcomes = [one.outcome for one in told]
            if iteration == 1:
                refuse_wrong_form(outcomes)
            for search, one in zip(self.searches, told, strict=True):
                search.learn(one.checked)
            for seed, one in zip(self.seeds, told, strict=True):
                for failure in one.outcome.failures:
                    self._log.add(seed, iteration, one.solutions[failure.row], failure)
            self._limit.note(outcomes, iteration)
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
        failures = all_failures(answer, checked.valid)
        return EvaluatedBatch(solutions, checked, Outcome(search.seed, self.batch, failures))

    def read_failures(self, folder: RunFolder) -> None:
        """Go on with the failures of the iterations that are finished; later ones come again."""
        self._log.read(folder, self.batch, dict.fromkeys(self.seeds, self.iteration * self.batch))
