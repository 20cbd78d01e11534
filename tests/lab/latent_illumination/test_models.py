"""Weights: files (round trips, every precision, damaged and hostile ones), and their device."""

import copy
import json
import pickle

import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save, save_file

from gloam_lab.generator import on_device, read_tensors, write_tensors
from gloam_lab.latent_illumination import CLIP, StyleGAN3, StyleGAN3Settings
from tests.lab.latent_illumination.reference import trained
from tests.lab.latent_illumination.test_clip import CONFIG, random_tensors
from tests.runs.test_recompilation import compilations

pytestmark = pytest.mark.first
SMALL = StyleGAN3Settings(
    img_resolution=16, channel_base=64, channel_max=8, z_dim=8, w_dim=8, num_layers=4
)


def test_written_arrays_and_metadata_are_read_back(tmp_path):
    turned = np.arange(6.0, dtype=np.float32).reshape(2, 3).T
    arrays = {"scalar": np.float32(3), "turned": turned, "swapped": np.arange(4, dtype=">f4")}
    arrays |= {"empty": np.zeros((0, 5), np.int32), "integers": np.arange(-3, 3)}
    write_tensors(tmp_path / "some.safetensors", arrays, {"name": "text"})
    found, metadata = read_tensors("weights", tmp_path / "some.safetensors")
    assert metadata == {"name": "text"}
    assert found.keys() == arrays.keys()
    for name, value in arrays.items():
        assert found[name].dtype == value.dtype.newbyteorder("=")
        assert found[name].shape == np.shape(value)
        np.testing.assert_array_equal(found[name], value)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float64])
def test_floats_of_every_precision_are_read_as_float32(tmp_path, dtype):
    values = np.linspace(-3, 4, 6).reshape(2, 3).astype(dtype)
    save_file({"a": values}, tmp_path / "some.safetensors")
    arrays, metadata = read_tensors("weights", tmp_path / "some.safetensors")
    assert metadata == {}
    assert arrays["a"].dtype == np.float32
    np.testing.assert_array_equal(arrays["a"], values.astype(np.float32))


PAIR = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
HEADER = {"pair": PAIR, "other": {"dtype": "U8", "shape": [4], "data_offsets": [8, 12]}}
SOUND = save({"pair": np.ones(2, np.float32)})


def file_of(header, data=bytes(12), length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def changed(part, **values):
    header = copy.deepcopy(HEADER)
    header[part].update(values)
    return file_of(header)


WRONG = {
    "empty": b"",
    "truncated": SOUND[:-1],
    "truncated header": SOUND[:20],
    "trailing bytes": SOUND + b"1",
    "a pickle": pickle.dumps({"pair": [1.0, 2.0]}),
    "a header longer than the file": file_of(HEADER, length=2**64 - 1),
    "a header that is not JSON": file_of(b"{"),
    "deep nesting": file_of(b'{"a":' * 100_000),
    "an unknown dtype": changed("pair", dtype="X32"),
    "a dtype without a NumPy type": changed("other", dtype="F8_E5M2"),
    "a negative size": changed("pair", shape=[-2]),
    "another size": changed("pair", shape=[3]),
    "terabytes": changed("pair", shape=[2**40], data_offsets=[0, 2**42]),
    "a size that overflows": changed("pair", shape=[2**62, 2**62]),
    "an overlap": changed("other", data_offsets=[4, 8]),
}


@pytest.mark.parametrize("content", WRONG.values(), ids=WRONG)
def test_damaged_and_other_files_are_refused_by_name(tmp_path, content):
    path = tmp_path / "some.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"^weights:") as refused:
        read_tensors("weights", path)
    assert f"got '{path}'" in str(refused.value)
    assert "download or convert it again" in str(refused.value)


def test_a_folder_is_not_a_file(tmp_path):
    with pytest.raises(ValueError, match=r"^weights:"):
        read_tensors("weights", tmp_path)


def test_weights_are_copied_without_a_program():
    array = np.arange(1234, dtype=np.float32)  # a shape that no other test has
    with compilations() as heard:
        copied = on_device(array)
        assert [event for event in heard if "backend_compile" in event] == []
    array[:] = -1
    np.testing.assert_array_equal(copied, np.arange(1234))


@pytest.mark.parametrize(
    "build",
    [
        lambda: StyleGAN3(SMALL, trained(SMALL)),
        lambda: CLIP(CONFIG, random_tensors()),
    ],
)
def test_networks_are_built_without_programs(build):
    with compilations() as heard:
        jax.clear_caches()
        build()
        assert [event for event in heard if "backend_compile" in event] == []
