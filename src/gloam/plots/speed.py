"""Speed beside the peers: milliseconds of an iteration as bars, one panel an algorithm."""

import pandas as pd
from matplotlib.figure import Figure

from gloam.plots.style import QUIET, SMALL, dress, figure, heading, line_colors


def speed(table: pd.DataFrame) -> Figure:
    """Bars of every contender, grouped by problem, on a logarithmic scale.

    Args:
        table: With columns ``algorithm``, ``measure_dim``, ``contender``, ``median_ms``, ``min_ms``
            and ``max_ms``; what `gloam.peers.Comparison.frame` gives.
    """
    algorithms = list(dict.fromkeys(table["algorithm"]))
    contenders = list(dict.fromkeys(table["contender"]))
    colors = line_colors(contenders)
    made = figure(4.2 * len(algorithms), 3.8)
    panels = made.subplots(1, len(algorithms), squeeze=False)[0]
    for axes, algorithm in zip(panels, algorithms, strict=True):
        mine = table[table["algorithm"] == algorithm]
        problems = list(dict.fromkeys(mine["measure_dim"]))
        present = [name for name in contenders if name in set(mine["contender"])]
        width = 0.8 / len(present)
        for number, name in enumerate(present):
            rows = (
                pd.DataFrame(mine[mine["contender"] == name]).set_index("measure_dim").loc[problems]
            )
            places = [i + width * (number - (len(present) - 1) / 2) for i in range(len(problems))]
            spread = [rows["median_ms"] - rows["min_ms"], rows["max_ms"] - rows["median_ms"]]
            axes.bar(
                places,
                rows["median_ms"],
                width * 0.92,
                yerr=spread,
                label=name,
                color=colors[name],
                ecolor=QUIET,
            )
            for place, value in zip(places, rows["median_ms"], strict=True):
                axes.annotate(
                    f"{value:.3g}",
                    (place, value),
                    (0, 4),
                    fontsize=SMALL - 2,
                    textcoords="offset points",
                    ha="center",
                )
        axes.set_yscale("log")
        axes.set_xticks(range(len(problems)), [f"{k} measures" for k in problems])
        axes.set_ylabel("milliseconds per iteration")
        dress(axes, grid=True)
        heading(axes, algorithm)
        axes.legend(fontsize=SMALL, frameon=False)
    return made
