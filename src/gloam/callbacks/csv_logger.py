"""Writes the logged rows to a CSV file, row by row."""

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path

from gloam import checks
from gloam.callbacks.callback import Callback, Row, RunStart
from gloam.files import append, write_bytes

# The first columns of all metrics: by them a file is known to be one of ours.
_FIRST = "seed,iteration,evaluations,"


class CsvLogger(Callback):
    """Writes the logged rows to a CSV file, as soon as they are logged.

    The file has the columns of the metrics, in the same order. In a resumed run it is first written
    anew with the rows that the run folder has, so that no row is missing and none is there twice.

    Args:
        path: The file. It must not exist, or be of an earlier `CsvLogger` of a resumed run.
    """

    def __init__(self, path: str | os.PathLike):
        self._path = Path(path)
        self._has_header = False

    def start(self, run: RunStart) -> None:
        """Check the file, and write the rows of a resumed run."""
        exists, resumed = self._path.exists(), run.first_iteration > 0
        fix = "Choose another name, or move the file away."
        got = f"'{self._path}', which exists"
        checks.expect(not exists or resumed, "path", "a new file", got, fix)
        if exists:
            with open(self._path, encoding="utf-8", errors="replace") as file:
                is_ours = file.read(len(_FIRST)) in ("", _FIRST)
            got = f"'{self._path}', which has other columns"
            checks.expect(is_ours, "path", "a file of an earlier CsvLogger", got, fix)
        self._has_header = False
        write_bytes(self._path, self._lines(run.earlier_rows))

    def log(self, rows: Sequence[Row]) -> None:
        """Write the rows."""
        append(self._path, self._lines(rows), sync=False)

    def _lines(self, rows: Sequence[Row]) -> bytes:
        text = io.StringIO(newline="")
        if rows:
            table = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
            if not self._has_header:
                table.writeheader()
                self._has_header = True
            table.writerows(rows)
        return text.getvalue().encode()
