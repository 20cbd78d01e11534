"""Datasets from IDX files, the format of MNIST, plain or compressed."""

import gzip
import os
import zlib
from pathlib import Path
from typing import IO

import numpy as np

from gloam import checks, files
from gloam.datasets import limits
from gloam.datasets.dataset import Dataset
from gloam.datasets.readers import from_array

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
                return _array(name, file, opened, size, max_bytes)
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
            return _array(name, file, stream, None, max_bytes, compressed=size)
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(
            f"{name}: expected a whole gzip file, got '{file}' ({error}). Download it again."
        ) from None


def _array(
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
