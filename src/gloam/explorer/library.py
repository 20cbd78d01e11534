"""The runs and studies below a folder: their list, and runs that are opened to look into them.

Requests name a run by its id. Paths never come from a request.
"""

import dataclasses
import hashlib
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float, Int

from gloam._tools.files import stamp
from gloam.archives import Archive, CVTArchive, Elites, GridArchive
from gloam.archives.qd_score import tables_with_one_reference
from gloam.datasets import Dataset
from gloam.datasets.matches import Metric
from gloam.errors import DamagedFileError, ForeignError
from gloam.explorer.page import packed
from gloam.explorer.summaries import RunSummary, elites_version, newest_checkpoint
from gloam.formats import RunFolder
from gloam.formats.config import RunConfig
from gloam.formats.documents import is_document, read_document
from gloam.gallery.drawings import Drawer, Pictures
from gloam.gallery.pairs import elite_pictures
from gloam.plots.plane import Plane
from gloam.runs.comparison import compare
from gloam.spaces import Form

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger("gloam.explorer")

READ_ERRORS = (ValueError, OSError, MemoryError)
"""Errors of reading a run folder: damaged files, parts of the user's own, no permission."""

_FIX = "Restore it from a copy."
_MAX_DEPTH = 6
_MAX_FOLDERS = 20_000
_MAX_RUNS = 2000
_MAX_LINKS = 20
# Folders inside of runs and studies that contain no runs.
_SKIPPED = {"checkpoint", "snapshots", "figures", "report", "__pycache__"}
# Runs, and seeds of each, whose elites stay in memory.
_MAX_OPEN = 4
_MAX_SEEDS = 3
_TESTED = ("qd_score", "coverage", "best_objective")
_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True)
class Entry:
    """A run or a study of the library."""

    id: str
    path: Path
    name: str
    """Path relative to the folder of the library."""


@dataclasses.dataclass(frozen=True)
class Contents:
    """The runs and studies of a library, by id."""

    runs: dict[str, Entry]
    studies: dict[str, Entry]
    complete: bool
    """False if there were more folders or runs than are searched."""
    links: tuple[str, ...] = ()
    """Links to folders, which are not followed: they could lead out of the folder."""


class Library:
    """The runs below one folder.

    Args:
        root: The folder.
        draw: A function of the user's program that draws solutions, see
            `gloam.gallery.elite_pictures`. Files never name one.
    """

    def __init__(self, root: Path, draw: Callable[..., Any] | None = None):
        self.root = Path(root).resolve()
        self._drawer = None if draw is None else Drawer(draw)
        self._contents = Contents({}, {}, True)
        self._summaries: dict[Path, RunSummary] = {}
        self._opened: OrderedDict[str, OpenedRun] = OrderedDict()
        self._compared: tuple[Any, dict[str, Any]] = ((), {})
        self._lock = threading.Lock()

    def look(self) -> Contents:
        """Search the folder again."""
        self._contents = _contents(self.root)
        return self._contents

    def run(self, run_id: str) -> Entry | None:
        """Return the run with an id."""
        return self._contents.runs.get(run_id) or self.look().runs.get(run_id)

    def folder(self) -> dict[str, Any]:
        """Return the summaries of all runs and studies."""
        contents = self.look()
        runs = [self.summary(entry) for entry in contents.runs.values()]
        studies = [self._study(entry, runs) for entry in contents.studies.values()]
        return {
            "folder": self.root.name,
            "complete": contents.complete,
            "links": contents.links[:_MAX_LINKS],
            "runs": sorted(runs, key=lambda run: run["name"]),
            "studies": sorted(studies, key=lambda study: study["name"]),
        }

    def summary(self, entry: Entry) -> dict[str, Any]:
        """Return the summary of a run; if it cannot be read, its state and the reason."""
        about = {"id": entry.id, "name": entry.name}
        try:
            return about | self._summary(entry).read()
        except READ_ERRORS as error:
            return about | {"state": "damaged", "reason": str(error)}
        except Exception as error:  # that was not foreseen: the other runs are shown nevertheless
            logger.exception("unexpected error at the run %r", entry.name)
            return about | {"state": "damaged", "reason": f"{type(error).__name__}: {error}"}

    def packed_metrics(self, entry: Entry) -> bytes:
        """Return the metrics of a run, a packed array for each column, with one reference."""
        (table,), _ = tables_with_one_reference([self._summary(entry).metrics()])
        names = [name for name in table.columns if table[name].dtype.kind in "biuf"]
        arrays = {name: table[name].to_numpy(np.float64) for name in names}
        return packed(arrays, {"rows": len(table)})

    def opened(self, entry: Entry) -> "OpenedRun":
        """Return an opened run from the cache, which keeps the last few."""
        with self._lock:
            run = self._opened.pop(entry.id, None)
            if run is None or run.folder.path != entry.path:
                run = OpenedRun(entry.path, self._drawer)
            self._opened[entry.id] = run
            while len(self._opened) > _MAX_OPEN:
                self._opened.popitem(last=False)
            return run

    def comparison(self, groups: list[list[Entry]]) -> dict[str, Any]:
        """Return the comparison of groups of runs by `gloam.compare`; groups are numbered.

        Returns:
            ``f_min``, the reference of all QD scores; ``table``, mean and standard error of each
            group; ``tests``, the Games-Howell tests of all pairs of groups by metric. There are no
            tests if a group has a single seed.

        Raises:
            ValueError: A run cannot be read, or the archives differ in size.
        """
        runs = [self.opened(entry) for entries in groups for entry in entries]
        version = (
            [[entry.id for entry in entries] for entries in groups],
            [elites_version(run.folder.path, run.config.seeds) for run in runs],
        )
        if self._compared[0] != version:
            if len({run.archive.num_cells for run in runs}) > 1:
                raise ValueError("The archives differ in size: QD scores cannot be compared.")
            paths = {str(n): [entry.path for entry in entries] for n, entries in enumerate(groups)}
            result = compare(paths)
            table = result.table().rename(columns={"algorithm": "group"})
            content: dict[str, Any] = {
                "f_min": result.f_min,
                "table": _records(table),
                "tests": {},
            }
            if len(groups) > 1 and min(table["seeds"].tolist()) > 1:
                names = {"algorithm": "group"}
                tests = {name: result.tests(name).rename(columns=names) for name in _TESTED}
                content["tests"] = {name: _records(test) for name, test in tests.items()}
            self._compared = version, content
        return self._compared[1]

    def _summary(self, entry: Entry) -> RunSummary:
        with self._lock:
            return self._summaries.setdefault(entry.path, RunSummary(entry.path))

    def _study(self, entry: Entry, runs: list[dict[str, Any]]) -> dict[str, Any]:
        """Return a study with the runs of each pair of domain and algorithm."""
        about = {"id": entry.id, "name": entry.name}
        try:
            study = _read_study(entry.path / "study.json")
        except READ_ERRORS as error:
            return about | {"state": "damaged", "reason": str(error), "cells": []}
        top = "" if entry.path == self.root else f"{entry.name}/"
        cells = []
        for domain in study["domains"]:
            for algorithm in study["algorithms"]:
                name = f"{top}{domain}/{algorithm}"
                ids = [run["id"] for run in runs if _is_part(run["name"], name)]
                if ids:
                    cells.append({"domain": domain, "algorithm": algorithm, "runs": ids})
        return about | study | {"cells": cells}


