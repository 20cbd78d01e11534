"""Arrays from files that need not be trusted: sizes are checked before memory is taken."""

import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from gloam import files

# Deflate makes at most 1032 bytes of one.
_INFLATION = 1032
_KINDS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """Add the name of the file or folder to errors that do not have it."""
    try:
        yield
    except ValueError as error:
        text = str(error)
        if f"'{file}'" in text:
            raise
        kind = "folder" if file.is_dir() else "file"
        raise ValueError(f"{text} The {kind} is '{file}'.") from error


@contextmanager
def reading(file: Path, what: str, fix: str) -> Iterator[None]:
    """Turn whatever a library raises on a damaged file into a ValueError that names the file."""
    try:
        yield
    except Exception as error:
        if type(error) is ValueError and ": expected " in str(error):
            raise  # one of gloam's own
        reason = str(error) or type(error).__name__
        # What a library advises (pickle, other arguments) is not for users of gloam.
        reason = reason.splitlines()[0].rstrip(".")
        raise ValueError(f"path: expected {what}, got '{file}' ({reason}). {fix}") from error


def inflated_size(declared: int, compressed: int) -> None:
    """Refuse a size that compressed bytes cannot have."""
    if declared > _INFLATION * compressed + 1024:
        raise ValueError(f"it declares {declared:,} bytes and has {compressed:,} compressed ones")


def map_array(file: Path, max_bytes: int | None) -> np.ndarray:
    """The array of a ``.npy`` file, mapped into memory.

    Another dtype on disk is then converted without a copy of it in memory.
    """
    limit = files.byte_limit(max_bytes)
    with files.open_regular(file) as opened:
        size = os.fstat(opened.fileno()).st_size
        shape, fortran_order, dtype, start = files.read_npy_header(opened)
        needed = files.checked_size(shape, dtype.itemsize, limit)
        files.checked_size(shape, 4, limit)  # as float32, which it becomes
        if needed > size - start:
            raise ValueError(f"it declares {needed:,} bytes and has {size - start:,}")
        if needed == 0:
            return np.empty(shape, dtype)
        order = "F" if fortran_order else "C"
        return np.memmap(opened, dtype, "r", start, shape, order)


class ZippedArrays:
    """The arrays of an open ``.npz`` file.

    Args:
        opened: The file.
        max_bytes: Largest array that is read; by default half of the machine's memory.
    """

    def __init__(self, opened: IO[bytes], max_bytes: int | None = None):
        self._size = os.fstat(opened.fileno()).st_size
        self._limit = files.byte_limit(max_bytes)
        self._zip = zipfile.ZipFile(opened)
        members = [info.filename for info in self._zip.infolist()]
        self.names = [name[:-4] for name in members if name.endswith(".npy")]

    def read(self, name: str) -> np.ndarray:
        """The array called ``name``."""
        info = self._zip.getinfo(f"{name}.npy")
        if info.compress_type not in _KINDS or info.flag_bits & 1:
            raise ValueError(f"'{name}' is encrypted, or compressed in a way that NumPy is not")
        compressed = min(info.compress_size, self._size)
        stored = info.compress_type == zipfile.ZIP_STORED
        if stored and info.file_size > compressed:
            raise ValueError(f"'{name}' declares {info.file_size:,} bytes and has {compressed:,}")
        inflated_size(info.file_size, compressed)
        with self._zip.open(info) as member:
            array = files.read_npy(member, info.file_size, self._limit)
            if member.read(1):  # at the end the checksum is compared
                raise ValueError(f"'{name}' has bytes behind its array")
        return array
