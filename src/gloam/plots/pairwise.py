"""Pairwise panels: the best objective over each pair of three to six measures."""

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from gloam import checks
from gloam.archives import Archive, Elites, GridArchive
from gloam.archives.measure_names import labels
from gloam.plots import style
from gloam.plots.filled import value_limits

_FEWEST, _MOST = 2, 6
_FEWEST_BINS, _MOST_BINS = 6, 40


def pairwise(
    elites: Elites,
    *,
    measures: list[int] | None = None,
    limits: tuple[float, float] | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Figure:
    """A panel for each pair of measures: the best elite at every place, whatever the others are.

    Places are the cells of a grid archive; of others, bins between the bounds.

    Args:
        elites: The filled archive.
        measures: Two to six measures to show; by default the first six.
        limits: Objectives of the darkest and the lightest colour; by default the extremes.
        title: Heading of the figure.
        ax: Axes whose place the panels take; by default they have a new figure.
    """
    archive = elites.archive
    dim = archive.measure_dim
    chosen = list(range(min(dim, _MOST))) if measures is None else list(measures)
    sound = all(isinstance(one, int) and 0 <= one < dim for one in chosen)
    sound &= _FEWEST <= len(set(chosen)) == len(chosen) <= _MOST
    expected = f"{_FEWEST} to {_MOST} different numbers from 0 to {dim - 1}"
    checks.expect(sound, "measures", expected, checks.short(chosen))
    names, side = labels(archive.measure_names, dim), len(chosen) - 1
    size = 1.7 * side + 1.6
    figure, panels = style.panels(ax, side, side, (size + 0.7, size))
    objectives = np.asarray(elites.store.objectives)
    low, high = value_limits(archive, objectives) if limits is None else limits
    for row in range(side):
        for column in range(side):
            axes, pair = panels[row, column], (chosen[column], chosen[row + 1])
            if column > row:
                axes.set_axis_off()
                continue
            _panel(axes, elites, pair, (low, high))
            if row == side - 1:
                axes.set_xlabel(names[pair[0]])
            if column == 0:
                axes.set_ylabel(names[pair[1]])
            axes.tick_params(labelbottom=row == side - 1, labelleft=column == 0)
    colors = ScalarMappable(Normalize(low, high), style.objective_colors())
    style.side_bar(colors, ax or list(panels.flat), "objective")
    if title:
        style.heading(panels[0, 0], title)
    return figure


def best_by_bin(
    elites: Elites, pair: tuple[int, int]
) -> tuple[Float[np.ndarray, "x y"], list[np.ndarray]]:
    """The best objective in each bin of two measures, minus infinity in empty ones, and the bins.

    Measures beyond the bounds count in the bins at the edge, as in a grid archive.
    """
    # So many bins hold about four elites each, if they are spread evenly.
    bins = int(np.clip(round(len(elites) ** 0.5 / 2), _FEWEST_BINS, _MOST_BINS))
    edges = [_edges(elites.archive, one, bins) for one in pair]
    points = elites.flat_measures[:, pair]
    places = tuple(
        np.clip(np.searchsorted(edge, points[:, k], side="right") - 1, 0, len(edge) - 2)
        for k, edge in enumerate(edges)
    )
    best = np.full([len(edge) - 1 for edge in edges], -np.inf)
    np.maximum.at(best, places, elites.objectives)
    return best, edges


def _edges(archive: Archive, measure: int, bins: int) -> np.ndarray:
    number = archive.shape[measure] if isinstance(archive, GridArchive) else bins
    return np.linspace(float(archive.lower[measure]), float(archive.upper[measure]), number + 1)


def _panel(axes: Axes, elites: Elites, pair: tuple[int, int], limits: tuple[float, float]) -> None:
    best, (x, y) = best_by_bin(elites, pair)
    axes.set_facecolor(style.EMPTY)
    values = np.ma.masked_where(np.isneginf(best), best).T
    axes.pcolormesh(
        x,
        y,
        values,
        cmap=style.objective_colors(),
        vmin=limits[0],
        vmax=limits[1],
        rasterized=True,
    )
    axes.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
    axes.set_box_aspect(1)
    axes.locator_params(nbins=3)
    style.dress(axes)
