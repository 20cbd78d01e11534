"""A column of vectors out of a Parquet file, read piece by piece into one array."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gloam import checks

_ROWS = 8192


def read_vectors(file: Path, column: str | None, label: str | None) -> tuple[np.ndarray, Any]:
    """The vectors of ``column`` (by default the only one that has vectors) and the labels.

    Never more than a piece of the table is in memory besides the array made from it.
    """
    try:
        # Buffered ahead, a row group (often the whole table) would be in memory at once.
        table = pq.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False)
    except pa.ArrowInvalid as error:
        raise ValueError(f"path: expected a Parquet file, got '{file}' ({error}).") from None
    with table:
        schema, count = table.schema_arrow, table.metadata.num_rows
        choice = [field.name for field in schema if _is_vector(field.type)]
        if column is None and len(choice) == 1:
            column = choice[0]
        fix = "Name a column of vectors: column='...', or a list of columns of numbers."
        checks.expect(column in choice, "column", f"one of the columns of vectors {choice} in "
                      f"'{file}'", repr(column), fix)  # fmt: skip
        checks.expect(label is None or label in schema.names, "label",
                      f"one of the columns {schema.names}", repr(label))  # fmt: skip
        checks.expect(count > 0, "path", "a table with rows", f"none in '{file}'")
        vectors, labels, done = np.empty((0, 0)), [], 0
        wanted = [str(column)] if label is None else [str(column), label]
        for batch in table.iter_batches(batch_size=_ROWS, columns=wanted):
            part = _array(batch.column(str(column)), done)
            if done == 0:
                vectors = np.empty((count, part.shape[1]), _dtype(part))
            checks.expect(part.shape[1] == vectors.shape[1], "column",
                          f"vectors of length {vectors.shape[1]} as in row 0",
                          f"length {part.shape[1]} in row {done}")  # fmt: skip
            vectors[done : done + len(part)] = part
            if label is not None:
                labels += batch.column(label).to_pylist()
            done += len(part)
    return vectors, None if label is None else labels


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
        checks.expect(False, "column", f"vectors of one length, as {lengths[0]} in row {start}",
                      f"length {lengths[other[0]]} in row {start + other[0]}")  # fmt: skip
    # A number that is missing becomes NaN, which is refused later with its row.
    values = vectors.flatten().to_numpy(zero_copy_only=False)
    return values.reshape(len(vectors), int(lengths[0]))
