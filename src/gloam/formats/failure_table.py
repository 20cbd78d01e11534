"""The table of evaluations that failed, as Parquet with a digest of its content."""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gloam import files
from gloam.formats.errors import DamagedFileError

if TYPE_CHECKING:
    import pandas as pd

_KEY = b"gloam"
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
    manifest = {"format": 1, "run": run, "sha256": _digest(content)}
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
        if tuple(content.column_names) != _COLUMNS or _digest(content) != manifest["sha256"]:
            raise ValueError("its content does not agree with its digest")
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, MemoryError) as error:
        reason = str(error).split("\n")[0].rstrip(".") or type(error).__name__
        raise DamagedFileError(path, reason, fix) from None
    columns = {name: content.column(name).to_pylist() for name in _COLUMNS}
    columns["solution"] = [np.array(one, np.float32) for one in columns["solution"]]
    return pd.DataFrame(columns)


def _digest(content: Any) -> str:
    """SHA-256 of all values."""
    found = hashlib.sha256()
    for name in (*_NUMBERS, *_TEXTS):
        found.update(json.dumps([name, content.column(name).to_pylist()]).encode())
    solutions = content.column("solution").combine_chunks()
    found.update(np.asarray(solutions.flatten(), np.float32).tobytes())
    found.update(json.dumps(solutions.value_lengths().to_pylist()).encode())
    return found.hexdigest()
