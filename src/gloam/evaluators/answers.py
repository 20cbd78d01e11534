"""What an evaluation may return: how its parts are told apart, and whether they fit.

Calls of the user's function for some solutions: blocks of good rows, and failures by row.

Everything here runs where the function runs: in this process, in a worker, on a cluster.

The evaluation of a whole batch, put together from blocks in any order.
"""

import dataclasses
import math
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from gloam import checks
from gloam.archives import Archive
from gloam.archives.archive import field_rows

Parts = tuple[np.ndarray | None, np.ndarray, dict[str, np.ndarray]]
"""Objectives (or none), measures and fields of some rows."""


def evaluation_parts(answer: Any) -> tuple[Any, Any, dict[str, Any]]:
    """Objectives (or none), measures and fields of what a user's function returned.

    It may return measures alone, ``(measures, fields)``, ``(objectives, measures)`` or
    ``(objectives, measures, fields)``.

    >>> evaluation_parts(([1.0], [[2.0, 3.0]]))
    ([1.0], [[2.0, 3.0]], {})
    """
    if hasattr(answer, "shape"):
        return None, answer, {}
    parts = len(answer) if isinstance(answer, (tuple, list)) else 0
    checks.expect(
        parts in (2, 3),
        "evaluate",
        "measures, (objectives, measures) or (objectives, measures, fields)",
        type(answer).__name__ if not parts else f"{parts} values",
    )
    if parts == 2 and isinstance(answer[1], dict):
        return None, answer[0], answer[1]
    objectives, measures, *fields = answer
    return objectives, measures, fields[0] if fields else {}


@dataclasses.dataclass(frozen=True)
class AnswerForm:
    """The form that answers must have. The default accepts any numbers.

    Args:
        measure_shape: Shape of the measures of one solution, or ``None`` for any shape.
        fields: The fields that the archive declares, or ``None`` for any fields.
        has_objectives: Whether answers have objectives; ``None`` accepts both.
    """

    measure_shape: tuple[int, ...] | None = None
    fields: Mapping[str, Any] | None = None
    has_objectives: bool | None = None

    @classmethod
    def of(cls, archive: Archive) -> "AnswerForm":
        """The form that an archive needs."""
        return cls(tuple(archive.measure_shape), dict(archive.fields))

    def parts(self, answer: Any, number: int) -> Parts:
        """The parts of the answer for a batch of ``number`` solutions, as arrays of their own.

        Raises:
            ValueError, TypeError: The answer has another form.
        """
        objectives, measures, fields = evaluation_parts(answer)
        given = objectives is not None
        checks.expect(
            self.has_objectives in (None, given),
            "evaluate",
            "objectives for every solution or for none",
            "objectives and measures" if given else "measures alone",
        )
        values = None
        if given:
            values = _float32(checks.rows("objectives", objectives, (number,)))
        shape = self.measure_shape
        if shape is None:
            shape = np.shape(measures)[1:]
        points = checks.rows("measures", measures, *checks.measure_shapes(number, shape))
        return values, _float32(points), self._fields(fields, number)

    def parts_of_one(self, answer: Any) -> Parts:
        """The parts of the answer for one solution, as a batch of one."""
        objective, measures, fields = evaluation_parts(answer)
        if objective is not None:
            checks.expect(np.size(objective) == 1, "objective", "one number", np.shape(objective))
            objective = np.reshape(objective, (1,))
        rows = {name: np.asarray(value)[None] for name, value in fields.items()}
        measures = np.asarray(measures)[None]
        if objective is None:
            return self.parts((measures, rows) if rows else measures, 1)
        return self.parts((objective, measures, rows), 1)

    def _fields(self, fields: dict[str, Any], number: int) -> dict[str, np.ndarray]:
        if self.fields is None:
            return {name: np.array(value) for name, value in fields.items()}
        checks.same_names("fields", self.fields, fields)
        return {
            # A function may return the same array at each call and write into it.
            name: np.array(field_rows(name, fields[name], number, spec))
            for name, spec in self.fields.items()
        }


def _float32(array: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):  # what is too large becomes infinite, and its row has failed
        return array.astype(np.float32)


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


