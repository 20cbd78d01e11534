"""The discount function beside the archive over iterations, with what it was trained on."""

from collections.abc import Sequence
from functools import partial

import equinox as eqx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gloam import checks
from gloam.algorithms import Algorithm
from gloam.discounts import DiscountModel
from gloam.formats import RunFolder
from gloam.plots import style
from gloam.plots.heatmap import function_map, heatmap
from gloam.plots.moments import Moment, algorithm_of, moments_of
from gloam.plots.plane import Plane, in_chunks


def discount_panels(
    folder: RunFolder,
    *,
    iterations: Sequence[int] | None = None,
    algorithm: Algorithm | None = None,
) -> Figure:
    """The archive above the discount function, a column for each snapshot of a run.

    Dots on the discount function are the solutions of that iteration in the colours of their
    targets; crosses are the empty cells that were trained to ``f_min``. Both rows have one scale of
    colours.

    Args:
        folder: A run folder. Without snapshots, its checkpoint is drawn, without training points.
        iterations: Snapshots to show; by default all, or five spread evenly over them.
        algorithm: Needed only when the run's has parts that gloam does not know, such as a network
            of your own class.
    """
    folder.must_hold_run()
    algorithm = algorithm_of(folder, algorithm)
    model = algorithm.discount
    checks.instance("discount", model, DiscountModel, "Only a model has a function to draw.")
    assert isinstance(model, DiscountModel)
    moments = moments_of(folder, algorithm, iterations)
    limits = _limits(model, moments)
    plane = Plane(algorithm.archive)
    space = algorithm.archive.discount_space
    discount = eqx.filter_jit(lambda state, points: model.discount(state, space(points)))

    trained = any(moment.real.any() for moment in moments)
    figure, panels, scale = _panels(len(moments), plane.shape, trained)
    top = limits[1]
    for (above, below), moment in zip(panels, moments, strict=True):
        heatmap(above, (algorithm.archive, moment.objectives), limits=limits, plane=plane)
        values = in_chunks(partial(discount, moment.discount), plane.sites)
        top = max(top, float(values.max()))
        function_map(below, values, plane, limits=limits)
        training_points(below, moment, plane, algorithm.emitter.num_solutions, limits)
        gained = moment.objectives[np.isfinite(moment.objectives)] - algorithm.archive.f_min
        style.heading(above, f"iteration {moment.iteration:,}", f"QD score {gained.sum():,.0f}")
    style.color_bar(figure, scale, limits, "objective and discount", more=top > limits[1])
    _label(panels)
    if trained:
        _legend(figure)
    return figure


def _limits(model: DiscountModel, moments: Sequence[Moment]) -> tuple[float, float]:
    """The scale of colours: the model's range of objectives, or that of the elites."""
    found = np.concatenate([moment.objectives for moment in moments])
    found = found[np.isfinite(found)]
    lowest, best = (found.min(), found.max()) if len(found) else (0.0, 1.0)
    low = float(lowest) if model.f_min is None else model.f_min
    high = max(-np.inf if model.f_max is None else model.f_max, float(best))
    return low, high if high > low else low + 1.0


def training_points(
    axes: Axes, moment: Moment, plane: Plane, batch: int, limits: tuple[float, float]
) -> None:
    """Draw what the model was trained on: ``batch`` rows as dots, the others as crosses."""
    spots = plane.place(moment.points)
    solution = np.arange(len(spots)) < batch
    ours, empty = solution & moment.real, ~solution & moment.real
    size = 1.0 if plane.whole else 0.7
    axes.scatter(
        *spots[empty].T,
        s=10 * size,
        marker="x",
        c="white",
        linewidths=0.7 * size,
        alpha=0.6,
        zorder=3,
    )
    axes.scatter(
        *spots[ours].T,
        s=11 * size,
        c=moment.targets[ours],
        cmap=style.objective_colors(),
        vmin=limits[0],
        vmax=limits[1],
        edgecolors="white",
        linewidths=0.3,
        zorder=4,
    )


def _panels(count: int, shape: float, points: bool) -> tuple[Figure, list[tuple[Axes, Axes]], Axes]:
    """Pairs of panels, one above the other (a single pair side by side), and the colour bar.

    With ``points``, there is room for a legend below.
    """
    bottom = 0.95 if points else 0.6
    if count == 1:
        width, height = 3.6, 3.6 * shape
        lefts, bottoms = [0.9, 0.9 + width + 0.65], [bottom]
    else:
        width, height = 2.05, 2.05 * shape
        lefts = [1.05 + i * (width + 0.32) for i in range(count)]
        bottoms = [bottom, bottom + height + 0.25]
    right, top = lefts[-1] + width, bottoms[-1] + height
    boxes = [(left, low, width, height) for left in lefts for low in reversed(bottoms)]
    boxes.append((right + 0.15, bottom, 0.17, top - bottom))
    figure, (*made, scale) = style.sheet(right + 1.0, top + 0.62, boxes)
    return figure, list(zip(made[::2], made[1::2], strict=True)), scale


def _label(panels: list[tuple[Axes, Axes]]) -> None:
    """Names of the rows, and labels at the outer edge only."""
    if len(panels) == 1:
        style.heading(panels[0][1], "discount", "as the model has learned it")
        panels[0][1].set_ylabel("")
        return
    for column, (above, below) in enumerate(panels):
        above.set_xlabel("")
        above.tick_params(labelbottom=False)
        for axes in (above, below) if column else ():
            axes.set_ylabel("")
            axes.tick_params(labelleft=False)
    for axes, name in zip(panels[0], ("archive", "discount"), strict=True):
        axes.annotate(
            name,
            (0, 0.5),
            xytext=(-62, 0),
            xycoords="axes fraction",
            rotation=90,
            textcoords="offset points",
            ha="center",
            va="center",
            color=style.INK,
            fontsize=style.TITLE,
            fontweight="bold",
        )


def _legend(figure: Figure) -> None:
    """What the points are."""
    dot = Line2D(
        [],
        [],
        linestyle="",
        marker="o",
        markersize=4.5,
        markeredgewidth=0,
        markerfacecolor=style.objective_colors()(0.55),
    )
    cross = Line2D([], [], linestyle="", marker="x", markersize=4.5, color=style.QUIET)
    names = ["solutions, coloured by target", "empty cells, trained to the minimum"]
    figure.legend(
        [dot, cross],
        names,
        loc="lower center",
        ncols=2,
        frameon=False,
        fontsize=style.LABEL,
        labelcolor=style.INK,
        handletextpad=0.2,
    )
