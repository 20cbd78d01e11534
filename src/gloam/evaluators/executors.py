"""Evaluation by executors of `concurrent.futures`, and what `evaluator=` accepts."""

import os
from collections.abc import Iterable
from concurrent import futures
from typing import Any

from gloam._tools import checks
from gloam.errors import WorkerError
from gloam.evaluators.evaluator import Evaluator, InProcess
from gloam.evaluators.results import portable_blocks
from gloam.evaluators.row_queue import Pace
from gloam.evaluators.workers import Futures, Work


class Executors(Futures):
    """Evaluates by an executor of `concurrent.futures`: threads, processes, MPI, ...

    The executor stays open; its owner shuts it down. An executor cannot end an evaluation that
    hangs, nor replace a worker that crashed; use `gloam.evaluators.Processes`,
    `gloam.evaluators.Dask` or `gloam.evaluators.Ray` for that.

    Args:
        executor: For instance `concurrent.futures.ThreadPoolExecutor`, or that of mpi4py. Processes
            must be spawned, as by ``ProcessPoolExecutor(8, multiprocessing.get_context("spawn"))``:
            forked ones copy the locks that JAX's threads hold, and may deadlock.
        chunk: Number of solutions that are sent at a time. By default about 0.1 seconds of work,
            by the measured time.
        workers: Number of workers, which determines the size of chunks; by default that of the
            executor, or the number of processors of this machine if the executor does not tell.
        retry_rows: As in `gloam.evaluators.Processes`.
    """

    retries = 0

    def __init__(
        self,
        executor: futures.Executor,
        *,
        chunk: int | None = None,
        workers: int | None = None,
        retry_rows: bool = True,
    ):
        checks.instance("executor", executor, futures.Executor)
        method = _start_method(executor)
        fix = "Give multiprocessing.get_context('spawn') to the executor: JAX has threads."
        checks.expect(method != "fork", "executor", "processes that are spawned", "fork", fix)
        number = getattr(executor, "_max_workers", None) or os.cpu_count() or 1
        number = number if workers is None else workers
        self._num_workers = checks.integer("workers", number, minimum=1)
        self.retry_rows = retry_rows
        self._executor, self._pace = executor, Pace(chunk)

    @property
    def num_workers(self) -> int:
        """Number of workers of the executor."""
        return self._num_workers

    def _submit(self, work: Work, chunks: list[list[int]]) -> Iterable[futures.Future]:
        settings = (work.spec, work.retry_rows)
        for rows in chunks:
            arguments = (work.function, work.solutions(rows), *settings)
            try:
                yield self._executor.submit(portable_blocks, *arguments)
            except Exception as error:
                raise self._error(error) from error

    def _finished(self, work: Work, seconds: float | None) -> Iterable[futures.Future]:
        done, _ = futures.wait(work.under_way, seconds, futures.FIRST_COMPLETED)
        return [future for future in work.under_way if future in done]

    def _put(self, work: Work, rows: list[int], future: futures.Future) -> bool:
        try:
            blocks = future.result()
        except Exception as error:  # exceptions of the function are in the blocks
            raise self._error(error) from error
        for block in blocks:
            work.queue.put(rows, block)
        return True

    def _is_running(self, chunk: futures.Future) -> bool:
        return chunk.running()

    def _end(self, work: Work) -> None:
        for future in work.under_way:
            future.cancel()

    def _error(self, error: Exception) -> WorkerError:
        return WorkerError(
            f"executor: expected {type(self._executor).__name__} to run the evaluation, got "
            f"{type(error).__name__}: {error}. If a worker crashed, "
            "gloam.evaluators.Processes replaces workers; if the function cannot be sent, "
            "define it in a module."
        )


def _start_method(executor: futures.Executor) -> str | None:
    """Return how an executor starts processes, if it is one of processes."""
    context = getattr(executor, "_mp_context", None)
    return None if context is None else context.get_start_method()


def as_evaluator(evaluator: Any) -> Evaluator:
    """Return an evaluator: this process for ``None``, and executors wrapped.

    >>> type(as_evaluator(None)).__name__
    'InProcess'
    """
    if evaluator is None:
        return InProcess()
    if isinstance(evaluator, futures.Executor):
        return Executors(evaluator)
    fix = "Give Processes(...), Dask(...), Ray(...) or Submitit(...) of gloam.evaluators, or an "
    checks.instance("evaluator", evaluator, Evaluator, f"{fix}executor.")
    return evaluator
