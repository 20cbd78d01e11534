"""Safetensors files: against the package of that name, damaged, and of every precision."""

import copy
import json
import subprocess
import sys
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from gloam.generators.clip_tokens import Tokenizer
from gloam.generators.tensor_files import read_tensors, write_tensors


def test_half_precisions_are_read_as_float32(tmp_path):
    values = np.linspace(-3, 4, 6, dtype=np.float32).reshape(2, 3)
    kinds = {"BF16": ml_dtypes.bfloat16, "F16": np.float16, "F64": np.float64}
    path = tmp_path / "some.safetensors"
    header, data = {}, b""
    for name, kind in kinds.items():
        more = data + values.astype(kind).tobytes()
        header[name] = {"dtype": name, "shape": [2, 3], "data_offsets": [len(data), len(more)]}
        data = more
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    arrays, metadata = read_tensors("weights", path)
    assert metadata == {}
    for name, kind in kinds.items():
        assert arrays[name].dtype == np.float32
        np.testing.assert_array_equal(arrays[name], values.astype(kind).astype(np.float32))


def test_what_is_written_is_read(tmp_path):
    arrays = {"number": np.float32(3), "turned": np.arange(6.0, dtype=np.float32).reshape(2, 3).T}
    write_tensors(tmp_path / "some.safetensors", arrays, {"name": "text"})
    found, metadata = read_tensors("weights", tmp_path / "some.safetensors")
    assert metadata == {"name": "text"}
    for name, value in arrays.items():
        assert found[name].shape == np.shape(value)
        np.testing.assert_array_equal(found[name], value)


KINDS = ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?")
ARRAYS = {kind: np.arange(-3, 3).astype(kind).reshape(2, 3) for kind in KINDS}
ARRAYS |= {"number": np.array(7.0, np.float32), "nothing": np.zeros((0, 5), np.int32)}


def as_float32(array):
    return array.astype(np.float32) if array.dtype.kind == "f" else array


def test_the_package_reads_what_is_written(tmp_path):
    odd = {"swapped": np.arange(4, dtype=">f4"), "turned": np.eye(3, 4, dtype=np.float16).T}
    write_tensors(tmp_path / "some.safetensors", ARRAYS | odd, {"a": "b"})
    found = safetensors.numpy.load_file(tmp_path / "some.safetensors")
    assert found.keys() == (ARRAYS | odd).keys()
    for name, array in (ARRAYS | odd).items():
        assert found[name].dtype == array.dtype.newbyteorder("=")
        np.testing.assert_array_equal(found[name], array)
    with safetensors.safe_open(tmp_path / "some.safetensors", "numpy") as file:
        assert file.metadata() == {"a": "b"}


def test_what_the_package_writes_is_read(tmp_path):
    safetensors.numpy.save_file(ARRAYS, tmp_path / "some.safetensors", {"a": "b"})
    found, metadata = read_tensors("weights", tmp_path / "some.safetensors")
    assert metadata == {"a": "b"}
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found[name].dtype == as_float32(array).dtype
        np.testing.assert_array_equal(found[name], as_float32(array))


def test_arrays_of_other_things_are_not_written(tmp_path):
    for name, value in {"text": ["a"], "complex": [1j], "__metadata__": [1.0]}.items():
        with pytest.raises(ValueError, match="expected an array of plain numbers"):
            write_tensors(tmp_path / "some.safetensors", {name: np.array(value)}, {})
    assert list(tmp_path.iterdir()) == []


PAIR = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
OTHER = {"dtype": "U8", "shape": [4], "data_offsets": [8, 12]}
HEADER = {"pair": PAIR, "other": OTHER, "__metadata__": {"a": "b"}}


