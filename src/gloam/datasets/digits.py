"""Handwritten digits that need no download."""

from pathlib import Path
from typing import Any

import numpy as np

from gloam.datasets.dataset import Dataset
from gloam.datasets.readers import from_array

HANDWRITTEN_FILE = Path(__file__).with_name("handwritten_digits.npz")
"""Arrays of `handwritten_digits`; the text file beside it documents their origin."""


def digits() -> Dataset:
    """Return scikit-learn's 1,797 handwritten digits of 8 x 8 pixels, with their labels.

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
    bunch: Any = load_digits()
    return from_array(bunch.images / np.float32(16), labels=bunch.target)


def handwritten_digits() -> Dataset:
    """Return 1,000 handwritten digits of MNIST, 28 x 28 pixels, with their labels.

    They are included in gloam and were not used to train `gloam_lab.Decoder.digits`. The
    name of a digit is its index among the training images of MNIST.

    Example:
        >>> data = handwritten_digits()
        >>> data, data.names[0], data.labels[0]
        (Dataset(1000 items of shape (28, 28), 10 labels), '9000', '6')
    """
    # Without a source: embeddings would be cached beside it, in the package.
    with np.load(HANDWRITTEN_FILE, allow_pickle=False) as arrays:
        return from_array(arrays["images"], arrays["labels"], names=arrays["places"])
