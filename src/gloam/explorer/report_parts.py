"""What a report holds of a run, chosen so that the file stays small."""

import base64
import gzip
from typing import Any

import numpy as np
from jaxtyping import Float

from gloam.explorer.archive_view import packed_elites, packed_map
from gloam.explorer.cell_view import python_lines
from gloam.explorer.coarse_archive import LARGE, add_coarse_archive
from gloam.explorer.discount_view import packed_discount
from gloam.explorer.library import Entry, Library
from gloam.explorer.opened_run import OpenedRun
from gloam.explorer.packing import json_bytes, packed
from gloam.explorer.thumbnails import MAX_TILES, sheet
from gloam.explorer.views import READ_ERRORS, pairs_view, parts_view, run_summary

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
