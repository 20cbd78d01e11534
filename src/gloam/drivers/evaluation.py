"""What an evaluation may return, in the form that drivers have it inside."""

from typing import Any

import numpy as np

from gloam.evaluators.answers import evaluation_parts as evaluation_parts


def flat_rows(measures: Any) -> Any:
    """Measures ``(batch, *shape)`` as gloam has them inside: ``(batch, meas)``, rows of numbers."""
    return measures.reshape(measures.shape[0], -1)


def float32(array: np.ndarray) -> np.ndarray:
    """Numbers in single precision. What is too large becomes infinite, and its row has failed."""
    with np.errstate(all="ignore"):
        return array.astype(np.float32)
