"""A map of an archive with many measures: its cells, brought onto two axes by a projection."""

import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gloam import checks
from gloam.plots import style
from gloam.plots.filled import Color, Filled, contents, value_limits
from gloam.plots.heatmap import dots, ranked_dots
from gloam.plots.projection import METHODS, Method, project


def projection_map(
    elites: Filled,
    *,
    method: Method = "pca",
    color: Color = "objective",
    max_cells: int | None = None,
    limits: tuple[float, float] | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Figure:
    """The cells of an archive as dots, near one another where their measures are.

    Empty cells are pale dots, and the best are on top. The axes name the projection.

    Args:
        elites, color, limits: As in `gloam.plots.heatmap`.
        method: ``"pca"`` for principal components; ``"umap"`` (needs ``umap-learn``) and ``"tsne"``
            (needs ``scikit-learn``) keep neighbours together, at the cost of distances.
        max_cells: Number of cells to show at most, drawn at random with a fixed seed; by default
            100,000 for ``"pca"`` and 3,000 for the others, which take longer.
        title: Heading of the figure.
        ax: Axes to draw in; by default those of a new figure.
    """
    checks.choice("method", method, METHODS)
    archive, values, name = contents(elites, color)
    most = (100_000 if method == "pca" else 3_000) if max_cells is None else max_cells
    most = checks.integer("max_cells", most, minimum=2)
    cells = np.arange(archive.num_cells)
    if len(cells) > most:
        cells = np.sort(np.random.default_rng(0).choice(len(cells), most, replace=False))
    centers = np.asarray(archive.centers_of(jnp.asarray(cells, jnp.int32)))
    spots, labels = project(centers, method)

    axes = style.axes_for(ax, 5.6, 4.8)
    axes.set_box_aspect(1)
    low, high = value_limits(archive, values) if limits is None else limits
    shown = values[cells]
    filled = np.isfinite(shown)
    dots(axes, spots[~filled], len(cells), color=style.EMPTY_DOT)
    scale = {"cmap": style.objective_colors(), "vmin": low, "vmax": high}
    drawn = ranked_dots(axes, spots[filled], shown[filled], len(cells), scale)
    axes.set(xlabel=labels[0], ylabel=labels[1])
    axes.locator_params(nbins=5)
    style.dress(axes)
    style.side_bar(drawn, axes, name)
    some = f"{len(cells):,} of {archive.num_cells:,} cells"
    style.heading(axes, title, some if len(cells) < archive.num_cells else "")
    return style.figure_of(axes)
