"""The metrics of a run folder: a table, and a log of the rows that are not in it yet.

While a run goes on, rows are appended to ``metrics.log``: a line for each, with a digest and a JSON
object of numbers. When the run ends or is resumed, they become part of ``metrics.parquet``. Nothing
is written twice in between, however long a run takes.

The metrics of a run that goes on: only what is new is read.
"""

import hashlib
import io
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from gloam import files
from gloam.formats.documents import DamagedFileError
from gloam.formats.tables import read_table, write_table

if TYPE_CHECKING:
    import pandas as pd


_FIX = "Resume the run, which keeps the rows that can be read, or restore the file from a copy."
_DIGEST_LENGTH = 16
# Rows are dicts of a kilobyte or more until they are columns of a table.
_ROWS_AT_ONCE = 4096
_LARGEST_LINE = 1 << 16


class MetricsFiles:
    """The metrics in one run folder.

    Args:
        folder: The run folder.
    """

    def __init__(self, folder: Path):
        self.table = folder / "metrics.parquet"
        self.log = folder / "metrics.log"

    def append(self, rows: Iterable[dict[str, Any]], *, run: str, sync: bool) -> None:
        """Append rows to the log; with ``sync``, return only when they are on the disk."""
        content = b"".join(_line(row, run) for row in rows)
        if content or (sync and self.log.is_file()):
            files.append(self.log, content, sync=sync)

    def write(self, table: "pd.DataFrame", *, run: str) -> None:
        """Replace all rows by those of ``table``."""
        if len(table):
            write_table(self.table, table, about={"run": run})
        else:
            self.table.unlink(missing_ok=True)
        # Rows that are in both files, because the process ends here, are counted once.
        self.log.unlink(missing_ok=True)

    def read(self, *, run: str) -> "pd.DataFrame":
        """All rows.

        Raises:
            DamagedFileError: A row cannot be read. A last line without an end is no damage: the
                process was killed, or is about to write the rest.
        """
        table, errors = self.read_what_is_whole(run=run)
        if errors:
            raise errors[0]
        return table

    def read_what_is_whole(self, *, run: str) -> tuple["pd.DataFrame", list[DamagedFileError]]:
        """All rows that can be read, and an error for each file with others."""
        import pandas as pd  # lazily: half a second that `import gloam` need not wait for

        parts: list[pd.DataFrame] = []
        errors: list[DamagedFileError] = []
        for path, read in ((self.table, _read_table), (self.log, _read_log)):
            if path.is_file():
                found, error = read(path, run)
                parts += [part for part in found if len(part)]
                errors += [error] if error else []
        table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
        if len(parts) > 1 and {"seed", "iteration"} <= set(table.columns):
            table = table.drop_duplicates(["seed", "iteration"], ignore_index=True)
        return table, errors


def _line(row: dict[str, Any], run: str) -> bytes:
    text = json.dumps(row, default=_plain).encode()
    return _digest(text, run) + b" " + text + b"\n"


def _plain(number: Any) -> Any:
    return number.item()


def _digest(text: bytes, run: str) -> bytes:
    """A digest of a row and of the run that it belongs to."""
    whole = hashlib.sha256(run.encode() + b"\n" + text).hexdigest()
    return whole[:_DIGEST_LENGTH].encode()


def _read_table(path: Path, run: str) -> tuple[Sequence["pd.DataFrame"], DamagedFileError | None]:
    try:
        table, about = read_table(path, fix=_FIX)
    except DamagedFileError as error:
        return [], error
    if about.get("run") != run:
        return [], DamagedFileError(path, "it belongs to another run", _FIX)
    return [table], None


def _read_log(path: Path, run: str) -> tuple[Sequence["pd.DataFrame"], DamagedFileError | None]:
    import pandas as pd

    damaged: list[int] = []
    parts = []
    try:
        with files.open_regular(path) as file:
            rows = _rows(file, run, damaged)
            while some := list(islice(rows, _ROWS_AT_ONCE)):
                parts.append(pd.DataFrame(some))
    except OSError as error:
        return parts, DamagedFileError(path, error.strerror or str(error), _FIX)
    if not damaged:
        return parts, None
    problem = f"{len(damaged)} of its lines are damaged or of another run, first line {damaged[0]}"
    return parts, DamagedFileError(path, problem, _FIX)


def rows_from(file: IO[bytes], run: str) -> tuple[list[dict[str, Any]], list[int]]:
    """The rows of a log from where ``file`` stands, and the numbers of lines that are damaged."""
    damaged: list[int] = []
    return list(_rows(file, run, damaged)), damaged


def _rows(file: Any, run: str, damaged: list[int]) -> Iterator[dict[str, Any]]:
    """The rows that agree with their digests; numbers of other lines go into ``damaged``."""
    number = 0
    while line := file.readline(_LARGEST_LINE):
        number += 1
        if not line.endswith(b"\n") and len(line) < _LARGEST_LINE:
            return  # the end of a file that was cut off
        sealed, _, text = line.rstrip(b"\n").partition(b" ")
        row = _row(text) if sealed == _digest(text, run) else None
        if row is None:
            damaged.append(number)
        else:
            yield row


def _row(text: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_row = isinstance(row, dict) and all(
        isinstance(value, (int, float)) for value in row.values()
    )
    return row if is_row else None


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
