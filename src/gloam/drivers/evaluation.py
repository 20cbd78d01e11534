"""What an evaluation may return, and how its parts are told apart."""

from typing import Any

import numpy as np

from gloam import checks


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


def flat_rows(measures: Any) -> Any:
    """Measures ``(batch, *shape)`` as gloam has them inside: ``(batch, meas)``, rows of numbers."""
    return measures.reshape(measures.shape[0], -1)


def float32(array: np.ndarray) -> np.ndarray:
    """Numbers in single precision. What is too large becomes infinite, and its row has failed."""
    with np.errstate(all="ignore"):
        return array.astype(np.float32)
