"""Results of evaluations: calls of the user's function, checked results, and failures by row.

A batch is evaluated in blocks of consecutive rows, in this process, in a worker or on a cluster.
Results are checked here, once, and are float32 with flat rows of measures from then on.
"""

import dataclasses
import math
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from gloam._tools import checks
from gloam.archives import Archive
from gloam.archives.archive import field_rows
from gloam.errors import EvaluationError
from gloam.evaluation import (
    VIOLATION,
    OfVectors,
    asks_for,
    evaluation_parts,
    measure_shapes,
    of_vectors,
)
from gloam.spaces import Form

Results = tuple[np.ndarray | None, np.ndarray, dict[str, np.ndarray]]
"""Objectives (or ``None``), measures and fields of some rows."""
FailureKind = Literal["exception", "timeout", "lost worker", "wrong form", "not finite"]


@dataclasses.dataclass(frozen=True)
class ResultSpec:
    """Shapes and fields that results must have. By default all numbers are accepted.

    Args:
        measure_shape: Shape of the measures of one solution, or ``None`` for any shape.
        fields: Fields that the archive declares, or ``None`` for any fields.
        has_objectives: Whether there are objectives; ``None`` accepts both.
    """

    measure_shape: tuple[int, ...] | None = None
    fields: Mapping[str, Any] | None = None
    has_objectives: bool | None = None

    @classmethod
    def of(cls, archive: Archive) -> "ResultSpec":
        """Return the specification of an archive."""
        return cls(tuple(archive.measure_shape), dict(archive.fields))

    def checked(
        self, objectives: Any, measures: Any, fields: Mapping[str, Any], number: int
    ) -> Results:
        """Return the results of ``number`` solutions as new arrays: float32, flat measures.

        Numbers beyond float32 become infinite, and their rows count as failed.

        Raises:
            ValueError, TypeError: They do not have the specified form.
        """
        has_objectives = objectives is not None
        checks.expect(
            self.has_objectives in (None, has_objectives),
            "objectives",
            "objectives for every solution or for none",
            "objectives and measures" if has_objectives else "measures alone",
        )
        values = None
        if has_objectives:
            values = _float32(checks.rows("objectives", objectives, (number,)))
        shape = np.shape(measures)[1:] if self.measure_shape is None else self.measure_shape
        rows = checks.rows("measures", measures, *measure_shapes(number, shape))
        points = _float32(rows)
        if self.measure_shape is not None:
            points = points.reshape(number, -1)
        return values, points, self._checked_fields(fields, number)

    def of_batch(self, answer: Any, number: int) -> Results:
        """Return the results that a function of a batch returned."""
        return self.checked(*evaluation_parts(answer), number)

    def of_one(self, answer: Any) -> Results:
        """Return the results that a function of one solution returned, as a batch of one."""
        objective, measures, fields = evaluation_parts(answer)
        if objective is not None:
            objective = checks.as_numpy(objective)
            got = f"shape {objective.shape}"
            checks.expect(objective.size == 1, "objective", "one number", got)
            objective = objective.reshape(1)
        rows = {name: checks.as_numpy(value)[None] for name, value in fields.items()}
        points = checks.as_numpy(measures)
        if self.measure_shape is not None:
            shapes = [shape[1:] for shape in measure_shapes(1, self.measure_shape)]
            expected = f"shape {checks.one_of(shapes)} (of one solution)"
            checks.expect(points.shape in shapes, "measures", expected, f"shape {points.shape}")
        return self.checked(objective, points[None], rows, 1)

    def _checked_fields(self, fields: Mapping[str, Any], number: int) -> dict[str, np.ndarray]:
        # Copies, because a function may return the same array at each call and write into it.
        if self.fields is None:
            return {name: np.array(checks.as_numpy(value)) for name, value in fields.items()}
        violations = {}
        if VIOLATION in fields:
            fields, given = dict(fields), checks.as_numpy(fields[VIOLATION])
            given = given.astype(np.float32) if given.dtype == bool else given
            violations[VIOLATION] = _float32(checks.rows(VIOLATION, given, (number,)))
            del fields[VIOLATION]
        checks.same_names("fields", self.fields, fields)
        rows = {
            name: np.array(field_rows(name, fields[name], number, spec))
            for name, spec in self.fields.items()
        }
        return rows | violations


