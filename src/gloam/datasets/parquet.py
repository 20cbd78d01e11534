"""Columns of a Parquet file: vectors piece by piece into one array, or columns of numbers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gloam import checks, files
from gloam.datasets import limits

if TYPE_CHECKING:
    import pandas as pd

_ROWS = 8192
_FIX = "Write the file again."
_CHECKED = {"page_checksum_verification": True}


def read_vectors(
    file: Path, column: str | None, label: str | None, *, max_bytes: int | None = None
) -> tuple[np.ndarray, Any]:
    """The vectors of ``column`` (by default the only one that has vectors) and the labels.

    Never more than a piece of the table is in memory besides the array made from it.
    """
    limit = files.byte_limit(max_bytes)
    with _opened(file, limit) as table:
        schema, count = table.schema_arrow, table.metadata.num_rows
        choice = [field.name for field in schema if _is_vector(field.type)]
        if column is None and len(choice) == 1:
            column = choice[0]
        fix = "Name a column of vectors: column='...', or a list of columns of numbers."
        expected = f"one of the columns of vectors {choice} in '{file}'"
        checks.expect(column in choice, "column", expected, repr(column), fix)
        labelled = label is None or label in schema.names
        expected = f"one of the columns {schema.names} in '{file}'"
        checks.expect(labelled, "label", expected, repr(label))
        checks.expect(count > 0, "path", "a table with rows", f"none in '{file}'")
        vectors, labels, done = np.empty((0, 0)), [], 0
        wanted = [str(column)] if label is None else [str(column), label]
        for batch in table.iter_batches(batch_size=_ROWS, columns=wanted):
            if len(batch) == 0:
                continue
            part = _array(batch.column(str(column)), done)
            if done == 0:
                files.checked_size((count, part.shape[1]), 4, limit)
                vectors = np.empty((count, part.shape[1]), _dtype(part))
            told = f"vectors of length {vectors.shape[1]} as in row 0"
            same = part.shape[1] == vectors.shape[1]
            checks.expect(same, "column", told, f"length {part.shape[1]} in row {done}")
            if done + len(part) > count:
                raise ValueError(f"it declares {count:,} rows and has more")
            with np.errstate(over="ignore"):  # what is infinite as float32 is refused later
                vectors[done : done + len(part)] = part
            if label is not None:
                labels += batch.column(label).to_pylist()
            done += len(part)
        if done != count:
            raise ValueError(f"it declares {count:,} rows and has {done:,}")
    return vectors, None if label is None else labels


def read_columns(
    file: Path, columns: Sequence[str], *, max_bytes: int | None = None
) -> "pd.DataFrame":
    """Some columns of a table, with the index that pandas wrote beside them."""
    with _opened(file, files.byte_limit(max_bytes)) as table:
        names = table.schema_arrow.names
        missing = [name for name in columns if name not in names]
        expected = f"some of the columns {names} in '{file}'"
        checks.expect(not missing, "column", expected, missing)
        return table.read(list(columns), use_pandas_metadata=True).to_pandas()


@contextmanager
def _opened(file: Path, limit: int) -> Iterator[pq.ParquetFile]:
    """A Parquet file whose declared sizes are within ``limit``."""
    with (
        limits.naming(file),
        limits.reading(file, "a Parquet file", _FIX),
        # Buffered ahead, a row group (often the whole table) would be in memory at once.
        pq.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False, **_CHECKED) as table,
    ):
        metadata = table.metadata
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        rows = sum(group.num_rows for group in groups)
        if rows != metadata.num_rows or any(group.num_rows < 0 for group in groups):
            raise ValueError(f"it declares {metadata.num_rows:,} rows in groups of {rows:,}")
        largest = max((group.total_byte_size for group in groups), default=0)
        if largest > limit:
            raise ValueError(f"it declares {largest:,} bytes, and the limit is {limit:,}")
        yield table


def _dtype(part: np.ndarray) -> Any:
    # uint8 may be pixels. Everything else will be float32 in the end.
    return np.uint8 if part.dtype == np.uint8 else np.float32


def _is_vector(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if not any(is_kind(kind) for is_kind in lists):
        return False
    return pa.types.is_integer(kind.value_type) or pa.types.is_floating(kind.value_type)


def _array(vectors: pa.Array, start: int) -> np.ndarray:
    """Lists of one length as rows."""
    if isinstance(vectors, pa.ExtensionArray):
        vectors = vectors.storage
    if vectors.null_count:
        row = int(np.flatnonzero(vectors.is_null().to_numpy(zero_copy_only=False))[0])
        checks.expect(False, "column", "a vector in each row", f"none in row {start + row}")
    if pa.types.is_fixed_size_list(vectors.type):
        lengths = np.full(len(vectors), vectors.type.list_size)
    else:
        lengths = np.diff(vectors.offsets.to_numpy())
    other = np.flatnonzero(lengths != lengths[0])
    if len(other):
        told = f"vectors of one length, as {lengths[0]} in row {start}"
        got = f"length {lengths[other[0]]} in row {start + other[0]}"
        checks.expect(False, "column", told, got)
    # A number that is missing becomes NaN, which is refused later with its row.
    values = vectors.flatten().to_numpy(zero_copy_only=False)
    return values.reshape(len(vectors), int(lengths[0]))
