"""The protocol of evaluators, and the evaluator that calls the function in this process."""

from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

import numpy as np

from gloam import checks
from gloam.evaluators.answers import AnswerForm
from gloam.evaluators.blocks import evaluated_blocks
from gloam.evaluators.evaluated import Evaluated, assembled


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
