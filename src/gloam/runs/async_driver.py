"""The driver of asynchronous runs: an evaluator gets one solution at a time."""

import contextlib
import dataclasses
import time
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gloam._tools import checks
from gloam.algorithms import Algorithm
from gloam.evaluators import Evaluator, Executors, Failure
from gloam.evaluators.results import Block, assembled, rows_with_seeds
from gloam.formats import RunFolder
from gloam.formats.config import DriverKind
from gloam.records import SearchState
from gloam.runs.failures import Outcome, all_failures, refuse_first_batches
from gloam.runs.options import Asynchronous, start_of
from gloam.runs.python_driver import HostDriver, restored_states, stacked_state
from gloam.searches import AsyncSearch, Ticket

# Longest time between two checks of the time limit of evaluations.
_POLL_SECONDS = 0.05


class _Job(NamedTuple):
    """A solution that was submitted to the evaluator."""

    search: AsyncSearch
    ticket: Ticket
    vector: np.ndarray


class AsyncDriver(HostDriver[AsyncSearch]):
    """Submits solutions to an evaluator, and tells results in the order of arrival."""

    kind: DriverKind = "asynchronous"

    def __init__(
        self,
        evaluate: Callable,
        algorithm: Algorithm,
        seeds: list[int],
        evaluator: Evaluator,
        settings: Asynchronous,
        *,
        per_solution: bool = False,
        max_failure_rate: float = 1.0,
    ):
        super().__init__(evaluate, algorithm, seeds, per_solution, max_failure_rate)
        if settings.timeout is not None:
            fix = "Give the time limit to the evaluator, which ends the evaluation: timeout=..."
            is_executor, got = isinstance(evaluator, Executors), type(evaluator).__name__
            expected = "an executor, for which an asynchronous run has a time limit"
            checks.expect(is_executor, "evaluator", expected, got, fix)
        evaluator.check(self._function)
        self._settings, self.evaluator = settings, evaluator
        self._stream = evaluator.stream(self._function, self._spec)
        # By iteration and seed, until all seeds have finished the iteration.
        self._outcomes: defaultdict[int, dict[int, Outcome]] = defaultdict(
            lambda: {seed: Outcome(seed) for seed in seeds}
        )
        self.searches = [
            AsyncSearch(
                algorithm,
                seed,
                x0=start_of(evaluate, algorithm, seed),
                close_at=settings.close_at,
            )
            for seed in seeds
        ]
        self._jobs: dict[int, _Job] = {}  # by their number in the stream
        self._late: dict[int, _Job] = {}  # those that exceeded the time limit
        self._began: dict[int, float] = {}
        self._waiting: deque[tuple[_Job, Block]] = deque()  # results for seeds that have to wait
        self._next_poll = 0.0

    @property
    def iteration(self) -> int:
        """Number of iterations that all seeds have finished."""
        return min(search.iteration for search in self.searches)

    def checkpoint(self) -> SearchState:
        """Return the states of all seeds. Each contains its own iteration."""
        self._check_consistent()
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
            WorkerError: The evaluator does not work.
        """
        target = self.iteration + iterations
        for _ in range(len(self._waiting)):
            self._tell(*self._waiting.popleft(), target)
        while self.iteration < target:
            self._submit(target)
            # One at a time, so that a single worker gives the same search every time.
            self._take_one(target)

    def close(self) -> None:
        """Cancel what the evaluator has not begun."""
        self._stream.close()
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
        """Keep the evaluator busy with solutions of the seeds that have fewest results."""
        free = (self._settings.in_flight or self._stream.in_flight) - len(self._jobs)
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
                self._jobs[self._stream.submit(row)] = _Job(search, ticket, vector)
                free -= 1

    def _take_one(self, target: int) -> None:
        """Wait for one result, or for an evaluation to exceed its time limit."""
        limit = self._settings.timeout
        result = self._stream.take(None if limit is None else _POLL_SECONDS)
        if limit is not None and time.monotonic() >= self._next_poll:
            self._fail_slow(limit, target)
            self._next_poll = time.monotonic() + _POLL_SECONDS
        if result is None:
            return
        number, block = result
        self._began.pop(number, None)
        if number in self._late:
            self._tell_late(self._late.pop(number), block)
        else:
            self._tell(self._jobs.pop(number), block, target)

    def _fail_slow(self, limit: float, target: int) -> None:
        """Count evaluations beyond the time limit as failed."""
        now = time.monotonic()
        error = f"the evaluation took longer than the time limit of {limit:g} s"
        for number, job in list(self._jobs.items()):
            is_running = self._stream.is_running(number)
            is_slow = is_running and now - self._began.setdefault(number, now) > limit
            if is_slow and job.search.iteration < target:
                self._late[number] = self._jobs.pop(number)
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
        evaluated = assembled([([0], block)], 1, self._spec)
        failure = next(iter(all_failures(evaluated, self._archive)), None)
        if failure is None:
            try:
                with self._learning():
                    objectives, measures, fields, _ = evaluated
                    search.tell([ticket], objectives, measures, **fields)
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
