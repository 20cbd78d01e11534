"""Atomic file writes, reads that are validated before memory is allocated, and the cache folder."""

import contextlib
import errno
import json
import math
import os
import re
import stat
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import platformdirs

if TYPE_CHECKING:
    import pandas as pd

Stamp = tuple[int, int, int] | None
"""Inode, size and modification time of a file."""

_PARTIAL = ".gloam-partial"
# Errors of file systems that cannot sync folders, or do not let them be opened.
_NO_FOLDER_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM, errno.EBADF}
_DEFAULT_LIMIT = 8 << 30
_LARGEST_SIZE = 1 << 62
_LARGEST_HEADER = 1 << 16


def write(path: Path, save: Callable[[IO[bytes]], Any]) -> None:
    """Replace ``path`` by what ``save`` writes; a crash leaves the old file or the new one.

    Args:
        path: The file; folders are made as needed.
        save: Writes to an open file, so that gigabytes need no buffer.

    Raises:
        OSError: The file could not be written; the error names it.
        ValueError: The path has no name of a file.
    """
    if not path.name or "\0" in str(path):
        raise ValueError(f"path: expected the name of a file, got {str(path)!r}.")
    partial = path.with_name(f".{path.name}.{os.getpid()}{_PARTIAL}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.unlink(missing_ok=True)
        # "x" does not follow a link of that name that someone else has made.
        with open(partial, "xb") as file:
            save(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        _sync_folder(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        if isinstance(error, OSError):  # the error of a full disk names no file
            raise OSError(error.errno, error.strerror or str(error), str(path)) from error
        raise


def append(path: Path, content: bytes, *, sync: bool) -> None:
    """Append bytes to a file. After an error the file is unchanged.

    Args:
        path: The file; it need not exist.
        content: The bytes.
        sync: Return only when the whole file is on the disk.

    Raises:
        OSError: The file could not be written; the error names it.
    """
    # A link of that name that someone else has made is not followed.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
    try:
        descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0), 0o644)
        try:
            size = os.fstat(descriptor).st_size
            try:
                rest = memoryview(content)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
                if sync:
                    os.fsync(descriptor)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)
        if sync:
            _sync_folder(path.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def partial_name(pattern: str) -> str:
    """Return a regular expression for the files that a killed `write` leaves behind."""
    return rf"\.{pattern}\.\d+{re.escape(_PARTIAL)}"


def write_bytes(path: Path, content: bytes) -> None:
    """Write bytes atomically."""
    write(path, lambda file: file.write(content))


def write_json(path: Path, content: Any) -> None:
    """Write JSON atomically."""
    write_bytes(path, (json.dumps(content, indent=2) + "\n").encode())


def write_array(path: Path, array: np.ndarray) -> None:
    """Write one array as ``.npy``, atomically."""
    write(path, lambda file: np.save(file, array, allow_pickle=False))


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays as an uncompressed ``.npz``, atomically."""
    plain = {name: np.asarray(array) for name, array in arrays.items()}
    write(path, lambda file: np.savez(file, allow_pickle=False, **plain))


def write_table(path: Path, table: "pd.DataFrame") -> None:
    """Write a table as Parquet, atomically."""
    write(path, lambda file: table.to_parquet(file, index=False))


def _sync_folder(folder: Path) -> None:
    """Sync a folder after a rename or a new file, if the platform can.

    Windows cannot open folders, and some network file systems cannot sync them. There, the old file
    may be back after a power failure, which is complete as well.
    """
    if os.name == "nt":
        return
    try:
        opened = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise


def byte_limit(max_bytes: int | None) -> int:
    """Return ``max_bytes``, by default half of the machine's memory."""
    if max_bytes is not None:
        return max_bytes
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, ValueError, OSError):  # unknown, as on Windows
        return _DEFAULT_LIMIT


def open_regular(path: str | os.PathLike) -> IO[bytes]:
    """Open a file for reading bytes.

    Raises:
        OSError: It cannot be opened, or is not a regular file: reading a pipe or a device might
            never end.
    """
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        problem = "a folder instead of a file" if stat.S_ISDIR(mode) else "not a regular file"
        raise OSError(f"it is {problem}: '{path}'")
    return open(path, "rb")


