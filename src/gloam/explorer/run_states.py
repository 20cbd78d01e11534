"""The state of a run, from its folder: running, finished, interrupted, failed, or not readable."""

import threading
from pathlib import Path
from typing import Literal, NamedTuple

from gloam.formats import DamagedFileError
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
        self._lock = threading.Lock()

    def of(self, folder: Path, config: RunConfig) -> RunState:
        """The state of a run whose configuration can be read."""
        reached = newest_checkpoint(folder)
        by = self._holder(folder)
        if by is not None:
            return RunState("running", by, reached)
        planned = config.plan.get("iterations")
        if reached is None:
            return RunState("failed", "It ended before its first checkpoint.", None)
        if isinstance(planned, int) and reached >= planned and has_archive(folder):
            return RunState("finished", "", reached)
        return RunState("interrupted", f"Its last checkpoint is at iteration {reached:,}.", reached)

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


def has_archive(folder: Path) -> bool:
    """Whether the elites are in files of their own, as at the end of a run."""
    return any(ARCHIVE.fullmatch(file.name) for file in folder.glob("archive*.npz"))
