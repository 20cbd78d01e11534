"""Atomic file writes: a temporary file, synced and renamed. No pickles."""

import contextlib
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

_PARTIAL = ".gloam-partial"


def write(path: Path, save: Callable[[IO[bytes]], Any]) -> None:
    """Replace ``path`` by what ``save`` writes; a crash leaves the old file or the new one.

    Into the file at once: a buffer would be a second copy of what may be gigabytes.

    Raises:
        OSError: The file could not be written; the error names it.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}{_PARTIAL}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(aside, "wb") as file:
            save(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
        _sync_folder(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            aside.unlink()
        if isinstance(error, OSError):  # that of a full disk names no file
            raise OSError(error.errno, error.strerror or str(error), str(path)) from error
        raise


def partial_name(pattern: str) -> str:
    """Regular expression for the files that a killed `write` of ``pattern`` leaves behind."""
    return rf"\.{pattern}\.\d+{re.escape(_PARTIAL)}"


def _sync_folder(folder: Path) -> None:
    """Bring a rename to the disk; Windows cannot open folders and does without."""
    if os.name == "nt":
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


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


def write_table(path: Path, table: "pd.DataFrame") -> None:
    """Write a table as Parquet."""
    write(path, lambda file: table.to_parquet(file, index=False))
