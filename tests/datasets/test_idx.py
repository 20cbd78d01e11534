"""IDX files, written here byte by byte."""

import gzip
import re
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gloam.datasets import from_idx
from gloam.datasets import readers as idx

CODES = {"u1": 8, "i1": 9, ">i2": 11, ">i4": 12, ">f4": 13, ">f8": 14}


def encoded(array: np.ndarray, dtype: str = "u1") -> bytes:
    """The format's own words: two zeros, a type, the number of axes, their sizes, the numbers."""
    head = struct.pack(">BBBB", 0, 0, CODES[dtype], array.ndim)
    return head + struct.pack(f">{array.ndim}I", *array.shape) + array.astype(dtype).tobytes()


@pytest.fixture
def pictures() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (7, 4, 3)).astype(np.uint8)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_pictures_and_labels_are_read(tmp_path, pictures, pack):
    # Compressed or not is told by the content, not the name.
    (tmp_path / "images").write_bytes(pack(encoded(pictures)))
    (tmp_path / "labels").write_bytes(pack(encoded(np.arange(7) % 3)))
    data = from_idx(tmp_path / "images", tmp_path / "labels")
    assert repr(data) == "Dataset(7 items of shape (4, 3), 3 labels)"
    assert data.labels == ["0", "1", "2", "0", "1", "2", "0"]
    assert data.bounds == (0, 1)
    np.testing.assert_array_equal(data.items, pictures.reshape(7, -1).astype(np.float32) / 255)
    np.testing.assert_array_equal(data.image(2), pictures[2])
    assert from_idx(tmp_path / "images").labels is None


@given(st.sampled_from(list(CODES)), st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_every_kind_of_array_comes_back(tmp_path_factory, dtype, shape):
    array = np.arange(np.prod(shape)).reshape(shape) % 120
    path = tmp_path_factory.mktemp("idx") / "array"
    path.write_bytes(encoded(array, dtype))
    found = idx.read_idx("images", path)
    assert found.dtype.isnative
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "images: expected an IDX file, got"),
        (b"\0\0\x08", "images: expected an IDX file, got"),
        (b"\x89PNG and more", "images: expected an IDX file, got"),
        (b"\0\0\x07\x01\0\0\0\x01A", "images: expected an IDX file, got"),
        (b"\0\0\x08\x00", "images: expected an IDX file, got"),
        (b"\0\0\x08\x03\0\0\0\x01", "images: expected an IDX file, got"),
        (
            encoded(np.zeros((2, 3, 3)))[:-1],
            "images: expected 34 bytes for an array of shape (2, 3, 3), got 33 in",
        ),
        (
            encoded(np.zeros((2, 3, 3))) + b"A",
            "images: expected 34 bytes for an array of shape (2, 3, 3), got 35 in",
        ),
        (
            gzip.compress(encoded(np.zeros((2, 3, 3))), mtime=0)[:-9],
            "images: expected a whole gzip file, got",
        ),
        (b"\x1f\x8b\x08 not gzip after all", "images: expected a whole gzip file, got"),
    ],
)
def test_other_files_are_refused(tmp_path, content, message):
    (tmp_path / "images").write_bytes(content)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        from_idx(tmp_path / "images")


def test_missing_files_and_labels_of_other_pictures_are_refused(tmp_path, pictures):
    with pytest.raises(ValueError, match=r"^images: expected an existing file, got .*fetch"):
        from_idx(tmp_path / "images")
    (tmp_path / "images").write_bytes(encoded(pictures))
    (tmp_path / "labels").write_bytes(encoded(np.arange(6)))
    with pytest.raises(ValueError, match=r"^labels: expected one for each of the 7 items, got 6"):
        from_idx(tmp_path / "images", tmp_path / "labels")
