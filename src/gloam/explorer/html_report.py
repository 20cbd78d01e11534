"""`write_html`: a run or a study as one HTML file, with the views of the explorer and its data.

The file stays below 10 MB. The data of a run is added in order of importance while there is room,
and a large archive is reduced to the best elites of blocks of cells, or to a random sample.
"""

import base64
import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from gloam._tools import checks, files
from gloam._version import __version__
from gloam.archives import GridArchive
from gloam.datasets.rows import evenly_spaced
from gloam.explorer.archive_view import (
    described_run,
    packed_column,
    packed_discount,
    packed_elites,
    packed_map,
    placed_cells,
)
from gloam.explorer.cell_view import MAX_TILES, pairs, python_lines, sheet
from gloam.explorer.library import READ_ERRORS, Entry, Library, OpenedRun
from gloam.explorer.page import (
    filled_page,
    import_map,
    json_bytes,
    modules,
    packed,
    script_digest,
    static_files,
    style_names,
)
from gloam.spaces import Space

MAX_BYTES = 9_500_000
"""Largest size of a report."""
MAX_CELLS = 200_000
"""Largest number of cells of an archive that is not reduced."""
_MAX_SAMPLE = 100_000
_MAX_SNAPSHOTS = 8
_START = 'import "gloam/main";'
_MARK = '<meta name="generator" content="gloam report">'


def write_html(
    path: str | os.PathLike,
    out: str | os.PathLike | None = None,
    *,
    draw: Callable[..., Any] | None = None,
) -> Path:
    """Write a run or a study as one self-contained HTML file.

    The file has the views of `gloam explore`, for the first seed of a run, and is smaller than
    10 MB: large archives are reduced, large datasets have fewer pictures, and long solutions are
    left out.

    Args:
        path: A run folder or a study folder.
        out: The file; by default ``report.html`` in the run folder, or ``report/report.html`` in
            the study folder.
        draw: Makes a picture of a solution, see `gloam.gallery.elite_pictures`.

    Returns:
        The file.

    Raises:
        ValueError: The folder contains neither a run nor a study, or the file exists and is not a
            report of gloam.
    """
    root = Path(path)
    library = Library(root, draw)
    contents = library.look()
    study, run = (
        next((entry for entry in entries.values() if entry.path == library.root), None)
        for entries in (contents.studies, contents.runs)
    )
    checks.expect(
        (study or run) is not None,
        "folder",
        "the folder of a run or of a study",
        f"'{root}'",
        "Give a folder with a config.json or a study.json of gloam.",
    )
    default = root / "report" / "report.html" if study else root / "report.html"
    file = default if out is None else Path(out)
    _check_replaceable(file)
    parts = Parts(MAX_BYTES - len(_page({}).encode()))
    folder = library.folder()
    parts.add_json("folder", folder)
    entries = library.look().runs
    shown = [entries[told["id"]] for told in folder["runs"] if told.get("results") is not None]
    for entry in shown:
        parts.add_arrays(f"runs/{entry.id}/metrics", library.packed_metrics(entry))
    if study is not None:
        start = f"#/study/{study.id}"
        for number, entry in enumerate(shown):
            share = (parts.left - 200_000) // (len(shown) - number)
            _add_run(parts.share(share), library, entry, os.path.relpath(entry.path, library.root))
    else:
        assert run is not None
        start = f"#/run/{run.id}"
        _add_run(parts, library, run, str(root))
    data = parts.data | {"about": {"version": __version__, "start": start}}
    files.write_bytes(file, _page(data).encode())
    return file


def _check_replaceable(file: Path) -> None:
    """Refuse to replace a file that is not a report of gloam."""
    if not file.exists():
        return
    with files.open_regular(file) as opened:
        is_report = _MARK.encode() in opened.read(2000)
    fix = "Move it away, or choose another file by --out."
    checks.expect(is_report, "out", "a new file or a report of gloam", f"'{file}'", fix)


