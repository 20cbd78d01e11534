"""Moments of a search: its elites and its discount after an iteration, read from a run folder."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Bool, Float

from gloam import checks, step
from gloam.algorithms import Algorithm
from gloam.draws import root_key
from gloam.formats import DamagedFileError, RunFolder
from gloam.formats.states import state_from

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
