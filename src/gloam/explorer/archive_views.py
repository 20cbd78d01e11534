"""How data reaches the page: JSON for small things, packed arrays for large ones.

Two-dimensional maps of high-dimensional archives: PCA, and t-SNE or UMAP where installed.

The archive as the page draws it: which cells are filled, with what, and where they lie.

One cell of an archive: its elite, the item it stands for, its neighbours.

Pictures of elites and items as PNG: one at full size, or many small ones on a sheet.
"""

import importlib.util
import io
import json
import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt8

from gloam.archives import CVTArchive, GridArchive
from gloam.datasets import Matches
from gloam.explorer.opened_run import EliteRows, OpenedRun
from gloam.gallery.pairs import item_pictures, made_pictures

_DTYPES = {"float32": "<f4", "float64": "<f8", "int32": "<i4", "uint8": "|u1"}
_ALIGNED = 8


def json_bytes(content: Any) -> bytes:
    r"""JSON in ASCII, whatever names are in it; NaN and infinities become ``null``.

    >>> json_bytes({"a": [float("nan"), np.float32(0.5)], "b": "\udc80"})
    b'{"a":[null,0.5],"b":"\\udc80"}'
    """
    return json.dumps(_plain(content), allow_nan=False, separators=(",", ":")).encode()


def packed(arrays: Mapping[str, np.ndarray], about: Mapping[str, Any] = {}) -> bytes:
    """Arrays of numbers behind a JSON header, for `unpack` of ``static/source.js``.

    Four bytes with the length of the header, the header, and the arrays as little-endian numbers,
    each at a multiple of eight bytes.
    """
    described, parts, offset = [], [], 0
    for name, array in arrays.items():
        content = np.ascontiguousarray(array).astype(_DTYPES[str(array.dtype)]).tobytes()
        filled = content + b"\0" * (-len(content) % _ALIGNED)
        entry = {"name": name, "dtype": str(array.dtype), "shape": list(array.shape)}
        described.append(entry | {"offset": offset})
        parts.append(filled)
        offset += len(filled)
    header = json_bytes({"about": about, "arrays": described})
    header += b" " * (-(4 + len(header)) % _ALIGNED)
    return b"".join([len(header).to_bytes(4, "little"), header, *parts])