class Parts:
    """The data of a report, by the addresses that the page asks for.

    Args:
        budget: Number of bytes that may be added.
        parent: The parts that these are a share of.
    """

    def __init__(self, budget: int, parent: "Parts | None" = None):
        self.left = budget
        self._parent = parent
        empty = {"json": {}, "arrays": {}, "pictures": {}}
        self.data: dict[str, dict[str, Any]] = parent.data if parent else empty

    def share(self, budget: int) -> "Parts":
        """Return parts with the same data that may add only some of the bytes left."""
        return Parts(min(budget, self.left), self)

    def add_json(self, name: str, content: Any, *, most: int | None = None) -> bool:
        """Add a JSON value if it has at most ``most`` bytes, by default whatever its size."""
        size = len(json_bytes(content)) + len(name) + 8
        if most is not None and size > most:
            return False
        self.data["json"][name] = content
        self._take(size)
        return True

    def add_arrays(self, name: str, content: bytes) -> bool:
        """Add packed arrays if there is room."""
        return self._add("arrays", name, gzip.compress(content, 6, mtime=0))

    def add_picture(self, name: str, content: bytes) -> bool:
        """Add a picture if there is room."""
        return self._add("pictures", name, content)

    def _add(self, kind: str, name: str, content: bytes) -> bool:
        size = len(content) * 4 // 3 + len(name) + 16
        if size > self.left:
            return False
        self.data[kind][name] = base64.b64encode(content).decode()
        self._take(size)
        return True

    def _take(self, size: int) -> None:
        self.left -= size
        if self._parent is not None:
            self._parent._take(size)


def _add_run(parts: Parts, library: Library, entry: Entry, path: str) -> None:
    """Add a run; lines of Python name its folder by ``path``."""
    address = f"runs/{entry.id}"
    # The page fills in the seed and the cell.
    python = python_lines(path).format(seed="{seed}", cell="{cell}")
    parts.add_json(address, library.summary(entry) | {"python": python})
    try:
        run = library.opened(entry)
        content = described_run(run)
        if run.archive.num_cells > MAX_CELLS:
            content |= {"archive": _add_reduced_archive(parts, run, address, content["archive"])}
            content |= {"moments": [], "model": False, "pictures": None}
        else:
            _add_archive(parts, run, address, content)
    except READ_ERRORS as error:  # the page shows it in place of the archive
        content = {"error": str(error)}
    parts.add_json(f"{address}/parts", content)


