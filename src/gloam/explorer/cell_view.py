"""Cells of an archive as the page shows them: details of one, pictures, and pairs with items."""

import io
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image

from gloam.datasets import Matches
from gloam.explorer.archive_view import distances_of, found_at, model_algorithm
from gloam.explorer.library import EliteRows, OpenedRun
from gloam.gallery.pairs import item_pictures, made_pictures
from gloam.plots.discount import discounts, last_moment

MAX_TILES = 48
"""Number of pairs on one sheet."""
THUMB = 64
"""Side of a small picture, in pixels."""

_GAP = 4
_LARGE = 512
_NEIGHBOURS = 8
# Numbers of a solution that are sent to the page.
_MAX_NUMBERS = 4096


def cell_details(run: OpenedRun, seed: int, cell: int) -> dict[str, Any]:
    """Return the elite of a cell with its neighbours, or the fact that the cell is empty.

    Raises:
        ValueError: The archive has no such cell.
    """
    if not 0 <= cell < run.archive.num_cells:
        raise ValueError(f"The archive has no cell {cell}: it has {run.archive.num_cells}.")
    rows, dataset = run.elites(seed), run.dataset
    row = rows.row_of(cell)
    found: dict[str, Any] = {"cell": cell, "seed": seed, "filled": row is not None}
    if dataset is not None:
        found["name"] = dataset.names[cell]
        found["label"] = None if dataset.labels is None else dataset.labels[cell]
    if row is None:
        return found
    distances = distances_of(run, rows)
    measures, solution = rows.measures[row], rows.solutions[row]
    return found | {
        "objective": rows.objectives[row],
        "measures": measures[:_MAX_NUMBERS],
        "solution": solution[:_MAX_NUMBERS],
        "measure_dim": len(measures),
        "solution_dim": len(solution),
        "distance": None if distances is None else distances[row],
        "found": _found_between(run, seed, rows, row),
        "neighbours": _neighbours(run, rows, row),
        "python": python_lines(str(run.folder.path)).format(seed=seed, cell=cell),
    }


