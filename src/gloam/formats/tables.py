"""The tables of a run folder: ``metrics.csv``, and ``failures.parquet`` for failed evaluations.

``metrics.csv`` has a header and one line of numbers per row; `pandas.read_csv` reads it at any
time. Rows are appended while a run goes on. An incomplete last line, left behind by a killed
process, is ignored, and a resumed run drops the rows past its checkpoint. The file has no digests:
lines are checked to be numbers, and rows to fit the configuration of the run.

``failures.parquet`` is written as a whole, with the checksums of the Parquet format.
"""

import contextlib
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from gloam._tools import checks, files, parquet
from gloam.errors import DamagedFileError
from gloam.formats.checkpoints import Checkpoints
from gloam.formats.config import RunConfig
from gloam.formats.documents import (
    FORMAT,
    MOVE_FOLDER,
    check_format,
    check_is_no_folder,
    content_of,
    refuse_outer_link,
)

# pandas and pyarrow are imported lazily, because they double the time of `import gloam`.
if TYPE_CHECKING:
    import pandas as pd

_RESUME = "Resume the run, which keeps the rows that can be read, or restore the file from a copy."
_MAX_METRICS_BYTES = 1 << 32
_MAX_LINE_BYTES = 1 << 16
_ROWS_AT_ONCE = 1 << 14
_MAX_COLUMNS = 2000
_NUMBER = r"(?:-?(?:\d+(?:\.\d+)?(?:e[-+]?\d+)?|inf)|nan)?"
# Columns of whole numbers. A file whose first line lost a column has "nan" in it after a resume.
_WHOLE = {"seed": r"\d{1,20}", "iteration": r"\d{1,10}", "evaluations": r"(?:\d{1,18}|nan)"}


