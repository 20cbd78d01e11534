"""The runs and studies below a folder, each with an id by which requests name it."""

import dataclasses
import hashlib
import os
import threading
from collections import OrderedDict
from pathlib import Path

from gloam.explorer.opened_run import OpenedRun
from gloam.explorer.summaries import RunSummaries
from gloam.formats import DamagedFileError
from gloam.formats.documents import is_document, read_document

_MAX_DEPTH = 6
_MAX_FOLDERS = 20_000
_MAX_RUNS = 2000
# Folders inside of run folders and studies that hold no runs.
_SKIPPED = {"checkpoint", "snapshots", "figures", "report", "__pycache__"}
# Runs whose elites stay in memory.
_MAX_OPEN = 4


@dataclasses.dataclass(frozen=True)
class Entry:
    """A run or a study of the library."""

    id: str
    path: Path
    name: str
    """Path relative to the folder of the library."""


@dataclasses.dataclass(frozen=True)
class Contents:
    """What a look into the folder found."""

    runs: dict[str, Entry]
    studies: dict[str, Entry]
    complete: bool
    """False when there are more folders or runs than are looked at."""


class Library:
    """The runs below one folder.

    Requests name a run by its id. Paths never come from a request.

    Args:
        root: The folder.
    """

    def __init__(self, root: Path):
        self.root = Path(root).resolve()
        self.summaries = RunSummaries()
        self._contents = Contents({}, {}, True)
        self._opened: OrderedDict[str, OpenedRun] = OrderedDict()
        self._lock = threading.Lock()

    def look(self) -> Contents:
        """Look into the folder again."""
        self._contents = _contents(self.root)
        return self._contents

    def run(self, run_id: str) -> Entry | None:
        """The run with an id."""
        return self._contents.runs.get(run_id) or self.look().runs.get(run_id)

    def study(self, study_id: str) -> Entry | None:
        """The study with an id."""
        return self._contents.studies.get(study_id) or self.look().studies.get(study_id)

    def opened(self, entry: Entry) -> OpenedRun:
        """A run with what was read of it; the last few are kept."""
        with self._lock:
            found = self._opened.pop(entry.id, None)
            if found is None or found.folder.path != entry.path:
                found = OpenedRun(entry.path)
            self._opened[entry.id] = found
            while len(self._opened) > _MAX_OPEN:
                self._opened.popitem(last=False)
            return found


def read_study(entry: Entry) -> dict:
    """What a study runs: its domains, algorithms, seeds and iterations.

    Raises:
        DamagedFileError: The file is damaged.
    """
    content = read_document(entry.path / "study.json", kind="study", fix="Restore it from a copy.")
    lists = [content.get(name) for name in ("domains", "algorithms")]
    if not all(isinstance(part, list) and all(isinstance(n, str) for n in part) for part in lists):
        raise DamagedFileError(entry.path / "study.json", "it has no domains", "Restore a copy.")
    names = ("domains", "algorithms", "num_seeds", "iterations")
    return {name: content.get(name) for name in names}


def _contents(root: Path) -> Contents:
    runs: dict[str, Entry] = {}
    studies: dict[str, Entry] = {}
    waiting, seen = [(root, 0)], 0
    while waiting:
        folder, depth = waiting.pop()
        seen += 1
        if seen > _MAX_FOLDERS or len(runs) >= _MAX_RUNS:
            return Contents(runs, studies, complete=False)
        try:
            with os.scandir(folder) as found:
                parts = list(found)
        except OSError:
            continue
        names = {part.name for part in parts}
        if _is_run(folder, names):
            entry = _entry(root, folder)
            runs[entry.id] = entry
        elif "study.json" in names and is_document(folder / "study.json", "study"):
            entry = _entry(root, folder)
            studies[entry.id] = entry
        if depth < _MAX_DEPTH:
            waiting += [(folder / part.name, depth + 1) for part in parts if _is_searched(part)]
    return Contents(runs, studies, complete=True)


def _is_searched(part: os.DirEntry) -> bool:
    if part.name in _SKIPPED or part.name.startswith("."):
        return False
    try:
        # Links could lead in a circle, or out of the folder.
        return part.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _is_run(folder: Path, names: set[str]) -> bool:
    """Whether gloam began a run here, although its files may be damaged."""
    if "config.json" not in names:
        return False
    return "config.npz" in names or is_document(folder / "config.json", "run")


def _entry(root: Path, folder: Path) -> Entry:
    name = "." if folder == root else str(folder.relative_to(root))
    digest = hashlib.sha256(os.fsencode(name)).hexdigest()
    return Entry(digest[:12], folder, root.name if name == "." else name)
