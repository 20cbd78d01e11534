"""Moments of a search: its elites and its discount after an iteration, read from a run folder.

A search in memory, as a source of figures besides run folders.

The discount function, alone or beside the archive, with what it was trained on.
"""

import dataclasses
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, cast, runtime_checkable

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gloam import checks, step
from gloam.algorithms import Algorithm
from gloam.discounts import DiscountModel
from gloam.draws import root_key
from gloam.formats import DamagedFileError, RunFolder
from gloam.formats.checkpoints import state_from
from gloam.plots import style
from gloam.plots.heatmap import Plane, draw_heatmap, function_map, in_chunks

# More columns of figures would be too narrow to read.
_MOST = 5


@dataclasses.dataclass(frozen=True)
class Moment:
    """The search of one seed after one iteration."""

    iteration: int
    objectives: Float[np.ndarray, " cells"]
    discount: Any
    """State of the discount model."""
    points: Float[np.ndarray, "rows meas"]
    targets: Float[np.ndarray, " rows"]
    real: Bool[np.ndarray, " rows"]


def algorithm_of(folder: RunFolder, given: Algorithm | None = None) -> Algorithm:
    """The algorithm of a run: the one given, or else built anew from the folder."""
    algorithm = folder.read_part("algorithm") if given is None else given
    checks.instance("algorithm", algorithm, Algorithm)
    return algorithm


def moments_of(
    folder: RunFolder, algorithm: Algorithm, iterations: Sequence[int] | None
) -> list[Moment]:
    """Snapshots of a run folder, five of them or those named, or else the checkpoint."""
    known = folder.snapshot_iterations
    if iterations is not None:
        missing = [at for at in iterations if at not in known]
        checks.expect(
            not missing,
            "iterations",
            f"snapshots among {known}",
            missing,
            "Name them when you run: snapshots=[...].",
        )
    elif known:
        chosen = np.linspace(0, len(known) - 1, min(len(known), _MOST)).round().astype(int)
        iterations = [known[i] for i in chosen]
    else:
        return [last_moment(folder, algorithm)]
    shapes = _shapes(algorithm)
    moments = []
    for at in iterations:
        arrays = folder.read_snapshot(at)
        try:
            moments.append(_moment(at, arrays, shapes))
        except ValueError as error:
            path = folder.path / "snapshots" / f"{at:07d}.npz"
            raise DamagedFileError(path, str(error), "Delete it, or run again.") from None
    return moments


def _shapes(algorithm: Algorithm) -> Any:
    return jax.eval_shape(lambda key: step.init(algorithm, key), root_key(0))


def _moment(iteration: int, arrays: dict[str, np.ndarray], shapes: Any) -> Moment:
    """A snapshot, its arrays checked against the algorithm's."""
    learned = {
        name.removeprefix("discount "): array
        for name, array in arrays.items()
        if name.startswith("discount ")
    }
    rows = len(arrays["targets"]) if "targets" in arrays else 0
    cells, measures = shapes.store.measures.shape
    expected = {
        "objectives": (np.float32, (cells,)),
        "points": (np.float32, (rows, measures)),
        "targets": (np.float32, (rows,)),
        "real": (np.bool_, (rows,)),
    }
    plain = {name: array for name, array in arrays.items() if not name.startswith("discount ")}
    found = {name: (array.dtype.type, array.shape) for name, array in plain.items()}
    if found != expected:
        raise ValueError("it was written for another algorithm")
    return Moment(iteration, discount=state_from(shapes.discount, learned), **plain)


def last_moment(folder: RunFolder, algorithm: Algorithm) -> Moment:
    """The first seed of the checkpoint; what it was trained on is not kept there."""
    checks.expect(
        folder.holds_checkpoint,
        "run folder",
        "snapshots or a checkpoint",
        f"none in '{folder.path}'",
        "Wait for the run's first checkpoint.",
    )
    shapes = _shapes(algorithm)
    config = folder.read_config()
    # A checkpoint has all seeds along a first axis of everything but the iteration.
    iteration, seeds = shapes.iteration, len(config.seeds)
    shapes = jax.tree.map(lambda s: jax.ShapeDtypeStruct((seeds, *s.shape), s.dtype), shapes)
    shapes = eqx.tree_at(lambda s: s.iteration, shapes, iteration)
    state = folder.read_checkpoint(shapes).state
    kept = state.store.objectives, state.discount
    objectives, discount = jax.tree.map(lambda leaf: np.asarray(leaf)[0], kept)
    nothing = np.zeros((0, state.store.measures.shape[-1]), np.float32)
    return Moment(
        int(state.iteration),
        np.asarray(objectives),
        discount,
        nothing,
        np.zeros(0, np.float32),
        np.zeros(0, bool),
    )


@runtime_checkable
class Searching(Protocol):
    """A search in memory, such as `gloam.Search`."""

    algorithm: Algorithm
    state: Any

    def snapshot(self) -> dict[str, np.ndarray]:
        """Arrays of the search after the last `tell`."""
        ...


Source = RunFolder | str | os.PathLike | Searching
"""Where the discount function is taken from: a run folder, its path, or a search in memory."""


