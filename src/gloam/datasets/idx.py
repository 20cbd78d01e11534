"""Datasets from IDX files, the format of MNIST, plain or compressed."""

import gzip
import os
import zlib
from pathlib import Path

import numpy as np

from gloam import checks
from gloam.datasets.dataset import Dataset
from gloam.datasets.readers import from_array

_DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def from_idx(images: str | os.PathLike, labels: str | os.PathLike | None = None) -> Dataset:
    """A dataset from an IDX file of pictures or vectors, and one of labels.

    Args:
        images: For instance ``train-images-idx3-ubyte.gz``. Pixels are scaled to [0, 1].
        labels: For instance ``train-labels-idx1-ubyte.gz``.
    """
    items = read_idx("images", images)
    found = None if labels is None else read_idx("labels", labels)
    return from_array(items, found, source=images)


def read_idx(name: str, path: str | os.PathLike) -> np.ndarray:
    """The array in an IDX file; ``name`` is what errors call it."""
    file = checks.existing_file(name, path, "gloam.datasets.fetch('mnist') downloads MNIST.")
    content = _content(name, file)
    kind, axes = (content[2], content[3]) if len(content) >= 4 else (0, 0)
    start = 4 + 4 * axes
    known = content[:2] == b"\0\0" and kind in _DTYPES and axes > 0 and len(content) >= start
    checks.expect(known, name, "an IDX file", f"'{file}', which starts with {content[:4].hex()}")
    shape = np.frombuffer(content, ">u4", axes, offset=4).tolist()
    dtype = np.dtype(_DTYPES[kind])
    size = start + int(np.prod(shape, dtype=object)) * dtype.itemsize
    checks.expect(len(content) == size, name, f"{size} bytes for an array of shape {tuple(shape)}",
                  f"{len(content)} in '{file}'", "Download the file again.")  # fmt: skip
    array = np.frombuffer(content, dtype, offset=start).reshape(shape)
    return array.astype(dtype.newbyteorder("="), copy=False)


def _content(name: str, file: Path) -> bytes:
    with open(file, "rb") as opened:
        compressed = opened.read(2) == b"\x1f\x8b"
    if not compressed:
        return file.read_bytes()
    try:
        with gzip.open(file) as opened:
            return opened.read()
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(
            f"{name}: expected a whole gzip file, got '{file}' ({error}). Download it again."
        ) from None
