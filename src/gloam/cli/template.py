"""Find the best match to every item of a dataset that this function can make.

Run the example:

    gloam fill FILE --dataset digits

Then replace `evaluate`, `x0` and the dataset by your own. The dataset can be a folder of images, or
an .npy, .npz, .parquet or IDX file. A solution is a vector of numbers; gloam searches for solutions
whose measures (here: images) are close to the items of the dataset.
"""

import numpy as np

HEIGHT, WIDTH = 8, 8  # of the images in the dataset
BLOBS = 8  # each has a position (2 numbers), a width and a brightness

# The start of the search, and the standard deviation of the first solutions around it.
x0 = np.random.default_rng(0).uniform(0, 1, 4 * BLOBS)
sigma0 = 0.1


def evaluate(solutions: np.ndarray) -> np.ndarray:
    """Measures of a batch of solutions: here the pixels of images of soft blobs.

    Args:
        solutions: ``(batch, 4 * BLOBS)`` numbers.

    Returns:
        ``(batch, HEIGHT, WIDTH)`` pixels from 0 to 1. If only measures are returned, gloam
        maximises their similarity to the nearest item. To maximise something else, return
        ``(objectives, measures)``.
    """
    blobs = solutions.reshape(len(solutions), BLOBS, 4, 1, 1)
    rows, columns = np.mgrid[0 : 1 : HEIGHT * 1j, 0 : 1 : WIDTH * 1j]
    row, column, width, brightness = (blobs[:, :, number] for number in range(4))
    squared = (rows - row) ** 2 + (columns - column) ** 2
    light = brightness * np.exp(-squared / (0.02 + 0.2 * width**2))
    return np.clip(light.sum(axis=1), 0, 1)
