"""The driver of `gloam.optimize`: a `Search` for each seed, evaluated in Python."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from gloam._tools import checks
from gloam._tools.draws import STARTS, evaluation_key, evaluation_seeds, root_key
from gloam.algorithms import Algorithm
from gloam.archives import Elites
from gloam.evaluators import Evaluator, PerSolution, ResultSpec, as_evaluator
from gloam.evaluators.results import Results, as_seeded, rows_with_seeds
from gloam.formats import RunFolder
from gloam.formats.config import DriverKind
from gloam.records import SearchState
from gloam.runs.failures import (
    FailureLimit,
    FailureLog,
    Outcome,
    all_failures,
    refuse_first_batches,
)
from gloam.runs.options import start_of
from gloam.searches import AsyncSearch, Search
from gloam.searches.gradients import VJP, check_vjp
from gloam.searches.starts import Start

_Search = TypeVar("_Search", Search, AsyncSearch)


class HostDriver(Generic[_Search]):
    """Base of drivers with evaluations in Python: searches, failures and what they report."""

    rows_at_once = 1
    searches: list[_Search]
    evaluator: Evaluator

    def __init__(
        self,
        evaluate: Callable,
        algorithm: Algorithm,
        seeds: list[int],
        per_solution: bool,
        max_failure_rate: float,
    ):
        expected, got = "a function of a batch of solutions", type(evaluate).__name__
        checks.expect(callable(evaluate), "evaluate", expected, got)
        checks.instance("algorithm", algorithm, Algorithm, "Build one, for instance gloam.DMS.")
        declared = isinstance(evaluate, PerSolution) or not per_solution
        self.seeds, self.batch = seeds, algorithm.emitter.num_solutions
        function = evaluate if declared else PerSolution(evaluate)
        self._function, self._has_seeds = as_seeded(function, algorithm.emitter.form)
        self._archive, self._spec = algorithm.archive, ResultSpec.of(algorithm.archive)
        self._log = FailureLog()
        self._limit = FailureLimit(max_failure_rate)
        self._is_torn = False

    @contextmanager
    def _learning(self) -> Iterator[None]:
        """A block that changes searches. If it is interrupted, they cannot be saved any more."""
        try:
            yield
        except (ValueError, Warning):  # refused before a change, or warned of after it
            raise
        except BaseException:
            self._is_torn = True
            raise

    def _check_whole(self) -> None:
        if self._is_torn:
            raise RuntimeError("the search was interrupted while it learned")

    def start(self, start: Start | None = None) -> None:
        """Begin at iteration 0, with solutions that are evaluated again if they have no results."""
        if start is None:
            return
        if start.results is None:
            rows = start.solutions
            if self._has_seeds:
                key = evaluation_key(jax.random.fold_in(root_key(self.seeds[0]), STARTS), 0)
                rows = rows_with_seeds(rows, evaluation_seeds(key, len(rows)))
            found = self.evaluator.evaluate(self._function, rows, self._spec)
            failures = all_failures(found, self._archive)
            refuse_first_batches([Outcome(self.seeds[0], len(rows), failures)])
            for failure in failures:
                self._log.add(self.seeds[0], 0, start.solutions[failure.row], failure)
            start = start._replace(results=found[:3])
        for search in self.searches:
            search.begin_with(start)

    def metrics(self) -> list[list[dict[str, Any]]]:
        """Return the metrics of each seed after the last iteration."""
        return [[search.metrics() for search in self.searches]]

    def elites(self) -> list[Elites]:
        """Return the elites of each seed."""
        return [search.elites() for search in self.searches]

    def snapshot(self) -> dict[str, np.ndarray]:
        """Return the arrays for a figure of the first seed."""
        return self.searches[0].snapshot()

    def write_failures(self, folder: RunFolder) -> None:
        """Write the evaluations that failed, if there are new ones."""
        self._log.write(folder)


class PythonDriver(HostDriver[Search]):
    """Asks, evaluates in Python and tells, one seed after the other."""

    kind: DriverKind = "ask-tell"

    def __init__(
        self,
        evaluate: Callable,
        algorithm: Algorithm,
        seeds: list[int],
        *,
        evaluator: Evaluator | Executor | None = None,
        per_solution: bool = False,
        max_failure_rate: float = 1.0,
        vjp: VJP | None = None,
    ):
        super().__init__(evaluate, algorithm, seeds, per_solution, max_failure_rate)
        check_vjp(vjp, algorithm.emitter)
        self._vjp = vjp
        self.evaluator = as_evaluator(evaluator)
        self.evaluator.check(self._function)
        self.searches = [
            Search(algorithm, seed, x0=start_of(evaluate, algorithm, seed)) for seed in seeds
        ]

    def restore(self, read: Callable[[Any], SearchState]) -> None:
        """Begin at a checkpoint; ``read`` returns its state, given the shapes of the state."""
        states = [search.state for search in self.searches]
        for search, state in zip(self.searches, restored_states(states, read), strict=True):
            search.state = state

    def advance(self, iterations: int, log_every: int = 1) -> None:
        """Ask, evaluate and tell.

        No seed learns before the evaluations and gradients of all seeds are finished: if the
        evaluator or ``vjp`` raises an error, all seeds are at the iteration before.

        Raises:
            EvaluationError: Too many evaluations failed in the last iterations of the state.
        """
        for iteration in range(self.iteration + 1, self.iteration + iterations + 1):
            evaluated = [self._evaluated(search) for search in self.searches]
            outcomes = [one.outcome for one in evaluated]
            for one in evaluated:
                for failure in one.outcome.failures:
                    self._log.add(one.outcome.seed, iteration, one.solutions[failure.row], failure)
            if iteration == 1:
                refuse_first_batches(outcomes)
            learned = [
                (one.results, *self._cells_and_gradients(search, one.results))
                for search, one in zip(self.searches, evaluated, strict=True)
            ]
            with self._learning():
                for search, parts in zip(self.searches, learned, strict=True):
                    search.learn(*parts)
            self._limit.note(outcomes, iteration)
        jax.block_until_ready([search.state.iteration for search in self.searches])

    @property
    def iteration(self) -> int:
        """Number of finished iterations."""
        return self.searches[0].iteration

    def checkpoint(self) -> SearchState:
        """Return the states of all seeds in one, as the fused driver has them."""
        self._check_whole()
        return stacked_state([search.state for search in self.searches])

    def read_failures(self, folder: RunFolder) -> None:
        """Read the failures of finished iterations; later ones are evaluated again."""
        self._log.read(folder, self.batch, dict.fromkeys(self.seeds, self.iteration * self.batch))

    def _evaluated(self, search: Search) -> "_EvaluatedBatch":
        solutions = search.ask_vectors()
        rows = rows_with_seeds(solutions, search.seeds()) if self._has_seeds else solutions
        found = self.evaluator.evaluate(self._function, rows, self._spec)
        if self._spec.has_objectives is None and len(found.failures) < self.batch:
            given = found.objectives is not None
            self._spec = dataclasses.replace(self._spec, has_objectives=given)
        outcome = Outcome(search.seed, self.batch, all_failures(found, self._archive))
        return _EvaluatedBatch(solutions, found[:3], outcome)

    def _cells_and_gradients(
        self, search: Search, results: Results
    ) -> tuple[np.ndarray | None, np.ndarray | None]:
        cells = self._archive.index_on_host(results[1])
        if self._vjp is None:
            return cells, None
        return cells, search.gradients(self._vjp, results, cells)


class _EvaluatedBatch(NamedTuple):
    """The evaluated batch of one seed."""

    solutions: np.ndarray
    results: Results
    outcome: Outcome


def stacked_state(states: Sequence[SearchState]) -> SearchState:
    """Stack the states of all seeds, which share the iteration."""
    stacked = jax.tree.map(_stack, *states)
    return eqx.tree_at(lambda s: s.iteration, stacked, states[0].iteration)


def restored_states(
    states: Sequence[SearchState], read: Callable[[Any], SearchState]
) -> list[SearchState]:
    """Return the states of a checkpoint; ``read`` is given the shapes of the stacked state."""
    one, number = states[0], len(states)
    shapes = jax.tree.map(lambda s: jax.ShapeDtypeStruct((number, *s.shape), s.dtype), one)
    state = read(eqx.tree_at(lambda s: s.iteration, shapes, one.iteration))
    # Each seed gets its own arrays, because they are donated to the next iteration.
    iterations = jnp.stack([state.iteration] * number)
    state = eqx.tree_at(lambda s: s.iteration, state, iterations)
    return [jax.tree.map(lambda leaf, i=place: leaf[i], state) for place in range(number)]


def _stack(*leaves: Any) -> Any:
    """Stack arrays on the host, from where they are written. One seed is not copied."""
    if jnp.issubdtype(leaves[0].dtype, jax.dtypes.prng_key):
        return jnp.stack(leaves)
    arrays = [np.asarray(leaf) for leaf in leaves]
    return arrays[0][None] if len(arrays) == 1 else np.stack(arrays)
