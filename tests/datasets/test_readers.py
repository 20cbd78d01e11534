"""Arrays, tables and files, written by other libraries or byte by byte and read back."""

import gzip
import struct

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gloam._tools import parquet
from gloam.datasets import from_array, from_file, from_idx, from_pandas, readers
from tests.helpers import refused


@pytest.fixture
def items() -> np.ndarray:
    return np.random.default_rng(5).normal(size=(30, 6)).astype(np.float32)


@pytest.fixture
def labels() -> list[str]:
    return [f"kind {row % 3}" for row in range(30)]


# Arrays


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f8", "i4", "u2", "?"])
def test_numbers_of_any_kind_become_float32(dtype):
    array = np.eye(4, dtype=dtype)
    data = from_array(array)
    assert data.items.dtype == np.float32
    np.testing.assert_array_equal(data.items, np.eye(4))


@given(
    st.lists(st.sampled_from([np.uint8, np.int16, np.float32, np.float64]), min_size=2, max_size=6)
)
def test_a_list_may_mix_kinds_of_numbers(dtypes):
    rows = [np.array([number + 1, 2]).astype(dtype) for number, dtype in enumerate(dtypes)]
    expected = [[number + 1, 2] for number in range(len(dtypes))]
    assert from_array(rows).items.tolist() == expected


def test_integers_before_fractions_do_not_round_them():
    assert from_array([[1, 2], [0.5, 0.25]]).items.tolist() == [[1, 2], [0.5, 0.25]]


def test_an_array_of_another_library_is_read():
    import jax.numpy as jnp

    array = jnp.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]])
    assert from_array(array).items.tolist() == [[1, 2], [3, 4]]


# .npy and .npz


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_files_are_read(tmp_path, dtype, order):
    array = np.asarray(np.arange(12).reshape(4, 3), dtype, order=order)
    np.save(tmp_path / "items.npy", array)
    data = from_file(tmp_path / "items.npy")
    np.testing.assert_array_equal(data.items, array)
    assert data.source == tmp_path / "items.npy"
    # In memory: what happens to the file is no longer of interest.
    (tmp_path / "items.npy").write_bytes(b"")
    np.testing.assert_array_equal(data.items, array)


def test_pictures_in_an_npy_file_are_scaled(tmp_path):
    pictures = np.random.default_rng(0).integers(0, 256, (5, 4, 4, 3)).astype(np.uint8)
    np.save(tmp_path / "pictures.npy", pictures)
    data = from_file(str(tmp_path / "pictures.npy"))
    assert (data.shape, data.bounds) == ((4, 4, 3), (0, 1))
    np.testing.assert_array_equal(data.items, pictures.reshape(5, -1).astype(np.float32) / 255)
    assert type(data.items) is np.ndarray


def test_the_only_array_of_an_npz_file_is_read_and_labels_are_found(tmp_path, items, labels):
    np.savez(tmp_path / "alone.npz", anything=items)
    data = from_file(tmp_path / "alone.npz", shape=(2, 3))
    np.testing.assert_array_equal(data.items, items)
    assert (data.labels, data.shape) == (None, (2, 3))
    np.savez_compressed(tmp_path / "both.npz", x=items, labels=labels)
    assert from_file(tmp_path / "both.npz").labels == labels
    np.savez(tmp_path / "soft.npz", labels=items, x=items + 1)
    soft = from_file(tmp_path / "soft.npz", "labels")
    np.testing.assert_array_equal(soft.items, items)
    assert soft.labels is None
    np.savez(tmp_path / "named.npz", x=items, other=items + 1, y=labels)
    data = from_file(tmp_path / "named.npz", "other", "y")
    np.testing.assert_array_equal(data.items, items + 1)
    assert data.labels == labels


