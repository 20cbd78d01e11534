"""Calls of the user's function for some solutions: blocks of good rows, and failures by row.

Everything here runs where the function runs: in this process, in a worker, on a cluster.
"""

import dataclasses
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np

from gloam.evaluators.answers import AnswerForm, Parts

FailureKind = Literal["exception", "timeout", "lost worker", "wrong form", "not finite"]
_LONGEST_TEXT = 8_000


class PerSolution:
    """Declares that a function evaluates one solution ``(sol,)`` instead of a batch.

    It returns an objective and the measures of this solution, and optionally a dict of fields.

    Example:
        >>> import gloam
        >>> def simulate(solution):
        ...     return 1 - np.square(solution).sum(), solution[:2]
        >>> result = gloam.InProcess().evaluate(gloam.PerSolution(simulate), np.eye(3))
        >>> result.objectives.tolist(), result.measures.shape
        ([0.0, 0.0, 0.0], (3, 2))
    """

    def __init__(self, function: Callable[[np.ndarray], Any]):
        self.function = function

    def __call__(self, solution: np.ndarray) -> Any:
        """Evaluate one solution."""
        return self.function(solution)


def declared(function: Callable, per_solution: bool) -> Callable:
    """The function, as `PerSolution` where ``per_solution`` is true."""
    is_declared = isinstance(function, PerSolution)
    return PerSolution(function) if per_solution and not is_declared else function


@dataclasses.dataclass(frozen=True)
class Failure:
    """Why one solution of a batch has no result."""

    row: int
    kind: FailureKind
    error: str
    traceback: str = ""
    exception: BaseException | None = dataclasses.field(default=None, compare=False, repr=False)
    """The exception itself, where the function ran in this process."""

    @classmethod
    def of(cls, row: int, kind: FailureKind, error: BaseException) -> "Failure":
        """The failure that an exception describes."""
        below = error.__traceback__ and error.__traceback__.tb_next  # without the frame of gloam
        lines = traceback.format_exception(type(error), error, below)
        text = f"{type(error).__name__}: {error}"
        # The end of a traceback names the place; deep recursions are cut at the beginning.
        return cls(row, kind, text[:_LONGEST_TEXT], "".join(lines)[-_LONGEST_TEXT:], error)


class Block(NamedTuple):
    """Consecutive rows: their parts, or the failure of one row."""

    start: int
    parts: Parts | None
    failure: Failure | None
    seconds: float

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return 1 if self.parts is None else len(self.parts[1])

    def portable(self) -> "Block":
        """The block without what cannot be sent to another process."""
        if self.failure is None:
            return self
        return self._replace(failure=dataclasses.replace(self.failure, exception=None))


def evaluated_blocks(
    function: Callable, solutions: np.ndarray, form: AnswerForm, *, retry_rows: bool = True
) -> Iterator[Block]:
    """Evaluate solutions; yields blocks that cover all rows in order.

    Args:
        function: Takes a batch of solutions, or one where it is `PerSolution`.
        solutions: ``(batch, sol)`` solutions.
        form: The form that answers must have.
        retry_rows: When a batch function raises or answers in another form, call it again for each
            row alone, so that only the rows that fail alone are lost.
    """
    if isinstance(function, PerSolution):
        for row, solution in enumerate(solutions):
            began = time.perf_counter()
            done = _parts(function.function, solution, form.parts_of_one, row)
            yield _block(row, done, began)
        return
    number = len(solutions)
    began = time.perf_counter()
    done = _parts(function, solutions, lambda answer: form.parts(answer, number), 0)
    if not isinstance(done, Failure) or number == 1:
        yield _block(0, done, began)
        return
    if not retry_rows:
        for row in range(number):
            yield _block(row, dataclasses.replace(done, row=row), began)
        return
    for row in range(number):
        yield from (
            block._replace(start=row, failure=_at(block.failure, row))
            for block in evaluated_blocks(function, solutions[row : row + 1], form)
        )


def portable_blocks(
    function: Callable, solutions: np.ndarray, form: AnswerForm, retry_rows: bool
) -> list[Block]:
    """The blocks of `evaluated_blocks` as a list that can be sent to another process."""
    found = evaluated_blocks(function, solutions, form, retry_rows=retry_rows)
    return [block.portable() for block in found]


def _parts(
    function: Callable, argument: np.ndarray, checked: Callable[[Any], Parts], row: int
) -> Parts | Failure:
    try:
        answer = function(argument)
    except Exception as error:
        return Failure.of(row, "exception", error)
    try:
        return checked(answer)
    except (ValueError, TypeError, OverflowError) as error:
        return Failure.of(row, "wrong form", error)


def _block(start: int, done: Parts | Failure, began: float) -> Block:
    seconds = time.perf_counter() - began
    if isinstance(done, Failure):
        return Block(start, None, done, seconds)
    return Block(start, done, None, seconds)


def _at(failure: Failure | None, row: int) -> Failure | None:
    return None if failure is None else dataclasses.replace(failure, row=row)