def _plain(value: Any) -> Any:
    """A value as the JSON module takes it."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return value


# Cells that t-SNE and UMAP lay out; they take seconds for these, and hours for a million.
_SAMPLE = 2000
_FEWEST = 5
_PACKAGES = {"umap": "umap", "t-sne": "sklearn"}
_TITLES = {"umap": "UMAP", "t-sne": "t-SNE"}
_slow = threading.Lock()


def projections_for(run: "OpenedRun") -> list[dict[str, Any]]:
    """Projections that can be chosen for a run, the first being the default."""
    if run.archive.measure_dim <= 2:
        return [{"name": "measures", "title": "measures", "cells": None}]
    found = [{"name": "pca", "title": "PCA", "cells": None}]
    for name, package in _PACKAGES.items():
        if importlib.util.find_spec(package) is not None:
            found.append({"name": name, "title": _TITLES[name], "cells": _SAMPLE})
    return found


def project(
    run: "OpenedRun", name: str, seed: int
) -> tuple[Float[np.ndarray, "n 2"], Int[np.ndarray, " n"] | None, dict[str, Any]]:
    """Places of cells on a map, the cells (``None`` for all), and what the axes say.

    Raises:
        ValueError: There is no such projection for the run.
    """
    if name not in [one["name"] for one in projections_for(run)]:
        raise ValueError(f"There is no projection {name!r} for this run.")
    if name in ("measures", "pca"):
        return run.kept(("map", name), run.config.identity, lambda: _plane(run))
    rows = run.elites(seed)

    def laid_out() -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        count = min(_SAMPLE, len(rows.cells))
        chosen = np.sort(np.random.default_rng(0).choice(len(rows.cells), count, replace=False))
        with _slow:
            spots, (x, y) = _laid_out(rows.measures[chosen], name)
        about = {"x": x, "y": y, "title": f"{_TITLES[name]} of {count:,} elites"}
        return spots, rows.cells[chosen], about

    return run.kept(("map", name), (rows.version, seed), laid_out)


def _plane(run: "OpenedRun") -> tuple[np.ndarray, None, dict[str, Any]]:
    from gloam.plots.plane import Plane  # matplotlib takes a second to import

    plane = Plane(run.archive)
    spots = plane.place(run.centers)
    title = "measures" if not plane.is_projected else "PCA: " + ", ".join(plane.labels)
    about = {"x": plane.labels[0], "y": plane.labels[1], "title": title}
    return spots, None, about


def _laid_out(
    measures: Float[np.ndarray, "n meas"], name: str
) -> tuple[Float[np.ndarray, "n 2"], tuple[str, str]]:
    """Places by UMAP or t-SNE; all at one spot where there are too few for it."""
    from threadpoolctl import threadpool_limits

    from gloam.plots.plane import project as places_of

    title = _TITLES[name]
    if len(measures) < _FEWEST:
        return np.zeros((len(measures), 2), np.float32), (f"{title} 1", f"{title} 2")
    # On one core, because the others may be busy with the run that is looked at.
    with threadpool_limits(1):
        return places_of(measures, "umap" if name == "umap" else "tsne")


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


MAX_TILES = 48
"""Pairs on one sheet."""
THUMB = 64
"""Side of a small picture, in pixels."""
_GAP = 4
_LARGE = 512


def picture(run: OpenedRun, seed: int, cell: int, side: str) -> bytes | None:
    """The picture of an elite (``"solution"``) or of its item (``"item"``); ``None`` for none."""
    if side == "item":
        dataset = run.dataset
        found = None if dataset is None else item_pictures(dataset, np.array([cell]))
    else:
        rows = run.elites(seed)
        pictures, row = run.pictures(rows), rows.row_of(cell)
        if pictures is None or row is None:
            return None
        found = made_pictures(pictures, np.array([row]))
    return None if found is None else _png(_enlarged(found[0], _LARGE))


def sheet(run: OpenedRun, seed: int, cells: Sequence[int]) -> bytes:
    """Pairs side by side, one below the other: solution left, item right, in the given order.

    A cell without an elite has an empty left side; a dataset without pictures an empty right one.
    """
    tiles = np.zeros((MAX_TILES, THUMB, 2 * THUMB + _GAP, 4), np.uint8)
    rows, dataset = run.elites(seed), run.dataset
    pictures = run.pictures(rows)
    places = [(place, rows.row_of(cell)) for place, cell in enumerate(cells)]
    filled = [(place, row) for place, row in places if row is not None]
    if pictures is not None and filled:
        # Always as many rows: a function that is compiled is compiled once.
        chosen = np.array([row for _, row in filled])
        made = made_pictures(pictures, np.resize(chosen, MAX_TILES))
        for (place, _), one in zip(filled, made, strict=False):
            tiles[place, :, :THUMB] = _fitted(one)
    items = None if dataset is None else item_pictures(dataset, np.asarray(cells, int))
    for place, one in enumerate([] if items is None else items):
        tiles[place, :, THUMB + _GAP :] = _fitted(one)
    return _png(tiles[: len(cells)].reshape(-1, 2 * THUMB + _GAP, 4))


def _fitted(one: UInt8[np.ndarray, "h w *c"]) -> UInt8[np.ndarray, "64 64 4"]:
    """A picture in the middle of a square: small ones enlarged in whole steps."""
    from PIL import Image

    image = Image.fromarray(one).convert("RGBA")
    scale = THUMB / max(image.size)
    if scale >= 2:
        scale, how = int(scale), Image.Resampling.NEAREST
    else:
        how = Image.Resampling.LANCZOS
    size = (max(1, round(scale * image.width)), max(1, round(scale * image.height)))
    square = Image.new("RGBA", (THUMB, THUMB))
    square.paste(image.resize(size, how), ((THUMB - size[0]) // 2, (THUMB - size[1]) // 2))
    return np.asarray(square)


def _enlarged(one: UInt8[np.ndarray, "h w *c"], aim: int) -> UInt8[np.ndarray, "h w *c"]:
    """A small picture with each pixel as a square; a large one as it is."""
    times = max(1, aim // (2 * max(one.shape[:2])))
    return one.repeat(times, axis=0).repeat(times, axis=1)


def _png(pixels: np.ndarray) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=3)
    return buffer.getvalue()
