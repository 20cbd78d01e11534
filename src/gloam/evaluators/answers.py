"""What an evaluation may return: how its parts are told apart, and whether they fit."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from gloam import checks
from gloam.archives import Archive
from gloam.archives.fields import field_rows

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