class MetricsFile:
    """``metrics.csv`` of one run folder.

    Args:
        folder: The run folder.
        config: Returns the configuration of the run, which rows have to fit; it is called when rows
            are read. By default rows of every run are read.
    """

    def __init__(self, folder: Path, config: Callable[[], RunConfig | None] = lambda: None):
        self._path = folder / "metrics.csv"
        self._config = config
        self._stamp: files.Stamp = None
        self._forget()

    def append(self, rows: Sequence[dict[str, Any]], *, sync: bool) -> None:
        """Append rows; with ``sync``, return only when all rows are on the disk."""
        check_is_no_folder(self._path)
        exists = self._path.is_file()
        if not rows:
            if sync and exists:
                files.append(self._path, b"", sync=True)
            return
        names = list(rows[0])
        if exists:
            with files.open_regular(self._path) as file, content_of(self._path, _RESUME):
                names = _column_names(file.readline(_MAX_LINE_BYTES))
            # A newer version of gloam may resume a run and log more metrics.
            new_names = [name for name in rows[0] if name not in names]
            if new_names:
                names += new_names
                self.write(self.read()[0].reindex(columns=names))
        header = b"" if exists else _header(names)
        files.append(self._path, header + _lines(names, rows), sync=sync)

    def write(self, table: "pd.DataFrame") -> None:
        """Replace all rows, atomically."""
        if table.empty:
            self._path.unlink(missing_ok=True)
        else:
            names, rows = list(table.columns), table.to_dict("records")
            files.write_bytes(self._path, _header(names) + _lines(names, rows))

    def drop_after(self, iteration: int) -> tuple[int, DamagedFileError | None]:
        """Keep only the valid rows up to ``iteration``.

        Returns:
            Number of rows kept, and an error if some could not be read.
        """
        table, error = self.read()
        if len(table):
            table = table.loc[table["iteration"] <= iteration]
        # Replaced and not truncated, so that a process that follows the file sees a new one.
        self.write(table)
        return len(table), error

    def read(self) -> tuple["pd.DataFrame", DamagedFileError | None]:
        """Return the valid rows, and an error if there are other complete lines.

        A valid row has a number or nothing in each column, a seed of the run, an iteration up to
        the planned or reached one that no row before has for this seed, and at least one evaluation
        for each iteration.

        A second call reads only lines that are new, and returns the same table if there are none.
        """
        now, before = files.stamp(self._path), self._stamp
        if now != before:
            is_longer = now and before and now[0] == before[0] and now[1] > before[1]
            if not is_longer:
                self._forget()
            problem = self._read_on() if now else ""
            fix = MOVE_FOLDER if self._path.is_dir() else _RESUME
            self._error = DamagedFileError(self._path, problem, fix) if problem else None
            self._stamp = now
        return self._table, self._error

    def _forget(self) -> None:
        import pandas as pd

        self._table = pd.DataFrame()
        self._error: DamagedFileError | None = None
        self._names: list[str] = []
        self._offset = self._num_invalid = 0

    def _read_on(self) -> str:
        """Add new rows to the table, and return what is wrong with the file, if anything."""
        import pandas as pd

        tables = [self._table] if len(self._table) else []
        num_known, config = len(tables), self._config()
        # One dtype in all tables: signed and unsigned integers would become floats together.
        dtype = np.uint64 if config and max(config.seeds, default=0) >= 1 << 63 else np.int64
        types = {"seed": dtype} if config else {}
        try:
            refuse_outer_link(self._path)
            with files.open_regular(self._path) as file:
                if os.fstat(file.fileno()).st_size > _MAX_METRICS_BYTES:
                    return f"it is larger than {_MAX_METRICS_BYTES >> 30} GB"
                file.seek(self._offset)
                lines = self._valid_lines(file, config)
                while chunk := list(islice(lines, _ROWS_AT_ONCE)):
                    tables.append(_parsed(chunk, self._names).astype(types))
        except (OSError, ValueError) as error:
            return getattr(error, "strerror", None) or str(error)
        finally:
            if len(tables) > num_known:
                self._add(pd.DataFrame(pd.concat(tables, ignore_index=True)), config)
        count = self._num_invalid
        return f"{count} of its lines cannot be read or do not fit the run" if count else ""

    def _add(self, table: "pd.DataFrame", config: RunConfig | None) -> None:
        """Keep the rows that fit the configuration and differ in seed or iteration."""
        fits = ~table.duplicated(["seed", "iteration"])
        planned = config.plan.get("iterations") if config else None
        if isinstance(planned, int):
            # A run that is resumed with a smaller number has gone further than planned.
            reached = Checkpoints(self._path.parent / "checkpoint").files()[:1]
            fits &= table["iteration"] <= max([planned, *(int(file.stem) for file in reached)])
        if "evaluations" in table:
            fits &= ~(table["evaluations"] < table["iteration"])  # also of "nan"
        self._num_invalid += int((~fits).sum())
        self._table = table if fits.all() else table.loc[fits].reset_index(drop=True)

    def _valid_lines(self, file: IO[bytes], config: RunConfig | None) -> Iterator[bytes]:
        """Yield the complete lines that are rows of numbers, and count the others."""
        row = _row_pattern(self._names, config)
        while line := file.readline(_MAX_LINE_BYTES):
            if not line.endswith(b"\n") and len(line) < _MAX_LINE_BYTES:
                return
            if not self._names:
                self._names = _column_names(line)
                row = _row_pattern(self._names, config)
            elif row.fullmatch(line):
                yield line
            else:
                self._num_invalid += 1
            self._offset += len(line)


def _header(names: Sequence[str]) -> bytes:
    for name in names:
        is_plain = bool(name) and not set(name) & set(',"\r\n')
        fix = "Rename it in the emitter that reports it."
        checks.expect(is_plain, "metric", "a name without commas, quotes or line breaks", name, fix)
    return ",".join(names).encode() + b"\n"


def _lines(names: Sequence[str], rows: Sequence[dict[str, Any]]) -> bytes:
    texts = (",".join(_text(row.get(name, math.nan)) for name in names) for row in rows)
    return "".join(f"{text}\n" for text in texts).encode()


def _text(value: Any) -> str:
    """A number in a form that round-trips exactly."""
    number = value.item() if isinstance(value, np.generic) else value
    if not isinstance(number, (int, float)):
        raise ValueError(f"metrics: expected numbers, got {checks.short(value)}.")
    return repr(+number)  # a bool becomes 0 or 1


def _column_names(line: bytes) -> list[str]:
    try:
        names = line.decode().rstrip("\n").split(",")
    except UnicodeDecodeError:
        names = []
    if not {"seed", "iteration"} <= set(names) or "" in names or len(set(names)) < len(names):
        raise ValueError("it does not begin with the names of its columns")
    if len(names) > _MAX_COLUMNS:
        raise ValueError(f"it has {len(names):,} columns, more than {_MAX_COLUMNS:,}")
    return names


