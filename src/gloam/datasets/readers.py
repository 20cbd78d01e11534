"""Datasets from arrays, tables and files: .npy, .npz, .csv, Parquet and IDX, the format of MNIST.

Files are not trusted: sizes that a file declares are compared with its own size and with a limit
before memory is allocated, nothing is unpickled, and every error names the file.
"""

import csv
import gzip
import io
import math
import os
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gloam._tools import checks, files, parquet
from gloam.datasets.dataset import Dataset

if TYPE_CHECKING:  # imported where they are used: they take half a second
    import pandas as pd
    import pyarrow as pa

_SUFFIXES = (".npy", ".npz", ".parquet", ".csv")
_ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_INFLATION = 1032  # largest ratio of sizes that Deflate can reach
_MAX_COLUMNS = 50_000  # of a .csv file: pandas takes seconds for them
_MAX_LINE = 1 << 24
_IDX_DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


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
    """Build a dataset from an array, or from a list of arrays of one shape.

    Args:
        array: ``(n, meas)`` vectors, or items with a shape, such as images ``(n, height, width)``
            and ``(n, height, width, 3)``. Images in uint8 are scaled to [0, 1]; other numbers are
            not changed.
        labels, names, images, bounds, source: As in `Dataset`.
        shape: Shape of one item, if the rows of ``array`` are flat.

    Example:
        >>> pictures = np.array([[[0, 255]], [[255, 0]]], np.uint8)
        >>> data = from_array(pictures, labels=["day", "night"])
        >>> data.items.tolist(), data.image(0).tolist()
        ([[0.0, 1.0], [1.0, 0.0]], [[0, 255]])
    """
    given: Any = {"shape": () if shape is None else shape, "source": source}
    return Dataset(array, labels=labels, names=names, images=images, bounds=bounds, **given)


def from_pandas(
    frame: "pd.DataFrame",
    column: str | Sequence[str],
    label: str | None = None,
    *,
    shape: Sequence[int] | None = None,
    bounds: tuple[float, float] | None = None,
    source: str | os.PathLike | None = None,
) -> Dataset:
    """Build a dataset from a DataFrame.

    Args:
        frame: The table. Its index gives the names of the items.
        column: Name of a column of vectors, or names of several columns of numbers.
        label: Name of the column of labels, if there is one.
        shape, bounds, source: As in `from_array`.
    """
    wanted = [column] if isinstance(column, str) else list(column)
    known = list(frame.columns)
    expected = f"one of {checks.short(known)}"
    is_known = frozenset(known).__contains__  # a list would be searched once for each of its names
    for name in [*wanted, *([] if label is None else [label])]:
        checks.expect(is_known(name), "column", expected, repr(name))
    if isinstance(column, str):
        vectors = frame[column].tolist()
        expected = f"a vector in each row of '{column}'"
        fix = "To use several columns of numbers, give a list of their names."
        for row, vector in enumerate(vectors):
            checks.expect(np.ndim(vector) > 0, "column", expected, f"{vector!r} in row {row}", fix)
    else:
        numbers: Any = frame[wanted]
        kinds = zip(wanted, numbers.dtypes, strict=True)
        texts = {name: str(kind) for name, kind in kinds if kind.kind not in "biuf"}
        checks.expect(not texts, "column", "columns of numbers", checks.short(texts))
        vectors = numbers.to_numpy(np.float32)
    labels = None if label is None else frame[label]
    return from_array(vectors, labels, shape, names=frame.index, bounds=bounds, source=source)