def test_names_are_read_beside_the_items(tmp_path, items, labels):
    names = [f"item {row}" for row in range(len(items))]
    np.savez(tmp_path / "both.npz", x=items, labels=labels, names=names)
    table = pd.DataFrame(items).add_prefix("x").assign(labels=labels, names=names, other=names)
    table.drop(columns="other").to_csv(tmp_path / "both.csv", index=False)
    for kind in ("npz", "csv"):
        data = from_file(tmp_path / f"both.{kind}")
        assert (data.names, data.labels) == (names, labels)
        np.testing.assert_array_equal(data.items, items)
    np.savez(tmp_path / "other.npz", x=items, other=names, y=labels)
    data = from_file(tmp_path / "other.npz", "x", "y", names="other")
    assert (data.names, data.labels) == (names, labels)
    columns = [name for name in table if name.startswith("x")]
    table.to_csv(tmp_path / "other.csv", index=False)
    table.to_parquet(tmp_path / "other.parquet", index=False)
    for kind in ("csv", "parquet"):
        path = tmp_path / f"other.{kind}"
        data = from_file(path, columns, "labels", names="other")
        assert (data.names, data.labels) == (names, labels)
        with pytest.raises(ValueError, match="nothing"):
            from_file(path, columns, names="nothing")
    with refused("names: expected one of the arrays ['x', 'other', 'y']"):
        from_file(tmp_path / "other.npz", "x", names="nothing")


def test_an_array_must_be_chosen_where_there_are_several(tmp_path, items):
    path = tmp_path / "two.npz"
    np.savez(path, a=items, b=items)
    fix = "Choose one: column='...'."
    with refused(f"column: expected one of the arrays ['a', 'b'] in '{path}', got None. {fix}"):
        from_file(path)
    with refused("column:", "'c'"):
        from_file(path, "c")
    with refused("label:", "'c'"):
        from_file(path, "a", "c")


# Tables


def fixed(array: np.ndarray) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(array.ravel()), array.shape[1])


def large(array: np.ndarray) -> pa.Array:
    offsets = np.arange(len(array) + 1) * array.shape[1]
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(array.ravel()))


def plain(array: np.ndarray) -> pa.Array:
    return pa.array(array.tolist(), pa.list_(pa.from_numpy_dtype(array.dtype)))


@pytest.mark.parametrize("make", [fixed, large, plain])
@pytest.mark.parametrize("piece", [1, 7, 30, 8192])
def test_a_column_of_vectors_is_read_from_parquet(
    tmp_path, monkeypatch, items, labels, make, piece
):
    monkeypatch.setattr(parquet, "_BATCH_ROWS", piece)
    path = tmp_path / "table.parquet"
    table = pa.table({"id": range(30), "vector": make(items), "kind": labels})
    pq.write_table(table, path, row_group_size=11)
    data = from_file(path, label="kind")
    np.testing.assert_array_equal(data.items, items)
    assert data.labels == labels
    np.testing.assert_array_equal(from_file(path, "vector").items, items)


def test_tensors_and_categories_in_parquet_are_read(tmp_path, items, labels):
    kind = pa.fixed_shape_tensor(pa.float32(), (2, 3))
    tensors = pa.ExtensionArray.from_storage(kind, fixed(items))
    table = pa.table({"t": tensors, "kind": pa.array(labels).dictionary_encode()})
    pq.write_table(table, tmp_path / "tensors.parquet")
    data = from_file(tmp_path / "tensors.parquet", label="kind")
    np.testing.assert_array_equal(data.items, items)
    assert data.labels == labels


def test_pixels_in_parquet_are_scaled(tmp_path):
    pixels = np.arange(12, dtype=np.uint8).reshape(3, 4) * 20
    pq.write_table(pa.table({"pixels": plain(pixels)}), tmp_path / "pixels.parquet")
    data = from_file(tmp_path / "pixels.parquet", shape=(2, 2))
    np.testing.assert_array_equal(data.items, pixels.astype(np.float32) / 255)


@given(arrays(np.float64, (5, 3), elements=st.floats(-1e6, 1e6), unique=True))
def test_a_table_says_the_same_as_its_array(array):
    frame = pd.DataFrame({"v": list(array), "l": list("abcab")})
    expected = from_array(array, labels=list("abcab"))
    data = from_pandas(frame, "v", "l")
    np.testing.assert_array_equal(data.items, expected.items)
    assert (data.labels, data.names) == (expected.labels, expected.names)


def test_the_index_of_a_table_gives_the_names(items):
    frame = pd.DataFrame({"v": items.tolist()}, index=[f"row {row}" for row in range(30)])
    frame["kind"] = pd.Categorical(["a"] * 29 + [None])
    data = from_pandas(frame, "v", "kind")
    assert data.names[3] == "row 3"
    assert data.labels == ["a"] * 29 + [""]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_columns_of_numbers_are_named_by_a_list(tmp_path, items, labels, suffix):
    frame = pd.DataFrame({"x": items[:, 0], "text": labels, "y": items[:, 1]})
    path = tmp_path / f"table{suffix}"
    frame.to_csv(path) if suffix == ".csv" else frame.to_parquet(path)
    data = from_file(path, ["y", "x"], "text")
    np.testing.assert_allclose(data.items, items[:, [1, 0]], rtol=1e-6)
    assert data.labels == labels
    with refused("column:", "{'text': '"):
        from_file(path, ["x", "text"])


