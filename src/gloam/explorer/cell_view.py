"""Cells of an archive as the page shows them: details of one, pictures, and pairs with items."""

import base64
import io
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8
from PIL import Image

from gloam.archives import CVTArchive
from gloam.datasets import Matches
from gloam.datasets.matches import distances
from gloam.explorer.archive_view import distances_of, found_at, model_algorithm
from gloam.explorer.library import EliteRows, OpenedRun
from gloam.gallery.drawings import Svg
from gloam.gallery.pairs import item_pictures, made_pictures
from gloam.plots.discount import discounts, last_moment
from gloam.spaces import Space

MAX_TILES = 48
"""Number of pairs on one sheet."""
THUMB = 64
"""Side of a small picture, in pixels."""
PNG, SVG = "image/png", "image/svg+xml"

_GAP = 4
_LARGE = 512
_NEIGHBOURS = 8
# Numbers of a solution that are sent to the page.
_MAX_NUMBERS = 4096
_MAX_FIELD = 16
# Products of items, elites and measures, above which items are shown with the elites of their own
# cells only: to find the nearest elites of a live run would take too long.
_MAX_PRODUCTS = 10**11


def cell_details(run: OpenedRun, seed: int, cell: int) -> dict[str, Any]:
    """Return the elite of a cell with its neighbors.

    An empty cell of a dataset has the nearest elites to its item as neighbors.

    Raises:
        ValueError: The archive has no such cell.
    """
    if not 0 <= cell < run.archive.num_cells:
        raise ValueError(f"The archive has no cell {cell}: it has {run.archive.num_cells}.")
    rows, dataset = run.elites(seed), run.dataset
    row = rows.row_of(cell)
    details: dict[str, Any] = {"cell": cell, "seed": seed, "filled": row is not None}
    if dataset is not None:
        details["name"] = dataset.names[cell]
        details["label"] = None if dataset.labels is None else dataset.labels[cell]
    if row is None:
        if dataset is not None:
            details["neighbours"] = _neighbours(run, rows, dataset.items[cell])
        return details
    to_centroid = distances_of(run, rows)
    measures, solution = rows.measures[row], rows.solutions[row]
    return details | {
        "objective": rows.objectives[row],
        "measures": measures[:_MAX_NUMBERS],
        "solution": solution[:_MAX_NUMBERS],
        "values": _values(rows, row),
        "fields": _fields(rows, row),
        "measure_dim": len(measures),
        "solution_dim": len(solution),
        "distance": None if to_centroid is None else to_centroid[row],
        "found": _found_between(run, seed, rows, row),
        "neighbours": _neighbours(run, rows, rows.measures[row], row),
        "python": python_lines(str(run.folder.path)).format(seed=seed, cell=cell),
    }


def _values(rows: EliteRows, row: int) -> dict[str, str] | None:
    """Return the variables of an elite as text by name; ``None`` without a space."""
    form = rows.elites.form
    if not isinstance(form, Space):
        return None
    (texts,) = form.texts(rows.solutions[row : row + 1])
    return dict(list(texts.items())[:_MAX_NUMBERS])


def _fields(rows: EliteRows, row: int) -> dict[str, str]:
    """Return the fields of an elite as text by name; of large ones, their shape."""
    texts = {}
    for name, array in rows.elites.store.fields.items():
        value = np.asarray(array[rows.cells[row]])
        is_short = value.size <= _MAX_FIELD and value.dtype.kind in "biuf"
        shape = "×".join(map(str, value.shape))
        numbers = ", ".join(f"{number:.6g}" for number in value.ravel().tolist())
        texts[name] = numbers if is_short else f"{value.dtype} {shape}"
    return texts