def _records(table: "pd.DataFrame") -> list[dict[str, Any]]:
    """Return the rows of a table, with the numbers of groups as integers."""
    groups = [name for name in ("group", "other") if name in table]
    return table.astype(dict.fromkeys(groups, int)).to_dict("records")


def _is_part(run: str, cell: str) -> bool:
    """Whether a run is that of a cell, or of a group of its seeds."""
    return run == cell or run.startswith(f"{cell}/part-")


def _read_study(path: Path) -> dict[str, Any]:
    """Return the domains, algorithms, titles, seeds and iterations of a study."""
    content = read_document(path, kind="study", fix=_FIX)
    for name in ("domains", "algorithms"):
        listed = content.get(name)
        if not (isinstance(listed, list) and all(isinstance(entry, str) for entry in listed)):
            raise DamagedFileError(path, f"it has no list of {name}", _FIX)
    titles = content.get("titles")
    titles = titles if isinstance(titles, dict) else {}
    names = (*content["domains"], *content["algorithms"])
    shown = {name: str(titles.get(name, name)) for name in names}
    about = {n: content.get(n) for n in ("domains", "algorithms", "num_seeds", "iterations")}
    return about | {"titles": shown}


def _contents(root: Path) -> Contents:
    runs: dict[str, Entry] = {}
    studies: dict[str, Entry] = {}
    links: list[str] = []
    waiting, seen = [(root, 0)], 0
    while waiting:
        folder, depth = waiting.pop()
        seen += 1
        if seen > _MAX_FOLDERS or len(runs) >= _MAX_RUNS:
            return Contents(runs, studies, False, tuple(links))
        try:
            with os.scandir(folder) as scanned:
                children = list(scanned)
        except OSError:
            continue
        names = {child.name for child in children}
        entry = _entry(root, folder)
        if _is_run(folder, names):
            runs[entry.id] = entry
        elif "study.json" in names and is_document(folder / "study.json", "study"):
            studies[entry.id] = entry
        if depth < _MAX_DEPTH:
            searched = [child for child in children if _is_searched(child)]
            waiting += [(Path(child.path), depth + 1) for child in searched if not _is_link(child)]
            places = [Path(child.path).relative_to(root) for child in searched if _is_link(child)]
            links += sorted(map(str, places))
    return Contents(runs, studies, True, tuple(links))


def _entry(root: Path, folder: Path) -> Entry:
    name = "." if folder == root else str(folder.relative_to(root))
    digest = hashlib.sha256(os.fsencode(name)).hexdigest()
    return Entry(digest[:12], folder, root.name if name == "." else name)


