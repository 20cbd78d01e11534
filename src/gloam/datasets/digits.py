"""Scikit-learn's handwritten digits."""

from typing import Any

import numpy as np

from gloam.datasets.dataset import Dataset
from gloam.datasets.readers import from_array


def digits() -> Dataset:
    """Scikit-learn's 1,797 handwritten digits of 8 x 8 pixels, with their labels.

    Raises:
        ValueError: Scikit-learn is not installed.

    Example:
        >>> digits().shape
        (8, 8)
    """
    try:
        from sklearn.datasets import load_digits  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ValueError("The digits need scikit-learn. Run: pip install 'gloam[demo]'") from error
    found: Any = load_digits()
    return from_array(found.images / np.float32(16), labels=[str(label) for label in found.target])
