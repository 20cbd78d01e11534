"""What a report holds of a run, chosen so that the file stays small.

A smaller picture of a large archive, for reports.

A report: one HTML file with the views of the explorer and the data of a run or a study in it.
"""

import base64
import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from gloam import checks, files
from gloam._version import __version__
from gloam.archives import GridArchive
from gloam.explorer.archive_views import (
    MAX_TILES,
    json_bytes,
    packed,
    packed_elites,
    packed_map,
    project,
    python_lines,
    sheet,
)
from gloam.explorer.discount_view import packed_discount
from gloam.explorer.library import Entry, Library
from gloam.explorer.opened_run import OpenedRun
from gloam.explorer.static_files import (
    import_map,
    modules,
    script_digest,
    static_files,
    style_names,
)
from gloam.explorer.views import (
    READ_ERRORS,
    folder_view,
    metrics_view,
    pairs_view,
    parts_view,
    run_summary,
)

_MAX_MOMENTS = 8


class Parts:
    """The data of a report, by the names under which the page asks for it.

    Args:
        budget: Bytes of the file that are left for it.
    """

    def __init__(self, budget: int, data: dict[str, dict[str, Any]] | None = None):
        self.data = {"json": {}, "arrays": {}, "pictures": {}} if data is None else data
        self.left = budget
        self._parent: Parts | None = None

    def share(self, budget: int) -> "Parts":
        """The same data, with a part of the bytes that are left."""
        part = Parts(min(budget, self.left), self.data)
        part._parent = self
        return part

    def add_json(self, name: str, content: Any, *, most: int | None = None) -> bool:
        """Add a JSON value, if it has ``most`` bytes; by default whatever its size."""
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


def add_run(parts: Parts, library: Library, entry: Entry, path: str) -> None:
    """Add a run: its summary, archive, discount model, cells and pictures.

    Args:
        parts: Where to add them.
        library: The library of the run.
        entry: The run.
        path: The path that lines of Python name.
    """
    address = f"runs/{entry.id}"
    parts.add_json(address, run_summary(library, entry) | {"python": _page_template(path)})
    try:
        content = parts_view(library, entry)
        run = library.opened(entry)
        if run.archive.num_cells > LARGE:
            content |= {"archive": add_coarse_archive(parts, run, address, content["archive"])}
            content |= {"moments": [], "model": False, "pictures": None}
        else:
            _add_archive(parts, run, address, content)
    except READ_ERRORS as error:  # the page says so in place of the archive
        content = {"error": str(error)}
    parts.add_json(f"{address}/parts", content)