def python_lines(path: str) -> str:
    """Return the lines of Python that load an elite, as a format of ``seed`` and ``cell``.

    >>> print(python_lines("runs/a'b"))
    from gloam.formats import RunFolder
    elites = RunFolder("runs/a'b").read_archive(seed={seed})
    solution = elites.solution({cell})
    """
    quoted = repr(path).replace("{", "{{").replace("}", "}}")
    return (
        "from gloam.formats import RunFolder\n"
        f"elites = RunFolder({quoted}).read_archive(seed={{seed}})\n"
        "solution = elites.solution({cell})"
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
    first_snapshots = found_at(run, seed, rows)
    if first_snapshots is None:
        return None
    snapshots, first = run.folder.snapshot_iterations, int(first_snapshots[row])
    earlier = [at for at in snapshots if at < first]
    until = first if first in snapshots else rows.iteration
    return {"after": earlier[-1] if earlier else 0, "until": until}


def _neighbours(
    run: OpenedRun, rows: EliteRows, point: Float[np.ndarray, " meas"], row: int | None = None
) -> list[dict[str, Any]]:
    """Return the elites that are nearest to a point of measure space, without that of a row."""
    ranks = _ranks(run, rows, point)
    candidates = len(ranks)
    if row is not None:
        ranks[row] = np.inf
        candidates -= 1
    # More than are shown: products of float32 are too coarse to order the nearest.
    count = min(4 * _NEIGHBOURS, candidates)
    if count < 1:
        return []
    near = np.argpartition(ranks, count - 1)[:count]
    apart = distances(run.metric, rows.measures[near], point[None], np.zeros(count, int))
    order = np.argsort(apart, kind="stable")[:_NEIGHBOURS]
    columns = rows.cells[near][order], rows.objectives[near][order], apart[order]
    names = ("cell", "objective", "distance")
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _ranks(
    run: OpenedRun, rows: EliteRows, point: Float[np.ndarray, " meas"]
) -> Float[np.ndarray, " n"]:
    """Return a number for each elite that increases with its distance from a point."""
    measures = rows.measures
    squares = partial(np.einsum, "ij,ij->i", measures, measures)
    lengths = run.cached("lengths", rows.version, squares)
    products = measures @ point
    if run.metric == "cosine":
        return -products / np.sqrt(np.maximum(lengths, 1e-30))
    return lengths - 2 * products


def pairs(run: OpenedRun, seed: int) -> dict[str, Any]:
    """Return the items of the dataset with their elites, see `gloam.datasets.Matches`.

    Returns:
        ``cells`` and ``objective`` have a value for each elite. ``names``, ``labels``, ``row`` (of
        the item's elite; -1 if it is not known), ``distance``, ``explained`` and ``missed`` have
        one for each item.
    """
    dataset = run.dataset
    if dataset is None:
        raise ValueError("The run has no dataset.")
    rows = run.elites(seed)
    matches = Matches(rows.elites, dataset)
    row, distance, explained = _matched(run, rows, matches)
    return {
        "names": list(dataset.names),
        "labels": None if dataset.labels is None else list(dataset.labels),
        "cells": rows.cells,
        "objective": _rounded(rows.objectives),
        "row": row,
        "distance": _rounded(distance),
        "explained": _rounded(explained),
        "missed": _missed(matches, distance, explained).tolist(),
        "coverage": matches.coverage(),
    }


def _matched(
    run: OpenedRun, rows: EliteRows, matches: Matches
) -> tuple[Int[np.ndarray, " items"], Float[np.ndarray, " items"], Float[np.ndarray, " items"]]:
    """Return row, distance and explained variance of the elite of each item.

    In a large run they are those of the item's own elite, and missing where the cell is empty.
    """

    def computed() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if matches.dataset.items.size * len(rows.cells) <= _MAX_PRODUCTS:
            return matches.rows, matches.distances, matches.explained_by_item
        row, distance = np.full(len(matches.dataset), -1), np.full(len(matches.dataset), np.nan)
        row[rows.cells], distance[rows.cells] = np.arange(len(rows.cells)), distances_of(run, rows)
        return row, distance, np.full(len(row), np.nan)

    return run.cached("matched", rows.version, computed)


def _missed(
    matches: Matches, distance: Float[np.ndarray, " items"], explained: Float[np.ndarray, " items"]
) -> Bool[np.ndarray, " items"]:
    """Whether items are not reached (`Matches.reached`); no if that is not known."""
    archive = matches.elites.archive
    within = archive.within if isinstance(archive, CVTArchive) else None
    return explained <= 0 if within is None else ~matches.filled & (distance > within)


def _rounded(values: Float[np.ndarray, " n"]) -> list[float]:
    return [float(f"{value:.6g}") for value in values.tolist()]


def picture(run: OpenedRun, seed: int, cell: int, side: str) -> tuple[bytes, str] | None:
    """Return the picture of an elite (``"solution"``) or its item (``"item"``), if it has one.

    Returns:
        Content and media type.
    """
    if side == "item":
        if run.dataset is None:
            return None
        (image,) = item_pictures(run.dataset, np.array([cell]))
    else:
        rows = run.elites(seed)
        pictures, row = run.pictures(rows), rows.row_of(cell)
        if pictures is None or row is None:
            return None
        (image,) = made_pictures(pictures, np.array([row]))
    if isinstance(image, Svg):
        return image.text.encode(), SVG
    times = max(1, _LARGE // (2 * max(image.shape[:2])))  # small ones are enlarged
    return _png(image.repeat(times, axis=0).repeat(times, axis=1)), PNG


def sheet(run: OpenedRun, seed: int, cells: Sequence[int]) -> tuple[bytes, str]:
    """Return pairs one below the other: the nearest solution on the left, the item on the right.

    Without a dataset, the solutions are those of the cells. The sides that have no pictures are
    empty.

    Returns:
        Content and media type. It is an SVG if one of the pictures is.
    """
    tiles = np.zeros((MAX_TILES, THUMB, 2 * THUMB + _GAP, 4), np.uint8)
    rows, dataset = run.elites(seed), run.dataset
    pictures, drawn = run.pictures(rows), {}
    if pictures is not None:
        shown = _shown_rows(run, rows, cells)
        filled = np.flatnonzero(shown >= 0)
        if len(filled):
            # Always the same number of rows, so that a domain's function is compiled once.
            made = made_pictures(pictures, np.resize(shown[filled], MAX_TILES))
            drawn = dict(zip(filled.tolist(), made, strict=False))
    for tile, image in drawn.items():
        if not isinstance(image, Svg):
            tiles[tile, :, :THUMB] = _fitted(image)
    if dataset is not None:
        for tile, image in enumerate(item_pictures(dataset, np.asarray(cells, int))):
            assert not isinstance(image, Svg)
            tiles[tile, :, THUMB + _GAP :] = _fitted(image)
    pixels = _png(tiles[: len(cells)].reshape(-1, 2 * THUMB + _GAP, 4))
    vectors = {tile: image for tile, image in drawn.items() if isinstance(image, Svg)}
    return (_svg_sheet(pixels, len(cells), vectors), SVG) if vectors else (pixels, PNG)


def _shown_rows(run: OpenedRun, rows: EliteRows, cells: Sequence[int]) -> Int[np.ndarray, " n"]:
    """Return the rows of the elites that are shown for cells; -1 for none."""
    if run.dataset is not None:
        return _matched(run, rows, Matches(rows.elites, run.dataset))[0][list(cells)]
    found = [rows.row_of(cell) for cell in cells]
    return np.array([-1 if row is None else row for row in found])


def _svg_sheet(pixels: bytes, count: int, vectors: dict[int, Svg]) -> bytes:
    """Return a sheet with drawings over its pixels. A drawing is an image of its own in it.

    Images in images run no scripts, and their text cannot leave them.
    """
    wide, high = 2 * THUMB + _GAP, count * THUMB
    png = f"data:image/png;base64,{base64.b64encode(pixels).decode()}"
    images = [f'<image width="{wide}" height="{high}" href="{png}"/>']
    images += [
        f'<image y="{tile * THUMB}" width="{THUMB}" height="{THUMB}" href="{drawing.address}"/>'
        for tile, drawing in vectors.items()
    ]
    size = f'width="{wide}" height="{high}" viewBox="0 0 {wide} {high}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    return f"{head}{''.join(images)}</svg>".encode()


def _fitted(pixels: UInt8[np.ndarray, "h w *c"]) -> UInt8[np.ndarray, "64 64 4"]:
    """Return a picture in the middle of a square; small ones are enlarged by whole factors."""
    image = Image.fromarray(pixels).convert("RGBA")
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
