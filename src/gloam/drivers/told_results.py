"""Results of single solutions, put together for the compiled programs."""

from typing import Any, NamedTuple

import jax
import numpy as np

from gloam import checks
from gloam.archives import Archive
from gloam.archives.fields import field_rows
from gloam.drivers.evaluation import flat_rows, float32
from gloam.drivers.part_table import Place
from gloam.records import Batch


class Result(NamedTuple):
    """The result of one solution."""

    objective: np.ndarray | None
    measures: np.ndarray
    fields: dict[str, np.ndarray]

    @property
    def is_finite(self) -> bool:
        """False when the evaluation failed."""
        return bool(np.isfinite(self.measures).all() and np.isfinite(self.objective or 0.0))


class Told(NamedTuple):
    """A result that has been told, with its solution."""

    place: Place | None
    """Where its part keeps it; ``None`` when it came late."""
    is_counted: bool
    """False when the evaluation was counted before, as failed."""
    solution: np.ndarray
    result: Result


def checked_results(
    archive: Archive, number: int, objectives: Any, measures: Any, fields: dict[str, Any]
) -> list[Result]:
    """The results of ``number`` solutions one by one.

    Raises:
        ValueError: They have other shapes or fields than the archive.
    """
    values: Any = [None] * number
    if objectives is not None:
        values = float32(checks.rows("objectives", objectives, (number,)))
    shapes = checks.measure_shapes(number, archive.measure_shape)
    points = flat_rows(float32(checks.rows("measures", measures, *shapes)))
    specs = dict(archive.fields)
    checks.same_names("fields", specs, fields)
    # Copies, because the user may write into arrays that were told.
    extras = {
        name: np.array(field_rows(name, fields[name], number, spec)) for name, spec in specs.items()
    }
    return [
        Result(value, point, {name: rows[row] for name, rows in extras.items()})
        for row, (value, point) in enumerate(zip(values, points, strict=True))
    ]


def failed_result(archive: Archive) -> Result:
    """The result of an evaluation that failed."""
    measures = np.full(archive.measure_dim, np.nan, np.float32)
    fields = {name: np.zeros(spec.shape, spec.dtype) for name, spec in archive.fields.items()}
    return Result(np.array(np.nan, np.float32), measures, fields)


def padded_rows(
    archive: Archive, told: list[Told], size: int, *, has_objectives: bool
) -> tuple[Any, ...]:
    """Results as arguments of `gloam.part_step.add_rows`, filled up to ``size`` rows."""
    results = [one.result for one in told]
    solutions = _padded([one.solution for one in told], size, 0.0)
    measures = _padded([result.measures for result in results], size, np.nan)
    objectives = None
    if has_objectives:
        objectives = _padded([result.objective for result in results], size, np.nan)
    fields = {
        name: _padded([result.fields[name] for result in results], size, 0)
        for name in archive.fields
    }
    cells = archive.index_on_host(measures)
    return solutions, (objectives, measures, fields), cells, np.arange(size) < len(told)


def rows_of(batch: Batch, rows: list[int]) -> Batch:
    """Some rows of a batch."""
    return jax.tree.map(lambda leaf: leaf[rows], batch)


def _padded(rows: list[Any], size: int, padding: float) -> np.ndarray:
    array = np.stack(rows)
    rest = np.full((size - len(rows), *array.shape[1:]), padding, array.dtype)
    return np.concatenate([array, rest])