@pytest.mark.parametrize("header", [True, False])
def test_all_columns_of_a_csv_file_are_the_items(tmp_path, items, header):
    path = tmp_path / "table.csv"
    pd.DataFrame(items).add_prefix("x" if header else "").to_csv(path, index=False, header=header)
    data = from_file(path, shape=(2, 3))
    np.testing.assert_allclose(data.items, items, rtol=1e-6)
    assert data.shape == (2, 3)
    assert data.labels is None


class Counted(str):
    """A name that counts how often it is printed."""

    printed = 0

    def __repr__(self):
        Counted.printed += 1
        return super().__repr__()


def test_the_names_of_columns_are_printed_once():
    names = [Counted(f"x{n}") for n in range(100)]
    frame = pd.DataFrame(np.eye(3, 100), columns=pd.Index(names, dtype=object))
    Counted.printed = 0
    assert from_pandas(frame, names).shape == (100,)
    assert Counted.printed <= 300


@pytest.mark.parametrize("column", [None, ["x0"]])
def test_a_csv_file_of_too_many_columns_is_refused_before_it_is_parsed(
    tmp_path, monkeypatch, column
):
    monkeypatch.setattr(pd, "read_csv", lambda *a, **k: pytest.fail("it was parsed"))
    for line in (",".join(f"x{n}" for n in range(50_001)), "," * (1 << 20)):
        (tmp_path / "x.csv").write_text(f"\n{line}\n{line}\n")
        with pytest.raises(ValueError, match="columns, and the limit is 50,000"):
            from_file(tmp_path / "x.csv", column)


def test_labels_and_the_index_of_a_csv_file_are_no_measures(tmp_path, items, labels):
    frame = pd.DataFrame(items, index=[f"row {row}" for row in range(30)]).assign(labels=labels)
    frame.to_csv(tmp_path / "table.csv")
    data = from_file(tmp_path / "table.csv")
    np.testing.assert_allclose(data.items, items, rtol=1e-6)
    assert data.labels == labels
    assert data.names[3] == "row 3"


# What is wrong


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (
            [[1.0, 2.0], [3.0], [4.0, 5.0]],
            "column: expected vectors of one length, as 2 in row 0, got length 1 in row 1.",
        ),
        (
            [[1.0, 2.0], None, [4.0, 5.0]],
            "column: expected a vector in each row, got none in row 1.",
        ),
        (
            [[1.0, 2.0], [3.0, None], [4.0, 5.0]],
            "items: expected finite numbers, got NaN or infinity in row 1.",
        ),
    ],
)
@pytest.mark.parametrize("piece", [1, 8192])
def test_vectors_of_mixed_lengths_in_parquet_are_refused(
    tmp_path, monkeypatch, column, message, piece
):
    monkeypatch.setattr(parquet, "_BATCH_ROWS", piece)
    pq.write_table(pa.table({"v": column}), tmp_path / "bad.parquet")
    if piece == 1:  # then the second piece is compared with the first
        message = message.replace("vectors of one length, as 2 in", "vectors of length 2 as in")
    with refused(message):
        from_file(tmp_path / "bad.parquet")


def test_a_table_without_a_column_of_vectors_is_refused(tmp_path):
    path = tmp_path / "numbers.parquet"
    pq.write_table(pa.table({"x": [1.0, 2.0], "texts": [["a"], ["b"]]}), path)
    with refused(f"column: expected one of the columns of vectors [] in '{path}', got None."):
        from_file(path)
    pq.write_table(pa.table({"a": [[1.0], [2.0]], "b": [[1.0], [2.0]]}), path)
    with refused(f"column: expected one of the columns of vectors ['a', 'b'] in '{path}', got"):
        from_file(path)
    with refused("label:", "'c'"):
        from_file(path, "a", "c")


