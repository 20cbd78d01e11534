"""An `AsyncSearch` for each seed, and an executor that evaluates one solution at a time."""

import contextlib
import dataclasses
import os
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from typing import Any, Literal, NamedTuple

import numpy as np

from gloam import checks
from gloam.algorithms import Algorithm
from gloam.archives import Elites
from gloam.drivers.async_search import AsyncSearch
from gloam.drivers.evaluation import evaluation_parts
from gloam.drivers.seed_states import restore_states, stacked_state
from gloam.drivers.starts import start_of
from gloam.drivers.tickets import Ticket
from gloam.formats import RunFolder
from gloam.records import SearchState

# Longest wait between two looks at the time limit of evaluations.
_LOOK_SECONDS = 0.05


@dataclasses.dataclass(frozen=True)
class Asynchronous:
    """How `gloam.optimize` evaluates asynchronously.

    Args:
        close_at: As in `gloam.AsyncSearch`: an emitter adapts when this share of its solutions is
            evaluated.
        timeout: Seconds after which an evaluation counts as failed, or ``None``. An executor cannot
            end it: its worker stays busy, and if it answers after all, the result enters the
            archive.
        in_flight: Number of solutions that are handed to the executor at a time; by default twice
            the number of its workers, so that none waits for the search.
    """

    close_at: float = 1.0
    timeout: float | None = None
    in_flight: int | None = None

    def __post_init__(self) -> None:
        checks.number("close_at", self.close_at, above=0.0, at_most=1.0)
        if self.timeout is not None:
            checks.number("timeout", self.timeout, above=0.0)
        if self.in_flight is not None:
            checks.integer("in_flight", self.in_flight, minimum=1)


class Failed(NamedTuple):
    """What an evaluation gives that raised an error."""

    error: str


class _Job(NamedTuple):
    """A solution that the executor has."""

    search: AsyncSearch
    ticket: Ticket


class BatchOfOne:
    """A function of one solution as a function of a batch of one."""

    def __init__(self, function: Callable):
        self.function = function

    def __call__(self, solutions: np.ndarray) -> Any:
        """Evaluate the solution."""
        objective, measures, fields = evaluation_parts(self.function(solutions[0]))
        rows = np.asarray(measures)[None], {name: np.asarray(v)[None] for name, v in fields.items()}
        return rows if objective is None else (np.asarray(objective)[None], *rows)


def evaluate_one(evaluate: Callable, solution: np.ndarray) -> Any:
    """Evaluate one solution as a batch of one. Runs in the workers."""
    try:
        return evaluate(solution[None])
    except Exception as error:
        return Failed(f"{type(error).__name__}: {error}")


