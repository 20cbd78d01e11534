"""Mixed variables: reals, ranges over decades, integers and choices, beside the known optimum.

    python examples/mixed.py --iterations 100 --out mixed.png

The variables of a made-up machine have names in a `gloam.Space`. Its discrete part has 27,648
combinations, so `optimum` enumerates what a perfect search would find.
"""

from pathlib import Path
from typing import Any

import numpy as np
import tyro
from matplotlib.figure import Figure

import gloam

SPACE = gloam.Space(
    length=gloam.Real(0, 1),
    width=gloam.Real(0, 1),
    bend=gloam.Real(-1, 1),
    gain=gloam.Real(1e-5, 1e-1, log=True),
    friction=gloam.Real(1e-6, 1e-2, log=True),
    teeth=gloam.Integer(0, 3, shape=(5,)),
    material=gloam.Categorical(["wood", "steel", "glass"]),
    coating=gloam.Categorical(["none", "wax", "paint"]),
    drive=gloam.Categorical(["belt", "chain", "gear"]),
)
ARCHIVE = gloam.GridArchive((20, 20), 0, 1, f_min=0, measure_names=["size", "weight"])
# Numbers of teeth that suit each material, and what is lost by each combination of choices.
TEETH = np.array([[0, 3, 1, 2, 0], [3, 0, 2, 1, 3], [1, 1, 3, 0, 2]])
LOSS = [0, 2, 1, 1, 0, 2, 2, 1, 0.5, 2, 1, 0, 0, 2, 1, 1, 0.5, 2, 1, 0, 2, 2, 1, 0, 0.5, 2, 1]


def discrete_part(teeth: Any, material: Any, coating: Any, drive: Any) -> tuple[Any, ...]:
    """Return loss, size and weight of the discrete variables, and the best length and width."""
    misfit = ((teeth - TEETH[material]) ** 2).mean(axis=-1) / 9
    loss = 0.3 * misfit + np.reshape(LOSS, (3, 3, 3))[material, coating, drive] / 10
    size = 0.6 * teeth.sum(axis=-1) / 15 + 0.1 * material / 2
    weight = 0.3 * teeth[..., 0] / 3 + 0.2 * drive / 2 + 0.2 * coating / 2
    return loss, size, weight, 0.2 + 0.3 * material, 0.8 - 0.3 * coating


def evaluate(values: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return objectives and measures of a batch of machines."""
    kinds: Any = SPACE.variables[-3:]
    chosen = [np.vectorize(kind.choices.index)(values[name]) for name, kind in kinds]
    loss, size, weight, length, width = discrete_part(values["teeth"], *chosen)
    loss = loss + 0.2 * (values["length"] - length) ** 2 + 0.2 * (values["width"] - width) ** 2
    scales = np.log10([values["gain"] * 1e3, values["friction"] * 1e4])
    loss = loss + 0.1 * values["bend"] ** 2 + 0.05 * (scales**2).sum(axis=0) / 4
    measures = [size + 0.3 * values["length"], weight + 0.3 * values["width"]]
    return 1 - loss, np.stack(measures, axis=1)


def optimum() -> np.ndarray:
    """Return the best objective of every cell; minus infinity for cells that no machine reaches."""
    axes = np.meshgrid(*[np.arange(4)] * 5, *[np.arange(3)] * 3, indexing="ij")
    numbers = np.stack([axis.ravel() for axis in axes], axis=1)
    loss, size, weight, length, width = discrete_part(numbers[:, :5], *numbers[:, 5:].T)

    def least(at: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        edges, wanted = (np.linspace(0, 1, 21) - at[:, None]) / 0.3, wanted[:, None]
        low, high = edges[:, :-1] - 1e-6, edges[:, 1:] + 1e-6  # bins with their borders
        nearest = np.clip(np.clip(wanted, low, high), 0, 1)
        return np.where((high >= 0) & (low <= 1), 0.2 * (nearest - wanted) ** 2, np.inf)

    across, up = least(size, length), least(weight, width)
    return 1 - np.array([(loss[:, None] + across[:, [i]] + up).min(axis=0) for i in range(20)])


def main(iterations: int = 100, out: Path = Path("mixed.png"), seed: int = 0) -> gloam.Elites:
    result = gloam.optimize(evaluate, gloam.DMS(ARCHIVE, SPACE), iterations, seeds=[seed])
    elites, best = result.elites, optimum()
    print(f"coverage: {len(elites) / (best > 0).sum():.1%} of the cells that can be reached")
    print(f"QD score: {elites.qd_score / best[best > 0].sum():.2%} of the optimum")
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    gloam.plots.heatmap(elites, title="Objective of each machine", ax=left)
    missing = np.full(best.size, np.nan)
    missing[elites.cells] = best.ravel()[elites.cells] - elites.objectives
    shown = right.imshow(missing.reshape(20, 20).T, origin="lower", extent=(0, 1, 0, 1))
    figure.colorbar(shown, ax=right, label="distance from the optimum")
    figure.savefig(out, dpi=120)
    return elites


if __name__ == "__main__":
    tyro.cli(main)
