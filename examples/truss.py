"""Variables in physical units: stiff trusses of every mass, height and stress.

    python examples/truss.py --iterations 200 --out trusses.png

The areas of 20 bars are given in square metres and four heights in metres. With bounds on both
sides, gloam searches the unit box. The objective is minus the deflection.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import tyro

import gloam

# Nodes 0 to 5 are the deck, every metre; nodes 6 to 9 are above 1 to 4.
CHORDS = [(i, i + 1) for i in (0, 1, 2, 3, 4, 6, 7, 8)]
CROSSES = [bar for i in range(1, 4) for bar in ((i, i + 6), (i + 5, i + 1))]
BARS = np.array([*CHORDS, (0, 6), (9, 5), *[(i, i + 5) for i in range(1, 5)], *CROSSES])
STEEL, DENSITY, LOAD = 210e9, 7850.0, 100e3  # Pa, kg/m3, N at each inner node of the deck
FREE = np.setdiff1d(np.arange(20), [0, 1, 11])  # node 0 is pinned, node 5 rolls
LOWER = np.array([1e-4] * 20 + [0.5] * 4)
UPPER = np.array([5e-3] * 20 + [4.0] * 4)


def nodes(heights: np.ndarray) -> np.ndarray:
    """Return the places ``(batch, 10, 2)`` of the nodes."""
    y = np.pad(heights, ((0, 0), (6, 0)))
    return np.stack([np.broadcast_to([0, 1, 2, 3, 4, 5, 1, 2, 3, 4], y.shape), y], axis=2)


def evaluate(solutions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return minus the deflection in mm, and mass in kg, mean height in m and stress in MPa."""
    areas, heights = np.float64(solutions[:, :20]), np.float64(solutions[:, 20:])
    places = nodes(heights)
    spans = places[:, BARS[:, 1]] - places[:, BARS[:, 0]]
    lengths = np.linalg.norm(spans, axis=2)
    cosines = spans / lengths[..., None]

    elongation = np.zeros((len(solutions), len(BARS), 20))  # of bars, by coordinates of nodes
    bar = np.arange(len(BARS))
    for axis in (0, 1):
        elongation[:, bar, 2 * BARS[:, 0] + axis] = -cosines[..., axis]
        elongation[:, bar, 2 * BARS[:, 1] + axis] = cosines[..., axis]
    elongation = elongation[:, :, FREE]
    stiffness = np.einsum("nbi,nb,nbj->nij", elongation, STEEL * areas / lengths, elongation)
    force = np.zeros(20)
    force[[3, 5, 7, 9]] = -LOAD
    moved = np.linalg.solve(stiffness, np.broadcast_to(force[FREE], stiffness.shape[:2])[..., None])
    stress = STEEL * np.squeeze(elongation @ moved, 2) / lengths

    deflection = 1e3 * np.abs(moved).max(axis=(1, 2))
    mass = DENSITY * (areas * lengths).sum(axis=1)
    measures = [mass, heights.mean(axis=1), np.abs(stress).max(axis=1) / 1e6]
    return -deflection, np.stack(measures, axis=1)


def archive() -> gloam.GridArchive:
    names = ("mass", "height", "stress")
    upper = [1200, 4, 600]
    return gloam.GridArchive((20, 12, 12), [0, 0.5, 0], upper, f_min=-50, measure_names=names)


def picture(elites: gloam.Elites, out: Path) -> None:
    """Draw the elites of least deflection at six masses; the width of a bar shows its area."""
    figure, all_axes = plt.subplots(2, 3, figsize=(10, 5), sharex=True, sharey=True)
    for axes, mass in zip(all_axes.flat, np.linspace(100, 1100, 6), strict=True):
        near = np.abs(elites.measures[:, 0] - mass) < 100
        best = np.argmax(np.where(near, elites.objectives, -np.inf))
        solution = elites.solutions[best]
        places = nodes(solution[None, 20:])[0]
        for (start, end), area in zip(BARS, solution[:20], strict=True):
            axes.plot(*places[[start, end]].T, color="tab:blue", linewidth=1200 * area)
        axes.set_title(f"{elites.measures[best, 0]:.0f} kg, {-elites.objectives[best]:.1f} mm")
        axes.set_aspect("equal")
    gloam.plots.save(figure, out)


def main(iterations: int = 200, out: Path = Path("trusses.png")) -> gloam.Elites:
    algorithm = gloam.DMS(archive(), x0=(LOWER + UPPER) / 2, bounds=(LOWER, UPPER))
    result = gloam.optimize(evaluate, algorithm, iterations)
    print(result.elites)
    picture(result.elites, out)
    return result.elites


if __name__ == "__main__":
    tyro.cli(main)