def from_file(
    path: str | os.PathLike,
    column: str | Sequence[str] | None = None,
    label: str | None = None,
    *,
    names: str | None = None,
    shape: Sequence[int] | None = None,
    bounds: tuple[float, float] | None = None,
    max_bytes: int | None = None,
) -> Dataset:
    """Read a dataset from a ``.npy``, ``.npz``, ``.parquet`` or ``.csv`` file.

    Args:
        path: The file.
        column: Name of the array (``.npz``) or of the column of vectors (``.parquet``), if there
            are several; or a list of columns of numbers (``.parquet``, ``.csv``). Default for
            ``.csv``: all columns, with or without a header line.
        label: Name of the array or column of labels. Default for ``.npz`` and ``.csv``:
            ``"labels"``, if there is one.
        names: Name of the array or column of the items' names. Default for ``.npz`` and ``.csv``:
            ``"names"``, if there is one; for ``.parquet``, the index that pandas stored.
        shape, bounds: As in `from_array`.
        max_bytes: Size of the largest array that is read. Default: half of the memory.

    Raises:
        ValueError: The file is missing, damaged, too large or not a dataset; the message names it.
    """
    fix = "Check the path; from_folder reads a folder of images."
    file = checks.existing_file("path", path, fix)
    kind, limit = file.suffix.lower(), files.byte_limit(max_bytes)
    checks.expect(
        kind in _SUFFIXES,
        "path",
        f"a file of kind {', '.join(_SUFFIXES)}",
        f"'{path}'",
        "For images use from_folder, for IDX files from_idx.",
    )
    options: Any = {"bounds": bounds, "source": file}
    with naming(file):
        if kind == ".csv":
            frame, columns, label = _read_csv(file, column, label, names, limit)
            return from_pandas(frame, columns, label, shape=shape, **options)
        options["shape"] = () if shape is None else shape
        if kind == ".parquet":
            vectors, *texts = _read_parquet(file, column, label, names, limit)
            options["labels"], options["names"] = texts
            return Dataset(vectors, fresh=True, **options)
        is_name = column is None or isinstance(column, str)
        checks.expect(is_name, "column", f"one name for a {kind} file", column)
        name = cast("str | None", column)
        if kind == ".npy":
            return Dataset(_read_npy(file, (name, label, names), limit), **options)
        array, options["labels"], options["names"] = _read_npz(file, name, label, names, limit)
        return Dataset(array, fresh=True, **options)


def from_idx(
    images: str | os.PathLike,
    labels: str | os.PathLike | None = None,
    *,
    max_bytes: int | None = None,
) -> Dataset:
    """Read a dataset from an IDX file of images or vectors, and a file of labels.

    Args:
        images: For instance ``train-images-idx3-ubyte.gz``. Pixels are scaled to [0, 1].
        labels: For instance ``train-labels-idx1-ubyte.gz``.
        max_bytes: Size of the largest array that is read. Default: half of the memory.

    Raises:
        ValueError: A file is missing, damaged or too large; the message names it.
    """
    limit = files.byte_limit(max_bytes)
    items = read_idx("images", images, limit)
    texts = None if labels is None else read_idx("labels", labels, limit)
    with naming(Path(images)):
        return from_array(items, texts, source=images)


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """Add the file or folder to errors that do not name it."""
    try:
        yield
    except ValueError as error:
        text = str(error)
        if checks.printable(f"'{file}'") in text:
            raise
        kind = "folder" if file.is_dir() else "file"
        raise ValueError(checks.printable(f"{text} The {kind} is '{file}'.")) from error


@contextmanager
def _reading(file: Path, expected: str, fix: str, *, name: str = "path") -> Iterator[None]:
    """Turn every error of a library about a damaged file into a ValueError that names the file."""
    try:
        yield
    except Exception as error:
        if type(error) is ValueError and ": expected " in str(error):
            raise  # a message of `checks`
        # Only the first line: further lines advise to allow pickles or other arguments.
        reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        text = f"{name}: expected {expected}, got '{file}' ({reason}). {fix}"
        raise ValueError(checks.printable(text)) from error


def _choose(file: Path, column: str | None, choice: list[str], kind: str) -> str:
    """Return ``column``, or the only choice if it is ``None``."""
    if column is None and len(choice) == 1:
        return choice[0]
    expected, fix = f"one of the {kind} {choice} in '{file}'", "Choose one: column='...'."
    checks.expect(column in choice, "column", expected, repr(column), fix)
    return str(column)


# NumPy files

_PLAIN = "Write the file again, without pickled objects."


def _array_bytes(shape: Sequence[int], dtype: np.dtype, limit: int) -> int:
    """Return the size of an array, after checking that it fits the limit, also as float32."""
    files.checked_size(shape, max(dtype.itemsize, 4), limit)
    return math.prod(shape) * dtype.itemsize