def _add_archive(parts: Parts, run: OpenedRun, address: str, content: dict[str, Any]) -> None:
    seed = run.config.seeds[0]
    parts.add_arrays(f"{address}/elites?seed={seed}", packed_elites(run, seed))
    by = content["archive"]["projections"][0]["name"]
    if by != "grid":
        parts.add_arrays(f"{address}/map?by={by}", packed_map(run, by, seed))
    if run.dataset is not None:
        most = parts.left // 2
        parts.add_json(f"{address}/pairs?seed={seed}", pairs(run, seed), most=most)
    _add_rows(parts, run, address, seed)
    share = parts.share(parts.left * 3 // 10)
    for number in range(len(content["columns"])):
        column = packed_column(run, seed, number)
        share.add_arrays(f"{address}/column?seed={seed}&number={number}", column)
    if content["model"]:
        parts.add_arrays(f"{address}/discount", packed_discount(run, None, shortened))
    snapshots = content["moments"]
    for at in [snapshots[k] for k in evenly_spaced(len(snapshots), _MAX_SNAPSHOTS)]:
        then = f"{address}/elites?seed={seed}&at={at}"
        if parts.add_arrays(then, packed_elites(run, seed, at)) and content["model"]:
            parts.add_arrays(f"{address}/discount?at={at}", packed_discount(run, at, shortened))
    if any(content["pictures"].values()):
        _add_sheets(parts, run, address, seed)


def _add_rows(parts: Parts, run: OpenedRun, address: str, seed: int) -> None:
    """Add measures and solutions of all elites, or measures only if there is no more room."""
    rows = run.elites(seed)
    length = rows.solutions.shape[1]
    about = {"measure_dim": rows.measures.shape[1], "solution_length": length}
    measures = {"measures": rows.measures}
    name = f"{address}/rows?seed={seed}"
    # The rest is left for snapshots and pictures.
    share = parts.share(parts.left * 6 // 10)
    both, told = measures | {"solutions": rows.solutions}, about | {"solution_dim": length}
    form = rows.elites.form
    if isinstance(form, Space):
        both["values"], choices = form.numbers(rows.solutions)
        told |= {"variables": [name for name, _ in form.places], "choices": choices}
    if not share.add_arrays(name, packed(both, told)):
        share.add_arrays(name, packed(measures, about | {"solution_dim": 0}))


def _add_sheets(parts: Parts, run: OpenedRun, address: str, seed: int) -> None:
    """Add small pictures of pairs, or of elites without a dataset, while there is room."""
    if run.dataset is None:
        rows = run.elites(seed)
        ordered = rows.cells[np.argsort(-rows.objectives, kind="stable")]
    else:
        ordered = np.argsort(pairs(run, seed)["distance"], kind="stable")
    sheets: list[list[int]] = []
    count = -(-len(ordered) // MAX_TILES)
    for start in range(count):
        # Each sheet has good and bad pairs, whatever the number of sheets.
        cells = [int(cell) for cell in ordered[start::count]]
        name = f"{address}/sheet?seed={seed}&number={start}"
        if parts.left < 300_000 or not parts.add_picture(name, sheet(run, seed, cells)[0]):
            break
        sheets.append(cells)
    parts.add_json(f"{address}/sheets?seed={seed}", {"sheets": sheets})


def shortened(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Round numbers to three digits, which compress well and suffice for a color."""
    return (values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def _add_reduced_archive(
    parts: Parts, run: OpenedRun, address: str, described: dict[str, Any]
) -> dict[str, Any]:
    """Add the best elites of blocks of a large grid, or a sample of a large archive.

    Returns:
        The description of the archive for the page.
    """
    seed = run.config.seeds[0]
    rows = run.elites(seed)
    about = {"iteration": rows.iteration, "seed": seed}
    name = f"{address}/elites?seed={seed}"
    if run.is_plane_grid:
        assert isinstance(run.archive, GridArchive)
        shape, side, cells, best = best_of_blocks(run.archive.shape, rows.cells, rows.objectives)
        arrays = {"cell": cells.astype(np.int32), "objective": rows.objectives[best]}
        arrays["original"] = rows.cells[best].astype(np.int32)
        parts.add_arrays(name, packed(arrays, about))
        told = f"the best elite of each block of {side} × {side} cells"
        return described | {"shape": list(shape), "num_cells": int(np.prod(shape)), "coarse": told}
    count = min(_MAX_SAMPLE, len(rows.cells))
    chosen = np.sort(np.random.default_rng(0).choice(len(rows.cells), count, replace=False))
    cells = rows.cells[chosen].astype(np.int32)
    parts.add_arrays(name, packed({"cell": cells, "objective": rows.objectives[chosen]}, about))
    # A sample does not contain the best elite of each place of a grid.
    projections = [entry for entry in described["projections"] if entry["name"] != "grid"]
    projection = projections[0]["name"]
    spots, _, titles = placed_cells(run, projection, seed)
    x, y = spots[cells].astype(np.float32).T
    arrays = {"x": x, "y": y, "cell": cells}
    parts.add_arrays(f"{address}/map?by={projection}", packed(arrays, titles))
    told = f"{count:,} of {len(rows.cells):,} elites, chosen at random"
    return described | {"projections": projections, "coarse": told}


def best_of_blocks(
    shape: tuple[int, ...], cells: Int[np.ndarray, " n"], objectives: Float[np.ndarray, " n"]
) -> tuple[tuple[int, int], int, Int[np.ndarray, " blocks"], Int[np.ndarray, " blocks"]]:
    """Find the best elite of each square block of a grid.

    Returns:
        Shape of the grid of blocks, side of a block, the filled blocks, and the row of the best
        elite of each.

    >>> best_of_blocks((1000, 2), np.array([0, 1, 1998]), np.array([1.0, 3.0, 2.0]))[1:]
    (2, array([  0, 499]), array([1, 2]))
    """
    side = int(np.ceil(max(shape) / 500))
    small = (-(-shape[0] // side), -(-shape[1] // side))
    first, second = np.divmod(cells, shape[1])
    blocks = (first // side) * small[1] + second // side
    order = np.lexsort((-objectives, blocks))
    filled, first = np.unique(blocks[order], return_index=True)
    return small, side, filled, order[first]


def _page(data: dict[str, Any]) -> str:
    """Return the page with its data, styles and modules inlined."""
    sources = static_files()
    addresses = {name: _data_address(sources[file].content) for name, file in modules().items()}
    imports = import_map(addresses)
    styles = "\n".join(sources[name].content.decode() for name in style_names())
    # Modules are data addresses. Names that users chose are never markup on the page: they are in
    # the JSON, which is not executed.
    policy = (
        f"default-src 'none'; script-src 'sha256-{script_digest(imports)}' "
        f"'sha256-{script_digest(_START)}' data:; style-src 'sha256-{script_digest(styles)}'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    text = json_bytes(data).decode().replace("<", "\\u003c")
    icon = _data_address(sources["icon.svg"].content, "image/svg+xml")
    head = (
        f'{_MARK}\n<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<link rel="icon" href="{icon}">\n<style>{styles}</style>'
    )
    scripts = (
        f'<script type="application/json" id="report-data">{text}</script>\n'
        f'<script type="importmap">{imports}</script>\n<script type="module">{_START}</script>'
    )
    return filled_page(head, scripts)


def _data_address(content: bytes, kind: str = "text/javascript") -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
