"""Files that are whole or not there: written aside, synced, renamed. No pickles."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


def write(path: Path, save: Callable[[IO[bytes]], Any]) -> None:
    """Replace ``path`` by what ``save`` writes; a crash leaves the old file or the new one.

    Into the file at once: a buffer would be a second copy of what may be gigabytes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(aside, "wb") as file:
            save(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    # The rename itself must reach the disk, too.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_bytes(path: Path, content: bytes) -> None:
    """Write bytes."""
    write(path, lambda file: file.write(content))


def write_json(path: Path, content: Any) -> None:
    """Write JSON."""
    write_bytes(path, (json.dumps(content, indent=2) + "\n").encode())


def write_array(path: Path, array: np.ndarray) -> None:
    """Write one array as ``.npy``."""
    write(path, lambda file: np.save(file, array, allow_pickle=False))


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays as an uncompressed ``.npz``."""
    plain = {name: np.asarray(array) for name, array in arrays.items()}
    write(path, lambda file: np.savez(file, allow_pickle=False, **plain))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read an ``.npz`` of plain arrays."""
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def write_table(path: Path, table: "pd.DataFrame") -> None:
    """Write a table as Parquet."""
    write(path, lambda file: table.to_parquet(file, index=False))
