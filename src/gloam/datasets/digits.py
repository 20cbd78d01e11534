"""Datasets of handwritten digits: those that come with gloam, and scikit-learn's."""

from pathlib import Path
from typing import Any

import numpy as np

from gloam import files
from gloam.datasets.dataset import Dataset
from gloam.datasets.limits import ZippedArrays
from gloam.datasets.readers import from_array

HANDWRITTEN_FILE = Path(__file__).with_name("handwritten_digits.npz")
"""Arrays of `handwritten_digits`; the text file beside it says where they come from."""


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


def handwritten_digits() -> Dataset:
    """1,000 handwritten digits of MNIST, 28 x 28 pixels, with their labels.

    They come with gloam. `gloam.generators.Decoder.digits` was not trained on them. A digit's name
    is its place among the training images of MNIST.

    Example:
        >>> data = handwritten_digits()
        >>> data, data.names[0], data.labels[0]
        (Dataset(1000 items of shape (28, 28), 10 labels), '9000', '6')
    """
    with files.open_regular(HANDWRITTEN_FILE) as opened:
        arrays = ZippedArrays(opened)
        images, labels, places = (arrays.read(name) for name in ("images", "labels", "places"))
    # Without a source: a cache of embeddings would be written beside it, into the package.
    return from_array(images, [str(label) for label in labels], names=[str(p) for p in places])