def _add_archive(parts: Parts, run: OpenedRun, address: str, content: dict[str, Any]) -> None:
    seed = run.config.seeds[0]
    parts.add_arrays(f"{address}/elites?seed={seed}", packed_elites(run, seed))
    if not run.is_plane_grid:
        by = content["archive"]["projections"][0]["name"]
        parts.add_arrays(f"{address}/map?by={by}", packed_map(run, by, seed))
    if run.dataset is not None:
        pairs = pairs_view(run, seed)
        parts.add_json(f"{address}/pairs?seed={seed}", pairs, most=parts.left // 2)
    _add_rows(parts, run, address, seed)
    if content.get("model"):
        parts.add_arrays(f"{address}/discount", _discount(run, None))
    for at in _spread(content["moments"]):
        then = f"{address}/elites?seed={seed}&at={at}"
        if parts.add_arrays(then, packed_elites(run, seed, at)) and content.get("model"):
            parts.add_arrays(f"{address}/discount?at={at}", _discount(run, at))
    if run.dataset is not None and any(content["pictures"].values()):
        _add_sheets(parts, run, address, seed)


def _add_rows(parts: Parts, run: OpenedRun, address: str, seed: int) -> None:
    """Measures and solutions of all elites, the solutions where there is room."""
    rows = run.elites(seed)
    length = rows.solutions.shape[1]
    about = {"measure_dim": rows.measures.shape[1], "solution_length": length}
    measures = {"measures": rows.measures}
    name = f"{address}/rows?seed={seed}"
    # A part of the room, because pictures and recorded iterations follow.
    own = parts.share(parts.left * 6 // 10)
    both = measures | {"solutions": rows.solutions}
    if not own.add_arrays(name, packed(both, about | {"solution_dim": length})):
        own.add_arrays(name, packed(measures, about | {"solution_dim": 0}))


def _spread(moments: list[int]) -> list[int]:
    """A few recorded iterations, from the first to the last."""
    count = min(len(moments), _MAX_MOMENTS)
    places = np.linspace(0, len(moments) - 1, count).round().astype(int)
    return [moments[place] for place in places]


def _add_sheets(parts: Parts, run: OpenedRun, address: str, seed: int) -> None:
    """Small pictures of pairs, from the best objective to the worst, as many as there is room."""
    rows = run.elites(seed)
    ordered = rows.cells[np.argsort(-rows.objectives, kind="stable")]
    sheets: list[list[int]] = []
    count = -(-len(ordered) // MAX_TILES)
    for start in range(count):
        # Every sheet is spread over all objectives, so that none is left out when room ends.
        cells = [int(cell) for cell in ordered[start::count]]
        name = f"{address}/sheet?seed={seed}&number={start}"
        if parts.left < 300_000 or not parts.add_picture(name, sheet(run, seed, cells)):
            break
        sheets.append(cells)
    parts.add_json(f"{address}/sheets?seed={seed}", {"sheets": sheets})


def _discount(run: OpenedRun, at: int | None) -> bytes:
    return packed_discount(run, at, shorten=shortened)


def shortened(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Numbers with three digits, which compress well; a colour shows no more."""
    return (values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def _page_template(path: str) -> str:
    """Lines of Python in which the page fills in ``{seed}`` and ``{cell}``."""
    return python_lines(path).format(seed="{seed}", cell="{cell}")


LARGE = 200_000
"""Cells beyond which a report has a smaller picture of the archive."""
_SAMPLE = 100_000


def add_coarse_archive(
    parts: "Parts", run: OpenedRun, address: str, described: dict[str, Any]
) -> dict[str, Any]:
    """Add the elites of the first seed to a report: the best of blocks, or a sample.

    Returns:
        The description of the archive that the page gets.
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
        coarse = {"shape": list(shape), "num_cells": int(np.prod(shape)), "coarse": told}
        return described | coarse
    count = min(_SAMPLE, len(rows.cells))
    chosen = np.sort(np.random.default_rng(0).choice(len(rows.cells), count, replace=False))
    cells = rows.cells[chosen].astype(np.int32)
    parts.add_arrays(name, packed({"cell": cells, "objective": rows.objectives[chosen]}, about))
    projection = described["projections"][0]["name"]
    spots, _, names = project(run, projection, seed)
    places = spots[cells].astype(np.float32)
    arrays = {"x": places[:, 0], "y": places[:, 1], "cell": cells}
    parts.add_arrays(f"{address}/map?by={projection}", packed(arrays, names))
    return described | {"coarse": f"{count:,} of {len(rows.cells):,} elites, chosen at random"}


def best_of_blocks(
    shape: tuple[int, ...], cells: Int[np.ndarray, " n"], objectives: Float[np.ndarray, " n"]
) -> tuple[tuple[int, int], int, Int[np.ndarray, " blocks"], Int[np.ndarray, " blocks"]]:
    """The best elite of each square block of a grid.

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
    found, places = np.unique(blocks[order], return_index=True)
    return small, side, found, order[places]


MAX_BYTES = 9_500_000
"""Largest size of a report."""
_START = 'import "gloam/main";'
_MARK = '<meta name="generator" content="gloam report">'


def write_html(path: str | os.PathLike, out: str | os.PathLike | None = None) -> Path:
    """Write a run or a study as one HTML file that opens from a disk and loads nothing.

    The file has the views of `gloam explore`, for the first seed of a run, and is smaller than
    10 MB: of a large archive it has a coarser picture, of a large dataset fewer pictures, and of
    long solutions none.

    Args:
        path: A run folder or a study folder.
        out: The file; by default ``report.html`` in the run folder, or ``report/report.html`` in
            the study folder.

    Returns:
        The file.

    Raises:
        ValueError: There is neither a run nor a study in the folder, or the file exists and is not
            a report of gloam.
    """
    root = Path(path)
    library = Library(root)
    contents = library.look()
    study = next((one for one in contents.studies.values() if one.path == library.root), None)
    run = next((one for one in contents.runs.values() if one.path == library.root), None)
    checks.expect(
        (study or run) is not None,
        "folder",
        "the folder of a run or of a study",
        f"'{root}'",
        "Give a folder that has a config.json or a study.json of gloam.",
    )
    usual = root / "report" / "report.html" if study else root / "report.html"
    place = usual if out is None else Path(out)
    check_replaceable(place)
    budget = MAX_BYTES - len(_page({}).encode())
    if run is not None and study is None:
        data = _run_data(library, root, budget)
        data["about"]["start"] = f"#/run/{run.id}"
    else:
        assert study is not None
        data = _study_data(library, budget)
        data["about"]["start"] = f"#/study/{study.id}"
    files.write_bytes(place, _page(data).encode())
    return place


def check_replaceable(place: Path) -> None:
    """Refuse to replace a file that is not a report of gloam."""
    if not place.exists():
        return
    with files.open_regular(place) as file:
        ours = _MARK.encode() in file.read(2000)
    fix = "Move it away, or choose another file by --out."
    checks.expect(ours, "out", "a new file or a report of gloam", f"'{place}'", fix)


def _run_data(library: Library, root: Path, budget: int) -> dict[str, Any]:
    parts = Parts(budget)
    (entry,) = [one for one in library.look().runs.values() if one.path == library.root]
    parts.add_json("folder", folder_view(library))
    if run_summary(library, entry).get("results") is not None:
        parts.add_arrays(f"runs/{entry.id}/metrics", metrics_view(library, entry))
    add_run(parts, library, entry, str(root))
    return parts.data | {"about": {"version": __version__}}


def _study_data(library: Library, budget: int) -> dict[str, Any]:
    """All curves of a study, and the archives of its runs as far as there is room."""
    parts = Parts(budget)
    folder = folder_view(library)
    parts.add_json("folder", folder)
    runs = library.look().runs
    readable = [run["id"] for run in folder["runs"] if run.get("results")]
    for run_id in readable:
        parts.add_arrays(f"runs/{run_id}/metrics", metrics_view(library, runs[run_id]))
    for number, run_id in enumerate(readable):
        entry = runs[run_id]
        share = (parts.left - 200_000) // max(1, len(readable) - number)
        add_run(parts.share(share), library, entry, os.path.relpath(entry.path, library.root))
    return parts.data | {"about": {"version": __version__}}


def _page(data: dict[str, Any]) -> str:
    """The page with its data, styles and modules in it."""
    sources = static_files()
    addresses = {name: _data_address(sources[file].content) for name, file in modules().items()}
    imports = import_map(addresses)
    styles = "\n".join(sources[name].content.decode() for name in style_names())
    digests = [script_digest(text) for text in (imports, _START)]
    # The modules are addresses of data. Nothing that a user named is markup on the page: it is all
    # in the JSON, from which scripts cannot come.
    policy = (
        "default-src 'none'; script-src "
        + " ".join(f"'sha256-{digest}'" for digest in digests)
        + f" data:; style-src 'sha256-{script_digest(styles)}'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
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
    page = sources["index.html"].content.decode()
    before, _, rest = page.partition("<!--styles-->")
    middle, _, end = rest.partition("<!--scripts-->")
    return before + head + middle + scripts + end


def _data_address(content: bytes, kind: str = "text/javascript") -> str:
    import base64

    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
