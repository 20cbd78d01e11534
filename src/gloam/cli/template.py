"""Find the best match to every item of a dataset that this function can make.

Run the example:

    gloam fill FILE --dataset digits

Then replace `evaluate`, `x0` and the dataset by your own. The dataset can be a folder of images, or
an .npy, .npz, .parquet, .csv or IDX file. A solution is a vector of numbers; gloam searches for
solutions whose measures (here: images) are close to the items of the dataset. The images of a
folder are resized to the size of the images that `evaluate` returns.
"""

import numpy as np

HEIGHT, WIDTH, CHANNELS = 8, 8, 1  # of the images; 3 channels are red, green and blue
BLOBS = 8  # each has a position (2 numbers), a width, and a brightness for each channel

# The start of the search, and the standard deviation of the first solutions around it.
x0 = np.random.default_rng(0).uniform(0, 1, (3 + CHANNELS) * BLOBS)
sigma0 = 0.1


def evaluate(solutions: np.ndarray) -> np.ndarray:
    """Measures of a batch of solutions: here the pixels of images of soft blobs.

    Args:
        solutions: ``(batch, (3 + CHANNELS) * BLOBS)`` numbers.

    Returns:
        ``(batch, HEIGHT, WIDTH)`` pixels from 0 to 1, or ``(batch, HEIGHT, WIDTH, 3)`` in color.
        If only measures are returned, gloam maximizes their similarity to the nearest item. To
        maximize something else, return ``(objectives, measures)``.
    """
    blobs = solutions.reshape(len(solutions), BLOBS, 3 + CHANNELS)
    row, column, width = (blobs[:, :, number, None, None] for number in range(3))
    rows, columns = np.mgrid[0 : 1 : HEIGHT * 1j, 0 : 1 : WIDTH * 1j]
    squared = (rows - row) ** 2 + (columns - column) ** 2
    light = np.exp(-squared / (0.02 + 0.2 * width**2))  # (batch, BLOBS, HEIGHT, WIDTH)
    channels = [(blobs[:, :, 3 + c, None, None] * light).sum(axis=1) for c in range(CHANNELS)]
    images = np.clip(np.stack(channels, axis=-1), 0, 1)
    return images if CHANNELS == 3 else images[..., 0]
