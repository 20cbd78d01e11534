"""Evaluation by any executor of `concurrent.futures`: threads, processes, MPI, Ray, ..."""

import os
from collections.abc import Callable
from concurrent import futures
from types import TracebackType
from typing import Self

import numpy as np

from gloam import checks
from gloam.evaluators.answers import AnswerForm
from gloam.evaluators.blocks import portable_blocks
from gloam.evaluators.evaluated import Evaluated
from gloam.evaluators.evaluator import EvaluatorError
from gloam.evaluators.row_queue import Pace, RowQueue


def executor_error(executor: futures.Executor, error: Exception) -> EvaluatorError:
    """What to raise when an executor itself, and not the user's function, raised ``error``."""
    return EvaluatorError(
        f"executor: expected {type(executor).__name__} to run the evaluation, got "
        f"{type(error).__name__}: {error}. If a worker crashed, gloam.Processes replaces "
        "workers; if the function cannot be sent, define it in a module."
    )


class Executors:
    """Evaluates by an executor, which stays open: whoever made it shuts it down.

    An executor cannot end an evaluation that hangs, nor replace a worker that crashed; use
    `gloam.Processes` or `gloam.Dask` for that.

    Args:
        executor: For instance `concurrent.futures.ThreadPoolExecutor`, or those of mpi4py and Ray.
        chunk: Number of solutions that are sent at a time. By default about 0.1 seconds of work,
            by the measured time.
        workers: Number of workers, to size chunks; by default what the executor says.
        retry_rows: As in `gloam.Processes`.
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
        if chunk is not None:
            checks.integer("chunk", chunk, minimum=1)
        number = workers or getattr(executor, "_max_workers", None) or os.cpu_count() or 1
        self.num_workers = checks.integer("workers", number, minimum=1)
        self.retry_rows = retry_rows
        self._executor, self._pace = executor, Pace(chunk)

    def check(self, function: Callable) -> None:
        """Check that there is a function; the executor may refuse it when it is sent."""
        checks.expect(
            callable(function), "evaluate", "a function of solutions", type(function).__name__
        )

    def evaluate(
        self, function: Callable, solutions: np.ndarray, form: AnswerForm | None = None
    ) -> Evaluated:
        """Evaluate a batch; see `gloam.evaluators.Evaluator.evaluate`."""
        form = form or AnswerForm()
        queue = RowQueue(len(solutions), self._pace, retries=0)
        under_way: dict[futures.Future, list[int]] = {}
        try:
            while not queue.is_done:
                # A second chunk waits at each worker, so that none waits for this process.
                while len(under_way) < 2 * self.num_workers:
                    rows = queue.take(self.num_workers)
                    if not rows:
                        break
                    arguments = (function, solutions[rows], form, self.retry_rows)
                    under_way[self._executor.submit(portable_blocks, *arguments)] = rows
                done, _ = futures.wait(under_way, return_when=futures.FIRST_COMPLETED)
                for one in done:
                    rows = under_way.pop(one)
                    for block in one.result():
                        queue.put(rows, block)
        except Exception as error:  # the function's own are in the blocks
            raise executor_error(self._executor, error) from error
        finally:
            for one in under_way:
                one.cancel()
        return queue.result(form)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None
