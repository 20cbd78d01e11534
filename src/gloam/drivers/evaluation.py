"""What an evaluation may return, in the form that drivers have it inside."""

from typing import Any

import numpy as np

from gloam import checks
from gloam.archives import Archive
from gloam.evaluators.answers import evaluation_parts as evaluation_parts


def flat_rows(measures: Any) -> Any:
    """Measures ``(batch, *shape)`` as gloam has them inside: ``(batch, meas)``, rows of numbers."""
    return measures.reshape(measures.shape[0], -1)


def float32(array: np.ndarray) -> np.ndarray:
    """Numbers in single precision. What is too large becomes infinite, and its row has failed."""
    with np.errstate(all="ignore"):
        return array.astype(np.float32)


def valid_rows(archive: Archive, objectives: np.ndarray | None, points: np.ndarray) -> Any:
    """True for rows that did not fail.

    Args:
        archive: Says which measures it accepts.
        objectives: ``(batch,)`` objectives, or none.
        points: ``(batch, meas)`` measures.
    """
    valid = archive.accepts(points)
    return valid if objectives is None else valid & (np.abs(objectives) <= checks.LARGEST)
