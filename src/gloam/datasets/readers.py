"""Datasets from arrays, files of arrays, and tables with a column of vectors."""

import os
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gloam import checks
from gloam.datasets import rows
from gloam.datasets.dataset import Dataset
from gloam.datasets.fields import is_picture, item_shape

if TYPE_CHECKING:
    import pandas as pd

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
    return Dataset(items, one, labels, names, images, bounds,
                   source=None if source is None else Path(source))  # fmt: skip


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
            checks.expect(np.ndim(vector) > 0, "column", f"a vector in each row of '{column}'",
                          f"{vector!r} in row {number}",
                          "Several columns of numbers are named by a list.")  # fmt: skip
    else:
        kinds = {name: frame[name].dtype for name in wanted}
        checks.expect(all(dtype.kind in "biuf" for dtype in kinds.values()), "column",
                      "columns of numbers", {name: str(kinds[name]) for name in kinds})  # fmt: skip
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
) -> Dataset:
    """A dataset from a ``.npy``, ``.npz``, ``.parquet`` or ``.csv`` file.

    Args:
        path: The file.
        column: Name of the array (``.npz``) or of the column of vectors (``.parquet``); needed
            only where there are several. A list names columns of numbers (``.parquet``, ``.csv``).
        label: Name of the array or column of labels; in a ``.npz`` file an array "labels" is
            found by itself.
        shape, bounds: As in `from_array`.
    """
    file = checks.existing_file("path", path)
    kind = file.suffix.lower()
    checks.expect(kind in _SUFFIXES, "path", f"a file of kind {', '.join(_SUFFIXES)}", f"'{path}'",
                  "For pictures use from_folder, for IDX files from_idx.")  # fmt: skip
    if column is not None and not isinstance(column, str):
        checks.expect(kind in (".parquet", ".csv"), "column", f"one name for a {kind} file", column)
        frame = _table(file, [*column, *([] if label is None else [label])])
        return from_pandas(frame, column, label, shape=shape, bounds=bounds, source=file)
    checks.expect(kind != ".csv", "column", "a list of columns of numbers for a .csv file",
                  repr(column))  # fmt: skip
    if kind == ".parquet":
        from gloam.datasets.parquet import read_vectors

        array, labels = read_vectors(file, column, label)
    elif kind == ".npz":
        array, labels = _zipped(file, column, label)
    else:
        checks.expect(column is None and label is None, "column, label",
                      "none for a .npy file, which is a single array", (column, label))  # fmt: skip
        array, labels = _mapped(file), None
    items, one = _scaled(array, shape)
    return Dataset(items, one, labels, bounds=bounds, source=file, fresh=kind != ".npy")


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """What a library says of a file it cannot read, in the house wording."""
    try:
        yield
    except (zipfile.BadZipFile, EOFError, OSError, ValueError) as error:  # pyarrow: ValueError
        raise ValueError(
            f"path: expected a {file.suffix} file of plain arrays or columns, got '{file}' "
            f"({error}). Files that need pickle are not read."
        ) from None


def _table(file: Path, columns: list[str]) -> "pd.DataFrame":
    import pandas as pd

    with _reading(file):
        if file.suffix.lower() == ".csv":
            return pd.read_csv(file, usecols=columns)
        return pd.read_parquet(file, columns=columns)


def _mapped(file: Path) -> np.ndarray:
    # Mapped, so that another dtype on disk is converted without a copy of it in memory.
    with _reading(file):
        return np.lib.format.open_memmap(file, mode="r")


def _zipped(file: Path, column: str | None, label: str | None) -> tuple[np.ndarray, Any]:
    with open(file, "rb") as opened:
        with _reading(file):
            arrays = np.lib.npyio.NpzFile(opened)
        names = list(arrays.files)
        if label is None and "labels" in names and column != "labels":
            label = "labels"
        choice = [name for name in names if name != label]
        if column is None and len(choice) == 1:
            column = choice[0]
        checks.expect(column in choice, "column", f"one of the arrays {choice} in '{file}'",
                      repr(column), "Name the array: column='...'.")  # fmt: skip
        checks.expect(label is None or label in names, "label", f"one of the arrays {names}",
                      repr(label))  # fmt: skip
        with _reading(file):
            return arrays[str(column)], None if label is None else arrays[label]
