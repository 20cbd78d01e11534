"""Tables of numbers as Parquet with a digest of their content.

The table of evaluations that failed, as Parquet with a digest of its content.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gloam import files
from gloam.formats.documents import DamagedFileError, format_problem

if TYPE_CHECKING:
    import pandas as pd


FORMAT = 1
_KEY = b"gloam"


def write_table(path: Path, table: "pd.DataFrame", *, about: dict[str, Any]) -> None:
    """Write a table of numbers and what belongs to it, atomically."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {name: table[name].to_numpy() for name in table.columns}
    manifest = {"format": FORMAT, "about": about, "sha256": _digest(columns)}
    # Arrays as they are: pyarrow's own conversion of a frame turns a NaN into a missing value.
    content = pa.table({name: pa.array(values) for name, values in columns.items()})
    content = content.replace_schema_metadata({_KEY: json.dumps(manifest).encode()})
    files.write(path, lambda file: pq.write_table(content, file, write_page_checksum=True))


def read_table(path: Path, *, fix: str) -> tuple["pd.DataFrame", dict[str, Any]]:
    """Read a table that `write_table` wrote, and what belongs to it.

    Raises:
        DamagedFileError: The file is damaged or was not written by gloam.
    """
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if path.stat().st_size > (1 << 32):
            raise ValueError("it is larger than 4 GB")
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            manifest = json.loads((file.schema_arrow.metadata or {}).get(_KEY, b"null"))
            if not isinstance(manifest, dict) or manifest.keys() != {"format", "about", "sha256"}:
                raise ValueError("gloam did not write it")
            if manifest["format"] != FORMAT:
                raise ValueError(format_problem(manifest["format"], FORMAT))
            if not isinstance(manifest["about"], dict):
                raise ValueError("it does not say what it is")
            content = file.read()
        columns = {name: content.column(name).to_numpy() for name in content.column_names}
        if _digest(columns) != manifest["sha256"]:
            raise ValueError("its content does not agree with its digest")
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, MemoryError) as error:
        reason = str(error).split("\n")[0].rstrip(".") or type(error).__name__
        raise DamagedFileError(path, reason, fix) from None
    return pd.DataFrame(columns), manifest["about"]


def _digest(columns: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of the names, types and values of all columns."""
    found = hashlib.sha256()
    for name, values in columns.items():
        if values.dtype.kind not in "biuf":
            raise ValueError(f"its column '{name}' does not hold numbers")
        found.update(f"{name} {values.dtype} {len(values)} ".encode())
        found.update(np.ascontiguousarray(values).tobytes())
    return found.hexdigest()


_NAME = "failures.parquet"
_NUMBERS, _TEXTS = ("seed", "iteration", "row"), ("kind", "error", "traceback")
_COLUMNS = (*_NUMBERS, *_TEXTS, "solution")


def write_failures(folder: Path, table: "pd.DataFrame", *, run: str) -> None:
    """Write the failures of the run of identity ``run``, atomically."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    if table.empty:
        table = pd.DataFrame(columns=list(_COLUMNS))
    columns: dict[str, Any] = {name: pa.array(table[name], pa.int64()) for name in _NUMBERS}
    columns |= {name: pa.array(table[name], pa.string()) for name in _TEXTS}
    columns["solution"] = pa.array(list(table["solution"]), pa.list_(pa.float32()))
    content = pa.table(columns)
    manifest = {"format": 1, "run": run, "sha256": _failures_digest(content)}
    content = content.replace_schema_metadata({_KEY: json.dumps(manifest).encode()})
    files.write(
        folder / _NAME,
        lambda file: pq.write_table(content, file, write_page_checksum=True, compression="zstd"),
    )


def read_failures(folder: Path, *, run: str) -> "pd.DataFrame":
    """The failures of the run of identity ``run``; an empty table where none were written.

    Raises:
        DamagedFileError: The file is damaged, or of another run.
    """
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / _NAME
    if not path.is_file():
        return pd.DataFrame(columns=list(_COLUMNS))
    fix = "Delete it; the run does not need it."
    try:
        if path.stat().st_size > (1 << 30):
            raise ValueError("it is larger than 1 GB")
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            manifest = json.loads((file.schema_arrow.metadata or {}).get(_KEY, b"null"))
            if not isinstance(manifest, dict) or manifest.keys() != {"format", "run", "sha256"}:
                raise ValueError("gloam did not write it")
            if manifest["format"] != 1 or manifest["run"] != run:
                raise ValueError("it belongs to another run, or to another version of gloam")
            content = file.read()
        if (
            tuple(content.column_names) != _COLUMNS
            or _failures_digest(content) != manifest["sha256"]
        ):
            raise ValueError("its content does not agree with its digest")
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, MemoryError) as error:
        reason = str(error).split("\n")[0].rstrip(".") or type(error).__name__
        raise DamagedFileError(path, reason, fix) from None
    columns = {name: content.column(name).to_pylist() for name in _COLUMNS}
    columns["solution"] = [np.array(one, np.float32) for one in columns["solution"]]
    return pd.DataFrame(columns)


def _failures_digest(content: Any) -> str:
    """SHA-256 of all values."""
    found = hashlib.sha256()
    for name in (*_NUMBERS, *_TEXTS):
        found.update(json.dumps([name, content.column(name).to_pylist()]).encode())
    solutions = content.column("solution").combine_chunks()
    found.update(np.asarray(solutions.flatten(), np.float32).tobytes())
    found.update(json.dumps(solutions.value_lengths().to_pylist()).encode())
    return found.hexdigest()
