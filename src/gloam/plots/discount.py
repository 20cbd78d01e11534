"""Figures of the discount function, alone or below the archive, with its training points.

A figure shows *moments* of a search, the elites and the discount model after an iteration. They are
read from the snapshots or the checkpoint of a run folder, or taken from a search in memory.
"""

import dataclasses
import os
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, Protocol, cast, runtime_checkable

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gloam import step
from gloam._tools import checks
from gloam._tools.draws import root_key
from gloam.algorithms import Algorithm
from gloam.archives import Archive
from gloam.archives.qd_score import lowered_on_host, qd_score, reference_note
from gloam.datasets.rows import evenly_spaced
from gloam.discounts import DiscountModel
from gloam.errors import DamagedFileError
from gloam.formats import RunFolder
from gloam.formats.checkpoints import state_from
from gloam.plots import style
from gloam.plots.grid_view import At, GridView, Measure, view_of
from gloam.plots.heatmaps import draw_function, draw_heatmap
from gloam.plots.plane import CellValues, Plane, cell_values, in_chunks
from gloam.plots.style import Limits

# More columns would be too narrow to read.
_MAX_COLUMNS = 5
_LEARNED = "discount "
# Fields of a state that figures show.
_SHOWN = ("iteration", "store", "discount")


@runtime_checkable
class Searching(Protocol):
    """A search in memory, such as `gloam.Search`."""

    algorithm: Algorithm
    state: Any

    def snapshot(self) -> dict[str, np.ndarray]:
        """Return the arrays of a snapshot after the last `tell`."""
        ...


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
    """False for rows that are padding."""


