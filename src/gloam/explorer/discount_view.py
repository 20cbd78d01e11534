"""The discount model as the page draws it: its values and its training points."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from gloam.algorithms import Algorithm
from gloam.discounts import DiscountModel
from gloam.explorer.archive_views import packed
from gloam.explorer.opened_run import OpenedRun, newest_checkpoint

# Cells beyond which the model is not asked for every one of them.
_MAX_CELLS = 200_000
_MAX_POINTS = 2000


def has_model(run: OpenedRun) -> bool:
    """Whether the run has a discount model that can be drawn."""
    content = run.config.algorithm
    arguments = content.get("arguments") if isinstance(content, dict) else None
    part = arguments.get("discount") if isinstance(arguments, dict) else None
    if not (isinstance(part, dict) and part.get("class") == "DiscountModel"):
        return False
    is_small = run.archive.num_cells <= _MAX_CELLS or run.is_plane_grid
    return is_small and not _is_foreign(content)


def _is_foreign(content: Any) -> bool:
    """Whether a part can only be built by the user's program."""
    if isinstance(content, dict):
        return "foreign" in content or any(map(_is_foreign, content.values()))
    return isinstance(content, list) and any(map(_is_foreign, content))


def packed_discount(
    run: OpenedRun, at: int | None, shorten: Callable[[np.ndarray], np.ndarray] = np.asarray
) -> bytes:
    """Values of the model of the first seed, at a recorded iteration or now.

    For two measures a raster over the bounds, row by row from below; else a value for each cell.

    Args:
        run: The run.
        at: The iteration, or ``None`` for the newest checkpoint.
        shorten: Applied to the values.
    """
    from gloam.plots.discount import last_moment, moments_of
    from gloam.plots.plane import Plane, in_chunks

    algorithm = _algorithm(run)
    if algorithm is None:
        raise ValueError("The run has no discount model.")
    plane = run.kept("plane", run.config.identity, lambda: Plane(run.archive))
    reached = newest_checkpoint(run.folder.path)
    moments = run.folder.snapshot_iterations
    if at is None and moments and reached in (None, moments[-1]):
        at = moments[-1]  # a snapshot also has the training points
    if at is None:
        moment = last_moment(run.folder, algorithm)
    else:
        (moment,) = moments_of(run.folder, algorithm, [at])
    values = in_chunks(partial(_function(run, algorithm), moment.discount), plane.sites)
    real = np.flatnonzero(moment.real)[:_MAX_POINTS]
    spots = plane.place(moment.points[real]) if len(real) else np.zeros((0, 2))
    arrays = {
        "values": shorten(np.asarray(values, np.float32)),
        "x": spots[:, 0].astype(np.float32),
        "y": spots[:, 1].astype(np.float32),
        "target": moment.targets[real],
        "solution": (real < algorithm.emitter.num_solutions).astype(np.uint8),
    }
    raster = list(plane.raster_shape) if not plane.is_projected else None
    return packed(arrays, {"iteration": moment.iteration, "raster": raster})


def discount_at(run: OpenedRun, seed: int, cell: int) -> float | None:
    """The discount of an elite by the newest model of the first seed."""
    from gloam.plots.discount import last_moment

    algorithm, rows = _algorithm(run), run.elites(seed)
    row = rows.row_of(cell)
    if algorithm is None or row is None or seed != run.config.seeds[0]:
        return None
    moment = run.kept("moment", rows.version, lambda: last_moment(run.folder, algorithm))
    point = jnp.asarray(rows.measures[row][None])
    return float(_function(run, algorithm)(moment.discount, point)[0])


def _algorithm(run: OpenedRun) -> Algorithm | None:
    """The algorithm, if its discount is a model."""
    found = run.kept("algorithm", run.config.identity, lambda: run.folder.read_part("algorithm"))
    return found if isinstance(found.discount, DiscountModel) else None


def _function(run: OpenedRun, algorithm: Algorithm) -> Any:
    """The discount at measures, compiled once."""
    model, space = algorithm.discount, algorithm.archive.discount_space
    assert isinstance(model, DiscountModel)
    made = eqx.filter_jit(lambda state, points: model.discount(state, space(points)))
    return run.kept("function", run.config.identity, lambda: made)