def _is_run(folder: Path, names: set[str]) -> bool:
    """Whether gloam started a run here, even if its files are damaged."""
    if "config.json" not in names:
        return False
    return "config.npz" in names or is_document(folder / "config.json", "run")


def _is_searched(child: os.DirEntry) -> bool:
    if child.name in _SKIPPED or child.name.startswith("."):
        return False
    try:
        return child.is_dir()
    except OSError:
        return False


def _is_link(child: os.DirEntry) -> bool:
    """Whether a folder is a link. Links could form a cycle, or lead out of the folder."""
    return not child.is_dir(follow_symlinks=False)


class EliteRows(NamedTuple):
    """The elites of one seed, a row for each, in the order of their cells."""

    version: str
    """Changes when the elites do."""
    iteration: int | None
    elites: Elites
    cells: Int[np.ndarray, " n"]
    solutions: Float[np.ndarray, "n sol"]
    objectives: Float[np.ndarray, " n"]
    measures: Float[np.ndarray, "n meas"]

    def row_of(self, cell: int) -> int | None:
        """Return the row of a cell, or ``None`` if it is empty."""
        row = int(np.searchsorted(self.cells, cell))
        return row if row < len(self.cells) and self.cells[row] == cell else None


class OpenedRun:
    """Reads the parts of one run folder lazily, and caches them.

    All methods raise ``DamagedFileError``, ``ForeignError`` or ``ValueError`` if the folder does
    not contain the part.

    Args:
        path: The run folder.
        drawer: Draws solutions, if the user's program has given a function for it.
    """

    def __init__(self, path: Path, drawer: Drawer | None = None):
        self.folder = RunFolder(path)
        self._drawer = drawer
        self._cache: dict[Any, tuple[Any, Any]] = {}
        self._locks: dict[Any, threading.RLock] = {}
        self._lock = threading.Lock()

    def cached(self, name: Any, version: Any, make: Callable[[], _T]) -> _T:
        """Return what ``make`` returns, called once for a version; the last version is kept."""
        with self._lock:
            lock = self._locks.setdefault(name, threading.RLock())
        with lock:  # other entries can be made meanwhile
            known = self._cache.get(name)
            if known is None or known[0] != version:
                known = (version, make())
                self._cache[name] = known
            return known[1]

    @property
    def config(self) -> RunConfig:
        """The configuration."""
        version = stamp(self.folder.path / "config.json")
        return self.cached("config", version, self.folder.read_config)

    @property
    def archive(self) -> Archive:
        """The archive, also of an algorithm with other parts of the user's own."""
        read = partial(self.folder.read_part, "archive")
        return self.cached("archive", self.config.identity, read)

    @property
    def plane(self) -> Plane:
        """The plane in which the archive is drawn."""
        return self.cached("plane", self.config.identity, lambda: Plane(self.archive))

    @property
    def dataset(self) -> Dataset | None:
        """The dataset whose items are the cells, or ``None``."""
        if self.config.dataset is None:
            return None
        version = stamp(self.folder.path / "dataset.npz")
        return self.cached("dataset", version, self.folder.read_dataset)

    @property
    def domain(self) -> Any:
        """The domain, or ``None`` if only the user's program can build it."""

        def read() -> Any:
            try:
                return self.folder.read_part("domain")
            except (ForeignError, DamagedFileError):
                return None

        return self.cached("domain", self.config.identity, read)

    @property
    def form(self) -> Form | None:
        """The space or tree that solutions stand for; ``None`` for plain vectors."""
        return self.cached("form", self.config.identity, self.folder.read_form)

    def elites(self, seed: int) -> EliteRows:
        """Return the elites of a seed as of the newest checkpoint."""
        version = f"{seed}-{elites_version(self.folder.path, self.config.seeds)}"

        def read() -> EliteRows:
            cached = [name for name in list(self._cache) if name[:1] == ("elites",)]
            for name in cached[: max(0, len(cached) + 1 - _MAX_SEEDS)]:
                self._cache.pop(name, None)
            elites = self.folder.read_archive(seed, archive=self.archive)
            occupied, store = elites.occupied, elites.store
            arrays = store.solutions, store.objectives, store.measures
            rows = [np.asarray(array)[occupied] for array in arrays]
            reached = newest_checkpoint(self.folder.path)
            return EliteRows(version, reached, elites, np.flatnonzero(occupied), *rows)

        return self.cached(("elites", seed), version, read)

    def pictures(self, rows: EliteRows) -> Pictures | None:
        """Return the pictures of elites, or ``None`` if they are just numbers."""
        if self._drawer is not None:
            return self._drawer.pictures(rows.elites)
        dataset = self.dataset
        return None if dataset is None else elite_pictures(rows.elites, dataset, self.domain)

    @property
    def is_plane_grid(self) -> bool:
        """Whether the archive is a grid of two measures, which a heatmap shows."""
        return isinstance(self.archive, GridArchive) and self.archive.measure_dim == 2

    @property
    def metric(self) -> Metric:
        """The metric of distances between measures."""
        return self.archive.metric if isinstance(self.archive, CVTArchive) else "euclidean"
