"""The interface of evaluators, and the one for this process."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

import numpy as np

from gloam._tools import checks
from gloam.evaluators.results import (
    Block,
    Evaluated,
    ResultSpec,
    assembled,
    evaluated_blocks,
)


class Stream(ABC):
    """Solutions that an evaluator evaluates one at a time, for asynchronous runs.

    It is used while its evaluator is entered.
    """

    @property
    @abstractmethod
    def in_flight(self) -> int:
        """Number of submitted solutions at which no worker is idle."""

    @abstractmethod
    def submit(self, row: np.ndarray) -> int:
        """Add a solution, as a batch ``(1, sol)``, and return its number."""

    @abstractmethod
    def take(self, seconds: float | None = None) -> tuple[int, Block] | None:
        """Wait for a result, and return it with the number of its solution.

        Args:
            seconds: Longest time to wait, after which ``None`` is returned. By default as long as
                it takes.

        Raises:
            WorkerError: Workers do not start, or a cluster is lost.
        """

    def is_running(self, number: int) -> bool:
        """Whether the evaluation of a solution has begun, as far as is known."""
        return False

    def close(self) -> None:  # noqa: B027
        """Cancel what has no result yet."""


class Evaluator(ABC):
    """Evaluates the solutions of a batch, in this process or elsewhere.

    An evaluator is a context manager: workers start when it is entered and end when it is left. It
    can be entered several times; the outermost block ends the workers. Subclasses implement
    `evaluate`, and override `start`, `stop` and `stream` if they have workers.
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

    def stream(self, function: Callable, spec: ResultSpec) -> Stream:
        """Return a stream that evaluates solutions one at a time, for an asynchronous run.

        By default `evaluate` is called for each of them in turn.

        Args:
            function: As for `evaluate`.
            spec: Specification of the results, with the shape of measures.
        """
        return _InTurn(self, function, spec)

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


class _InTurn(Stream):
    """Evaluates a solution when its result is asked for."""

    def __init__(self, evaluator: Evaluator, function: Callable, spec: ResultSpec):
        self._evaluator, self._function, self._spec = evaluator, function, spec
        self._waiting: deque[tuple[int, np.ndarray]] = deque()
        self._number = 0

    @property
    def in_flight(self) -> int:
        """One, because no other is evaluated meanwhile."""
        return 1

    def submit(self, row: np.ndarray) -> int:
        """Add a solution; see `Stream.submit`."""
        self._number += 1
        self._waiting.append((self._number, row))
        return self._number

    def take(self, seconds: float | None = None) -> tuple[int, Block] | None:
        """Evaluate the next solution, however long it takes."""
        if not self._waiting:
            return None
        number, row = self._waiting.popleft()
        done = self._evaluator.evaluate(self._function, row, self._spec)
        if done.failures:
            return number, Block(0, None, done.failures[0], 0.0)
        return number, Block(0, (done.objectives, done.measures, done.fields), None, 0.0)


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
