"""The metrics of a run that goes on: only what is new is read."""

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

from gloam import files
from gloam.formats.errors import DamagedFileError
from gloam.formats.metrics_files import MetricsFiles, rows_from

if TYPE_CHECKING:
    import pandas as pd

_Stamp = tuple[int, int, int] | None


class MetricsTail:
    """Follows the metrics of one run folder.

    Args:
        folder: The run folder.
        run: Identity of the run.
    """

    def __init__(self, folder: Path, run: str):
        self._files = MetricsFiles(folder)
        self._run = run
        self._table: pd.DataFrame | None = None
        self._errors: list[DamagedFileError] = []
        self._stamps: tuple[_Stamp, _Stamp] = (None, None)
        self._offset = 0

    def read(self) -> tuple["pd.DataFrame", list[DamagedFileError]]:
        """All rows that can be read now, and an error for each file with others.

        Lines that were appended to the log since the last call are all that is read, unless a file
        was replaced or cut.
        """
        stamps = stamp(self._files.table), stamp(self._files.log)
        if self._table is not None and stamps == self._stamps:
            return self._table, self._errors
        if self._table is None or not self._is_longer(stamps) or not self._append():
            # Before the rows are read: what is appended meanwhile is read twice, and kept once.
            self._offset = _end_of_lines(self._files.log)
            self._table, self._errors = self._files.read_what_is_whole(run=self._run)
        self._stamps = stamps
        return self._table, self._errors

    def _is_longer(self, stamps: tuple[_Stamp, _Stamp]) -> bool:
        """True when the log is the one known, with more in it, and the table is the same."""
        (table, log), (old_table, old_log) = stamps, self._stamps
        if table != old_table or log is None or old_log is None:
            return False
        return log[0] == old_log[0] and log[1] > old_log[1]

    def _append(self) -> bool:
        """Add the rows behind the known ones; false when they cannot be read."""
        import pandas as pd

        assert self._table is not None
        try:
            with files.open_regular(self._files.log) as file:
                file.seek(self._offset)
                content = file.read()
        except OSError:
            return False
        whole = content.rfind(b"\n") + 1
        found, damaged = rows_from(io.BytesIO(content[:whole]), self._run)
        if damaged:
            return False
        self._offset += whole
        if found:
            parts = [part for part in (self._table, pd.DataFrame(found)) if len(part)]
            self._table = pd.concat(parts, ignore_index=True)
            if {"seed", "iteration"} <= set(self._table.columns):
                self._table = self._table.drop_duplicates(["seed", "iteration"], ignore_index=True)
        return True


def stamp(path: Path) -> _Stamp:
    """What changes when a file does: its number, size and time; ``None`` where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _end_of_lines(path: Path) -> int:
    """Where the last whole line of a file ends."""
    try:
        with files.open_regular(path) as file:
            return file.read().rfind(b"\n") + 1
    except OSError:
        return 0
