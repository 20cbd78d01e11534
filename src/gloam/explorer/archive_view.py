"""The archive of a run as the page draws it: its cells, maps of them, and the discount model."""

import math
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from gloam.algorithms import Algorithm
from gloam.archives import CVTArchive, GridArchive
from gloam.archives.archive import measure_labels
from gloam.datasets.matches import distances
from gloam.discounts import DiscountModel
from gloam.explorer.library import EliteRows, OpenedRun
from gloam.explorer.page import packed
from gloam.explorer.summaries import newest_checkpoint
from gloam.plots.discount import discounts, last_moment, moments_of, state_shapes
from gloam.plots.plane import FEWEST_EMBEDDED, installed_embeddings, project
from gloam.plots.run_figures import arguments_of
from gloam.spaces import Real, Space

# The page holds arrays of all cells.
_MAX_CELLS = 20_000_000
_MAX_LABELS = 200
# Grids of more measures have few cells along each, and are drawn by projections only.
_MAX_GRID = 4
# Measures whose names and bounds are told.
_MAX_AXES = 16
# Elites that t-SNE and UMAP lay out, which takes seconds; a million would take hours.
_MAX_EMBEDDED = 2000
_embedding = threading.Lock()
# Archives with more cells have no map of the discount model.
_MAX_DISCOUNTS = 200_000
_MAX_TRAINING_POINTS = 2000
# Numbers of a field, and fields and variables, by which elites can be colored.
_MAX_NUMBERS = 8
_MAX_COLUMNS = 60


def described_run(run: OpenedRun) -> dict[str, Any]:
    """Describe what the page can show of a run: archive, columns, snapshots, model and pictures.

    Raises:
        ValueError, OSError: The folder cannot be read.
    """
    snapshots = run.folder.snapshot_iterations
    has_moment = bool(snapshots) or newest_checkpoint(run.folder.path) is not None
    return {
        "archive": _described_archive(run),
        "columns": [column._asdict() for column in _columns(run)],
        "moments": snapshots,
        "model": has_moment and has_model(run),
        "pictures": _picture_sides(run),
    }


def _described_archive(run: OpenedRun) -> dict[str, Any]:
    archive = run.archive
    if archive.num_cells > _MAX_CELLS:
        raise ValueError(f"The archive has {archive.num_cells:,} cells, too many to draw.")
    has_bounds = archive.measure_dim <= _MAX_AXES
    # Many measures without names, such as pixels, are shown as a list of numbers.
    is_named = has_bounds and (archive.measure_names or archive.measure_dim <= _MAX_GRID)
    names = measure_labels(archive.measure_names, archive.measure_dim) if is_named else None
    return {
        "kind": "grid" if isinstance(archive, GridArchive) else "cvt",
        "shape": list(archive.shape) if isinstance(archive, GridArchive) else None,
        "num_cells": archive.num_cells,
        "measure_dim": archive.measure_dim,
        "measures": names,
        "lower": np.asarray(archive.lower) if has_bounds else None,
        "upper": np.asarray(archive.upper) if has_bounds else None,
        "metric": run.metric,
        "labels": _labels(run),
        "projections": _projections(run),
    }


class Column(NamedTuple):
    """A number of each elite, by which a map can be colored."""

    kind: str
    """``"field"`` or ``"variable"``."""
    title: str
    source: str
    """Name of the field, or "" for a variable."""
    place: int
    """Index among the numbers of the field, or in the vector."""
    choices: list[str] | None = None
    """Texts of a category, whose numbers are indices."""
    is_log: bool = False
    """Whether colors show the logarithm to base 10."""


def _columns(run: OpenedRun) -> list[Column]:
    """Return the fields of few numbers and the variables of a space, up to a number of them."""
    return run.cached("columns", run.config.identity, lambda: _listed_columns(run))


