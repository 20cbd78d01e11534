"""A black-box function in NumPy: smooth closed outlines of every elongation and roundness.

    python examples/black_box.py --iterations 200 --out outlines.png

`evaluate` takes a batch of solutions and returns an objective and two measures for each solution.
Replace it with your own function.
"""

from pathlib import Path

import numpy as np
import tyro

import gloam

HARMONICS = 6
ANGLES = np.linspace(0, 2 * np.pi, 90, endpoint=False)


def outlines(solutions: np.ndarray) -> np.ndarray:
    """Return points ``(batch, 90, 2)`` of closed curves, from the harmonics of their radius."""
    waves = np.arange(1, HARMONICS + 1)[:, None] * ANGLES
    radius = np.exp(solutions @ np.concatenate([np.cos(waves), np.sin(waves)]))
    return radius[..., None] * np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=-1)


def evaluate(solutions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the smoothness (objective) and the elongation and roundness (measures) of outlines."""
    points = outlines(solutions)
    following = np.roll(points, -1, axis=1)
    steps = following - points
    headings = np.unwrap(np.arctan2(steps[..., 1], steps[..., 0]), axis=1)
    smoothness = 1 - np.square(np.diff(headings, n=2, axis=1)).sum(axis=1)

    extents = np.linalg.svd(points - points.mean(axis=1, keepdims=True), compute_uv=False)
    crossed = points[..., 0] * following[..., 1] - points[..., 1] * following[..., 0]
    area, length = crossed.sum(axis=1) / 2, np.linalg.norm(steps, axis=2).sum(axis=1)
    measures = [extents[:, 0] / extents[:, 1], 4 * np.pi * area / length**2]
    return smoothness, np.stack(measures, axis=1)


def picture(elites: gloam.Elites, out: Path) -> None:
    """Plot the archive, with the outlines of some elites in their cells."""
    figure = gloam.plots.archive_figure(elites, title="Outlines by elongation and roundness")
    axes = figure.axes[0]
    axes.set(xlabel="elongation", ylabel="roundness")
    for x in np.arange(1.15, 2.8, 0.3):
        for y in np.arange(0.25, 1, 0.1):
            distances = np.linalg.norm((elites.measures - [x, y]) / [2, 0.8], axis=1)
            if distances.min() < 0.03:
                (outline,) = outlines(elites.solutions[[distances.argmin()]])
                spots = [x, y] + outline / np.ptp(outline, axis=0).max() * [0.2, 0.08]
                axes.fill(*spots.T, facecolor="white", edgecolor="black", linewidth=0.5)
    gloam.plots.save(figure, out)


def main(iterations: int = 200, out: Path = Path("outlines.png")) -> gloam.Elites:
    archive = gloam.GridArchive(shape=(50, 50), lower=[1, 0.2], upper=[3, 1], f_min=-10)
    algorithm = gloam.DMS(archive, x0=np.zeros(2 * HARMONICS), sigma0=0.1)
    result = gloam.optimize(evaluate, algorithm, iterations)
    print(result.elites)
    picture(result.elites, out)
    return result.elites


if __name__ == "__main__":
    tyro.cli(main)
