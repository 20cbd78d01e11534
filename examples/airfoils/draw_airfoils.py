"""Pictures of a search: a gallery of airfoils before and after, and polars of a few of them.

python examples/airfoils/draw_airfoils.py --search runs/airfoils --out pictures/
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import tyro
from airfoils import LIFT, REYNOLDS, Known, at_lift, load, neuralfoil_analysis, outline_matrix
from search_airfoils import best_near

import gloam

FINE = (1 - np.cos(np.linspace(0, np.pi, 121))) / 2
MATRIX = outline_matrix(FINE)
GRAY = "#8a8f98"


def sides(solution: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the outline of an airfoil as one closed curve."""
    upper, lower = np.split(MATRIX @ np.float64(solution), 2)
    return np.concatenate([FINE[::-1], FINE]), np.concatenate([upper[::-1], lower])


def varied(known: Known, gains: np.ndarray, number: int) -> np.ndarray:
    """Return airfoils that differ: each is the farthest from those before it."""
    items = known.dataset.items
    # Not the tenth with the largest gains, most of which are poor airfoils.
    typical = np.flatnonzero(gains <= np.quantile(gains, 0.9))
    chosen = [typical[np.argmax(gains[typical])]]
    while len(chosen) < number:
        distances = np.linalg.norm(items[typical, None] - items[chosen], axis=2).min(axis=1)
        chosen.append(typical[np.argmax(distances)])
    return np.array(sorted(chosen, key=lambda row: gains[row]))


def gallery(known: Known, solutions: np.ndarray, objectives: np.ndarray, path: Path) -> None:
    """Draw airfoils before (dashed) and after, colored by what they gain."""
    gains = objectives / known.objectives - 1
    rows = varied(known, gains, 20)
    norm = plt.Normalize(gains[rows].min(), gains[rows].max())
    colors = plt.get_cmap("viridis")
    figure, axes = plt.subplots(4, 5, figsize=(13, 4.4), layout="constrained")
    for axis, row in zip(axes.flat, rows, strict=True):
        color = colors(norm(gains[row]))
        axis.fill(*sides(solutions[row]), color=color, lw=0)
        axis.plot(*sides(known.solutions[row]), color="black", lw=0.9, ls=(0, (3, 1.5)))
        label = f"{known.objectives[row]:.0f} → {objectives[row]:.0f}"
        axis.set_title(known.names[row], fontsize=8, loc="left", color="#444444", pad=2)
        axis.set_title(label, fontsize=9, loc="right", weight="bold", pad=2)
        _, heights = sides(known.solutions[row])
        middle = (heights.min() + heights.max()) / 2
        axis.set(xlim=(-0.02, 1.02), ylim=(middle - 0.14, middle + 0.14), aspect="equal")
        axis.axis("off")
    scale = plt.cm.ScalarMappable(norm, colors)
    bar = figure.colorbar(scale, ax=axes, shrink=0.6, pad=0.01, aspect=30)
    bar.set_label("gain of lift to drag", fontsize=9)
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"+{value:.0%}")
    bar.outline.set_visible(False)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def polars(known: Known, solutions: np.ndarray, objectives: np.ndarray, path: Path) -> None:
    """Draw outlines and lift to drag over lift, of three airfoils before and after."""
    gains = objectives / known.objectives - 1
    order = np.argsort(gains)
    rows = order[[len(order) // 10, len(order) // 2, 9 * len(order) // 10]]
    figure, axes = plt.subplots(2, 3, figsize=(11, 5), layout="constrained", height_ratios=(1, 2))
    for (above, below), row in zip(axes.T, rows, strict=True):
        for solution, color, label in (
            (known.solutions[row], GRAY, "known"),
            (solutions[row], "#3b528b", "found"),
        ):
            above.plot(*sides(solution), color=color)
            (angle,), _ = at_lift(neuralfoil_analysis, solution[None])
            angles = np.linspace(angle - 7, angle + 8, 60)
            aero = neuralfoil_analysis(np.tile(solution, (len(angles), 1)), angles)
            below.plot(aero.lift, aero.lift / aero.drag, color=color, label=label)
        above.set(aspect="equal", title=f"{known.names[row]}: +{gains[row]:.0%}")
        above.axis("off")
        below.axvline(LIFT, color="black", lw=0.6, ls=":")
        below.set(xlabel="lift coefficient", xlim=(-0.2, 1.5), ylim=(0, None))
        below.spines[["top", "right"]].set_visible(False)
    axes[1, 0].set_ylabel(f"lift to drag (Re = {REYNOLDS:.0e})")
    axes[1, 0].legend(frameon=False)
    figure.savefig(path, dpi=90)
    plt.close(figure)


def main(
    search: Path = Path("runs/airfoils"),
    data: Path = Path("airfoils.npz"),
    out: Path = Path("."),
) -> None:
    """Draw the pictures of a search.

    Args:
        search: Run folder of `search_airfoils.py`.
        data: File of the known airfoils.
        out: Folder of the pictures.
    """
    known = load(data)
    best = best_near(known, gloam.RunFolder(search).read_archive())
    out.mkdir(parents=True, exist_ok=True)
    gallery(known, *best, out / "airfoils.png")
    polars(known, *best, out / "airfoils-polars.png")


if __name__ == "__main__":
    tyro.cli(main)