def _row_pattern(names: Sequence[str], config: RunConfig | None) -> re.Pattern[bytes]:
    """Return a regular expression for the lines of a run. Their seeds are compared as texts."""
    whole = _WHOLE | ({"seed": f"(?:{'|'.join(map(str, config.seeds))})"} if config else {})
    return re.compile((",".join(whole.get(name, _NUMBER) for name in names) + "\n").encode())


def _parsed(lines: list[bytes], names: list[str]) -> "pd.DataFrame":
    import pandas as pd

    columns = zip(*(line[:-1].split(b",") for line in lines), strict=True)
    return pd.DataFrame(dict(zip(names, map(_numbers, columns), strict=True)))


def _numbers(texts: Sequence[bytes]) -> "pd.Series":
    """A column of integers if possible, and otherwise of floats.

    Python's conversion is exact. `pandas.read_csv` is exact by default in version 3 only, which has
    deprecated ``float_precision="round_trip"``.
    """
    import pandas as pd

    with contextlib.suppress(ValueError):
        integers = pd.Series([int(text) for text in texts])
        if integers.dtype.kind in "iu":
            return integers
    return pd.Series([float(text or b"nan") for text in texts])


MAX_FAILURES = 10_000
"""Largest number of failed evaluations in a run folder."""
_MAX_FAILURES_BYTES = 1 << 28


def write_failures(folder: Path, table: "pd.DataFrame", *, run: str) -> None:
    """Write the failed evaluations of the run with the identity ``run``, atomically."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    manifest = json.dumps({"format": FORMAT, "run": run}).encode()
    schema = _failures_schema()
    columns = {name: list(table[name]) if len(table) else [] for name in schema.names}
    content = pa.table(columns, schema.with_metadata({b"gloam": manifest}))
    files.write(
        folder / "failures.parquet",
        lambda file: pq.write_table(content, file, write_page_checksum=True, compression="zstd"),
    )


def read_failures(folder: Path, *, run: str) -> "pd.DataFrame":
    """Return the failed evaluations of the run with the identity ``run``, if any were written.

    Raises:
        DamagedFileError: The file is damaged, or belongs to another run.
    """
    import pandas as pd
    import pyarrow as pa

    path = folder / "failures.parquet"
    check_is_no_folder(path)
    if not path.is_file():
        return pd.DataFrame(columns=_failures_schema().names)
    try:
        refuse_outer_link(path)
        if path.stat().st_size > _MAX_FAILURES_BYTES:
            raise ValueError(f"it is larger than {_MAX_FAILURES_BYTES >> 20} MB")
        with parquet.opened(path) as file:
            _check_declared(file, run)
            columns: dict[str, list[Any]] = {name: [] for name in _failures_schema().names}
            known: dict[Any, Any] = {}
            for batch in parquet.batches(path, list(columns), _MAX_FAILURES_BYTES):
                for name, values in columns.items():
                    values += parquet.objects(batch.column(name), known)
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, MemoryError) as error:
        reason = str(error).split("\n")[0].rstrip(".") or type(error).__name__
        raise DamagedFileError(path, reason, "Delete it; the run does not need it.") from None
    columns["solution"] = [np.array(row, np.float32) for row in columns["solution"]]
    return pd.DataFrame(columns)


def _failures_schema() -> Any:
    import pyarrow as pa

    types = {"seed": pa.uint64(), "iteration": pa.int64(), "row": pa.int64()}
    types |= dict.fromkeys(("kind", "error", "traceback"), pa.string())
    types["solution"] = pa.list_(pa.field("element", pa.float32(), nullable=False))
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in types.items()])


def _check_declared(file: Any, run: str) -> None:
    """Check the metadata of a file of failures, before its content is read."""
    schema = file.metadata.schema.to_arrow_schema()
    manifest = json.loads((schema.metadata or {}).get(b"gloam", b"null"))
    if not isinstance(manifest, dict) or manifest.keys() != {"format", "run"}:
        raise ValueError("gloam did not write it")
    check_format(manifest["format"])
    if manifest["run"] != run:
        raise ValueError("it belongs to another run")
    if not schema.equals(_failures_schema()):
        raise ValueError("it has other columns than gloam writes")
    if file.metadata.num_rows > MAX_FAILURES:
        raise ValueError(f"it declares {file.metadata.num_rows:,} rows, more than {MAX_FAILURES:,}")
