"""The driver of asynchronous runs: an executor evaluates one solution at a time."""

import contextlib
import dataclasses
import time
from collections import defaultdict, deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from typing import Any, NamedTuple

import numpy as np

from gloam._tools import checks
from gloam.algorithms import Algorithm
from gloam.evaluators import Executors, Failure
from gloam.evaluators.evaluator import executor_error, num_workers
from gloam.evaluators.results import (
    Block,
    assembled,
    portable_blocks,
    rows_with_seeds,
)
from gloam.formats import RunFolder
from gloam.formats.config import DriverKind
from gloam.records import SearchState
from gloam.runs.failures import Outcome, all_failures, refuse_first_batches
from gloam.runs.options import Asynchronous, start_of
from gloam.runs.python_driver import HostDriver, restored_states, stacked_state
from gloam.searches import AsyncSearch, Ticket

# Longest wait between two looks at the time limit of evaluations.
_LOOK_SECONDS = 0.05


class _Job(NamedTuple):
    """A solution that was submitted to the executor."""

    search: AsyncSearch
    ticket: Ticket
    vector: np.ndarray


class AsyncDriver(HostDriver[AsyncSearch]):
    """Hands solutions to an executor, and tells results in the order in which they arrive."""

    kind: DriverKind = "asynchronous"

    def __init__(
        self,
        evaluate: Callable,
        algorithm: Algorithm,
        seeds: list[int],
        executor: Executor,
        settings: Asynchronous,
        *,
        per_solution: bool = False,
        max_failure_rate: float = 1.0,
    ):
        super().__init__(evaluate, algorithm, seeds, per_solution, max_failure_rate)
        fix = "Give an executor of concurrent.futures to an asynchronous run."
        checks.instance("evaluator", executor, Executor, fix)
        self._executor, self._settings = executor, settings
        self.evaluator = Executors(executor)
        # By iteration and seed, until all seeds have finished the iteration.
        self._outcomes: defaultdict[int, dict[int, Outcome]] = defaultdict(
            lambda: {seed: Outcome(seed) for seed in seeds}
        )
        self._in_flight = settings.in_flight or 2 * num_workers(executor)
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
        self._late: dict[Future, _Job] = {}  # those that exceeded the time limit
        self._began: dict[Future, float] = {}
        self._waiting: deque[tuple[_Job, Block]] = deque()  # results for seeds that have to wait
        self._next_look = 0.0

    @property
    def iteration(self) -> int:
        """Number of iterations that all seeds have finished."""
        return min(search.iteration for search in self.searches)

    def checkpoint(self) -> SearchState:
        """Return the states of all seeds. Each contains its own iteration."""
        self._check_whole()
        state = stacked_state([search.checkpoint() for search in self.searches])
        return dataclasses.replace(state, iteration=np.int32(self.iteration))

    def restore(self, read: Callable[[Any], SearchState]) -> None:
        """Begin at a checkpoint; solutions without a result are evaluated again."""
        states = [search.checkpoint() for search in self.searches]
        for search, state in zip(self.searches, restored_states(states, read), strict=True):
            search.restore(state)

    def advance(self, iterations: int, log_every: int = 1) -> None:
        """Evaluate and tell until every seed has finished more iterations.

        Solutions stay in flight afterwards; their results are told by the next call. A seed that
        finishes before the others waits for them.

        Raises:
            EvaluationError: Too many evaluations failed in the last iterations.
            WorkerError: The executor does not work.
        """
        target = self.iteration + iterations
        for _ in range(len(self._waiting)):
            self._tell(*self._waiting.popleft(), target)
        while self.iteration < target:
            self._submit(target)
            # One at a time, so that a single worker gives the same search every time.
            self._take_one(target)

    def close(self) -> None:
        """Cancel what the executor has not begun."""
        for future in (*self._jobs, *self._late):
            future.cancel()
        self._jobs.clear()
        self._late.clear()
        self._began.clear()

    def read_failures(self, folder: RunFolder) -> None:
        """Read the failures before the checkpoint; later ones are evaluated again."""
        evaluations = {search.seed: search.evaluations for search in self.searches}
        self._log.read(folder, self.batch, evaluations)
        for seed, number in evaluations.items():  # the iteration that each seed has begun
            finished, begun = divmod(number, self.batch)
            failures = self._log.failures_of(seed, finished + 1)
            self._outcomes[finished + 1][seed] = Outcome(seed, begun, failures)

    def _submit(self, target: int) -> None:
        """Keep the executor busy with solutions of the seeds that have fewest results."""
        free = self._in_flight - len(self._jobs)
        searches = [search for search in self.searches if search.iteration < target]
        for search in sorted(searches, key=lambda search: search.evaluations):
            if free <= 0:
                return
            with self._learning():
                tickets = search.ask(free)
            for ticket in tickets:
                vector = search.vector_of(ticket)
                # A copy, because the function may modify it, and failures are logged with it.
                row = vector[None].copy()
                if self._has_seeds:
                    row = rows_with_seeds(row, np.array([search.seed_of(ticket)]))
                arguments = (self._function, row, self._spec, False)
                try:
                    future = self._executor.submit(portable_blocks, *arguments)
                except RuntimeError as error:
                    raise executor_error(self._executor, error) from error
                self._jobs[future] = _Job(search, ticket, vector)
                free -= 1

    def _take_one(self, target: int) -> None:
        """Wait for one result, or for an evaluation to exceed its time limit."""
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
        try:
            (block,) = first.result()
        except Exception as error:  # exceptions of the function are in the block
            raise executor_error(self._executor, error) from error
        if first in self._late:
            self._tell_late(self._late.pop(first), block)
        else:
            self._tell(self._jobs.pop(first), block, target)

    def _fail_slow(self, limit: float, target: int) -> None:
        """Count evaluations beyond the time limit as failed."""
        now = time.monotonic()
        error = f"the evaluation took longer than the time limit of {limit:g} s"
        for future, job in list(self._jobs.items()):
            is_slow = future.running() and now - self._began.setdefault(future, now) > limit
            if is_slow and job.search.iteration < target:
                self._late[future] = self._jobs.pop(future)
                evaluations = job.search.evaluations
                with self._learning():
                    job.search.fail(job.ticket, may_come_late=True)
                self._count(job, evaluations, Failure(0, "timeout", error))

    def _tell(self, job: _Job, block: Block, target: int) -> None:
        """Tell a result, or keep it while its seed waits for the others."""
        search, ticket, _ = job
        if search.iteration >= target:
            self._waiting.append((job, block))
            return
        evaluations = search.evaluations
        found = assembled([([0], block)], 1, self._spec)
        failure = next(iter(all_failures(found, self._archive)), None)
        if failure is None:
            try:
                with self._learning():
                    search.tell([ticket], found.objectives, found.measures, **found.fields)
            except ValueError as error:  # objectives, while others had none
                failure = Failure.of(0, "wrong form", error)
        if failure is not None:
            with self._learning():
                search.fail(ticket)
        self._count(job, evaluations, failure)

    def _tell_late(self, job: _Job, block: Block) -> None:
        """Tell the result of an evaluation that was counted as failed."""
        if block.results is not None:
            objectives, measures, fields = block.results
            with contextlib.suppress(ValueError), self._learning():
                job.search.tell([job.ticket], objectives, measures, **fields)

    def _count(self, job: _Job, evaluations: int, failure: Failure | None) -> None:
        """Count an evaluation, log its failure, and check the limits at the end of an iteration.

        Args:
            job: The solution.
            evaluations: Number of evaluations of its seed before this one. It determines the
                iteration and row of the failure in the log, which are the same after a resume.
            failure: The failure, or ``None``.

        Raises:
            EvaluationError: Too many evaluations failed in the last iterations, or all of the
                first one raised.
            ValueError: All results of the first iteration had the wrong form.
        """
        seed, iteration = job.search.seed, evaluations // self.batch + 1
        outcome = self._outcomes[iteration][seed]
        outcome.num_evaluated += 1
        if failure is not None:
            failure = dataclasses.replace(failure, row=evaluations % self.batch)
            outcome.failures.append(failure)
            self._log.add(seed, iteration, job.vector, failure)
        if self.iteration == iteration:  # of all seeds
            outcomes = list(self._outcomes.pop(iteration).values())
            if iteration == 1:
                refuse_first_batches(outcomes)
            self._limit.note(outcomes, iteration)
