"""A dataset of pictures: find the best drawing with three strokes for every handwritten digit.

    python examples/pictures.py --iterations 150 --out pictures.png

Each item of the dataset is a cell of the archive, so the search finds a drawing for every digit.
Replace the data with `gloam.datasets.from_folder("pictures/", size=(8, 8))`, and `evaluate` with
your own way to make pictures.
"""

from pathlib import Path

import numpy as np
import tyro

import gloam

STROKES, SIDE = 3, 8
ROWS, COLUMNS = np.mgrid[0 : 1 : SIDE * 1j, 0 : 1 : SIDE * 1j]


def evaluate(solutions: np.ndarray) -> np.ndarray:
    """Return drawings ``(batch, 8, 8)`` from 0 to 1. A stroke has two ends, a bend and a width.

    Only measures are returned, so the objective is the similarity to the nearest item.
    """
    numbers = solutions.reshape(-1, STROKES, 7, 1, 1, 1)
    begin, middle, end = (numbers[:, :, place : place + 2] for place in (0, 2, 4))
    along = np.linspace(0, 1, 10)[:, None, None]
    path = (1 - along) ** 2 * begin + 2 * along * (1 - along) * middle + along**2 * end
    squared = (ROWS - path[:, :, 0]) ** 2 + (COLUMNS - path[:, :, 1]) ** 2
    ink = np.exp(-squared.min(axis=2) / (0.003 + 0.03 * numbers[:, :, 6, 0] ** 2))
    return ink.max(axis=1)


def main(iterations: int = 150, out: Path = Path("pictures.png"), items: int = 300) -> None:
    data = gloam.datasets.digits().subsample(items)
    x0 = np.random.default_rng(0).uniform(0.2, 0.8, 7 * STROKES)
    algorithm = gloam.DMS(data.archive(), x0, sigma0=0.1)
    result = gloam.optimize(evaluate, algorithm, iterations, dataset=data)

    matches = gloam.datasets.Matches(result.elites, data)
    print(matches.coverage_by_label())
    pictures = gloam.gallery.elite_pictures(result.elites, data)
    figure = gloam.gallery.gallery(matches, pictures, count=40, title="Digits of three strokes")
    gloam.plots.save(figure, out)


if __name__ == "__main__":
    tyro.cli(main)