def discount_function(
    source: RunFolder | str | os.PathLike | Searching,
    *,
    iteration: int | None = None,
    points: bool = True,
    measures: Sequence[Measure] | None = None,
    at: At | None = None,
    algorithm: Algorithm | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Figure:
    """Draw the learned discount function over measure space, with its training points.

    Args:
        source: A run folder or its path, or a search in memory.
        iteration: Snapshot of the run folder to show; by default the last.
        points: Whether to draw the training points: solutions as dots in the colours of their
            targets, empty cells as crosses.
        measures, at, algorithm: As in `discount_panels`.
        title: Heading of the figure.
        ax: Axes to draw in; by default those of a new figure.
    """
    if isinstance(source, Searching):
        algorithm = source.algorithm
        model, moment = _model_of(algorithm), _moment_of_search(source)
    else:
        folder = source if isinstance(source, RunFolder) else RunFolder(source)
        algorithm = algorithm_of(folder.must_hold_run(), algorithm)
        model = _model_of(algorithm)
        moment = moments_of(folder, algorithm, None if iteration is None else [iteration])[-1]
    view, limits = view_of(algorithm.archive, measures, at), _limits(model, [moment])
    plane = Plane(algorithm.archive if view is None else view.archive)
    axes = style.axes_for(ax, 5.4, 4.4 * plane.aspect + 0.4)
    drawn, _ = _draw_discounts(axes, algorithm, moment, plane, view, limits)
    if points:
        _draw_training_points(axes, algorithm, moment, plane, view, limits)
    style.side_bar(drawn, axes, "discount")
    style.heading(axes, title, f"iteration {moment.iteration:,}" if title else "")
    return style.figure_of(axes)


def discount_panels(
    folder: RunFolder,
    *,
    iterations: Sequence[int] | None = None,
    measures: Sequence[Measure] | None = None,
    at: At | None = None,
    algorithm: Algorithm | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw the archive above the discount function, a column for each snapshot of a run.

    Dots on the discount function are the solutions of that iteration in the colours of their
    targets; crosses are the empty cells that were trained to the floor. Both rows share one scale
    of colours.

    Args:
        folder: A run folder. Without snapshots, its checkpoint is drawn, without training points.
        iterations: Snapshots to show; by default all, or five at even intervals.
        measures, at: As in `heatmap`. Over other measures, the highest discount is drawn.
        algorithm: Needed only if the run's algorithm has parts that gloam cannot load from a file,
            such as a network of your own class.
        ax: Axes to draw the panels in; by default they have a new figure.
    """
    algorithm = algorithm_of(folder.must_hold_run(), algorithm)
    model = _model_of(algorithm)
    moments = moments_of(folder, algorithm, iterations)
    view, limits = view_of(algorithm.archive, measures, at), _limits(model, moments)
    plane = Plane(algorithm.archive if view is None else view.archive)

    is_trained = any(moment.real.any() for moment in moments)
    figure, panels, bar = _panels(len(moments), plane.aspect, is_trained, ax)
    top = limits[1]
    scores = _score_texts(algorithm.archive, moments)
    for (above, below), moment, score in zip(panels, moments, scores, strict=True):
        shown = cell_values((algorithm.archive, moment.objectives))
        draw_heatmap(above, shown if view is None else view.best(shown), plane, limits)
        _, highest = _draw_discounts(below, algorithm, moment, plane, view, limits)
        top = max(top, highest)
        _draw_training_points(below, algorithm, moment, plane, view, limits)
        style.heading(above, f"iteration {moment.iteration:,}", score)
    style.color_bar(figure, bar, limits, "objective and discount", more=top > limits[1])
    _label(panels)
    if is_trained:
        _add_legend(figure if ax is None else ax)
    return figure


def _score_texts(archive: Archive, moments: Sequence[Moment]) -> list[str]:
    """Return the QD scores of moments, counted from one reference."""
    of_elites = [moment.objectives[np.isfinite(moment.objectives)] for moment in moments]
    f_min = archive.f_min_from(reduce(lowered_on_host, of_elites, 0.0))
    is_given, note = archive.f_min is not None, reference_note(f_min)
    scores = [qd_score(objectives, f_min, is_given=is_given) for objectives in of_elites]
    return [f"QD score {score:,.0f}{note}" for score in scores]


def algorithm_of(folder: RunFolder, given: Algorithm | None = None) -> Algorithm:
    """Return the given algorithm of a run, or else load it from the folder."""
    algorithm = folder.read_part("algorithm") if given is None else given
    checks.instance("algorithm", algorithm, Algorithm)
    return algorithm


def moments_of(
    folder: RunFolder,
    algorithm: Algorithm,
    iterations: Sequence[int] | None,
    shapes: Any = None,
) -> list[Moment]:
    """Read the given snapshots of a run, or five of them; without snapshots, the checkpoint.

    Args:
        folder: The run folder.
        algorithm: The algorithm of the run.
        iterations: Iterations of snapshots.
        shapes: `state_shapes` of the algorithm, if they are known.
    """
    known = folder.snapshot_iterations
    if iterations is not None:
        missing = [at for at in iterations if at not in known]
        fix = "Choose them when you start a run: snapshots=[...]."
        checks.expect(not missing, "iterations", f"snapshots among {known}", missing, fix)
        checks.expect(len(iterations) > 0, "iterations", "at least one snapshot", "none")
    elif known:
        iterations = [known[i] for i in evenly_spaced(len(known), _MAX_COLUMNS)]
    else:
        return [last_moment(folder, algorithm)]
    shapes = shapes or state_shapes(algorithm)
    return [_read_snapshot(folder, at, shapes) for at in iterations]


def last_moment(folder: RunFolder, algorithm: Algorithm) -> Moment:
    """Read the first seed of the checkpoint, which holds no training points."""
    checks.expect(
        folder.holds_checkpoint,
        "run folder",
        "snapshots or a checkpoint",
        f"none in '{folder.path}'",
        "Wait for the first checkpoint of the run.",
    )
    shapes = state_shapes(algorithm)
    # All arrays of a checkpoint but the iteration have the seeds as their first axis.
    iteration, seeds = shapes.iteration, len(folder.read_config().seeds)
    shapes = jax.tree.map(lambda s: jax.ShapeDtypeStruct((seeds, *s.shape), s.dtype), shapes)
    # The other fields are not shown, and the state of the emitter depends on the driver.
    hidden = {f.name: None for f in dataclasses.fields(shapes) if f.name not in _SHOWN}
    shapes = dataclasses.replace(shapes, iteration=iteration, **hidden)
    state = folder.read_checkpoint(shapes, tuple(f".{name}" for name in _SHOWN)).state
    both = state.store.objectives, state.discount
    objectives, discount = jax.tree.map(lambda leaf: np.asarray(leaf)[0], both)
    points = np.zeros((0, state.store.measures.shape[-1]), np.float32)
    nothing = np.zeros(0, np.float32)
    return Moment(int(state.iteration), objectives, discount, points, nothing, nothing > 0)


def discounts(
    algorithm: Algorithm, moment: Moment, points: Float[np.ndarray, "n meas"]
) -> Float[np.ndarray, " n"]:
    """Return the discounts of measures by the model of a moment."""
    model, space = _model_of(algorithm), algorithm.archive.discount_space
    return in_chunks(partial(_discount, model, space, moment.discount), points)


@eqx.filter_jit
def _discount(model: DiscountModel, space: Callable, state: Any, points: Any) -> Any:
    return model.discount(state, space(points))


def _model_of(algorithm: Algorithm) -> DiscountModel:
    model = algorithm.discount
    checks.instance("discount", model, DiscountModel, "Only a model has a function to draw.")
    return cast(DiscountModel, model)


def _moment_of_search(search: Searching) -> Moment:
    iteration = int(search.state.iteration)
    fix = "Call ask() and tell() first."
    checks.expect(iteration > 0, "search", "at least one finished iteration", "none", fix)
    plain, _ = _split(search.snapshot())
    return Moment(iteration, discount=search.state.discount, **plain)


def state_shapes(algorithm: Algorithm) -> Any:
    """Return the shapes of the state of one seed. Takes a few tenths of a second."""
    return jax.eval_shape(lambda key: step.init(algorithm, key), root_key(0))


def _read_snapshot(folder: RunFolder, iteration: int, shapes: Any) -> Moment:
    """Read a snapshot and check its arrays against those of the algorithm."""
    plain, learned = _split(folder.read_snapshot(iteration))
    rows = len(plain.get("targets", ()))
    cells, measures = shapes.store.measures.shape
    expected = {
        "objectives": (np.float32, (cells,)),
        "points": (np.float32, (rows, measures)),
        "targets": (np.float32, (rows,)),
        "real": (np.bool_, (rows,)),
    }
    try:
        if {name: (array.dtype.type, array.shape) for name, array in plain.items()} != expected:
            raise ValueError("it was written for another algorithm")
        return Moment(iteration, discount=state_from(shapes.discount, learned), **plain)
    except ValueError as error:
        path = folder.path / "snapshots" / f"{iteration:07d}.npz"
        raise DamagedFileError(path, str(error), "Delete it, or run again.") from None


def _split(arrays: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Split the arrays of a snapshot into those of a moment and those of its discount model."""
    learned = {name for name in arrays if name.startswith(_LEARNED)}
    plain = {name: arrays[name] for name in arrays if name not in learned}
    return plain, {name.removeprefix(_LEARNED): arrays[name] for name in learned}


def _limits(model: DiscountModel, moments: Sequence[Moment]) -> Limits:
    """Return the model's range of objectives, or that of the elites."""
    objectives = np.concatenate([moment.objectives for moment in moments])
    objectives = objectives[np.isfinite(objectives)]
    lowest, best = (objectives.min(), objectives.max()) if len(objectives) else (0.0, 1.0)
    low = float(lowest) if model.floor is None else model.floor
    high = max(-np.inf if model.ceiling is None else model.ceiling, float(best))
    return low, high if high > low else low + 1.0


def _draw_discounts(
    axes: Axes,
    algorithm: Algorithm,
    moment: Moment,
    plane: Plane,
    view: GridView | None,
    limits: Limits,
) -> tuple[ScalarMappable, float]:
    """Draw the discount function; also return the highest discount."""
    if view is None:
        values = discounts(algorithm, moment, plane.sites)
        return draw_function(axes, values, plane, limits), float(values.max())
    values = discounts(algorithm, moment, Plane(algorithm.archive).centers)
    shown = view.best(CellValues(algorithm.archive, values, ""))
    return draw_heatmap(axes, shown, plane, limits), float(shown.values.max())


def _draw_training_points(
    axes: Axes,
    algorithm: Algorithm,
    moment: Moment,
    plane: Plane,
    view: GridView | None,
    limits: Limits,
) -> None:
    """Draw the training points: solutions come first, then empty cells."""
    spots = plane.place(moment.points if view is None else moment.points[:, list(view.pair)])
    is_solution = np.arange(len(spots)) < algorithm.emitter.num_solutions
    batch, empty = moment.real & is_solution, moment.real & ~is_solution
    size = 0.7 if plane.is_projected else 1.0
    crosses = {"marker": "x", "c": "white", "linewidths": 0.7 * size, "alpha": 0.6}
    axes.scatter(*spots[empty].T, s=10 * size, zorder=3, **crosses)
    colors = {"c": moment.targets[batch]} | style.color_scale(limits)
    dots = {"s": 11 * size, "edgecolors": "white", "linewidths": 0.3}
    axes.scatter(*spots[batch].T, zorder=4, **dots, **colors)


def _panels(
    count: int, aspect: float, has_points: bool, ax: Axes | None
) -> tuple[Figure, list[tuple[Axes, Axes]], Axes]:
    """Return pairs of panels, one above the other (a single pair side by side), and a colour bar.

    With ``has_points``, there is room for a legend below.
    """
    bottom = 0.95 if has_points else 0.6
    if count == 1:
        width, height = 3.6, 3.6 * aspect
        lefts, bottoms = [0.9, 0.9 + width + 0.65], [bottom]
    else:
        width, height = 2.05, 2.05 * aspect
        lefts = [1.05 + i * (width + 0.32) for i in range(count)]
        bottoms = [bottom, bottom + height + 0.25]
    right, top = lefts[-1] + width, bottoms[-1] + height
    boxes = [(left, low, width, height) for left in lefts for low in reversed(bottoms)]
    boxes.append((right + 0.15, bottom, 0.17, top - bottom))
    figure, (*made, bar) = style.sheet(right + 1.0, top + 0.62, boxes, ax)
    return figure, list(zip(made[::2], made[1::2], strict=True)), bar


def _label(panels: list[tuple[Axes, Axes]]) -> None:
    """Name the rows, and keep labels of axes at the outer edge only."""
    if len(panels) == 1:
        style.heading(panels[0][1], "discount", "as learned by the model")
        panels[0][1].set_ylabel("")
        return
    for column, (above, below) in enumerate(panels):
        above.set_xlabel("")
        above.tick_params(labelbottom=False)
        for axes in (above, below) if column else ():
            axes.set_ylabel("")
            axes.tick_params(labelleft=False)
    for axes, name in zip(panels[0], ("archive", "discount"), strict=True):
        text = {"fontsize": style.TITLE, "fontweight": "bold", "color": style.INK}
        turned = {"rotation": 90, "ha": "center", "va": "center"}
        style.annotate(axes, name, (0, 0.5), (-62, 0), "axes fraction", **text, **turned)


def _add_legend(where: Figure | Axes) -> None:
    """Explain the training points."""
    mark = partial(Line2D, [], [], linestyle="", markersize=4.5)
    color = style.objective_colors()(0.55)
    entries = {
        "solutions, coloured by target": mark(marker="o", markeredgewidth=0, markerfacecolor=color),
        "empty cells, trained to the minimum": mark(marker="x", color=style.QUIET),
    }
    looks = {"fontsize": style.LABEL, "handletextpad": 0.2}
    style.legend(where, entries, loc="lower center", ncols=2, **looks)