@pytest.mark.parametrize(
    ("frame", "column", "message"),
    [
        ({"v": [[1.0], [2.0]]}, "w", "column: expected one of ['v'], got 'w'."),
        ({"v": [1.0, 2.0]}, "v", "column: expected a vector in each row of 'v', got 1.0 in row 0."),
        ({"v": [[1.0], None]}, "v", "column: expected a vector in each row of 'v', got None in"),
        (
            {"v": [[1.0], [1.0, 2.0]]},
            "v",
            "items: expected items of one shape, (1,) as in row 0, got",
        ),
    ],
)
def test_bad_columns_are_refused(frame, column, message):
    with refused(message):
        from_pandas(pd.DataFrame(frame), column)


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.parquet"])
def test_files_that_are_not_what_they_are_called_are_refused(tmp_path, name):
    path = tmp_path / name
    for content in (b"", b"something else", b"PK\3\4 half a zip file"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"^path: expected a .*, got '{path}' \(.+\)"):
            from_file(path)


def test_files_with_pickles_are_refused(tmp_path):
    pickled = np.array([{"a": 1}, None], object)
    np.save(tmp_path / "x.npy", pickled)
    np.savez(tmp_path / "x.npz", x=pickled)
    for name in ("x.npy", "x.npz"):
        with pytest.raises(ValueError, match=r"^path: expected .* without pickled objects"):
            from_file(tmp_path / name)


def test_wrong_paths_and_choices_are_explained(tmp_path):
    with refused("path:", f"'{tmp_path / 'none.npy'}'"):
        from_file(tmp_path / "none.npy")
    (tmp_path / "x.txt").write_text("1 2")
    with refused("path: expected a file of kind .npy, .npz, .parquet, .csv, got"):
        from_file(tmp_path / "x.txt")
    with refused(
        f"path: expected an existing file, got '{tmp_path}'. Check the path; from_folder "
    ):
        from_file(tmp_path)
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with refused("column:", "'a'"):
        from_file(tmp_path / "x.csv", "a")
    with refused("items: expected at least 2 items, got one."):
        from_file(tmp_path / "x.csv")
    (tmp_path / "x.csv").write_text("a,name\n1,x\n2,y\n")
    with refused("column:", "'name'"):
        from_file(tmp_path / "x.csv")
    (tmp_path / "x.csv").write_text("")
    with refused("path: expected a .csv file of numbers, got"):
        from_file(tmp_path / "x.csv")
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with refused("path: expected a .csv file"):
        from_file(tmp_path / "x.csv", ["c"])
    np.save(tmp_path / "x.npy", np.eye(2))
    with refused("column, label, names: expected none for a .npy file"):
        from_file(tmp_path / "x.npy", "a")
    with refused("column:", "['a']"):
        from_file(tmp_path / "x.npy", ["a"])


# IDX files

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
    found = readers.read_idx("images", path, 1 << 20)
    assert found.dtype.isnative
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it starts with the bytes "),
        (b"\0\0\x08", "it starts with the bytes 000008"),
        (b"\x89PNG and more", "it starts with the bytes 89504e47"),
        (b"\0\0\x07\x01\0\0\0\x01A", "it starts with the bytes 00000701"),
        (b"\0\0\x08\x00", "it starts with the bytes 00000800"),
        (b"\0\0\x08\x03\0\0\0\x01", "it ends in the header"),
        (encoded(np.zeros((2, 3, 3)))[:-1], "it does not have exactly the 34 bytes of an array of"),
        (encoded(np.zeros((2, 3, 3))) + b"A", "it does not have exactly the 34 bytes of an array"),
        (gzip.compress(encoded(np.zeros((2, 3, 3))), mtime=0)[:-9], "Compressed file ended before"),
        (b"\x1f\x8b\x08 not gzip after all", "Error -3 while decompressing data"),
    ],
)
def test_files_that_are_not_idx_are_refused(tmp_path, content, reason):
    path = tmp_path / "images"
    path.write_bytes(content)
    with refused("images:", f"'{path}' ({reason}"):
        from_idx(path)


def test_missing_files_and_labels_of_other_pictures_are_refused(tmp_path, pictures):
    with pytest.raises(ValueError, match=r"^images:.*fetch"):
        from_idx(tmp_path / "images")
    (tmp_path / "images").write_bytes(encoded(pictures))
    (tmp_path / "labels").write_bytes(encoded(np.arange(6)))
    with pytest.raises(ValueError, match=r"labels: .*6"):
        from_idx(tmp_path / "images", tmp_path / "labels")
