"""Columns of a Parquet file: vectors piece by piece into one array, or columns of numbers.

Datasets from arrays, files of arrays, and tables with a column of vectors.

Datasets from IDX files, the format of MNIST, plain or compressed.
"""

import gzip
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gloam import checks, files
from gloam.datasets import rows
from gloam.datasets import rows as limits
from gloam.datasets.dataset import Dataset
from gloam.datasets.rows import is_picture, item_shape

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


_READERS_FIX = "Write the file again, without pickled objects."
_SUFFIXES = (".npy", ".npz", ".parquet", ".csv")


def from_array(
    array: Any,
    labels: Any = None,
    shape: Sequence[int] | None = None,
    *,
    names: Any = None,
    images: Any = None,
    bounds: tuple[float, float] | None = None,
    source: str | os.PathLike | None = None,
) -> Dataset:
    """A dataset from an array, or from a list of arrays of one shape.

    Args:
        array: ``(n, meas)`` vectors, or items with a shape of their own, such as pictures
            ``(n, height, width)`` and ``(n, height, width, 3)``. Pictures in uint8 are scaled to
            [0, 1]; all other numbers stay as they are.
        labels, names, images, bounds, source: As in `Dataset`.
        shape: Shape of one item where the rows are flat.

    Example:
        >>> pictures = np.array([[[0, 255]], [[255, 0]]], np.uint8)
        >>> data = from_array(pictures, labels=["day", "night"])
        >>> data.items.tolist(), data.image(0).tolist()
        ([[0.0, 1.0], [1.0, 0.0]], [[0, 255]])
    """
    items, one = _scaled(array, shape)
    return Dataset(
        items, one, labels, names, images, bounds, source=None if source is None else Path(source)
    )


def _scaled(array: Any, shape: Sequence[int] | None) -> tuple[np.ndarray, tuple[int, ...]]:
    items = rows.stacked(array)
    one = item_shape(shape, items)
    if items.dtype == np.uint8 and is_picture(one):
        items = np.divide(items, np.float32(255), dtype=np.float32)
    return items, one


def from_pandas(
    frame: "pd.DataFrame",
    column: str | Sequence[str],
    label: str | None = None,
    *,
    shape: Sequence[int] | None = None,
    bounds: tuple[float, float] | None = None,
    source: str | os.PathLike | None = None,
) -> Dataset:
    """A dataset from a table.

    Args:
        frame: A DataFrame; its index gives the names.
        column: Name of a column of vectors, or names of several columns of numbers.
        label: Name of the column of labels, if there is one.
        shape, bounds, source: As in `from_array`.
    """
    wanted = [column] if isinstance(column, str) else list(column)
    for name in [*wanted, *([] if label is None else [label])]:
        checks.expect(name in frame.columns, "column", f"one of {list(frame.columns)}", repr(name))
    if isinstance(column, str):
        vectors = frame[column].tolist()
        for number, vector in enumerate(vectors):
            checks.expect(
                np.ndim(vector) > 0,
                "column",
                f"a vector in each row of '{column}'",
                f"{vector!r} in row {number}",
                "Several columns of numbers are named by a list.",
            )
    else:
        kinds = {name: frame[name].dtype for name in wanted}
        checks.expect(
            all(dtype.kind in "biuf" for dtype in kinds.values()),
            "column",
            "columns of numbers",
            {name: str(kinds[name]) for name in kinds},
        )
        vectors = frame[wanted].to_numpy(np.float32)
    labels = None if label is None else frame[label]
    return from_array(vectors, labels, shape, names=frame.index, bounds=bounds, source=source)