def moment_of_search(search: Searching) -> Moment:
    """A search in memory, after its last `tell`."""
    iteration = int(search.state.iteration)
    fix = "Call ask() and tell() first."
    checks.expect(iteration > 0, "search", "at least one finished iteration", "none", fix)
    arrays = search.snapshot()
    trained = {name: arrays[name] for name in ("points", "targets", "real")}
    return Moment(iteration, arrays["objectives"], search.state.discount, **trained)


def discount_function(
    source: Source,
    *,
    iteration: int | None = None,
    points: bool = True,
    algorithm: Algorithm | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Figure:
    """The discount that a model has learned, over measure space, with its training points.

    Args:
        source: A run folder or its path, or a search in memory.
        iteration: Snapshot of the run folder to show; by default the last.
        points: Whether to draw what the model was trained on: solutions as dots in the colours of
            their targets, empty cells as crosses.
        algorithm: As in `discount_panels`.
        title: Heading of the figure.
        ax: Axes to draw in; by default those of a new figure.
    """
    if isinstance(source, Searching):
        algorithm, moment = source.algorithm, moment_of_search(source)
        model = _model_of(algorithm)
    else:
        folder = source if isinstance(source, RunFolder) else RunFolder(source)
        algorithm = algorithm_of(folder.must_hold_run(), algorithm)
        model = _model_of(algorithm)
        at = None if iteration is None else [iteration]
        moment = moments_of(folder, algorithm, at)[-1]
    plane, limits = Plane(algorithm.archive), _limits(model, [moment])
    axes = style.axes_for(ax, 5.4, 4.4 * plane.shape + 0.4)
    values = _discounts(algorithm, moment, plane)
    drawn = function_map(axes, values, plane, limits=limits)
    if points:
        training_points(axes, moment, plane, algorithm.emitter.num_solutions, limits)
    style.side_bar(drawn, axes, "discount")
    style.heading(axes, title, f"iteration {moment.iteration:,}" if title else "")
    return style.figure_of(axes)


def discount_panels(
    folder: RunFolder,
    *,
    iterations: Sequence[int] | None = None,
    algorithm: Algorithm | None = None,
    ax: Axes | None = None,
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
        ax: Axes whose place the panels take; by default they have a new figure.
    """
    folder.must_hold_run()
    algorithm = algorithm_of(folder, algorithm)
    model = _model_of(algorithm)
    moments = moments_of(folder, algorithm, iterations)
    limits = _limits(model, moments)
    plane = Plane(algorithm.archive)

    trained = any(moment.real.any() for moment in moments)
    figure, panels, scale = _panels(len(moments), plane.shape, trained, ax)
    top = limits[1]
    for (above, below), moment in zip(panels, moments, strict=True):
        draw_heatmap(above, (algorithm.archive, moment.objectives), limits=limits, plane=plane)
        values = _discounts(algorithm, moment, plane)
        top = max(top, float(values.max()))
        function_map(below, values, plane, limits=limits)
        training_points(below, moment, plane, algorithm.emitter.num_solutions, limits)
        gained = moment.objectives[np.isfinite(moment.objectives)] - algorithm.archive.f_min
        style.heading(above, f"iteration {moment.iteration:,}", f"QD score {gained.sum():,.0f}")
    style.color_bar(figure, scale, limits, "objective and discount", more=top > limits[1])
    _label(panels)
    if trained:
        _legend(figure if ax is None else ax)
    return figure


def _model_of(algorithm: Algorithm) -> DiscountModel:
    model = algorithm.discount
    checks.instance("discount", model, DiscountModel, "Only a model has a function to draw.")
    return cast(DiscountModel, model)


def _discounts(algorithm: Algorithm, moment: Moment, plane: Plane) -> Float[np.ndarray, " sites"]:
    """The discount at the sites of a plane."""
    model, space = _model_of(algorithm), algorithm.archive.discount_space
    return in_chunks(partial(_discount, model, space, moment.discount), plane.sites)


@eqx.filter_jit
def _discount(model: DiscountModel, space: Callable, state: Any, points: Any) -> Any:
    return model.discount(state, space(points))


def _limits(model: DiscountModel, moments: Sequence[Moment]) -> tuple[float, float]:
    """The scale of colours: the model's range of objectives, or that of the elites."""
    found = np.concatenate([moment.objectives for moment in moments])
    found = found[np.isfinite(found)]
    lowest, best = (found.min(), found.max()) if len(found) else (0.0, 1.0)
    low = float(lowest) if model.floor is None else model.floor
    high = max(-np.inf if model.ceiling is None else model.ceiling, float(best))
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


def _panels(
    count: int, shape: float, points: bool, ax: Axes | None
) -> tuple[Figure, list[tuple[Axes, Axes]], Axes]:
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
    figure, (*made, scale) = style.sheet(right + 1.0, top + 0.62, boxes, ax)
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


def _legend(where: Figure | Axes) -> None:
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
    where.legend(
        [dot, cross],
        names,
        loc="lower center",
        ncols=2,
        frameon=False,
        fontsize=style.LABEL,
        labelcolor=style.INK,
        handletextpad=0.2,
    )
