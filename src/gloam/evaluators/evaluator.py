"""The interface of evaluators, and those for this process and for executors."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent import futures
from types import TracebackType
from typing import Any, Self

import numpy as np

from gloam._tools import checks
from gloam.errors import WorkerError
from gloam.evaluators.results import (
    Evaluated,
    ResultSpec,
    assembled,
    evaluated_blocks,
    portable_blocks,
)
from gloam.evaluators.row_queue import Pace, RowQueue


class Evaluator(ABC):
    """Evaluates the solutions of a batch, in this process or elsewhere.

    An evaluator is a context manager: workers start when it is entered and end when it is left. It
    can be entered several times; the outermost block ends the workers. Subclasses implement
    `evaluate`, and override `start` and `stop` if they have workers.
    """

    _depth = 0

    @staticmethod
    def stop_requested() -> bool:
        """Whether a signal has asked the run to stop. Runs replace it while they last.

        A run stops after the current iteration. An evaluator that can do nothing but wait, such as
        one whose workers are lost, looks at it and raises `WorkerError`.
        """
        return False

    @abstractmethod
    def evaluate(
        self, function: Callable, solutions: np.ndarray, spec: ResultSpec | None = None
    ) -> Evaluated:
        """Evaluate a batch.

        Args:
            function: A function as for `gloam.optimize`, or `gloam.evaluators.PerSolution`.
            solutions: ``(batch, sol)`` solutions.
            spec: Specification of the results, such as `gloam.Search.result_spec`. By default the
                form of most rows.

        Returns:
            Results in the order of the solutions, and the rows that failed.

        Raises:
            EvaluationError: Every row failed, and ``spec`` does not give the shape of measures.
            WorkerError: Workers do not start, or a cluster is lost.
        """

    def check(self, function: Callable) -> None:
        """Check that the evaluator can run ``function``, before anything is started.

        Raises:
            ValueError: It cannot.
        """
        is_function = callable(function)
        checks.expect(is_function, "evaluate", "a function of solutions", type(function).__name__)

    def start(self) -> None:  # noqa: B027
        """Start the workers, if there are any."""

    def stop(self, *, failed: bool) -> None:  # noqa: B027
        """End the workers; ``failed`` is true if an exception was raised in the meantime."""

    def __enter__(self) -> Self:
        self._depth += 1
        if self._depth == 1:
            try:
                self.start()
            except BaseException:
                self._depth = 0
                self.stop(failed=True)
                raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.stop(failed=error is not None)


class InProcess(Evaluator):
    """Calls the function in this process, with the whole batch.

    Args:
        retry_rows: If the function raises for a batch, call it again for each row, so that only the
            rows that fail alone are lost. A batch with a bad row then costs one more evaluation for
            every row.
    """

    def __init__(self, *, retry_rows: bool = True):
        self.retry_rows = retry_rows

    def evaluate(
        self, function: Callable, solutions: np.ndarray, spec: ResultSpec | None = None
    ) -> Evaluated:
        """Evaluate a batch; see `Evaluator.evaluate`."""
        spec = spec or ResultSpec()
        rows = range(len(solutions))
        blocks = evaluated_blocks(function, solutions, spec, retry_rows=self.retry_rows)
        return assembled([(rows, block) for block in blocks], len(rows), spec)


class Executors(Evaluator):
    """Evaluates by an executor of `concurrent.futures`: threads, processes, MPI, ...

    The executor stays open; its owner shuts it down. An executor cannot end an evaluation that
    hangs, nor replace a worker that crashed; use `gloam.evaluators.Processes` or
    `gloam.evaluators.Dask` for that.

    Args:
        executor: For instance `concurrent.futures.ThreadPoolExecutor`, or those of mpi4py and Dask
            (``client.get_executor()``). Ray and submitit have none and are not supported yet.
        chunk: Number of solutions that are sent at a time. By default about 0.1 seconds of work,
            by the measured time.
        workers: Number of workers, which determines the size of chunks; by default that of the
            executor, or the number of processors of this machine if the executor does not tell.
        retry_rows: As in `gloam.evaluators.Processes`.
    """

    def __init__(
        self,
        executor: futures.Executor,
        *,
        chunk: int | None = None,
        workers: int | None = None,
        retry_rows: bool = True,
    ):
        checks.instance("executor", executor, futures.Executor)
        number = num_workers(executor) if workers is None else workers
        self.num_workers = checks.integer("workers", number, minimum=1)
        self.retry_rows = retry_rows
        self._executor, self._pace = executor, Pace(chunk)

    def evaluate(
        self, function: Callable, solutions: np.ndarray, spec: ResultSpec | None = None
    ) -> Evaluated:
        """Evaluate a batch; see `Evaluator.evaluate`."""
        spec = spec or ResultSpec()
        queue = RowQueue(len(solutions), self._pace, retries=0)
        under_way: dict[futures.Future, list[int]] = {}
        try:
            while not queue.is_done:
                # A second chunk waits for each worker, so that workers are never idle.
                while len(under_way) < 2 * self.num_workers:
                    rows = queue.take(self.num_workers)
                    if not rows:
                        break
                    arguments = (function, solutions[rows], spec, self.retry_rows)
                    under_way[self._executor.submit(portable_blocks, *arguments)] = rows
                done, _ = futures.wait(under_way, return_when=futures.FIRST_COMPLETED)
                for future in done:
                    rows = under_way.pop(future)
                    for block in future.result():
                        queue.put(rows, block)
        except Exception as error:  # exceptions of the function are in the blocks
            raise executor_error(self._executor, error) from error
        finally:
            for future in under_way:
                future.cancel()
        return queue.result(spec)


def num_workers(executor: futures.Executor) -> int:
    """Return the number of workers of an executor; the number of processors if it is unknown."""
    return getattr(executor, "_max_workers", None) or os.cpu_count() or 1


def executor_error(executor: futures.Executor, error: Exception) -> WorkerError:
    """Return the error for a failure of the executor itself."""
    return WorkerError(
        f"executor: expected {type(executor).__name__} to run the evaluation, got "
        f"{type(error).__name__}: {error}. If a worker crashed, "
        "gloam.evaluators.Processes replaces workers; if the function cannot be sent, "
        "define it in a module."
    )


def as_evaluator(evaluator: Any) -> Evaluator:
    """Return an evaluator: this process for ``None``, and executors wrapped.

    >>> type(as_evaluator(None)).__name__
    'InProcess'
    """
    if evaluator is None:
        return InProcess()
    if isinstance(evaluator, futures.Executor):
        return Executors(evaluator)
    fix = "Give Processes(...) or Dask(...) of gloam.evaluators, or an executor."
    checks.instance("evaluator", evaluator, Evaluator, fix)
    return evaluator
