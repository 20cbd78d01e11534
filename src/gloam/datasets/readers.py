"""Datasets from arrays, files of arrays, and tables with a column of vectors."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gloam import checks, files
from gloam.datasets import limits, rows
from gloam.datasets.dataset import Dataset
from gloam.datasets.fields import is_picture, item_shape

if TYPE_CHECKING:
    import pandas as pd

_FIX = "Write the file again, without pickled objects."
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
        from gloam.datasets.parquet import read_vectors

        return read_vectors(file, column, label, max_bytes=max_bytes)
    if kind == ".npz":
        return _zipped(file, column, label, max_bytes)
    expected = "none for a .npy file, which is a single array"
    unnamed = column is None and label is None
    checks.expect(unnamed, "column, label", expected, (column, label))
    with limits.reading(file, "a .npy file of plain numbers", _FIX):
        return limits.map_array(file, max_bytes), None


def _table(file: Path, columns: list[str], max_bytes: int | None) -> "pd.DataFrame":
    """Some columns of a file."""
    if file.suffix.lower() == ".parquet":
        from gloam.datasets.parquet import read_columns

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
        limits.reading(file, "a .npz file of plain arrays", _FIX),
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
