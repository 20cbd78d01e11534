"""The protocol of evaluators, and the evaluator that calls the function in this process.

Evaluation by any executor of `concurrent.futures`: threads, processes, MPI, Ray, ...

Which evaluator an argument means.
"""

import os
from collections.abc import Callable
from concurrent import futures
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np

from gloam import checks
from gloam.evaluators.answers import (
    AnswerForm,
    Evaluated,
    assembled,
    evaluated_blocks,
    portable_blocks,
)
from gloam.evaluators.row_queue import Pace, RowQueue


class EvaluatorError(RuntimeError):
    """The evaluator itself does not work: workers do not start, or a cluster is lost."""


@runtime_checkable
class Evaluator(Protocol):
    """Evaluates the solutions of a batch, wherever that is.

    An evaluator is a context manager: workers start when it is entered and end when it is left. It
    may be entered several times; the outermost block ends the workers.
    """

    def check(self, function: Callable) -> None:
        """Check that the evaluator can run ``function``, before anything is started.

        Raises:
            ValueError: It cannot; says what to do.
        """
        ...

    def evaluate(
        self, function: Callable, solutions: np.ndarray, form: AnswerForm | None = None
    ) -> Evaluated:
        """Evaluate a batch.

        Args:
            function: As `gloam.optimize` takes it, or `gloam.PerSolution`.
            solutions: ``(batch, sol)`` solutions.
            form: The form that answers must have, such as `gloam.Search.answer_form`. By default
                the form of most rows.

        Returns:
            Results in the order of the solutions, and the rows that failed.

        Raises:
            EvaluationError: Every row failed, and ``form`` does not say what shape measures have.
            EvaluatorError: Workers do not start, or a cluster is lost.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class InProcess:
    """Calls the function in this process, with the whole batch.

    Args:
        retry_rows: When the function raises for a batch, call it again for each row alone, so that
            only the rows that fail alone are lost. A batch with a bad row then costs one
            evaluation more for every row.
    """

    def __init__(self, *, retry_rows: bool = True):
        self.retry_rows = retry_rows

    def check(self, function: Callable) -> None:
        """Any function can be called here."""
        checks.expect(
            callable(function), "evaluate", "a function of solutions", type(function).__name__
        )

    def evaluate(
        self, function: Callable, solutions: np.ndarray, form: AnswerForm | None = None
    ) -> Evaluated:
        """Evaluate a batch; see `Evaluator.evaluate`."""
        form = form or AnswerForm()
        rows = range(len(solutions))
        blocks = evaluated_blocks(function, solutions, form, retry_rows=self.retry_rows)
        return assembled([(rows, block) for block in blocks], len(rows), form)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None


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


def as_evaluator(evaluator: Any) -> Evaluator:
    """The evaluator that ``evaluator`` means: none is this process, an executor is wrapped.

    >>> type(as_evaluator(None)).__name__
    'InProcess'
    """
    if evaluator is None:
        return InProcess()
    if isinstance(evaluator, futures.Executor):
        return Executors(evaluator)
    checks.instance(
        "evaluator",
        evaluator,
        Evaluator,  # pyright: ignore[reportArgumentType]
        "Give gloam.Processes(...), gloam.Dask(...) or an executor of concurrent.futures.",
    )
    return evaluator