def python_lines(path: str) -> str:
    """Return the lines of Python that load an elite, as a format of ``seed`` and ``cell``.

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


def discount_at(run: OpenedRun, seed: int, cell: int) -> float | None:
    """Return the discount of an elite by the newest model of the first seed."""
    algorithm, rows = model_algorithm(run), run.elites(seed)
    row = rows.row_of(cell)
    if algorithm is None or row is None or seed != run.config.seeds[0]:
        return None
    moment = run.cached("moment", rows.version, lambda: last_moment(run.folder, algorithm))
    return float(discounts(algorithm, moment, rows.measures[row : row + 1])[0])


def _found_between(
    run: OpenedRun, seed: int, rows: EliteRows, row: int
) -> dict[str, int | None] | None:
    """Return the snapshots between which an elite was found."""
    found = found_at(run, seed, rows)
    if found is None:
        return None
    snapshots = run.folder.snapshot_iterations
    earlier = [at for at in snapshots if at < found[row]]
    until = int(found[row]) if found[row] in snapshots else rows.iteration
    return {"after": earlier[-1] if earlier else 0, "until": until}


def _neighbours(run: OpenedRun, rows: EliteRows, row: int) -> list[dict[str, Any]]:
    """Return the nearest other elites in measure space."""
    ranks = _ranks(run, rows, row)
    ranks[row] = np.inf
    # More than are shown: products of float32 are too coarse to order the nearest.
    count = min(4 * _NEIGHBOURS, len(ranks) - 1)
    if count < 1:
        return []
    near = np.argpartition(ranks, count - 1)[:count]
    distances = _distances(run.metric, rows.measures[near], rows.measures[row])
    order = np.argsort(distances, kind="stable")[:_NEIGHBOURS]
    columns = rows.cells[near][order], rows.objectives[near][order], distances[order]
    names = ("cell", "objective", "distance")
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _ranks(run: OpenedRun, rows: EliteRows, row: int) -> Float[np.ndarray, " n"]:
    """Return a number for each elite that increases with its distance."""
    measures = rows.measures
    squares = partial(np.einsum, "ij,ij->i", measures, measures)
    lengths = run.cached("lengths", rows.version, squares)
    products = measures @ measures[row]
    if run.metric == "cosine":
        return -products / np.sqrt(np.maximum(lengths, 1e-30))
    return lengths - 2 * products


def _distances(
    metric: str, measures: Float[np.ndarray, "n meas"], point: Float[np.ndarray, " meas"]
) -> Float[np.ndarray, " n"]:
    if metric == "euclidean":
        return np.linalg.norm(measures - point, axis=1)
    scale = np.linalg.norm(measures, axis=1) * np.linalg.norm(point)
    return 1 - np.divide(measures @ point, scale, out=np.zeros_like(scale), where=scale > 0)


def pairs(run: OpenedRun, seed: int) -> dict[str, Any]:
    """Return the items of the dataset, with objectives and distances of their elites."""
    dataset = run.dataset
    if dataset is None:
        raise ValueError("The run has no dataset.")
    rows = run.elites(seed)
    distances = distances_of(run, rows)
    assert distances is not None, "archives of datasets have centroids"
    return {
        "names": list(dataset.names),
        "labels": None if dataset.labels is None else list(dataset.labels),
        "cells": rows.cells,
        "objective": _rounded(rows.objectives),
        "distance": _rounded(distances),
        "coverage": Matches(rows.elites, dataset).coverage(),
    }


def _rounded(values: Float[np.ndarray, " n"]) -> list[float]:
    return [float(f"{value:.6g}") for value in values.tolist()]


def picture(run: OpenedRun, seed: int, cell: int, side: str) -> bytes | None:
    """Return the picture of an elite (``"solution"``) or its item (``"item"``), if it has one."""
    if side == "item":
        dataset = run.dataset
        found = None if dataset is None else item_pictures(dataset, np.array([cell]))
    else:
        rows = run.elites(seed)
        pictures, row = run.pictures(rows), rows.row_of(cell)
        if pictures is None or row is None:
            return None
        found = made_pictures(pictures, np.array([row]))
    if found is None:
        return None
    times = max(1, _LARGE // (2 * max(found.shape[1:3])))  # small ones are enlarged
    return _png(found[0].repeat(times, axis=0).repeat(times, axis=1))


def sheet(run: OpenedRun, seed: int, cells: Sequence[int]) -> bytes:
    """Return pairs one below the other: the solution on the left, the item on the right.

    The left side of a cell without an elite, and the right side without pictures of items, are
    empty.
    """
    tiles = np.zeros((MAX_TILES, THUMB, 2 * THUMB + _GAP, 4), np.uint8)
    rows, dataset = run.elites(seed), run.dataset
    pictures = run.pictures(rows)
    places = [(place, rows.row_of(cell)) for place, cell in enumerate(cells)]
    filled = [(place, row) for place, row in places if row is not None]
    if pictures is not None and filled:
        # Always the same number of rows, so that a domain's function is compiled once.
        chosen = np.array([row for _, row in filled])
        made = made_pictures(pictures, np.resize(chosen, MAX_TILES))
        for (place, _), one in zip(filled, made, strict=False):
            tiles[place, :, :THUMB] = _fitted(one)
    items = None if dataset is None else item_pictures(dataset, np.asarray(cells, int))
    for place, one in enumerate([] if items is None else items):
        tiles[place, :, THUMB + _GAP :] = _fitted(one)
    return _png(tiles[: len(cells)].reshape(-1, 2 * THUMB + _GAP, 4))


def _fitted(one: UInt8[np.ndarray, "h w *c"]) -> UInt8[np.ndarray, "64 64 4"]:
    """Return a picture in the middle of a square; small ones are enlarged by whole factors."""
    image = Image.fromarray(one).convert("RGBA")
    scale, how = THUMB / max(image.size), Image.Resampling.LANCZOS
    if scale >= 2:
        scale, how = int(scale), Image.Resampling.NEAREST
    size = (max(1, round(scale * image.width)), max(1, round(scale * image.height)))
    square = Image.new("RGBA", (THUMB, THUMB))
    square.paste(image.resize(size, how), ((THUMB - size[0]) // 2, (THUMB - size[1]) // 2))
    return np.asarray(square)


def _png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=3)
    return buffer.getvalue()
