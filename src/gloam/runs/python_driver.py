"""The states of several searches as one state, as the fused driver has them.

What drivers of evaluations in Python have in common: a search and failures for each seed.

A `Search` for each seed and an evaluation in Python, as a driver.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gloam.records import SearchState
from typing import Generic
from typing import TypeVar
from gloam.archives import Elites
from gloam.searches.async_search import AsyncSearch
from gloam.runs.failures import FailureLog
from gloam.searches.search import Search
from gloam.formats import RunFolder
import dataclasses
from concurrent.futures import Executor
from typing import Literal
from typing import NamedTuple
from gloam import checks
from gloam.algorithms import Algorithm
from gloam.runs.failures import FailureLimit
from gloam.runs.failures import Outcome
from gloam.runs.failures import all_failures
from gloam.runs.failures import refuse_wrong_form
from gloam.searches.search import Checked
from gloam.runs.options import start_of
from gloam.evaluators import AnswerForm
from gloam.evaluators import Evaluator
from gloam.evaluators import as_evaluator
from gloam.evaluators.answers import declared


def stacked_state(searches: Sequence[Any]) -> SearchState:
    """The states of all seeds in one: they share the iteration."""
    states = [search.state for search in searches]
    stacked = jax.tree.map(_stack, *states)
    return eqx.tree_at(lambda s: s.iteration, stacked, states[0].iteration)


def restore_states(searches: Sequence[Any], read: Callable[[Any], SearchState]) -> None:
    """Set the states of searches; ``read`` is given the shapes of the stacked state."""
    one, number = searches[0].state, len(searches)
    shapes = jax.tree.map(lambda s: jax.ShapeDtypeStruct((number, *s.shape), s.dtype), one)
    state = read(eqx.tree_at(lambda s: s.iteration, shapes, one.iteration))
    # Each seed has arrays of its own, because they are donated to the next iteration.
    iterations = jnp.stack([state.iteration] * number)
    state = eqx.tree_at(lambda s: s.iteration, state, iterations)
    for place, search in enumerate(searches):
        search.state = jax.tree.map(lambda leaf, i=place: leaf[i], state)


def _stack(*leaves: Any) -> Any:
    """One array of all seeds' arrays; on the host, where they are written from.

    That of one seed is not copied: it may be large.
    """
    if jnp.issubdtype(leaves[0].dtype, jax.dtypes.prng_key):
        return jnp.stack(leaves)
    arrays = [np.asarray(leaf) for leaf in leaves]
    return arrays[0][None] if len(arrays) == 1 else np.stack(arrays)


_Search = TypeVar("_Search", Search, AsyncSearch)


class HostDriver(Generic[_Search]):
    """Reports on the searches of all seeds."""

    searches: list[_Search]
    _log: FailureLog

    def metrics(self) -> list[dict[str, Any]]:
        """The metrics of each seed after the last iteration."""
        return [search.metrics for search in self.searches]

    def elites(self) -> list[Elites]:
        """The elites of each seed."""
        return [search.elites for search in self.searches]

    def snapshot(self) -> dict[str, np.ndarray]:
        """Arrays for a picture of the first seed."""
        return self.searches[0].snapshot()

    def write_failures(self, folder: RunFolder) -> None:
        """Write the evaluations that failed, if there are new ones."""
        self._log.write(folder)


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
