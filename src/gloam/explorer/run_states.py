"""The state of a run, from its folder: running, finished, interrupted, failed, or not readable."""

import threading
from pathlib import Path
from typing import Literal, NamedTuple

from gloam.formats import DamagedFileError
from gloam.formats.arrays import read_arrays
from gloam.formats.checkpoints import Checkpoints
from gloam.formats.config import RunConfig
from gloam.formats.lock import NAME, holder
from gloam.formats.metrics_tail import stamp
from gloam.formats.own_files import ARCHIVE

State = Literal["running", "finished", "interrupted", "failed", "damaged", "newer"]


class RunState(NamedTuple):
    """The state of a run, with a reason where there is one to tell."""

    state: State
    reason: str
    iteration: int | None
    """Iteration of the newest checkpoint."""


class RunStates:
    """States of runs. It remembers which locks nobody holds."""

    def __init__(self) -> None:
        self._free: dict[Path, object] = {}
        self._checked: dict[Path, tuple[object, DamagedFileError | None]] = {}
        self._lock = threading.Lock()

    def of(self, folder: Path, config: RunConfig) -> RunState:
        """The state of a run whose configuration can be read."""
        reached = newest_checkpoint(folder)
        by = self._holder(folder)
        if by is not None:
            return RunState("running", by, reached)
        planned = config.plan.get("iterations")
        torn = self._torn_file(folder)
        if torn is not None:
            return RunState("damaged", f"{torn.path.name}: {torn.problem}.", reached)
        if reached is None:
            return RunState("failed", "It ended before its first checkpoint.", None)
        if isinstance(planned, int) and reached >= planned and archive_files(folder):
            return RunState("finished", "", reached)
        return RunState("interrupted", f"Its last checkpoint is at iteration {reached:,}.", reached)

    def _torn_file(self, folder: Path) -> DamagedFileError | None:
        """A file of arrays that is not whole. Their digests are compared when they are read."""
        kinds = {folder / "config.npz": "config"}
        kinds |= dict.fromkeys(archive_files(folder), "archive")
        found = None
        for path, kind in kinds.items():
            now = stamp(path)
            if path not in self._checked or self._checked[path][0] != now:
                self._checked[path] = (now, _problem_of(path, kind))
            found = found or self._checked[path][1]
        return found

    def _holder(self, folder: Path) -> str | None:
        """Who writes to the folder. A lock that was found free is not tried again."""
        with self._lock:
            found = stamp(folder / NAME)
            if found is None or self._free.get(folder) == found:
                return None
            by = holder(folder)
            if by is None:
                self._free[folder] = found
            return by


def unreadable(error: DamagedFileError) -> RunState:
    """The state of a run whose configuration cannot be read."""
    newer = "a newer version of gloam wrote it" in error.problem
    problem = f"{error.path.name}: {error.problem}."
    return RunState("newer" if newer else "damaged", problem, None)


def newest_checkpoint(folder: Path) -> int | None:
    """Iteration of the newest checkpoint, by the names of the files."""
    try:
        files = Checkpoints(folder / "checkpoint").files()
    except OSError:
        return None
    return int(files[0].stem) if files and files[0].stem.isdecimal() else None


def has_elites(folder: Path) -> bool:
    """Whether there are elites to read, in a checkpoint or in files of their own."""
    return newest_checkpoint(folder) is not None or bool(archive_files(folder))


def archive_files(folder: Path) -> list[Path]:
    """The files of the elites, which are there at the end of a run."""
    return [file for file in folder.glob("archive*.npz") if ARCHIVE.fullmatch(file.name)]


def _problem_of(path: Path, kind: str) -> DamagedFileError | None:
    """What is wrong with a file of arrays, by its list of contents."""
    try:
        read_arrays(path, kind=kind, fix="", prefix="no array")
    except DamagedFileError as error:
        return error
    return None