def _listed_columns(run: OpenedRun) -> list[Column]:
    columns = []
    for name, spec in run.archive.fields.items():
        size = math.prod(spec.shape)
        if size <= _MAX_NUMBERS and np.dtype(spec.dtype).kind in "biuf":
            titles = [f"{name}_{i}" for i in range(size)] if spec.shape else [name]
            columns += [Column("field", title, name, i) for i, title in enumerate(titles)]
    form = run.form
    if isinstance(form, Space):
        kinds = [variable for _, variable in form.variables for _ in range(variable.size)]
        _, choices = form.numbers(form.start[None])
        for (name, index), variable in zip(form.places, kinds, strict=True):
            is_log = isinstance(variable, Real) and variable.log
            title = f"log10 {name}" if is_log else name
            columns.append(Column("variable", title, "", index, choices[index], is_log))
    return columns[:_MAX_COLUMNS]


def packed_column(run: OpenedRun, seed: int, number: int) -> bytes:
    """Return the cells of the elites of a seed, and their values of a column.

    Raises:
        ValueError: The run has no such column.
    """
    columns, rows = _columns(run), run.elites(seed)
    if number >= len(columns):
        raise ValueError(f"The run has {len(columns)} columns, none with the number {number}.")
    column, form = columns[number], run.form
    if column.kind == "field":
        values = rows.elites.field(column.source).reshape(len(rows.cells), -1)[:, column.place]
    else:
        assert isinstance(form, Space)
        values = form.numbers(rows.solutions)[0][:, column.place]
        if column.choices is not None:
            values = np.clip(np.rint(values), 0, len(column.choices) - 1)
        elif column.is_log:
            values = np.log10(values)
    return packed({"cell": rows.cells.astype(np.int32), "value": values.astype(np.float32)})


def _projections(run: OpenedRun) -> list[dict[str, Any]]:
    """List the projections that can be chosen for a run, the default first.

    The page itself draws ``"grid"``, two measures of a grid. Of more measures with names, two are
    chosen as ``"axes"``.
    """
    grid = [{"name": "grid", "title": "measures", "cells": None}] * _is_small_grid(run)
    if run.archive.measure_dim <= 2:
        return grid or [{"name": "measures", "title": "measures", "cells": None}]
    embeddings = installed_embeddings().items()
    has_axes = bool(run.archive.measure_names) and run.archive.measure_dim <= _MAX_AXES and not grid
    axes = [{"name": "axes", "title": "measures", "cells": None}] * has_axes
    return [*grid, {"name": "pca", "title": "PCA", "cells": None}, *axes] + [
        {"name": name, "title": title, "cells": _MAX_EMBEDDED} for name, title in embeddings
    ]


def _is_small_grid(run: OpenedRun) -> bool:
    """Whether the archive is a grid of which two measures are drawn."""
    return isinstance(run.archive, GridArchive) and 2 <= run.archive.measure_dim <= _MAX_GRID


def _picture_sides(run: OpenedRun) -> dict[str, bool]:
    """Whether elites and items can be shown as pictures."""
    try:
        shown = run.pictures(run.elites(run.config.seeds[0])) is not None
    except ValueError:  # before the first checkpoint
        shown = False
    return {"solution": shown, "item": run.dataset is not None}


def packed_elites(run: OpenedRun, seed: int, at: int | None = None) -> bytes:
    """Return the filled cells of a seed and the values for their colors, now or at a snapshot."""
    if at is not None:
        objectives = _snapshot_objectives(run, at)
        cells = np.flatnonzero(np.isfinite(objectives))
        arrays = {"cell": cells.astype(np.int32), "objective": objectives[cells]}
        return packed(arrays, {"iteration": at, "seed": seed})
    rows = run.elites(seed)
    optional = {
        "cell": rows.cells.astype(np.int32),
        "objective": rows.objectives,
        "distance": distances_of(run, rows),
        "found": found_at(run, seed, rows),
        "label": _label_codes(run, rows.cells),
    }
    arrays = {name: array for name, array in optional.items() if array is not None}
    return packed(arrays, {"iteration": rows.iteration, "seed": seed})


