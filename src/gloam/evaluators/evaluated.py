"""The evaluation of a whole batch, put together from blocks in any order."""

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gloam import checks
from gloam.evaluators.answers import AnswerForm, Parts
from gloam.evaluators.blocks import Block, Failure


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
