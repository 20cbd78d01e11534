"""The distribution of the elites' objectives, of one archive or of several."""

from collections.abc import Mapping
from typing import Literal

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from gloam import checks
from gloam.archives import Elites
from gloam.plots import style


def objective_ecdf(
    elites: Elites | Mapping[str, Elites],
    *,
    of: Literal["elites", "cells"] = "elites",
    title: str = "",
    ax: Axes | None = None,
) -> Figure:
    """The share of elites up to each objective, or the share of cells that reach it.

    Args:
        elites: A filled archive, or several by label, to compare them.
        of: ``"elites"`` draws the empirical distribution function of the objectives: it rises from
            0 to 1. ``"cells"`` draws the share of all cells whose elite is at least as good: it
            falls from the coverage to 0, and of two archives the higher curve is better.
        title: Heading of the figure.
        ax: Axes to draw in; by default those of a new figure.
    """
    checks.choice("of", of, ("elites", "cells"))
    runs = {"": elites} if isinstance(elites, Elites) else elites
    checks.expect(len(runs) > 0, "elites", "at least one archive", "none")
    for label, one in runs.items():
        checks.instance("elites", one, Elites, "Give result.elites or search.elites.")
        checks.expect(len(one) > 0, f"elites {label}".strip(), "at least one elite", "none")
    axes = style.axes_for(ax, 5.0, 3.6)
    colors = style.line_colors(runs)
    for label, one in runs.items():
        x, y = steps(one, of)
        where = "post" if of == "elites" else "pre"
        axes.step(x, y, where=where, color=colors[label], linewidth=1.8, label=label)
    axes.set(
        xlabel="objective",
        ylabel="share of elites up to it" if of == "elites" else "share of cells that reach it",
    )
    axes.set_ylim(0, 1.02 if of == "elites" else None)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    style.dress(axes, grid=True)
    if any(runs):
        axes.legend(frameon=False, fontsize=style.SMALL, labelcolor=style.INK)
    if title:
        style.heading(axes, title)
    return style.figure_of(axes)


def steps(
    elites: Elites, of: Literal["elites", "cells"]
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """The objectives in ascending order, and the share up to each, or from each upwards."""
    x = np.sort(elites.objectives.astype(np.float64))
    rank = np.arange(1, len(x) + 1)
    if of == "elites":
        return np.concatenate([x[:1], x]), np.concatenate([[0.0], rank / len(x)])
    reached = (len(x) + 1 - rank) / elites.archive.num_cells
    return np.concatenate([x, x[-1:]]), np.concatenate([reached, [0.0]])