def from_file(
    path: str | os.PathLike,
    column: str | Sequence[str] | None = None,
    label: str | None = None,
    *,
    shape: Sequence[int] | None = None,
    bounds: tuple[float, float] | None = None,
    max_bytes: int | None = None,
) -> Dataset:
    """A dataset from a ``.npy``, ``.npz``, ``.parquet`` or ``.csv`` file.

    Args:
        path: The file.
        column: Name of the array (``.npz``) or of the column of vectors (``.parquet``); needed
            only where there are several. A list names columns of numbers (``.parquet``, ``.csv``);
            by default all columns of a ``.csv`` file, which then need no names in the first line.
        label: Name of the array or column of labels; in a ``.npz`` or ``.csv`` file one that is
            called "labels" is found by itself.
        shape, bounds: As in `from_array`.
        max_bytes: Largest array that is read, in bytes; by default half of the machine's memory.

    Raises:
        ValueError: The file is missing, damaged or too large, or its numbers are no dataset; the
            message names the file.
    """
    fix = "Check the path; a folder of pictures is read by from_folder."
    file = checks.existing_file("path", path, fix)
    kind = file.suffix.lower()
    checks.expect(
        kind in _SUFFIXES,
        "path",
        f"a file of kind {', '.join(_SUFFIXES)}",
        f"'{path}'",
        "For pictures use from_folder, for IDX files from_idx.",
    )
    with limits.naming(file):
        if kind == ".csv" and column is None:
            frame, label = _whole_table(file, label, max_bytes)
            column = [name for name in frame.columns if name != label]
            return from_pandas(frame, column, label, shape=shape, bounds=bounds, source=file)
        if column is not None and not isinstance(column, str):
            tables = (".parquet", ".csv")
            checks.expect(kind in tables, "column", f"one name for a {kind} file", column)
            frame = _table(file, [*column, *([] if label is None else [label])], max_bytes)
            return from_pandas(frame, column, label, shape=shape, bounds=bounds, source=file)
        array, labels = _arrays(file, kind, column, label, max_bytes)
        items, one = _scaled(array, shape)
        return Dataset(items, one, labels, bounds=bounds, source=file, fresh=kind != ".npy")


def _arrays(
    file: Path, kind: str, column: str | None, label: str | None, max_bytes: int | None
) -> tuple[np.ndarray, Any]:
    """The items and the labels of a file."""
    expected = "a list of columns of numbers for a .csv file"
    checks.expect(kind != ".csv", "column", expected, repr(column))
    if kind == ".parquet":
        return read_vectors(file, column, label, max_bytes=max_bytes)
    if kind == ".npz":
        return _zipped(file, column, label, max_bytes)
    expected = "none for a .npy file, which is a single array"
    unnamed = column is None and label is None
    checks.expect(unnamed, "column, label", expected, (column, label))
    with limits.reading(file, "a .npy file of plain numbers", _READERS_FIX):
        return limits.map_array(file, max_bytes), None


def _table(file: Path, columns: list[str], max_bytes: int | None) -> "pd.DataFrame":
    """Some columns of a file."""
    if file.suffix.lower() == ".parquet":
        return read_columns(file, columns, max_bytes=max_bytes)
    with limits.reading(file, "a .csv file with these columns", "Check its text."):
        return _csv(file, max_bytes, usecols=columns)


def _csv(file: Path, max_bytes: int | None, **options: Any) -> "pd.DataFrame":
    """A ``.csv`` file that is not too large."""
    import pandas as pd

    with files.open_regular(file) as opened:
        size, limit = os.fstat(opened.fileno()).st_size, files.byte_limit(max_bytes)
        if size > limit:
            raise ValueError(f"it has {size:,} bytes, and the limit is {limit:,}")
        # In one piece: by pieces, a column could have several kinds of values, with a warning.
        return pd.read_csv(opened, low_memory=False, **options)


def _whole_table(
    file: Path, label: str | None, max_bytes: int | None
) -> tuple["pd.DataFrame", str | None]:
    """All columns of a ``.csv`` file, which are numbers but for the labels, and the label."""
    with limits.reading(file, "a .csv file of numbers", "Check its text."):
        first = _csv(file, max_bytes, header=None, nrows=1, dtype=str, keep_default_na=False)
        names = first.iloc[0].tolist()
        has_names = not all(_is_number(name) for name in names)
        # pandas writes the index as a first column without a name.
        index = 0 if has_names and names[0] == "" and len(names) > 1 else False
        frame = _csv(file, max_bytes, header=0 if has_names else None, index_col=index)
    if label is None and "labels" in frame.columns:
        label = "labels"
    texts = [n for n in frame.columns if n != label and frame[n].dtype.kind not in "biuf"]
    checks.expect(
        not texts,
        "column",
        "columns of numbers in a .csv file",
        f"{', '.join(repr(name) for name in texts[:5])}{', ...' * (len(texts) > 5)}",
        'Remove them, call a column of labels "labels", or name the columns of numbers: '
        "from_file(path, column=[...]).",
    )
    return frame, label


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _zipped(
    file: Path, column: str | None, label: str | None, max_bytes: int | None
) -> tuple[np.ndarray, Any]:
    with (
        limits.reading(file, "a .npz file of plain arrays", _READERS_FIX),
        files.open_regular(file) as opened,
    ):
        arrays = limits.ZippedArrays(opened, max_bytes)
        names = arrays.names
        if label is None and "labels" in names and column != "labels":
            label = "labels"
        choice = [name for name in names if name != label]
        if column is None and len(choice) == 1:
            column = choice[0]
        expected, fix = f"one of the arrays {choice} in '{file}'", "Name the array: column='...'."
        checks.expect(column in choice, "column", expected, repr(column), fix)
        expected = f"one of the arrays {names} in '{file}'"
        checks.expect(label is None or label in names, "label", expected, repr(label))
        found = None if label is None else arrays.read(label)
        return arrays.read(str(column)), found


_DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def from_idx(
    images: str | os.PathLike,
    labels: str | os.PathLike | None = None,
    *,
    max_bytes: int | None = None,
) -> Dataset:
    """A dataset from an IDX file of pictures or vectors, and one of labels.

    Args:
        images: For instance ``train-images-idx3-ubyte.gz``. Pixels are scaled to [0, 1].
        labels: For instance ``train-labels-idx1-ubyte.gz``.
        max_bytes: Largest array that is read, in bytes; by default half of the machine's memory.

    Raises:
        ValueError: A file is missing, damaged or too large; the message names it.
    """
    items = read_idx("images", images, max_bytes=max_bytes)
    found = None if labels is None else read_idx("labels", labels, max_bytes=max_bytes)
    with limits.naming(Path(images)):
        return from_array(items, found, source=images)


def read_idx(name: str, path: str | os.PathLike, *, max_bytes: int | None = None) -> np.ndarray:
    """The array in an IDX file; ``name`` is what errors call it."""
    file = checks.existing_file(name, path, "gloam.datasets.fetch('mnist') downloads MNIST.")
    try:
        with files.open_regular(file) as opened:
            size = os.fstat(opened.fileno()).st_size
            if opened.read(2) != b"\x1f\x8b":
                opened.seek(0)
                return _idx_array(name, file, opened, size, max_bytes)
            opened.seek(0)
            return _inflated(name, file, opened, size, max_bytes)
    except (OSError, MemoryError) as error:
        reason = str(error) or type(error).__name__
        raise ValueError(f"{name}: expected an IDX file, got '{file}' ({reason}).") from None


def _inflated(
    name: str, file: Path, opened: IO[bytes], size: int, max_bytes: int | None
) -> np.ndarray:
    try:
        with gzip.GzipFile(fileobj=opened) as stream:
            return _idx_array(name, file, stream, None, max_bytes, compressed=size)
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(
            f"{name}: expected a whole gzip file, got '{file}' ({error}). Download it again."
        ) from None


def _idx_array(
    name: str,
    file: Path,
    stream: IO[bytes] | gzip.GzipFile,
    size: int | None,
    max_bytes: int | None,
    *,
    compressed: int = 0,
) -> np.ndarray:
    """The array in a stream, of which no more is read than the array is declared to have.

    Args:
        name: What errors call it.
        file: Where the stream comes from.
        stream: The format, from its beginning.
        size: Bytes in the stream; ``None`` where only reading tells.
        max_bytes: As in `from_idx`.
        compressed: Bytes that a compressed stream is made from.
    """
    head = stream.read(4)
    kind, axes = (head[2], head[3]) if len(head) == 4 else (0, 0)
    sizes = stream.read(4 * axes)
    known = head[:2] == b"\0\0" and kind in _DTYPES and axes > 0 and len(sizes) == 4 * axes
    checks.expect(known, name, "an IDX file", f"'{file}', which starts with {head.hex()}")
    shape = np.frombuffer(sizes, ">u4").tolist()
    dtype = np.dtype(_DTYPES[kind])
    start, limit = 4 + 4 * axes, files.byte_limit(max_bytes)
    try:
        needed = files.checked_size(shape, dtype.itemsize, limit)
        files.checked_size(shape, 4, limit)  # as float32, which it becomes
        if compressed:
            limits.inflated_size(needed, compressed)
    except ValueError as error:
        fix = "Download the file again."
        raise ValueError(f"{name}: expected an IDX file, got '{file}' ({error}). {fix}") from None
    content = b""
    if size is None or size == start + needed:
        content = stream.read(needed)
        # At the end of a compressed stream its checksum is compared.
        more = len(stream.read(1))
        size = start + len(content) + more
    fits = size == start + needed
    told = f"{start + needed} bytes for an array of shape {tuple(shape)}"
    checks.expect(fits, name, told, f"{size} in '{file}'", "Download the file again.")
    array = np.frombuffer(content, dtype).reshape(shape)
    return array.astype(dtype.newbyteorder("="), copy=False)
