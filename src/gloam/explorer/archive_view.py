"""The archive as the page draws it: which cells are filled, with what, and where they lie."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from gloam.archives import CVTArchive, GridArchive
from gloam.datasets import Matches
from gloam.explorer.opened_run import EliteRows, OpenedRun
from gloam.explorer.packing import packed
from gloam.explorer.projections import project, projections_for

_MAX_LABELS = 200
# A page holds an array of all cells.
_MAX_CELLS = 20_000_000


def described_archive(run: OpenedRun) -> dict[str, Any]:
    """What the page has to know of the archive before it draws it."""
    archive, dataset = run.archive, run.dataset
    if archive.num_cells > _MAX_CELLS:
        raise ValueError(f"The archive has {archive.num_cells:,} cells, too many to be drawn.")
    labels = sorted(set(dataset.labels)) if dataset is not None and dataset.labels else []
    is_flat = archive.measure_dim <= 16
    return {
        "kind": "grid" if isinstance(archive, GridArchive) else "cvt",
        "heatmap": run.is_plane_grid,
        "shape": list(archive.shape) if isinstance(archive, GridArchive) else None,
        "num_cells": archive.num_cells,
        "measure_dim": archive.measure_dim,
        "lower": np.asarray(archive.lower) if is_flat else None,
        "upper": np.asarray(archive.upper) if is_flat else None,
        "f_min": archive.f_min,
        "metric": run.metric,
        "labels": labels if len(labels) <= _MAX_LABELS else [],
        "projections": [] if run.is_plane_grid else projections_for(run),
    }


def moments_of(run: OpenedRun) -> list[int]:
    """Iterations at which the archive of the first seed was recorded, ascending."""
    return run.folder.snapshot_iterations


def packed_elites(run: OpenedRun, seed: int, at: int | None = None) -> bytes:
    """The filled cells of a seed with their colours, now or at a recorded iteration."""
    if at is not None:
        objectives = _snapshot_objectives(run, at)
        cells = np.flatnonzero(np.isfinite(objectives))
        arrays = {"cell": cells.astype(np.int32), "objective": objectives[cells]}
        return packed(arrays, {"iteration": at, "seed": seed})
    rows = run.elites(seed)
    arrays: dict[str, np.ndarray] = {"cell": rows.cells.astype(np.int32)}
    arrays["objective"] = rows.objectives
    distances = distances_of(run, rows)
    if distances is not None:
        arrays["distance"] = distances
    found = found_at(run, seed, rows)
    if found is not None:
        arrays["found"] = found
    label = _label_codes(run, rows.cells)
    if label is not None:
        arrays["label"] = label
    return packed(arrays, {"iteration": rows.iteration, "seed": seed})


def distances_of(run: OpenedRun, rows: EliteRows) -> Float[np.ndarray, " n"] | None:
    """From measures to the centres of the cells, where cells are points that matter."""
    if not isinstance(run.archive, CVTArchive):
        return None

    def measured() -> np.ndarray:
        if run.dataset is not None:
            return Matches(rows.elites, run.dataset).distances.astype(np.float32)
        offset = rows.measures - run.centers[rows.cells]
        return np.linalg.norm(offset, axis=1).astype(np.float32)

    if run.dataset is None and run.metric != "euclidean":
        return None
    return run.kept("distances", rows.version, measured)


def found_at(run: OpenedRun, seed: int, rows: EliteRows) -> Int[np.ndarray, " n"] | None:
    """For each elite the first recorded iteration that has it; 2**31 - 1 for those after all.

    ``None`` where there are no records: they are of the first seed.
    """
    moments = moments_of(run)
    if not moments or seed != run.config.seeds[0]:
        return None

    def compared() -> np.ndarray:
        found = np.full(len(rows.cells), np.iinfo(np.int32).max, np.int32)
        for at in reversed(moments):
            same = _snapshot_objectives(run, at)[rows.cells] == rows.objectives
            found[same] = at
        return found

    return run.kept("found", (rows.version, tuple(moments)), compared)


def packed_map(run: OpenedRun, projection: str, seed: int) -> bytes:
    """Where the cells lie on a map, by a projection that `described_archive` names."""
    spots, cells, about = project(run, projection, seed)
    arrays: dict[str, np.ndarray] = {
        "x": spots[:, 0].astype(np.float32),
        "y": spots[:, 1].astype(np.float32),
    }
    if cells is not None:
        arrays["cell"] = cells.astype(np.int32)
    return packed(arrays, about)


def _snapshot_objectives(run: OpenedRun, at: int) -> Float[np.ndarray, " cells"]:
    found = run.folder.read_snapshot(at).get("objectives")
    if found is None or found.shape != (run.archive.num_cells,) or found.dtype != np.float32:
        raise ValueError(f"The snapshot of iteration {at} is of another archive.")
    return found


def _label_codes(run: OpenedRun, cells: Int[np.ndarray, " n"]) -> np.ndarray | None:
    """The label of each cell, as its place among the sorted labels."""
    dataset = run.dataset
    if dataset is None or dataset.labels is None:
        return None
    known = sorted(set(dataset.labels))
    if len(known) > _MAX_LABELS:
        return None
    codes = {label: code for code, label in enumerate(known)}
    return np.array([codes[dataset.labels[cell]] for cell in cells.tolist()], np.int32)
