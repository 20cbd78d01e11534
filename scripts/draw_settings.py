"""Draw docs/images/settings.png: the effect of each setting of `gloam.DMS` on 10D LP (Sphere)."""

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

import gloam
from gloam.emitters import BasicRestart, RestartEvery
from gloam.plots import save, style

IMAGE = Path(__file__).parents[1] / "docs" / "images" / "settings.png"
SEEDS, ITERATIONS = (0, 1), 500
COLORS = ("#0072b2", style.INK, "#e69f00")

# By setting: the label of each curve, and the arguments that it changes.
SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "alpha": {"0.001": {"alpha": 0.001}, "0.01 (default)": {}, "0.1": {"alpha": 0.1}},
    "restart": {
        "RestartEvery(50)": {"restart": RestartEvery(50)},
        "RestartWhenIdle() (default)": {},
        "BasicRestart()": {"restart": BasicRestart()},
    },
    "floor": {"0": {"floor": 0.0}, "estimated (default)": {}},
    "mixture": {"False": {"mixture": False}, "True (default)": {}},
    "num_emitters, batch_size": {
        "5, 108": {"num_emitters": 5, "batch_size": 108},
        "15, 36 (default)": {},
        "45, 12": {"num_emitters": 45, "batch_size": 12},
    },
    "num_empty_points": {
        "0": {"num_empty_points": 0},
        "10 (default)": {},
        "100": {"num_empty_points": 100},
    },
    "learning_rate": {
        "0.0001": {"learning_rate": 1e-4},
        "0.0003 (default)": {},
        "0.001": {"learning_rate": 1e-3},
    },
}


def main() -> None:
    """Run all searches and draw a panel for each setting."""
    domain = gloam.domains.LinearProjection(measure_dim=10)
    figure = style.figure(13, 5.6)
    panels = figure.subplots(2, -(-len(SETTINGS) // 2)).ravel()
    for empty in panels[len(SETTINGS) :]:
        empty.set_axis_off()
    plain = scores(domain, {})
    for axes, (name, curves) in zip(panels, SETTINGS.items(), strict=False):
        tables = {
            label: scores(domain, changes) if changes else plain
            for label, changes in curves.items()
        }
        draw(axes, tables, name)
        for label, table in tables.items():
            print(name, label, table.iloc[-1].round().tolist(), flush=True)
    print(save(figure, IMAGE))


def scores(domain: gloam.domains.LinearProjection, changes: dict[str, Any]) -> pd.DataFrame:
    """Return the QD score by iteration, with one column per seed."""
    algorithm = gloam.DMS(domain.archive(), domain.x0, sigma0=0.5, **changes)
    result = gloam.run(domain, algorithm, ITERATIONS, seeds=SEEDS, log_every=25, progress=False)
    return result.metrics.pivot(index="iteration", columns="seed", values="qd_score")


def draw(axes: Axes, tables: dict[str, pd.DataFrame], title: str) -> None:
    """Draw one curve per value: the mean over the seeds, and their range."""
    style.dress(axes, grid=True)
    colors = COLORS if len(tables) == len(COLORS) else COLORS[:2]
    for color, (label, table) in zip(colors, tables.items(), strict=True):
        mean, low, high = (getattr(table, kind)(axis=1) for kind in ("mean", "min", "max"))
        axes.plot(mean.index, mean, color=color, linewidth=1.8, label=label)
        axes.fill_between(mean.index, low, high, color=color, alpha=0.2, linewidth=0)
    axes.set(ylim=(0, None), xlim=(0, ITERATIONS), xlabel="iteration", ylabel="QD score")
    axes.legend(frameon=False, fontsize=style.SMALL, loc="lower right")
    style.heading(axes, title)


if __name__ == "__main__":
    main()
