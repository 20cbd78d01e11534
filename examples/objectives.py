"""Several objectives for one archive: three ways for an arm to reach the same points.

    python examples/objectives.py --iterations 100 --out objectives.png

Three searches use the same measures (the position of the hand) and different objectives. All
objectives are stored as fields of the elites, and a table compares them.
"""

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import tyro
from matplotlib.figure import Figure

import gloam

JOINTS = 12
OBJECTIVES = {
    "bends evenly": lambda joints, angles: -joints.var(axis=1),
    "stays straight": lambda joints, angles: -np.square(joints).mean(axis=1),
    "hand points up": lambda joints, angles: np.sin(angles[:, -1]),
}


def evaluate(joints: np.ndarray, objective: str) -> tuple[np.ndarray, np.ndarray, dict]:
    """Return the objective, the position of the hand, and all objectives as a field."""
    angles = np.cumsum(joints, axis=1)
    hand = np.stack([np.cos(angles).mean(axis=1), np.sin(angles).mean(axis=1)], axis=1)
    values = {name: function(joints, angles) for name, function in OBJECTIVES.items()}
    return values[objective], hand, {"all": np.stack(list(values.values()), axis=1)}


def main(iterations: int = 100, out: Path = Path("objectives.png")) -> pd.DataFrame:
    fields = {"all": (len(OBJECTIVES),)}
    archive = gloam.GridArchive((50, 50), -1, 1, f_min=-2, fields=fields, measure_names=["x", "y"])
    algorithm = gloam.DMS(archive, np.zeros(JOINTS), sigma0=0.2)
    figure, means = Figure(figsize=(14, 4), layout="constrained"), {}
    for axes, name in zip(figure.subplots(1, len(OBJECTIVES)), OBJECTIVES, strict=True):
        elites = gloam.optimize(partial(evaluate, objective=name), algorithm, iterations).elites
        means[name] = elites.field("all").mean(axis=0)
        gloam.plots.heatmap(elites, title=f"{name} ({elites.coverage:.0%} filled)", ax=axes)
    gloam.plots.save(figure, out)
    table = pd.DataFrame(means, index=list(OBJECTIVES)).T
    print("Mean over the elites, with a row for each search and a column for each objective")
    print(table.round(3))
    return table


if __name__ == "__main__":
    tyro.cli(main)
