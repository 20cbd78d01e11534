"""Safetensors files of every precision, and what happens without the packages of the extra."""

import json
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from gloam.generators import StyleGAN3
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


def test_missing_packages_are_named(tmp_path, monkeypatch):
    (tmp_path / "file.safetensors").write_bytes(b"12345678")
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"safetensors: expected .* pip install 'gloam\[lsi\]'"):
        StyleGAN3.load(tmp_path / "file.safetensors")
    with pytest.raises(ImportError, match=r"tokenizers: expected .* pip install 'gloam\[lsi\]'"):
        Tokenizer(tmp_path, 77, 100)


def test_importing_gloam_imports_no_extra():
    extras = ["safetensors", "tokenizers", "torch"]
    code = f"import sys, gloam; print([name for name in {extras} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