class AsyncDriver:
    """Hands solutions to an executor, and tells results in the order in which they come."""

    kind: Literal["asynchronous"] = "asynchronous"

    def __init__(
        self,
        evaluate: Callable,
        algorithm: Algorithm,
        seeds: list[int],
        executor: Executor,
        settings: Asynchronous,
    ):
        checks.expect(
            callable(evaluate),
            "evaluate",
            "a function of a batch of solutions",
            type(evaluate).__name__,
        )
        checks.instance("algorithm", algorithm, Algorithm, "Build one, for instance gloam.DMS.")
        checks.instance(
            "evaluator",
            executor,
            Executor,
            "Give an executor of concurrent.futures to an asynchronous run.",
        )
        self.seeds, self.batch = seeds, algorithm.emitter.num_solutions
        self._evaluate, self._executor, self._settings = evaluate, executor, settings
        workers = getattr(executor, "_max_workers", None) or os.cpu_count() or 1
        self._in_flight = settings.in_flight or 2 * workers
        self.searches = [
            AsyncSearch(
                algorithm,
                seed,
                x0=start_of(evaluate, algorithm, seed),
                close_at=settings.close_at,
            )
            for seed in seeds
        ]
        self._jobs: dict[Future, _Job] = {}  # in the order in which they were submitted
        self._late: dict[Future, _Job] = {}  # those that took too long
        self._began: dict[Future, float] = {}
        self._waiting: deque[tuple[_Job, Any]] = deque()  # results for seeds that have to wait
        self._has_result = False
        self._next_look = 0.0

    @property
    def state(self) -> SearchState:
        """The states of all seeds. Each keeps its own iteration; the least is that of the run."""
        return dataclasses.replace(stacked_state(self.searches), iteration=np.int32(self.iteration))

    @property
    def iteration(self) -> int:
        """Iterations that all seeds have finished."""
        return min(search.iteration for search in self.searches)

    def start(self) -> None:
        """Begin at iteration 0, where a new `AsyncSearch` is."""

    def restore(self, read: Callable[[Any], SearchState]) -> None:
        """Begin where a checkpoint ended; what was in flight then is evaluated again."""
        restore_states(self.searches, read)

    def advance(self, iterations: int) -> None:
        """Hand out and tell until every seed has finished some iterations more.

        Solutions stay in flight afterwards; their results are told by the next call. A seed that
        has finished before the others waits for them.

        Raises:
            EvaluationError: Every evaluation of an iteration failed.
        """
        target = self.iteration + iterations
        for _ in range(len(self._waiting)):
            self._tell(*self._waiting.popleft(), target)
        while self.iteration < target:
            self._submit(target)
            # One at a time, so that a worker alone gives the same search every time.
            self._take_one(target)

    def close(self) -> None:
        """Take back what the executor has not begun."""
        for future in (*self._jobs, *self._late):
            future.cancel()
        self._jobs.clear()
        self._late.clear()
        self._began.clear()

    def write_failures(self, folder: RunFolder) -> None:
        """Write nothing: failures are counted in the metrics."""

    def read_failures(self, folder: RunFolder) -> None:
        """Read nothing."""

    def metrics(self) -> list[dict[str, Any]]:
        """The metrics of each seed after the last iteration."""
        return [search.metrics for search in self.searches]

    def elites(self) -> list[Elites]:
        """The elites of each seed."""
        return [search.elites for search in self.searches]

    def snapshot(self) -> dict[str, np.ndarray]:
        """Arrays for a picture of the first seed."""
        return self.searches[0].snapshot()

    def _submit(self, target: int) -> None:
        """Keep the executor busy with solutions of the seeds that have least results."""
        free = self._in_flight - len(self._jobs)
        searches = [search for search in self.searches if search.iteration < target]
        for search in sorted(searches, key=lambda search: search.evaluations):
            if free <= 0:
                return
            for ticket in search.ask(free):
                future = self._executor.submit(evaluate_one, self._evaluate, ticket.solution)
                self._jobs[future] = _Job(search, ticket)
                free -= 1

    def _take_one(self, target: int) -> None:
        """Wait for one result, or for an evaluation to take too long."""
        limit = self._settings.timeout
        pending = [*self._jobs, *self._late]
        done, _ = wait(pending, None if limit is None else _LOOK_SECONDS, FIRST_COMPLETED)
        if limit is not None and time.monotonic() >= self._next_look:
            self._fail_slow(limit, target)
            self._next_look = time.monotonic() + _LOOK_SECONDS
        first = next((future for future in pending if future in done), None)
        if first is None:
            return
        self._began.pop(first, None)
        if first in self._late:
            self._tell_late(self._late.pop(first), first.result())
        else:
            self._tell(self._jobs.pop(first), first.result(), target)

    def _fail_slow(self, limit: float, target: int) -> None:
        """Count evaluations that take too long as failed."""
        now = time.monotonic()
        for future, (search, ticket) in list(self._jobs.items()):
            is_slow = future.running() and now - self._began.setdefault(future, now) > limit
            if is_slow and search.iteration < target:
                self._late[future] = self._jobs.pop(future)
                search.fail(ticket, may_come_late=True)
                self._check(search, f"an evaluation took more than {limit:g} seconds")

    def _tell(self, job: _Job, answer: Any, target: int) -> None:
        """Tell a result, or keep it while its seed waits for the others."""
        search, ticket = job
        if search.iteration >= target:
            self._waiting.append((job, answer))
            return
        failure = "objectives or measures were NaN or infinite"
        if isinstance(answer, Failed):
            failure = answer.error
            search.fail(ticket)
        else:
            try:
                _tell_answer(search, ticket, answer)
                self._has_result = True
            except (TypeError, ValueError) as error:
                if not self._has_result:
                    raise  # nothing fits: that is a mistake in the function, not in a solution
                failure = str(error)
                search.fail(ticket)
        self._check(search, failure)

    def _tell_late(self, job: _Job, answer: Any) -> None:
        """Tell the result of an evaluation that was counted as failed."""
        if not isinstance(answer, Failed):
            with contextlib.suppress(TypeError, ValueError):
                _tell_answer(*job, answer)

    def _check(self, search: AsyncSearch, failure: str) -> None:
        """Raise an error after an iteration in which every evaluation failed."""
        if search.evaluations % self.batch or int(search.report.failed) < self.batch:
            return
        raise checks.EvaluationError(
            f"evaluation: expected at least one finite result among {self.batch} solutions, got "
            f"none. The last failure: {failure.rstrip('.')}. Check the evaluation function on x0, "
            "and that x0 and sigma0 keep solutions in its domain."
        )


def _tell_answer(search: AsyncSearch, ticket: Ticket, answer: Any) -> None:
    objectives, measures, fields = evaluation_parts(answer)
    search.tell([ticket], objectives, measures, **fields)
