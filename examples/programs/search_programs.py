"""Programs for curves: for each of 300 curves, a short program that draws it.

python examples/programs/search_programs.py --iterations 1000 --out programs.png
"""

import textwrap
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import tyro
from expressions import mutated, random_tree, shown, size_of, text_of, tree_of, values_of

import gloam

X = np.linspace(-1, 1, 24)
HIGHEST = 3.0
"""Programs with larger values fail."""
PER_NODE = 0.002
"""Loss of objective for each node of a program."""


def curves(number: int = 300, seed: int = 0) -> np.ndarray:
    """Return curves of five kinds: waves, steps, bumps, parabolas and ramps."""
    random = np.random.default_rng(seed)
    rows = []
    for index in range(number):
        height, middle = random.uniform(-1.2, 1.2), random.uniform(-0.6, 0.6)
        width, base = random.uniform(0.15, 0.6), random.uniform(-0.5, 0.5)
        shapes = (
            np.sin((X - middle) / width * 1.5),
            np.tanh((X - middle) / width * 4),
            2 * np.exp(-(((X - middle) / width) ** 2)) - 1,
            1.5 * (X - middle) ** 2 - 1,
            np.abs(X - middle) / width / 2 - 1,
        )
        rows.append(base + height * shapes[index % len(shapes)])
    return np.clip(rows, -2, 2).astype(np.float32)


def curve_of(text: str) -> tuple[np.ndarray, int]:
    """Return the curve of a program and its size; NaN if it fails."""
    try:
        tree = tree_of(text)
    except ValueError:
        return np.full(len(X), np.nan), 0
    with np.errstate(all="ignore"):
        values = values_of(tree, X)
    if not (np.isfinite(values).all() and np.abs(values).max() <= HIGHEST):
        values = np.full(len(X), np.nan)
    return values, size_of(tree)


def objectives_of(measures: np.ndarray, sizes: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return 1 minus the mean squared error to the nearest target, less the size."""
    errors = np.square(measures[:, None] - targets).mean(axis=2).min(axis=1)
    return 1 - errors - PER_NODE * sizes


def search(iterations: int, batch: int = 32, seed: int = 0) -> gloam.Pool:
    """Begin with random programs, and vary those of the pool."""
    targets = curves()
    archive = gloam.CVTArchive(targets, -2.0, 2.0)
    pool, random = gloam.Pool(archive, seed), np.random.default_rng(seed)
    texts = [text_of(random_tree(random)) for _ in range(batch)] + ["x"]
    for _ in range(iterations):
        measures, sizes = map(np.array, zip(*map(curve_of, texts), strict=True))
        pool.tell(objectives_of(measures, sizes, targets), measures, texts)
        texts = [mutated(parent.payload, random) for parent, _ in pool.propose(batch)]
    return pool


def draw(pool: gloam.Pool, out: Path, rows: int = 4, columns: int = 5) -> None:
    """Draw curves (gray) and those of their programs, from the best quarter to the worst."""
    elites, targets = pool.elites(), curves()
    order = elites.cells[np.argsort(-elites.objectives)]
    places = np.linspace(0, len(order) - 1, rows * columns).astype(int)
    figure, axes = plt.subplots(rows, columns, figsize=(13, 8.2), layout="constrained")
    for axis, cell in zip(axes.flat, order[places], strict=True):
        elite = elites.elite(int(cell))
        assert elite is not None
        axis.plot(X, targets[cell], color="#b6bac2", lw=5, solid_capstyle="round")
        axis.plot(X, elite.measures, color="#2463a8", lw=1.8)
        lines = textwrap.wrap(shown(elite.values), 34, max_lines=3, placeholder=" ...")
        axis.set_title("\n".join(lines), fontsize=8, family="monospace", loc="left")
        axis.set(xticks=[], yticks=[], ylim=(-2.2, 2.2))
        axis.spines[:].set_visible(False)
    figure.savefig(out, dpi=110)
    plt.close(figure)


def main(iterations: int = 1000, seed: int = 0, out: Path = Path("programs.png")) -> gloam.Pool:
    """Search, and draw some of the programs."""
    pool = search(iterations, seed=seed)
    print(pool)
    draw(pool, out)
    return pool


if __name__ == "__main__":
    tyro.cli(main)
