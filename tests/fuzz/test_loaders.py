"""Damaged and hostile files: every loader refuses them by a ValueError that names the file.

Never a raw error of a library, never a hang, never more memory than the limit.
"""

import gzip
import io
import json
import os
import struct
import tracemalloc
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from gloam import CVTArchive, GridArchive, datasets
from gloam._tools import files
from gloam.archives import kmeans_centroids
from gloam.cli.fill import _start
from gloam.domains import LinearProjection, Triangles
from gloam.interop import elites_from_parquet

LIMIT = 1 << 20
EXAMPLES = 60
ARCHIVE = GridArchive((4, 4), -1, 1)
ITEMS = np.random.default_rng(0).uniform(0, 1, (12, 4)).astype(np.float32)
PICTURES = np.random.default_rng(1).integers(0, 256, (6, 5, 5)).astype(np.uint8)
LABELS = [f"kind {row % 3}" for row in range(12)]


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def npz(save: Callable, **arrays) -> bytes:
    buffer = io.BytesIO()
    save(buffer, **arrays)
    return buffer.getvalue()


def table(compression: str) -> bytes:
    buffer = io.BytesIO()
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(ITEMS.ravel()), 4)
    columns = {"v": vectors, "kind": LABELS, "x": ITEMS[:, 0], "y": ITEMS[:, 1]}
    pq.write_table(pa.table(columns), buffer, compression=compression, row_group_size=5)
    return buffer.getvalue()


def idx(array: np.ndarray) -> bytes:
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return head + array.tobytes()


def picture(kind: str) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.tile(PICTURES[0], (4, 4))).save(buffer, kind)
    return buffer.getvalue()


def csv() -> bytes:
    return pd.DataFrame(ITEMS, columns=list("abcd")).to_csv(index=False).encode()


def from_file(path: Path, **options):
    return datasets.from_file(path, max_bytes=LIMIT, **options)


def from_idx(path: Path):
    return datasets.from_idx(path, max_bytes=LIMIT)


def from_folder(path: Path):
    """The picture in a folder with two sound ones."""
    return datasets.from_folder(path.parent, (5, 5), max_pixels=10_000, progress=False)


FILES: dict[str, tuple[bytes, Callable]] = {
    "a.npy": (npy(ITEMS), from_file),
    "order.npy": (npy(np.asfortranarray(ITEMS)), from_file),
    "a.npz": (npz(np.savez, x=ITEMS, labels=LABELS), from_file),
    "small.npz": (npz(np.savez_compressed, x=ITEMS, labels=LABELS), from_file),
    "a.parquet": (table("none"), lambda path: from_file(path, column="v", label="kind")),
    "small.parquet": (table("snappy"), lambda path: from_file(path, column="v")),
    "columns.parquet": (table("gzip"), lambda path: from_file(path, column=["x", "y"])),
    "a.csv": (csv(), lambda path: from_file(path, column=["a", "b"])),
    "images-idx3-ubyte": (idx(PICTURES), from_idx),
    "images-idx3-ubyte.gz": (gzip.compress(idx(PICTURES), mtime=0), from_idx),
    "a.png": (picture("PNG"), from_folder),
    "a.jpg": (picture("JPEG"), from_folder),
    "a.gif": (picture("GIF"), from_folder),
    "a.tif": (picture("TIFF"), from_folder),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz")
    for name in ("sound-1.bmp", "sound-2.bmp"):
        Image.fromarray(PICTURES[int(name[6])]).save(folder / name)
    return folder


def loaded(place: Path, name: str, content: bytes):
    """What a loader makes of the content, or ``None`` where it refuses it by its name."""
    path = place / name
    path.write_bytes(content)
    data, refusal = None, None
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            data = FILES[name][1](path)
        except ValueError as error:
            refusal = error
    path.unlink()
    if data is None:
        assert type(refusal) is ValueError
        assert f"'{path}'" in str(refusal)
        assert "allow_pickle" not in str(refusal)
        return None
    assert np.isfinite(data.items).all()
    # Only files that are skipped are worth a warning.
    assert len(seen) == bool(data.skipped)
    assert all(name in str(warning.message) for warning in seen)
    return data


def damaged(content: bytes) -> st.SearchStrategy[bytes]:
    """The content truncated, with bytes flipped, with a piece doubled or replaced by noise."""
    size = len(content)

    def flip(places: list[tuple[int, int]]) -> bytes:
        changed = bytearray(content)
        for at, mask in places:
            changed[at] ^= mask
        return bytes(changed)

    place = st.tuples(st.integers(0, size - 1), st.integers(1, 255))
    # Headers are at the beginning, and of zip and Parquet files at the end.
    head = st.tuples(st.integers(0, min(size, 80) - 1), st.integers(1, 255))
    tail = st.tuples(st.integers(max(0, size - 300), size - 1), st.integers(1, 255))
    places = st.lists(place | head | tail, min_size=1, max_size=4)
    cut = st.integers(0, size)
    return st.one_of(
        places.map(flip),
        cut.map(lambda end: content[:end]),
        st.tuples(cut, st.binary(max_size=40)).map(
            lambda part: content[: part[0]] + part[1] + content[part[0] :]
        ),
        st.binary(max_size=200).map(lambda noise: content[:8] + noise),
        st.binary(max_size=200),
    )


@pytest.mark.parametrize("name", FILES)
def test_a_sound_file_is_read(place, name):
    assert loaded(place, name, FILES[name][0]) is not None


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(choice=st.data())
def test_a_damaged_file_is_refused_by_name(place, name, choice):
    content = choice.draw(damaged(FILES[name][0]))
    loaded(place, name, content)


# Hostile headers: small files that declare much


def header(shape: str, dtype: str = "'<f4'") -> bytes:
    text = f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}}}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