def distances_of(run: OpenedRun, rows: EliteRows) -> Float[np.ndarray, " n"] | None:
    """Return the distances from elites to the centroids of their cells; ``None`` for grids."""
    dataset = run.dataset
    if not isinstance(run.archive, CVTArchive) or (dataset is None and run.metric != "euclidean"):
        return None

    def measured() -> np.ndarray:
        if dataset is not None:
            return distances(run.metric, rows.measures, dataset.items, rows.cells)
        offset = rows.measures - run.plane.centers[rows.cells]
        return np.linalg.norm(offset, axis=1).astype(np.float32)

    return run.cached("distances", rows.version, measured)


def found_at(run: OpenedRun, seed: int, rows: EliteRows) -> Int[np.ndarray, " n"] | None:
    """Return the first snapshot that has each elite; 2**31 - 1 for elites found after the last.

    ``None`` without snapshots, which are of the first seed.
    """
    snapshots = run.folder.snapshot_iterations
    if not snapshots or seed != run.config.seeds[0]:
        return None

    def compared() -> np.ndarray:
        first = np.full(len(rows.cells), np.iinfo(np.int32).max, np.int32)
        for at in reversed(snapshots):
            first[_snapshot_objectives(run, at)[rows.cells] == rows.objectives] = at
        return first

    return run.cached("found", (rows.version, tuple(snapshots)), compared)


def _snapshot_objectives(run: OpenedRun, at: int) -> Float[np.ndarray, " cells"]:
    objectives = run.folder.read_snapshot(at).get("objectives")
    shape = (run.archive.num_cells,)
    if objectives is None or objectives.shape != shape or objectives.dtype != np.float32:
        raise ValueError(f"The snapshot of iteration {at} belongs to another archive.")
    return objectives


def _labels(run: OpenedRun) -> list[str]:
    """Return the distinct labels of the dataset, sorted; none if they are too many for a legend."""
    labels = sorted(set(run.dataset.labels or ())) if run.dataset is not None else []
    return labels if len(labels) <= _MAX_LABELS else []