def _read_npy(file: Path, given: tuple[str | None, ...], limit: int) -> np.ndarray:
    """Map an array into memory, so that it is converted to float32 without a further copy."""
    expected = "none for a .npy file, which is a single array"
    checks.expect(not any(given), "column, label, names", expected, given)
    with _reading(file, "a .npy file of numbers", _PLAIN), files.open_regular(file) as opened:
        size = os.fstat(opened.fileno()).st_size
        shape, fortran_order, dtype, start = files.read_npy_header(opened)
        needed = _array_bytes(shape, dtype, limit)
        if needed > size - start:
            raise ValueError(f"it declares {needed:,} bytes and has {size - start:,}")
        if needed == 0:
            return np.empty(shape, dtype)
        return np.memmap(opened, dtype, "r", start, shape, "F" if fortran_order else "C")


def _read_npz(
    file: Path, column: str | None, label: str | None, names: str | None, limit: int
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Return the items, the labels and the names."""
    with (
        _reading(file, "a .npz file of plain arrays", _PLAIN),
        files.open_regular(file) as opened,
        zipfile.ZipFile(opened) as archive,
    ):
        members = {info.filename: info for info in archive.infolist()}
        known = [name[:-4] for name in members if name.endswith(".npy")]
        label = _usual(label, "labels", known, column)
        names = _usual(names, "names", known, column)
        column = _choose(
            file, column, [name for name in known if name not in (label, names)], "arrays"
        )
        expected = f"one of the arrays {known} in '{file}'"
        size = os.fstat(opened.fileno()).st_size
        arrays = []
        for argument, name in (("column", column), ("label", label), ("names", names)):
            checks.expect(name is None or name in known, argument, expected, repr(name))
            missing = name is None
            arrays.append(
                None if missing else _member(archive, members[f"{name}.npy"], size, limit)
            )
        return arrays[0], arrays[1], arrays[2]


def _usual(given: str | None, usual: str, known: Iterable[Any], column: Any) -> str | None:
    """Return the given name, or else the usual one if there is such an array or column."""
    return usual if given is None and usual in known and column != usual else given


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, size: int, limit: int) -> np.ndarray:
    """Read an array from a zip file of ``size`` bytes."""
    name = info.filename
    if info.compress_type not in _ZIP_METHODS or info.flag_bits & 1:
        raise ValueError(f"'{name}' is encrypted, or compressed by an unsupported method")
    compressed = min(info.compress_size, size)
    is_stored = info.compress_type == zipfile.ZIP_STORED
    if info.file_size > (compressed if is_stored else _inflated(compressed)):
        raise ValueError(f"'{name}' declares {info.file_size:,} bytes and has {compressed:,}")
    with archive.open(info) as member:
        array = files.read_npy(member, info.file_size, limit)
        if member.read(1):  # reading to the end also verifies the checksum
            raise ValueError(f"'{name}' has bytes after its array")
    return array


def _inflated(compressed: int) -> int:
    """Return the largest size that compressed bytes can inflate to."""
    return _INFLATION * compressed + 1024


# Tables


def _read_csv(
    file: Path, columns: Any, label: str | None, names: str | None, limit: int
) -> tuple["pd.DataFrame", list[str], str | None]:
    """Return a table of numbers, the columns of the items (by default all) and of the labels.

    The index of the table are the names.
    """
    expected = "a list of columns of numbers for a .csv file"
    checks.expect(not isinstance(columns, str), "column", expected, repr(columns))
    if columns is not None:
        wanted = [*columns, *filter(None, (label, names))]
        with _reading(file, "a .csv file with these columns", "Check its text."):
            _first_line(file, limit)
            frame = _csv(file, usecols=wanted)
            return frame if names is None else frame.set_index(names), columns, label
    with _reading(file, "a .csv file of numbers", "Check its text."):
        heads = _first_line(file, limit)
        has_header = not all(_is_number(name) for name in heads)
        # pandas writes the index as a first column without a name.
        index = 0 if has_header and heads[0] == "" and len(heads) > 1 else False
        frame = _csv(file, header=0 if has_header else None, index_col=index)
    label = _usual(label, "labels", frame.columns, None)
    names = _usual(names, "names", frame.columns, None)
    if names is not None:
        expected = f"one of the columns {checks.short(list(frame.columns))} in '{file}'"
        checks.expect(names in frame.columns, "names", expected, repr(names))
        frame = frame.set_index(names)
    columns = [name for name in frame.columns if name != label]
    kinds = zip(frame.columns, frame.dtypes, strict=True)
    texts = [repr(name) for name, kind in kinds if name != label and kind.kind not in "biuf"]
    checks.expect(
        not texts,
        "column",
        "columns of numbers in a .csv file",
        f"{', '.join(texts[:5])}{', ...' * (len(texts) > 5)}",
        'Remove them, name columns of texts "labels" and "names", or choose columns of numbers: '
        "from_file(path, column=[...]).",
    )
    return frame, columns, label


def _first_line(file: Path, limit: int) -> list[str]:
    """Return the texts in the first line of a .csv file, whose sizes are within the limits."""
    with files.open_regular(file) as opened:
        size = os.fstat(opened.fileno()).st_size
        if size > limit:
            raise ValueError(f"it has {size:,} bytes, and the limit is {limit:,}")
        text = io.TextIOWrapper(opened, "utf-8-sig", newline="")
        lines = csv.reader(iter(lambda: text.readline(_MAX_LINE), ""))
        texts = next(filter(None, lines), [])  # blank lines before it are skipped
    if len(texts) > _MAX_COLUMNS:
        raise ValueError(f"it has {len(texts):,} columns, and the limit is {_MAX_COLUMNS:,}")
    return texts


def _csv(file: Path, **options: Any) -> "pd.DataFrame":
    import pandas as pd

    with files.open_regular(file) as opened:
        # In one piece, because types that are inferred piece by piece may differ in a column.
        return pd.read_csv(opened, low_memory=False, **options)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_parquet(
    file: Path,
    column: str | Sequence[str] | None,
    label: str | None,
    names: str | None,
    limit: int,
) -> tuple[np.ndarray, list[Any] | None, list[Any] | None]:
    """Read a column of vectors or several columns of numbers, and the labels and names.

    At most one batch of the table is in memory besides the array that it is copied to. Without a
    column of names, they are the index that pandas stored, if there is one.
    """
    fix = "Write the file again, or raise max_bytes if it is meant to be that large."
    with _reading(file, "a Parquet file", fix), parquet.opened(file) as table:
        schema, count = table.schema_arrow, table.metadata.num_rows
        if column is None or isinstance(column, str):
            choice = [field.name for field in schema if _is_vector(field.type)]
            columns = [_choose(file, column, choice, "columns of vectors")]
        else:
            columns = _number_columns(file, column, schema)
        texts = _text_columns(file, label, names, schema)
        values: dict[str, list[Any]] = {name: [] for name in texts}
        known: dict[str, dict[Any, Any]] = {name: {} for name in texts}
        vectors, done = np.empty((0, 0)), 0
        for batch in parquet.batches(file, list(dict.fromkeys([*columns, *texts])), limit):
            part = _rows_of(batch, columns, done)
            if done == 0:
                files.checked_size((count, part.shape[1]), 4, limit)
                # uint8 may be pixels; everything else becomes float32 anyway.
                dtype = np.uint8 if part.dtype == np.uint8 else np.float32
                vectors = np.empty((count, part.shape[1]), dtype)
            expected = f"vectors of length {vectors.shape[1]} as in row 0"
            fits = part.shape[1] == vectors.shape[1]
            checks.expect(fits, "column", expected, f"length {part.shape[1]} in row {done}")
            if done + len(part) > count:
                raise ValueError(f"it declares {count:,} rows and has more")
            with np.errstate(over="ignore"):  # infinite values are rejected by Dataset
                vectors[done : done + len(part)] = part
            for name in texts:
                values[name] += parquet.objects(batch.column(name), known[name])
            done += len(part)
        if done != count:
            raise ValueError(f"it declares {count:,} rows and has {done:,}")
    labels = None if label is None else values.pop(label)
    return vectors, labels, next(iter(values.values()), None)


def _text_columns(
    file: Path, label: str | None, name: str | None, schema: "pa.Schema"
) -> list[str]:
    """Return the columns of labels and of names, by default of the index that pandas stored."""
    import pyarrow as pa

    expected = f"one of the columns {checks.short(schema.names)} in '{file}'"
    checks.expect(label is None or label in schema.names, "label", expected, repr(label))
    checks.expect(name is None or name in schema.names, "names", expected, repr(name))
    index = (schema.pandas_metadata or {}).get("index_columns", []) if name is None else [name]
    names = [name for name in index if name in schema.names and name != label]
    texts = [*([] if label is None else [label]), *(names if len(names) == 1 else [])]
    for name in texts:
        kind = schema.field(name).type
        is_plain = not (pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType))
        checks.expect(
            is_plain, "label, names", "columns of texts or numbers", f"{kind} in '{name}'"
        )
    return texts


def _rows_of(batch: "pa.RecordBatch", columns: list[str], start: int) -> np.ndarray:
    """Return the vectors of a batch; ``start`` is the number of its first row, for errors."""
    if len(columns) == 1 and _is_vector(batch.schema.field(columns[0]).type):
        return _vectors(batch.column(columns[0]), start)
    # Missing numbers become NaN, which Dataset rejects with the row.
    numbers = [batch.column(name).to_numpy(zero_copy_only=False) for name in columns]
    with np.errstate(over="ignore"):
        return np.stack(numbers, axis=1).astype(np.float32)


def _number_columns(file: Path, columns: Sequence[str], schema: "pa.Schema") -> list[str]:
    known = set(schema.names)
    missing = [name for name in columns if name not in known]
    expected = f"some of the columns {checks.short(schema.names)} in '{file}'"
    checks.expect(len(columns) > 0 and not missing, "column", expected, checks.short(missing))
    kinds = {name: schema.field(name).type for name in columns}
    texts = {name: str(kind) for name, kind in kinds.items() if not parquet.is_number(kind)}
    checks.expect(not texts, "column", "columns of numbers", checks.short(texts))
    return list(columns)


def _is_vector(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if not any(is_kind(kind) for is_kind in lists):
        return False
    return pa.types.is_integer(kind.value_type) or pa.types.is_floating(kind.value_type)


def _vectors(column: "pa.Array", start: int) -> np.ndarray:
    """Return lists of one length as the rows of an array; ``start`` is the number of the first."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = column.storage if isinstance(column, pa.ExtensionArray) else column
    if column.null_count:
        row = start + int(column.is_null().to_numpy(zero_copy_only=False).argmax())
        checks.expect(False, "column", "a vector in each row", f"none in row {row}")
    lengths = pc.call_function("list_value_length", [column]).to_numpy(zero_copy_only=False)
    other = np.flatnonzero(lengths != lengths[0])
    if len(other):
        expected = f"vectors of one length, as {lengths[0]} in row {start}"
        got = f"length {lengths[other[0]]} in row {start + other[0]}"
        checks.expect(False, "column", expected, got)
    # Missing numbers become NaN, which Dataset rejects with the row.
    values = column.flatten().to_numpy(zero_copy_only=False)
    return values.reshape(len(column), int(lengths[0]))


# IDX files


def read_idx(name: str, path: str | os.PathLike, limit: int) -> np.ndarray:
    """Read the array of an IDX file, plain or compressed; ``name`` is the argument in errors."""
    file = checks.existing_file(name, path, "`gloam datasets fetch mnist` downloads MNIST.")
    with (
        _reading(file, "an IDX file", "Download the file again.", name=name),
        files.open_regular(file) as opened,
    ):
        size = os.fstat(opened.fileno()).st_size
        is_gzip = opened.read(2) == b"\x1f\x8b"
        opened.seek(0)
        stream = gzip.GzipFile(fileobj=opened) if is_gzip else opened
        head = stream.read(4)
        if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _IDX_DTYPES or head[3] == 0:
            raise ValueError(f"it starts with the bytes {head.hex()}")
        dtype, axes = np.dtype(_IDX_DTYPES[head[2]]), head[3]
        sizes = stream.read(4 * axes)
        if len(sizes) < 4 * axes:
            raise ValueError("it ends in the header")
        shape = np.frombuffer(sizes, ">u4").tolist()
        needed, start = _array_bytes(shape, dtype, limit), 4 + 4 * axes
        content = b""
        if start + needed <= (_inflated(size) if is_gzip else size):
            content = stream.read(needed)
        # Reading to the end also verifies the checksum of a compressed file.
        if len(content) < needed or stream.read(1):
            expected = f"{start + needed:,} bytes of an array of shape {tuple(shape)}"
            raise ValueError(f"it does not have exactly the {expected}")
        array = np.frombuffer(content, dtype).reshape(shape)
        return array.astype(dtype.newbyteorder("="), copy=False)