def file_of(header, data=bytes(12), length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def changed(part, **values):
    header = copy.deepcopy(HEADER)
    header[part].update(values)
    return file_of(header)


def test_the_file_that_the_next_test_damages_is_sound(tmp_path):
    (tmp_path / "some.safetensors").write_bytes(file_of(HEADER))
    arrays, metadata = read_tensors("weights", tmp_path / "some.safetensors")
    assert (arrays.keys(), metadata) == ({"pair", "other"}, {"a": "b"})


WRONG = {
    "empty": (b"", "header of 0 bytes and has 0"),
    "short": (b"1234567", "header of .* bytes and has 7"),
    "a header longer than the file": (file_of(HEADER, length=10**6), "header of 1,000,000 bytes"),
    "the largest length": (file_of(HEADER, length=2**64 - 1), "header of 18,446"),
    "no text": (file_of(b"\xff\xfe\x00"), "its header is no"),
    "no JSON": (file_of(b"{"), "its header is no JSON"),
    "a list": (file_of([PAIR]), "its header does not name arrays"),
    "deep nesting": (file_of(b'{"a":' * 100_000), "recursion|JSON"),
    "a name twice": (file_of(b'{"a":1,"a":1}'), "a name twice"),
    "metadata of numbers": (changed("__metadata__", a=1), "metadata are not texts"),
    "no kind": (file_of({"pair": {"shape": [2], "data_offsets": [0, 8]}}), "what 'pair' is"),
    "more than is known": (changed("pair", code="print()"), "does not say what 'pair' is"),
    "an unknown kind": (changed("pair", dtype="C64"), "'pair' is of kind 'C64'"),
    "a kind that is no text": (changed("pair", dtype=["F32"]), "'pair' is of kind"),
    "a negative size": (changed("pair", shape=[-2]), "not of whole numbers"),
    "a broken size": (changed("pair", shape=[2.0]), "not of whole numbers"),
    "a truth as a size": (changed("pair", shape=[True, 2]), "not of whole numbers"),
    "a size of many digits": (file_of(b'{"a":' + b"9" * 9999 + b"}"), "digits"),
    "one offset": (changed("pair", data_offsets=[0]), "not of whole numbers"),
    "offsets backwards": (changed("pair", data_offsets=[8, 0]), "'pair' needs 8 bytes"),
    "another size": (changed("pair", shape=[3]), "'pair' needs 12 bytes and has 8"),
    "terabytes": (changed("pair", shape=[2**40], data_offsets=[0, 2**42]), "the limit is"),
    "a size that overflows": (changed("pair", shape=[2**62, 2**62]), "no array can have"),
    "an overlap": (changed("other", data_offsets=[4, 8]), "do not follow those before"),
    "a gap": (changed("other", shape=[3], data_offsets=[9, 12]), "do not follow those before"),
    "a truncated end": (file_of(HEADER, bytes(11)), "declares 12 bytes of arrays and has 11"),
    "bytes behind": (file_of(HEADER, bytes(13)), "declares 12 bytes of arrays and has 13"),
}


@pytest.mark.parametrize(("content", "message"), WRONG.values(), ids=WRONG)
def test_damaged_files_are_refused_by_name_before_memory_is_taken(tmp_path, content, message):
    path = tmp_path / "some.safetensors"
    path.write_bytes(content)
    tracemalloc.start()
    with pytest.raises(
        ValueError, match=r"^weights: expected a safetensors file, got '"
    ) as refused:
        read_tensors("weights", path, max_bytes=1 << 30)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert refused.match(message)
    assert str(path) in str(refused.value)
    assert peak < 5_000_000


def test_larger_arrays_than_allowed_are_refused(tmp_path):
    write_tensors(tmp_path / "some.safetensors", {"a": np.zeros(100, np.float16)}, {})
    assert read_tensors("weights", tmp_path / "some.safetensors", max_bytes=400)[0]["a"].size == 100
    with pytest.raises(ValueError, match="the limit is 399"):
        read_tensors("weights", tmp_path / "some.safetensors", max_bytes=399)
    with pytest.raises(ValueError, match="weights: expected an existing file"):
        read_tensors("weights", tmp_path)


@given(st.data())
def test_what_is_accepted_is_what_the_package_reads(tmp_path_factory, data):
    content = bytearray(file_of(HEADER, bytes(range(12))))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.sampled_from(b'0123456789,:[]{}"FUI "\x00\xff'))
    path = tmp_path_factory.getbasetemp() / "some.safetensors"
    path.write_bytes(content[: data.draw(st.integers(len(content) - 3, len(content)))])
    try:
        arrays, _ = read_tensors("weights", path)
    except ValueError:
        return
    expected = safetensors.numpy.load_file(path)
    assert arrays.keys() == expected.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, as_float32(expected[name]))


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"tokenizers: expected .* pip install 'gloam\[lsi\]'"):
        Tokenizer(tmp_path, 77, 100)


def test_importing_gloam_imports_no_extra():
    extras = ["safetensors", "tokenizers", "torch"]
    code = f"import sys, gloam; print([name for name in {extras} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