def _label_codes(run: OpenedRun, cells: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"] | None:
    """Return the label of each cell as its index in the sorted labels."""
    codes = {label: code for code, label in enumerate(_labels(run))}
    if not codes or run.dataset is None or run.dataset.labels is None:
        return None
    return np.array([codes[run.dataset.labels[cell]] for cell in cells.tolist()], np.int32)


def packed_map(run: OpenedRun, projection: str, seed: int, axes: tuple[int, int] = (0, 1)) -> bytes:
    """Return the places of the cells by a projection that `described_run` lists.

    Args:
        run: The run.
        projection: Its name.
        seed: The seed whose elites are placed, by a projection of elites.
        axes: The two measures of ``"axes"``.
    """
    spots, cells, about = placed_cells(run, projection, seed, axes)
    x, y = spots.astype(np.float32).T
    arrays: dict[str, np.ndarray] = {"x": x, "y": y}
    if cells is not None:
        arrays["cell"] = cells.astype(np.int32)
    return packed(arrays, about)


def placed_cells(
    run: OpenedRun, projection: str, seed: int, axes: tuple[int, int] = (0, 1)
) -> tuple[Float[np.ndarray, "n 2"], Int[np.ndarray, " n"] | None, dict[str, Any]]:
    """Return the places of cells, the cells (``None`` for all), and the titles of axes and map.

    Raises:
        ValueError: The run has no such projection, or no such measures.
    """
    titles = {known["name"]: known["title"] for known in _projections(run)}
    if projection not in titles:
        raise ValueError(f"There is no projection {projection!r} for this run.")
    if projection in ("measures", "pca"):
        x, y = run.plane.labels
        title = f"PCA: {x}, {y}" if run.plane.is_projected else "measures"
        return run.plane.spots, None, {"x": x, "y": y, "title": title}
    rows = run.elites(seed)
    if projection == "axes":
        names = run.archive.measure_names
        if max(axes) >= len(names):
            raise ValueError(f"The archive has {len(names)} measures.")
        # The best elites are drawn last, over the others.
        order = np.argsort(rows.objectives, kind="stable")
        x, y = (names[axis] for axis in axes)
        about = {"x": x, "y": y, "title": f"{x} and {y} of the elites"}
        return rows.measures[order][:, list(axes)], rows.cells[order], about

    def embedded() -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        count = min(_MAX_EMBEDDED, len(rows.cells))
        chosen = np.sort(np.random.default_rng(0).choice(len(rows.cells), count, replace=False))
        spots, (x, y) = _embed(rows.measures[chosen], projection, titles[projection])
        about = {"x": x, "y": y, "title": f"{titles[projection]} of {count:,} elites"}
        return spots, rows.cells[chosen], about

    return run.cached(("map", projection), (rows.version, seed), embedded)


def _embed(
    measures: Float[np.ndarray, "n meas"], method: Any, title: str
) -> tuple[Float[np.ndarray, "n 2"], tuple[str, str]]:
    """Return places by UMAP or t-SNE; all at one spot if there are too few points."""
    from threadpoolctl import threadpool_limits

    if len(measures) < FEWEST_EMBEDDED:
        return np.zeros((len(measures), 2), np.float32), (f"{title} 1", f"{title} 2")
    # One at a time and on one core: the search that is shown may use the other cores.
    with _embedding, threadpool_limits(1):
        return project(measures, method)


def has_model(run: OpenedRun) -> bool:
    """Whether the run has a discount model that can be drawn."""
    discount = arguments_of(run.config.algorithm).get("discount")
    if not (isinstance(discount, dict) and discount.get("class") == "DiscountModel"):
        return False
    is_small = run.archive.num_cells <= _MAX_DISCOUNTS or run.is_plane_grid
    return is_small and not _is_foreign(run.config.algorithm)


def _is_foreign(content: Any) -> bool:
    """Whether an encoded object has a part that only the user's program can build."""
    if isinstance(content, dict):
        return "foreign" in content or any(map(_is_foreign, content.values()))
    return isinstance(content, list) and any(map(_is_foreign, content))


def model_algorithm(run: OpenedRun) -> Algorithm | None:
    """Return the algorithm if its discount is a model."""
    read = partial(run.folder.read_part, "algorithm")
    algorithm = run.cached("algorithm", run.config.identity, read)
    return algorithm if isinstance(algorithm.discount, DiscountModel) else None


def packed_discount(
    run: OpenedRun, at: int | None, shorten: Callable[[np.ndarray], np.ndarray] = np.asarray
) -> bytes:
    """Return values of the model of the first seed, at a snapshot or now.

    For two measures they are a raster over the bounds, row by row from below; else a value for each
    cell.

    Args:
        run: The run.
        at: Iteration of the snapshot, or ``None`` for the newest checkpoint.
        shorten: Applied to the values.
    """
    algorithm = model_algorithm(run)
    if algorithm is None:
        raise ValueError("The run has no discount model.")
    plane, snapshots = run.plane, run.folder.snapshot_iterations
    reached = newest_checkpoint(run.folder.path)
    if at is None and snapshots and reached in (None, snapshots[-1]):
        at = snapshots[-1]  # a snapshot also has the training points
    if at is None:
        moment = last_moment(run.folder, algorithm)
    else:
        traced = partial(state_shapes, algorithm)
        shapes = run.cached("state shapes", run.config.identity, traced)
        (moment,) = moments_of(run.folder, algorithm, [at], shapes)
    values = discounts(algorithm, moment, plane.sites)
    real = np.flatnonzero(moment.real)[:_MAX_TRAINING_POINTS]
    spots = plane.place(moment.points[real]).astype(np.float32)
    arrays = {
        "values": shorten(np.asarray(values, np.float32)),
        "x": spots[:, 0],
        "y": spots[:, 1],
        "target": moment.targets[real],
        "solution": (real < algorithm.emitter.num_solutions).astype(np.uint8),
    }
    if _is_small_grid(run):
        arrays["points"] = moment.points[real]
    raster = None if plane.is_projected else list(plane.raster_shape)
    return packed(arrays, {"iteration": moment.iteration, "raster": raster})