class Evaluated(NamedTuple):
    """The evaluation of a batch: ``search.tell(e.objectives, e.measures, **e.fields)``."""

    objectives: np.ndarray | None
    """NaN in failed rows; ``None`` where the function returns measures alone."""
    measures: np.ndarray
    """NaN in failed rows."""
    fields: dict[str, np.ndarray]
    """Zero in failed rows."""
    failures: list[Failure]
    """In the order of the rows."""


def assembled(
    blocks: Sequence[tuple[Sequence[int], Block]], batch: int, form: AnswerForm
) -> Evaluated:
    """Put a batch together.

    Args:
        blocks: Blocks with the rows of the chunk that they are of; ``block.start`` counts in it.
        batch: Number of rows.
        form: The form that answers must have.
    """
    if len(blocks) == 1 and blocks[0][1].parts is not None:
        return Evaluated(*blocks[0][1].parts, [])
    good: list[tuple[list[int], Parts]] = []
    failures: list[Failure] = []
    for chunk, block in blocks:
        rows = list(chunk[block.start : block.start + block.num_rows])
        if block.failure is not None:
            failures.append(dataclasses.replace(block.failure, row=rows[0]))
        elif block.parts is not None:
            good.append((rows, block.parts))
    good.sort(key=lambda one: one[0])
    kept, odd = _alike(good, form)
    failures = sorted(failures + odd, key=lambda failure: failure.row)
    if not kept and form.measure_shape is None:
        first = failures[0]
        raise checks.EvaluationError(
            f"evaluation: expected at least one result among {batch} solutions, got none. The "
            f"first failed by {first.error}."
        ) from first.exception
    return Evaluated(*_filled(kept, batch, form), failures)


def _alike(
    good: list[tuple[list[int], Parts]], form: AnswerForm
) -> tuple[list[tuple[list[int], Parts]], list[Failure]]:
    """The blocks that have one form, and failures for the others."""
    known = form.measure_shape is not None
    given = any(parts[0] is not None for _, parts in good)

    def form_of(parts: Parts) -> tuple:
        shapes = {name: (array.shape[1:], array.dtype.str) for name, array in parts[2].items()}
        return parts[1].shape[1:], tuple(sorted(shapes.items()))

    counts = Counter(form_of(parts) for rows, parts in good for _ in rows)
    usual = counts.most_common(1)[0][0] if counts else None
    kept, odd = [], []
    for rows, parts in good:
        if given and parts[0] is None:
            problem = "evaluate: expected objectives for every solution, got measures alone."
        elif not known and form_of(parts) != usual:
            problem = f"evaluate: expected measures and fields of the form {usual}, as most have."
        else:
            kept.append((rows, parts))
            continue
        odd += [Failure(row, "wrong form", problem) for row in rows]
    return kept, odd


def _filled(kept: list[tuple[list[int], Parts]], batch: int, form: AnswerForm) -> Parts:
    """Arrays of the whole batch. Rows without a result have NaN, and zero in their fields."""
    given = form.has_objectives is not False
    if kept:
        given = kept[0][1][0] is not None
    shape = form.measure_shape
    shape = kept[0][1][1].shape[1:] if shape is None else (math.prod(shape),)
    objectives = np.full(batch, np.nan, np.float32) if given else None
    measures = np.full((batch, *shape), np.nan, np.float32)
    for rows, (values, points, _) in kept:
        if objectives is not None:
            objectives[rows] = values
        measures[rows] = points.reshape(len(rows), *shape)
    fields = {}
    for name, (field_shape, dtype) in _field_forms(kept, form).items():
        fields[name] = np.zeros((batch, *field_shape), dtype)
        for rows, parts in kept:
            fields[name][rows] = parts[2][name]
    return objectives, measures, fields


def _field_forms(kept: list[tuple[list[int], Parts]], form: AnswerForm) -> dict[str, tuple]:
    if form.fields is not None:
        return {name: (spec.shape, np.dtype(spec.dtype)) for name, spec in form.fields.items()}
    return {name: (array.shape[1:], array.dtype) for name, array in kept[0][1][2].items()}