def stamp(path: Path) -> Stamp:
    """Return inode, size and modification time of a file, or ``None`` if it does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def read_array(
    path: str | os.PathLike, name: str = "path", *, max_bytes: int | None = None
) -> np.ndarray:
    """Read one plain array from a ``.npy`` file that is not trusted.

    The declared size is checked before memory is allocated.

    Args:
        path: The file.
        name: Name for error messages, such as ``"centroids"``.
        max_bytes: Largest array that is read; by default half of the machine's memory.

    Raises:
        ValueError: It is not such a file, it is damaged, or it is too large.
    """
    try:
        with open_regular(path) as file:
            return read_npy(file, os.fstat(file.fileno()).st_size, byte_limit(max_bytes))
    except (OSError, ValueError, MemoryError) as error:
        raise ValueError(
            f"{name}: expected a .npy file of plain numbers, got '{path}' ({error}). "
            "Write it again with numpy.save."
        ) from None


def read_npy(stream: IO[bytes], size: int, limit: int) -> np.ndarray:
    """Read one plain array in the format of ``.npy``.

    Args:
        stream: Stream at the beginning of the format.
        size: Number of bytes that follow at most.
        limit: Largest array that is read, in bytes.

    Raises:
        ValueError: The bytes are not such an array, or it is too large.
    """
    shape, fortran_order, dtype, start = read_npy_header(stream)
    needed = checked_size(shape, dtype.itemsize, limit)
    if needed > size - start:
        raise ValueError(f"it declares {needed:,} bytes and has {max(size - start, 0):,}")
    content = np.empty(needed, np.uint8)
    view, done = content.data, 0
    while done < needed:
        # In pieces, because a compressed stream makes a copy of everything it reads at once.
        piece = stream.read(min(needed - done, 1 << 24))
        if not piece:
            raise ValueError(f"it ends after {done:,} of {needed:,} bytes")
        view[done : done + len(piece)] = piece
        done += len(piece)
    array = content.view(dtype) if dtype.itemsize else np.empty(0, dtype)
    return array.reshape(shape[::-1]).T if fortran_order else array.reshape(shape)


def read_npy_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """Return shape, Fortran order, dtype and length of the header of a plain array.

    Raises:
        ValueError: The bytes are not such a header, or the array is not plain.
    """
    counted = _Counted(stream)
    readers = {(1, 0): np.lib.format.read_array_header_1_0}
    readers[2, 0] = np.lib.format.read_array_header_2_0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's parser warns about odd text
            version = np.lib.format.read_magic(counted)
            shape, fortran_order, dtype = readers[version](counted)
    except Exception as error:  # a header is Python text, which can be wrong in many ways
        raise ValueError("it does not begin with the header of an array") from error
    if dtype.hasobject or dtype.names is not None or dtype.subdtype is not None:
        raise ValueError(f"it has the dtype {dtype}, which is not plain numbers or text")
    if dtype.itemsize == 0 and 0 not in shape:
        raise ValueError(f"it has the empty dtype {dtype}")
    return shape, fortran_order, dtype, counted.count


def checked_size(shape: Sequence[int], itemsize: int, limit: int) -> int:
    """Return the size in bytes of an array of ``shape``, at most ``limit``.

    >>> checked_size((10, 3), 4, 1000)
    120
    """
    if any(size < 0 for size in shape) or len(shape) > 32:
        raise ValueError(f"it declares the shape {tuple(shape)}")
    # Axes beside an empty one count as well: NumPy cannot index more.
    if math.prod(size for size in shape if size) * max(itemsize, 1) > _LARGEST_SIZE:
        raise ValueError("it declares a shape that no array can have")
    needed = math.prod(shape) * itemsize
    if needed > limit:
        raise ValueError(
            f"it declares an array of {needed:,} bytes, and the limit is {limit:,}; "
            "raise max_bytes if it is meant to be that large"
        )
    return needed


class _Counted:
    """A stream that counts the bytes that are read."""

    def __init__(self, stream: IO[bytes]):
        self._stream, self.count = stream, 0

    def read(self, size: int = -1, /) -> bytes:
        if not 0 <= size <= _LARGEST_HEADER:
            raise ValueError("the header is too long")
        content = self._stream.read(size)
        self.count += len(content)
        return content


def cache_folder() -> Path:
    """Return the folder ``GLOAM_CACHE``, by default the user's cache folder of this platform.

    It has centroids, downloaded datasets, embeddings and compiled programs, and can be deleted
    at any time. It need not exist yet.

    Raises:
        ValueError: The path is relative. Compiled programs would be read from whatever folder the
            user is in.
    """
    given = os.environ.get("GLOAM_CACHE")
    folder = Path(given) if given else platformdirs.user_cache_path("gloam", appauthor=False)
    if not folder.is_absolute():
        raise ValueError(
            f"cache folder: expected an absolute path, got '{folder}'. Set GLOAM_CACHE to one. To "
            "turn the cache of compiled programs off, set JAX_ENABLE_COMPILATION_CACHE=false."
        )
    return folder