HEADERS = {
    "terabytes": header("(1000000000000, 10)"),
    "overflow": header("(4294967296, 4294967296, 4294967296)"),
    "negative": header("(-4, 2)"),
    "empty and huge": header("(0, 99999999999999999999999)"),
    "many axes": header("(" + "1, " * 70 + ")"),
    "objects": header("(2, 2)", "'|O'") + b"cos\nsystem\n(S'true'\ntR.",
    "records": header("(2,)", "[('a', '<f4')]") + bytes(8),
    "wide text": header("(2, 2)", "'<U999999999'"),
    "nested": header("(" * 60 + ")" * 60),
    "long": b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + b"{" * 1000,
    "version": b"\x93NUMPY\x09\x00" + b"x" * 50,
    "code": header("(__import__('os').system('true'), 2)"),
    "short": header("(100, 10)") + bytes(100),
}


def zipped(member: bytes, kind: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", kind) as archive:
        archive.writestr("x.npy", member)
    return buffer.getvalue()


@pytest.mark.parametrize("case", HEADERS)
def test_every_reader_of_arrays_refuses_a_hostile_header(place, case):
    content = HEADERS[case]
    assert loaded(place, "a.npy", content) is None
    assert loaded(place, "a.npz", zipped(content, zipfile.ZIP_STORED)) is None
    assert loaded(place, "small.npz", zipped(content)) is None
    path = place / "hostile.npy"
    path.write_bytes(content)
    readers: dict[str, Callable] = {
        "path": lambda: files.read_array(path),
        "centroids": lambda: CVTArchive(path),
        "centroids of triangles": lambda: Triangles(path),
        "centroids of a projection": lambda: LinearProjection(10, centroids=path).archive(),
        "cache": lambda: kmeans_centroids(4, 0, 1, 2, cache=path),
        "x0": lambda: _start(str(path), 0),
    }
    for name, read in readers.items():
        with pytest.raises(ValueError, match=f"^{name.split()[0]}: expected .*'{path}'"):
            read()
    path.unlink()


def test_compressed_files_are_not_inflated_beyond_what_they_declare(place):
    """640 bytes are declared, and 60 MB follow: at most a little more than 640 are made."""
    many = zlib.compressobj(9, zlib.DEFLATED, 31)
    body = idx(np.zeros((10, 8, 8), np.uint8))
    bomb = many.compress(body)
    for _ in range(60):
        bomb += many.compress(bytes(1 << 20))
    bomb += many.flush()
    tracemalloc.start()
    assert loaded(place, "images-idx3-ubyte.gz", bomb) is None
    member = header("(4, 4)") + bytes(64 + (50 << 20))
    before = tracemalloc.get_traced_memory()[0]
    content = zipped(member)
    del member
    tracemalloc.reset_peak()
    assert loaded(place, "small.npz", content) is None
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    assert peak < 20 << 20


def test_what_is_declared_is_compared_with_the_limit(place):
    large = np.zeros((LIMIT // 16 + 1, 4), np.float32)
    large[:, 0] = np.arange(len(large))
    assert loaded(place, "a.npy", npy(large)) is None
    assert loaded(place, "small.npz", npz(np.savez_compressed, x=large)) is None
    pixels = np.zeros((LIMIT, 1, 2), np.uint8)
    assert loaded(place, "images-idx3-ubyte", idx(pixels)) is None
    assert loaded(place, "images-idx3-ubyte.gz", gzip.compress(idx(pixels))) is None
    assert loaded(place, "a.csv", b"a,b\n" + b"1,2\n" * (LIMIT // 4)) is None
    buffer = io.BytesIO()
    pq.write_table(pa.table({"v": list(large)}), buffer)
    assert loaded(place, "small.parquet", buffer.getvalue()) is None
    path = place / "large.npy"
    np.save(path, large)
    with pytest.raises(ValueError, match=r"the limit is 1,000"):
        files.read_array(path, max_bytes=1000)
    np.testing.assert_array_equal(files.read_array(path), large)
    path.unlink()


# Parquet stores repeated values once: a small file may declare any number of rows


def written(path: Path, columns: dict, **options) -> Path:
    pq.write_table(pa.table(columns), path, compression="zstd", **options)
    assert path.stat().st_size < 100_000
    return path


def zeros(rows: int, length: int) -> pa.ListArray:
    starts = np.arange(rows + 1, dtype=np.int32) * length
    return pa.ListArray.from_arrays(starts, pa.array(np.zeros(rows * length, np.float32)))


@pytest.fixture
def unread(monkeypatch):
    """Fail if the content of a Parquet file is read."""

    def read(*arguments, **options):
        raise AssertionError("the content was read")

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", read)
    monkeypatch.setattr(pq.ParquetFile, "read", read)


@pytest.mark.parametrize(
    ("columns", "column", "declared"),
    [
        ({"x": np.zeros(40_000), "y": np.zeros(40_000)}, ["x", "y"], "40,000 rows with 80,000"),
        ({"v": zeros(40_000, 1)}, "v", "40,000 rows with 40,000"),
        ({"v": zeros(30, 20_000)}, "v", "30 rows with 600,000"),
        ({"v": zeros(30, 20_000), "w": zeros(30, 2)}, "v", "30 rows with 600,000"),
    ],
)
@pytest.mark.usefixtures("unread")
def test_tables_that_would_fill_the_memory_are_refused_unread(tmp_path, columns, column, declared):
    path = written(tmp_path / "bomb.parquet", columns, row_group_size=10_000)
    for option in ({"max_bytes": LIMIT}, {"max_bytes": 1000}):
        with pytest.raises(ValueError, match=rf"'{path}' \(it declares {declared} values, more"):
            datasets.from_file(path, column, **option)


@pytest.mark.usefixtures("unread")
def test_elites_that_would_fill_the_memory_are_refused_unread(tmp_path):
    names = ("objective", "measures_0", "measures_1", "solution_0")
    path = written(tmp_path / "bomb.parquet", {name: np.zeros(40_000) for name in names})
    with pytest.raises(
        ValueError, match=rf"'{path}' \(it declares 40,000 rows with 160,000 values"
    ):
        elites_from_parquet(ARCHIVE, path, max_bytes=LIMIT)


def test_files_that_are_no_tables_of_elites_are_refused(tmp_path):
    path = tmp_path / "elites.parquet"
    for content in (b"", b"something else", table("none")[:-100]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"^path: expected a Parquet file of .*'{path}'"):
            elites_from_parquet(ARCHIVE, path)


@pytest.mark.parametrize("as_dictionary", [True, False])
def test_a_repeated_text_is_one_object(tmp_path, as_dictionary):
    texts = pa.array(["a" * 10_000, "b"] * 500)
    index = {"index_columns": ["name"], "columns": [], "column_indexes": []}
    columns = {"v": list(np.eye(1000, 3, dtype=np.float32) + np.arange(1000.0)[:, None])}
    columns |= {"kind": texts.dictionary_encode() if as_dictionary else texts}
    columns |= {"name": columns["kind"]}
    content = pa.table(columns).replace_schema_metadata({"pandas": json.dumps(index)})
    path = tmp_path / "texts.parquet"
    pq.write_table(content, path, row_group_size=100, compression="zstd")
    data = datasets.from_file(path, "v", "kind", max_bytes=LIMIT)
    assert data.labels == data.names == texts.to_pylist()
    assert len({id(text) for text in data.labels}) == len({id(text) for text in data.names}) == 2


def test_texts_that_would_fill_the_memory_are_refused(tmp_path):
    """A hundred thousand labels of a megabyte, which would take 400 GB as an array."""
    texts = pa.DictionaryArray.from_arrays(np.zeros(100_000, np.int32), ["a" * 1_000_000])
    path = written(tmp_path / "bomb.parquet", {"x": np.arange(100_000) % 7, "kind": texts})
    with pytest.raises(ValueError, match=r"400 GB.*100,000.*1,000,000"):
        datasets.from_file(path, ["x"], "kind")


def test_columns_that_are_no_labels_are_refused(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"v": zeros(3, 2), "kind": zeros(3, 2)}), path)
    with pytest.raises(ValueError, match=r"label, names:.*list"):
        datasets.from_file(path, "v", "kind")


def test_every_byte_of_the_metadata_may_be_wrong(place):
    """Each byte of the footer in turn: refused by name, or read as finite numbers."""
    content = FILES["a.parquet"][0]
    footer = int.from_bytes(content[-8:-4], "little") + 8
    for at in range(len(content) - footer, len(content)):
        for mask in (0x01, 0x40, 0x80, 0xFF):
            damaged_content = bytearray(content)
            damaged_content[at] ^= mask
            loaded(place, "a.parquet", bytes(damaged_content))


def test_empty_axes_that_no_array_can_have(place):
    sizes = [0, *[2**32 - 1] * 254]
    hostile = struct.pack(">BBBB255I", 0, 0, 8, 255, *sizes)
    assert loaded(place, "images-idx3-ubyte", hostile) is None
    assert loaded(place, "images-idx3-ubyte.gz", gzip.compress(hostile)) is None


# Files that are no files


@pytest.fixture
def pictures(tmp_path) -> Path:
    for number in (1, 2):
        Image.fromarray(PICTURES[number]).save(tmp_path / f"{number}.png")
    return tmp_path


def skipped(folder: Path, **options) -> dict[str, str]:
    with pytest.warns(UserWarning, match="skipped"):
        data = datasets.from_folder(folder, (5, 5), progress=False, **options)
    return {file.name: file.reason for file in data.skipped}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes here")
def test_pipes_devices_and_loops_are_skipped(pictures):
    os.mkfifo(pictures / "pipe.png")
    os.symlink("loop.png", pictures / "loop.png")
    os.symlink("/dev/zero", pictures / "device.png")
    os.symlink(pictures, pictures / "again")
    found = skipped(pictures)
    assert set(found) == {"pipe.png", "loop.png", "device.png"}
    assert "not a regular file" in found["pipe.png"]
    os.mkfifo(pictures / "pipe.npy")
    with pytest.raises(ValueError, match=r"existing file, got .*pipe\.npy"):
        datasets.from_file(pictures / "pipe.npy")
    with pytest.raises(ValueError, match=r"^path: expected .*pipe\.npy' \(it is not a regular"):
        files.read_array(pictures / "pipe.npy")


def test_pictures_that_would_fill_the_memory_are_skipped(pictures):
    usual = Image.MAX_IMAGE_PIXELS
    Image.new("1", (10_000, 9_000)).save(pictures / "bomb.png")
    Image.new("L", (200, 100)).save(pictures / "large.png")
    assert set(skipped(pictures)) == {"bomb.png"}
    found = skipped(pictures, max_pixels=15_000)
    assert set(found) == {"bomb.png", "large.png"}
    assert all("exceeds limit" in reason for reason in found.values())
    assert usual == Image.MAX_IMAGE_PIXELS
