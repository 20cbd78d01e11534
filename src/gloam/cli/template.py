"""Fill every item of a dataset with what this function can make.

Run it as it is:

    gloam fill FILE --dataset digits

then change `evaluate`, `x0` and the dataset to your own: a folder of pictures, or an .npy, .npz,
.parquet or IDX file. A solution is a list of numbers; gloam looks for solutions whose results
(here: pictures) come close to the items of the dataset.
"""

import numpy as np

HEIGHT, WIDTH = 8, 8  # of the pictures in the dataset
BLOBS = 8  # each has a place (2 numbers), a width and a brightness

# Where the search starts, and how far from there the first solutions are.
x0 = np.random.default_rng(0).uniform(0, 1, 4 * BLOBS)
sigma0 = 0.1


def evaluate(solutions: np.ndarray) -> np.ndarray:
    """Measures of a batch of solutions: here the pixels of pictures made of soft blobs.

    Args:
        solutions: ``(batch, 4 * BLOBS)`` numbers.

    Returns:
        ``(batch, HEIGHT, WIDTH)`` pixels from 0 to 1. With measures alone, gloam maximises their
        closeness to the item they are nearest to. To maximise something else, return
        ``(objectives, measures)``.
    """
    blobs = solutions.reshape(len(solutions), BLOBS, 4, 1, 1)
    rows, columns = np.mgrid[0 : 1 : HEIGHT * 1j, 0 : 1 : WIDTH * 1j]
    row, column, width, brightness = (blobs[:, :, number] for number in range(4))
    squared = (rows - row) ** 2 + (columns - column) ** 2
    light = brightness * np.exp(-squared / (0.02 + 0.2 * width**2))
    return np.clip(light.sum(axis=1), 0, 1)
