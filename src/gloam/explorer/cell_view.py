"""One cell of an archive: its elite, the item it stands for, its neighbours."""

from typing import Any

import numpy as np
from jaxtyping import Float

from gloam.explorer.archive_view import distances_of, found_at, moments_of
from gloam.explorer.opened_run import EliteRows, OpenedRun

_NEIGHBOURS = 8
# Numbers of a solution that are sent; longer ones are loaded in Python.
_MAX_NUMBERS = 4096


def cell_details(run: OpenedRun, seed: int, cell: int) -> dict[str, Any]:
    """What there is to know about a cell, which may be empty.

    Raises:
        ValueError: The archive has no such cell.
    """
    if not 0 <= cell < run.archive.num_cells:
        raise ValueError(f"The archive has no cell {cell}: it has {run.archive.num_cells}.")
    rows = run.elites(seed)
    row = rows.row_of(cell)
    dataset = run.dataset
    found: dict[str, Any] = {"cell": cell, "seed": seed, "filled": row is not None}
    if dataset is not None:
        found["name"] = dataset.names[cell]
        found["label"] = None if dataset.labels is None else dataset.labels[cell]
    if row is None:
        return found
    distances = distances_of(run, rows)
    measures = rows.measures[row]
    return found | {
        "objective": rows.objectives[row],
        "measures": measures[:_MAX_NUMBERS],
        "solution": rows.solutions[row][:_MAX_NUMBERS],
        "measure_dim": len(measures),
        "solution_dim": rows.solutions.shape[1],
        "distance": None if distances is None else distances[row],
        "found": _found(run, seed, rows, row),
        "neighbours": _neighbours(run, rows, row),
        "python": python_lines(str(run.folder.path)).format(seed=seed, cell=cell),
    }


def python_lines(path: str) -> str:
    """The lines of Python that load an elite, with ``{seed}`` and ``{cell}`` to be filled in.

    >>> print(python_lines("runs/a'b"))
    from gloam.formats import RunFolder
    elites = RunFolder("runs/a'b").read_archive(seed={seed})
    solution = elites.store.solutions[{cell}]
    """
    quoted = repr(path).replace("{", "{{").replace("}", "}}")
    return (
        "from gloam.formats import RunFolder\n"
        f"elites = RunFolder({quoted}).read_archive(seed={{seed}})\n"
        "solution = elites.store.solutions[{cell}]"
    )


def _found(run: OpenedRun, seed: int, rows: EliteRows, row: int) -> dict[str, int | None] | None:
    """Between which recorded iterations an elite was found."""
    found = found_at(run, seed, rows)
    if found is None:
        return None
    moments = moments_of(run)
    earlier = [at for at in moments if at < found[row]]
    until = int(found[row]) if found[row] in moments else rows.iteration
    return {"after": earlier[-1] if earlier else 0, "until": until}


def _neighbours(run: OpenedRun, rows: EliteRows, row: int) -> list[dict[str, Any]]:
    """The nearest other elites in measure space."""
    farness = _farness(run, rows, row)
    farness[row] = np.inf
    # More than are shown: products of float32 do not tell the nearest apart exactly.
    count = min(4 * _NEIGHBOURS, len(farness) - 1)
    if count < 1:
        return []
    near = np.argpartition(farness, count - 1)[:count]
    distances = _distances(run.metric, rows.measures[near], rows.measures[row])
    order = np.argsort(distances, kind="stable")[:_NEIGHBOURS]
    return [
        {
            "cell": rows.cells[near[place]],
            "objective": rows.objectives[near[place]],
            "distance": distances[place],
        }
        for place in order
    ]


def _farness(run: OpenedRun, rows: EliteRows, row: int) -> Float[np.ndarray, " n"]:
    """A number for each elite that is lower for nearer ones."""
    lengths = run.kept(
        "lengths", rows.version, lambda: np.einsum("ij,ij->i", rows.measures, rows.measures)
    )
    products = rows.measures @ rows.measures[row]
    if run.metric == "cosine":
        return -products / np.sqrt(np.maximum(lengths, 1e-30))
    products *= -2
    products += lengths
    return products


def _distances(
    metric: str, measures: Float[np.ndarray, "n meas"], point: Float[np.ndarray, " meas"]
) -> Float[np.ndarray, " n"]:
    if metric == "euclidean":
        return np.linalg.norm(measures - point, axis=1)
    scale = np.linalg.norm(measures, axis=1) * np.linalg.norm(point)
    return 1 - np.divide(measures @ point, scale, out=np.zeros_like(scale), where=scale > 0)