def _float32(array: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return array.astype(np.float32)


@dataclasses.dataclass(frozen=True)
class Failure:
    """Failure of one solution of a batch; texts are those of `checks.plain_text`."""

    row: int
    kind: FailureKind
    error: str
    traceback: str = ""
    exception: BaseException | None = dataclasses.field(default=None, compare=False, repr=False)
    """The exception itself, if the function ran in this process."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "error", checks.plain_text(self.error))
        # The end of a traceback names the place, so deep recursions are cut at the beginning.
        object.__setattr__(self, "traceback", checks.plain_text(self.traceback, keep_end=True))

    @classmethod
    def of(cls, row: int, kind: FailureKind, error: BaseException) -> "Failure":
        """Return the failure that an exception describes."""
        below = error.__traceback__ and error.__traceback__.tb_next  # without the frame of gloam
        text = f"{type(error).__name__}: {checks.plain_text(error)}"
        try:
            trace = "".join(traceback.format_exception(type(error), error, below))
        except Exception:  # the text of a user's exception may be of any class
            trace = "".join(traceback.format_tb(below)) + text
        return cls(row, kind, text, trace, error)


class Evaluated(NamedTuple):
    """The evaluation of a batch: ``search.tell(e.objectives, e.measures, **e.fields)``."""

    objectives: np.ndarray | None
    """NaN in failed rows; ``None`` if the function returns measures alone."""
    measures: np.ndarray
    """NaN in failed rows."""
    fields: dict[str, np.ndarray]
    """Zero in failed rows."""
    failures: list[Failure]
    """Failures in the order of the rows."""


class PerSolution:
    """Declares that a function evaluates one solution ``(sol,)`` instead of a batch.

    It returns an objective and the measures of this solution, and optionally a dict of fields.

    Example:
        >>> import gloam
        >>> def simulate(solution):
        ...     return 1 - np.square(solution).sum(), solution[:2]
        >>> from gloam.evaluators import InProcess, PerSolution
        >>> result = InProcess().evaluate(PerSolution(simulate), np.eye(3))
        >>> result.objectives.tolist(), result.measures.shape
        ([0.0, 0.0, 0.0], (3, 2))
    """

    def __init__(self, function: Callable[[np.ndarray], Any]):
        expected, got = "a function of one solution", type(function).__name__
        checks.expect(callable(function), "function", expected, got)
        self.function = function

    def __call__(self, solution: np.ndarray) -> Any:
        """Evaluate one solution."""
        return self.function(solution)


class Seeded:
    """A function that asks for seeds, as a function of rows that carry them (`rows_with_seeds`).

    Evaluators divide a batch into rows, so that each row takes its seed to wherever it is
    evaluated, however often.

    Args:
        function: A function of a batch, or of one solution.
    """

    def __init__(self, function: Callable[..., Any]):
        self.function = function

    def __call__(self, rows: np.ndarray | np.void) -> Any:
        """Evaluate rows of a batch, or one row."""
        # A copy, because rows with seeds are not contiguous.
        solutions, seeds = np.array(rows["solution"]), rows["seed"]
        if isinstance(rows, np.void):
            return self.function(solutions, seed=int(seeds))
        return self.function(solutions, seeds=seeds.astype(np.int64))


def as_seeded(
    function: Callable, form: Form | None = None, *, per_solution: bool = False
) -> tuple[Callable, bool]:
    """Return a function of values as one of vectors, and whether it asks for seeds.

    If it does, it is one of `rows_with_seeds`. ``per_solution`` has the meaning of `PerSolution`.

    Raises:
        ValueError: It asks in another way.
    """
    is_single = per_solution or isinstance(function, PerSolution)
    inner = function.function if isinstance(function, PerSolution) else function
    asks = asks_for(inner, "seed" if is_single else "seeds")
    whole = of_vectors(inner, form, is_single=is_single)
    whole = Seeded(whole) if asks else whole
    return (PerSolution(whole) if is_single else whole), asks


def rows_with_seeds(solutions: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """Return ``(batch,)`` rows of a solution and its seed, for `Seeded` functions."""
    kind = np.dtype([("solution", solutions.dtype, solutions.shape[1:]), ("seed", np.int32)])
    rows = np.empty(len(solutions), kind)
    rows["solution"], rows["seed"] = solutions, seeds
    return rows


def function_of_user(function: Any) -> Any:
    """Return the function that the user wrote, without gloam's wrappers."""
    while isinstance(function, (PerSolution, Seeded, OfVectors)):
        function = function.function
    return function


class Block(NamedTuple):
    """Results of consecutive rows of a chunk, or the failure of one row."""

    start: int
    results: Results | None
    failure: Failure | None
    seconds: float

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return 1 if self.results is None else len(self.results[1])

    def portable(self) -> "Block":
        """Return the block without the exception, which may not be picklable."""
        if self.failure is None:
            return self
        return self._replace(failure=dataclasses.replace(self.failure, exception=None))


def evaluated_blocks(
    function: Callable, solutions: np.ndarray, spec: ResultSpec, *, retry_rows: bool = True
) -> Iterator[Block]:
    """Evaluate solutions and yield blocks that cover all rows in order.

    Args:
        function: A function of a batch of solutions, or `PerSolution`.
        solutions: ``(batch, sol)`` solutions.
        spec: Specification of the results.
        retry_rows: If a function of a batch raises or returns results of another form, call it
            again for each row, so that only the rows that fail alone are lost.
    """
    if isinstance(function, PerSolution):
        for row, solution in enumerate(solutions):
            yield _block(function.function, solution, spec.of_one, row)
        return
    number = len(solutions)
    block = _block(function, solutions, lambda answer: spec.of_batch(answer, number), 0)
    if block.failure is None or number == 1:
        yield block
        return
    blocks = _blocks_of_rows(function, solutions, spec) if retry_rows else [block] * number
    if block.failure.kind == "wrong form":
        blocks = list(blocks)
        if all(alone.failure and alone.failure.kind == "wrong form" for alone in blocks):
            blocks = [block] * number  # the shape of the batch says more than that of a row
    for row, alone in enumerate(blocks):
        failure = alone.failure and dataclasses.replace(alone.failure, row=row)
        yield alone._replace(start=row, failure=failure)


def _blocks_of_rows(function: Callable, solutions: np.ndarray, spec: ResultSpec) -> Iterator[Block]:
    for row in range(len(solutions)):
        yield from evaluated_blocks(function, solutions[row : row + 1], spec)


def portable_blocks(
    function: Callable, solutions: np.ndarray, spec: ResultSpec, retry_rows: bool
) -> list[Block]:
    """Return the blocks of `evaluated_blocks` as a list that can be sent to another process."""
    blocks = evaluated_blocks(function, solutions, spec, retry_rows=retry_rows)
    return [block.portable() for block in blocks]


def _block(
    function: Callable, argument: np.ndarray, checked: Callable[[Any], Results], row: int
) -> Block:
    began = time.perf_counter()
    results = failure = None
    try:
        answer = function(argument)
    except Exception as error:
        failure = Failure.of(row, "exception", error)
    else:
        try:
            results = checked(answer)
        except Exception as error:  # also by the conversion of the user's own objects
            failure = Failure.of(row, "wrong form", error)
    return Block(row, results, failure, time.perf_counter() - began)


def assembled(
    blocks: Sequence[tuple[Sequence[int], Block]], batch: int, spec: ResultSpec
) -> Evaluated:
    """Combine the blocks of a batch.

    Args:
        blocks: Blocks with the rows of their chunk, in which ``block.start`` counts.
        batch: Number of rows.
        spec: Specification of the results.
    """
    checks.expect(batch > 0, "solutions", "at least one solution", "none")
    if len(blocks) == 1 and blocks[0][1].results is not None:
        return Evaluated(*blocks[0][1].results, [])
    good: list[tuple[list[int], Results]] = []
    failures: list[Failure] = []
    for chunk, block in blocks:
        rows = list(chunk[block.start : block.start + block.num_rows])
        if block.failure is not None:
            failures.append(dataclasses.replace(block.failure, row=rows[0]))
        elif block.results is not None:
            good.append((rows, block.results))
    good.sort(key=lambda rows_and_results: rows_and_results[0])
    kept, odd = _of_one_form(good, spec)
    failures = sorted(failures + odd, key=lambda failure: failure.row)
    if not kept and spec.measure_shape is None:
        first = failures[0]
        raise EvaluationError(
            f"evaluation: expected at least one result among {batch} solutions, got none. The "
            f"first failed by {first.error}."
        ) from first.exception
    return Evaluated(*_filled(kept, batch, spec), failures)


def _of_one_form(
    good: list[tuple[list[int], Results]], spec: ResultSpec
) -> tuple[list[tuple[list[int], Results]], list[Failure]]:
    """Return the blocks that agree in their form, and failures for the others."""
    given = any(results[0] is not None for _, results in good)

    def form_of(results: Results) -> tuple:
        shapes = {name: (array.shape[1:], array.dtype.str) for name, array in results[2].items()}
        return results[1].shape[1:], tuple(sorted(shapes.items()))

    counts = Counter(form_of(results) for rows, results in good for _ in rows)
    usual = counts.most_common(1)[0][0] if counts else None
    kept, odd = [], []
    for rows, results in good:
        if given and results[0] is None:
            problem = "evaluate: expected objectives for every solution, got measures alone."
        elif form_of(results) != usual:
            problem = f"evaluate: expected measures and fields of the form {usual}, as most have."
        else:
            kept.append((rows, results))
            continue
        odd += [Failure(row, "wrong form", problem) for row in rows]
    return kept, odd


def _filled(kept: list[tuple[list[int], Results]], batch: int, spec: ResultSpec) -> Results:
    """Return arrays of the whole batch, with NaN in rows without a result, and zero in fields."""
    if kept:
        values, points, extras = kept[0][1]
        given, shape = values is not None, points.shape[1:]
        forms = {name: (array.shape[1:], array.dtype) for name, array in extras.items()}
    else:
        given, shape = spec.has_objectives is not False, (math.prod(spec.measure_shape or ()),)
        declared = (spec.fields or {}).items()
        forms = {name: (field.shape, np.dtype(field.dtype)) for name, field in declared}
    objectives = np.full(batch, np.nan, np.float32) if given else None
    measures = np.full((batch, *shape), np.nan, np.float32)
    fields = {name: np.zeros((batch, *form), dtype) for name, (form, dtype) in forms.items()}
    for rows, (values, points, extras) in kept:
        if objectives is not None:
            objectives[rows] = values
        measures[rows] = points
        for name, values in extras.items():
            fields[name][rows] = values
    return objectives, measures, fields


def check_some_valid(number_valid: int, total: int) -> None:
    """Raise if no row of a batch is valid.

    >>> check_some_valid(1, 36)
    """
    if number_valid == 0:
        raise EvaluationError(
            f"evaluation: expected at least one finite result among {total} solutions, got none. "
            "Every row had an objective or a measure that was NaN or infinite, an objective "
            f"beyond {checks.LARGEST:g}, a violation that was NaN, or measures of zero in a cosine "
            "archive: check the evaluation function on x0, and that x0 and sigma0 keep solutions "
            "in its domain."
        )
