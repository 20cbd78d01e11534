"""What evaluators with workers share: rows are handed out in chunks, and results are collected."""

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from gloam._tools.warn import warn
from gloam.errors import WorkerError
from gloam.evaluators.chunk import ChunkAnswer
from gloam.evaluators.evaluator import Evaluator, Stream
from gloam.evaluators.results import Block, Evaluated, PerSolution, ResultSpec
from gloam.evaluators.row_queue import Pace, RowQueue

_WARNING_SECONDS = 60.0


class Workers(Evaluator):
    """Hands out rows to workers. Subclasses set these attributes and implement `_advance`."""

    retries: int
    retry_rows: bool
    timeout: float | None = None
    _pace: Pace
    _chunks_per_worker = 2
    """A second chunk waits for each worker, so that workers are never idle."""

    @property
    @abstractmethod
    def num_workers(self) -> int:
        """Number of workers."""

    def evaluate(
        self, function: Callable, solutions: np.ndarray, spec: ResultSpec | None = None
    ) -> Evaluated:
        """Evaluate a batch; see `gloam.evaluators.Evaluator.evaluate`."""
        spec = spec or ResultSpec()
        with self:
            work = Work(self, function, spec, self._pace_of(len(solutions)))
            for row in range(len(solutions)):
                work.submit(solutions[row : row + 1])
            try:
                while not work.queue.is_done:
                    self._advance(work, None)
            finally:
                work.close()
        return work.queue.result(spec)

    def stream(self, function: Callable, spec: ResultSpec) -> "Work":
        """Return a stream of solutions; see `gloam.evaluators.Evaluator.stream`."""
        return Work(self, function, spec, Pace(1), is_stream=True)

    def _pace_of(self, number: int) -> Pace:
        """Return the sizes of chunks for a batch of ``number`` rows."""
        return self._pace

    @abstractmethod
    def _advance(self, work: "Work", seconds: float | None) -> None:
        """Hand out rows that wait, and wait for results, for at most some seconds."""

    def _is_running(self, chunk: Any) -> bool:
        """Whether a chunk that was handed out has begun, as far as is known."""
        return False

    def _end(self, work: "Work") -> None:
        """Cancel the chunks that are under way, if there are any."""


class Work(Stream):
    """Rows that an evaluator evaluates: a batch, or a stream of solutions.

    Args:
        evaluator: The evaluator.
        function: A function as for `gloam.optimize`, or `gloam.evaluators.PerSolution`.
        spec: Specification of the results.
        pace: Sizes of chunks, which are 1 in a stream.
        is_stream: Whether solutions are added one by one.
    """

    def __init__(
        self,
        evaluator: Workers,
        function: Callable,
        spec: ResultSpec,
        pace: Pace,
        *,
        is_stream: bool = False,
    ):
        self._evaluator, self.function, self.spec = evaluator, function, spec
        self.is_stream = is_stream
        self.each_alone = isinstance(function, PerSolution)
        # The rows of a stream have been tried alone when they fail.
        self.retry_rows = evaluator.retry_rows and not is_stream
        self.queue = RowQueue(0, pace, retries=evaluator.retries)
        self.under_way: dict[Any, list[int]] = {}
        """Rows by what the engine calls a chunk: a future, a job, ..."""
        self._rows: dict[int, np.ndarray] = {}

    @property
    def in_flight(self) -> int:
        """Number of submitted solutions at which no worker is idle."""
        return self._evaluator._chunks_per_worker * self._evaluator.num_workers

    def submit(self, row: np.ndarray) -> int:
        """Add a solution; see `Stream.submit`."""
        number = self.queue.add()
        self._rows[number] = row
        return number

    def take(self, seconds: float | None = None) -> tuple[int, Block] | None:
        """Return a result; see `Stream.take`."""
        until = None if seconds is None else time.monotonic() + seconds
        while (result := self.queue.pop()) is None:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return None
            self._evaluator._advance(self, left)
        del self._rows[result[0]]
        return result

    def is_running(self, number: int) -> bool:
        """Whether the evaluation of a solution has begun, as far as is known."""
        chunks = (chunk for chunk, rows in self.under_way.items() if number in rows)
        return any(self._evaluator._is_running(chunk) for chunk in chunks)

    def close(self) -> None:
        """Cancel what has no result yet."""
        self._evaluator._end(self)
        self.under_way.clear()

    def solutions(self, rows: Iterable[int]) -> np.ndarray:
        """Return the solutions of some rows."""
        return np.concatenate([self._rows[row] for row in rows])


class Futures(Workers):
    """Sends chunks to an engine that returns a future, job or reference for each of them."""

    def _advance(self, work: Work, seconds: float | None) -> None:
        workers, free, chunks = self.num_workers, self._free(work), []
        while len(chunks) < free and (rows := work.queue.take(workers)):
            chunks.append(rows)
        if chunks:
            work.under_way.update(zip(self._submit(work, chunks), chunks, strict=True))
        for future in self._finished(work, seconds):
            if self._put(work, work.under_way[future], future):
                del work.under_way[future]

    def _free(self, work: Work) -> float:
        """Return the number of chunks that can be sent now."""
        most = np.inf if work.is_stream else self._chunks_per_worker * self.num_workers
        return most - len(work.under_way)

    @abstractmethod
    def _submit(self, work: Work, chunks: list[list[int]]) -> Iterable[Any]:
        """Send chunks and return their futures."""

    @abstractmethod
    def _finished(self, work: Work, seconds: float | None) -> Iterable[Any]:
        """Wait for futures to finish, for at most some seconds."""

    @abstractmethod
    def _put(self, work: Work, rows: list[int], future: Any) -> bool:
        """Store the answer of a chunk; false if it was lost and is being computed again."""

    def _store(self, work: Work, rows: list[int], answer: ChunkAnswer) -> None:
        """Store the results of a chunk, and the failure of an evaluation that took too long."""
        for block in answer.blocks:
            work.queue.put(rows, block)
        if answer.is_late:
            missing = rows[sum(block.num_rows for block in answer.blocks) :]
            error = f"the evaluation took longer than the time limit of {self.timeout:g} s"
            work.queue.lose(missing, "timeout", error, in_order=work.each_alone)


class Patience:
    """Waits for the workers of a cluster: a warning after a minute, an error after `seconds`.

    Args:
        engine: Name of the evaluator.
        seconds: Longest time without workers.
    """

    def __init__(self, engine: str, seconds: float):
        self._engine, self.seconds = engine, seconds
        self.renew()

    def renew(self) -> None:
        """Note that there are workers."""
        self._seen, self._warned = time.monotonic(), False

    def wait(self) -> None:
        """Note that there are none.

        Raises:
            WorkerError: There have been none for too long.
        """
        without = time.monotonic() - self._seen
        if without > self.seconds:
            raise WorkerError(
                f"{self._engine}: expected workers, got none for {without:.0f} s. If they ended "
                "during evaluations, their logs say why. Start a cluster again and resume the run: "
                "gloam.optimize(..., resume=True, evaluator=...). To wait longer for jobs in a "
                f"queue: gloam.evaluators.{self._engine}(..., patience=86_400)."
            )
        if without > _WARNING_SECONDS and not self._warned:
            self._warned = True
            warn(
                f"{self._engine}: expected workers, got none for {_WARNING_SECONDS:.0f} s. The run "
                f"waits for them for {self.seconds:.0f} s; check the cluster, or the queue of its "
                "jobs."
            )
