"""Official pickles: valid ones are converted, hostile ones are refused, and nothing is executed."""

import io
import json
import os
import pickle
import sys
import types

import numpy as np
import pytest

from gloam_lab.generator import read_tensors
from gloam_lab.latent_illumination import StyleGAN3Settings, convert
from gloam_lab.latent_illumination.official_pickle import (
    UnsafePickleError,
    read_official,
    read_pickle,
)
from gloam_lab.latent_illumination.stylegan3_settings import tensor_shapes

SETTINGS = StyleGAN3Settings(
    img_resolution=16, z_dim=4, w_dim=6, channel_base=32, channel_max=4, num_layers=3
)


class Reduced:
    """Pickled as a call of a function with arguments."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def stand_in(module, name):
    """A function that pickle writes as the global ``module.name``, without that module."""
    function = types.FunctionType((lambda *arguments: None).__code__, {}, name)
    function.__module__, function.__qualname__ = module, name
    return function


NAMES = {
    "module": ("torch_utils.persistence", "_reconstruct_persistent_obj"),
    "tensor": ("torch._utils", "_rebuild_tensor_v2"),
    "parameter": ("torch._utils", "_rebuild_parameter"),
    "bytes": ("torch.storage", "_load_from_bytes"),
    "FloatStorage": ("torch", "FloatStorage"),
}
GLOBALS = {key: stand_in(*name) for key, name in NAMES.items()}


class Storage:
    """Written as a persistent identifier."""

    def __init__(self, count):
        self.count = count


class Writer(pickle._Pickler):
    """Writes stand-ins as the globals that they stand for, without importing these."""

    dispatch = dict(pickle._Pickler.dispatch)  # noqa: RUF012

    def save_function(self, function):
        if function not in GLOBALS.values():
            return self.save_global(function)
        if self.proto < 4:
            self.write(f"c{function.__module__}\n{function.__qualname__}\n".encode())
        else:
            self.save(function.__module__)
            self.save(function.__qualname__)
            self.write(pickle.STACK_GLOBAL)
        return self.memoize(function)

    dispatch[types.FunctionType] = save_function

    def persistent_id(self, thing):
        if isinstance(thing, Storage):
            return ("storage", GLOBALS["FloatStorage"], "17", "cpu", thing.count, None)
        return None


def dumped(content, protocol=4):
    file = io.BytesIO()
    Writer(file, protocol).dump(content)
    return file.getvalue()


def storage_bytes(array, extra=None):
    """One storage as PyTorch's older format has it."""
    system = {"protocol_version": 1001, "little_endian": True}
    storage = Storage(array.size) if extra is None else extra
    parts = (0x1950A86A20F9469CFC6C, 1001, system, storage, ["17"])
    whole = b"".join(dumped(part, protocol=2) for part in parts)
    return whole + array.size.to_bytes(8, "little") + array.tobytes()


def tensor(array, content=None, size=None, stride=None):
    array = np.asarray(array, np.float32, order="C")
    content = storage_bytes(array.ravel()) if content is None else content
    size = np.shape(array) if size is None else size
    steps = tuple(step // 4 for step in array.strides) if stride is None else stride
    storage = Reduced(GLOBALS["bytes"], content)
    return Reduced(GLOBALS["tensor"], storage, 0, size, steps, False, None)


def module(class_name, tensors, source="", **state):
    """A module with its children, from tensors by dotted names."""
    children = dict.fromkeys(name.split(".")[0] for name in tensors if "." in name)
    inner = {
        child: module(
            "Part",
            {
                n.removeprefix(f"{child}."): v
                for n, v in tensors.items()
                if n.startswith(f"{child}.")
            },
        )
        for child in children
    }
    own = {name: value for name, value in tensors.items() if "." not in name}
    whole = {"_parameters": own, "_buffers": {"nothing": None}, "_modules": inner} | state
    meta = {"type": "class", "version": 6, "module_src": source, "class_name": class_name}
    return Reduced(GLOBALS["module"], meta | {"state": whole})


def random_arrays():
    """The tensors of a small network."""
    rng = np.random.default_rng(0)
    shapes = tensor_shapes(SETTINGS)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture(scope="module")
def arrays():
    return random_arrays()


def network(arrays, source="", arguments=None, **changes):
    tensors = {name: tensor(value) for name, value in arrays.items()} | changes
    kwargs = json.loads(SETTINGS.to_json()) | (arguments or {})
    return module("Generator", tensors, source, _init_args=(), _init_kwargs=kwargs)


def write(tmp_path, content):
    path = tmp_path / "network.pkl"
    path.write_bytes(dumped(content))
    return path


def refused(path, message, tmp_path):
    out = tmp_path / "out.safetensors"
    with pytest.raises(ValueError, match=message) as caught:
        convert(path, out)
    assert str(path) in str(caught.value)
    assert not out.exists()


def test_a_network_is_converted_to_the_same_tensors(tmp_path, arrays):
    path = write(tmp_path, {"G": None, "G_ema": network(arrays)})
    convert(path, tmp_path / "out.safetensors")
    found, metadata = read_tensors("network", tmp_path / "out.safetensors")
    assert json.loads(metadata["stylegan3_constructor"]) == json.loads(SETTINGS.to_json())
    assert found.keys() == arrays.keys()
    for name, value in found.items():
        np.testing.assert_array_equal(value, arrays[name])


@pytest.mark.parametrize("name", ["tiny32_t_nosrc", "tiny32_t_nosrc_np1"])
def test_the_official_layouts_convert_to_the_recorded_tensors(shared_data, tmp_path, name):
    folder = shared_data / "stylegan3"
    if not (folder / f"{name}.pkl").is_file():
        pytest.skip(f"no '{folder}/{name}.pkl': the recorded network is not here")
    convert(folder / f"{name}.pkl", tmp_path / "out.safetensors")
    found, _ = read_tensors("network", tmp_path / "out.safetensors")
    expected = dict(np.load(folder / "tiny32_t_state.npz"))
    assert set(found) == set(expected)
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value)


# Hostile files


def touch(path):
    """What a payload would do."""
    return Reduced(os.mkdir, str(path))


def test_the_payload_of_these_tests_is_alive(tmp_path):
    pickle.loads(dumped(touch(tmp_path / "trace"), protocol=2))
    assert (tmp_path / "trace").is_dir()


@pytest.mark.parametrize(
    "template",
    ["import os\n\nos.mkdir({!r})", "class Generator:\n    x = __import__('os').mkdir({!r})"],
)
def test_source_text_that_writes_is_refused_and_not_run(tmp_path, arrays, template):
    trace = tmp_path / "trace"
    source = template.format(str(trace))
    content = {"G_ema": network(arrays, source)}
    refused(write(tmp_path, content), "source text that does more than define", tmp_path)
    assert not trace.exists()
    exec(source, {})
    assert trace.is_dir()


def test_source_text_that_defines_a_network_is_not_run(tmp_path, arrays):
    source = "import no_such_module\n\nclass Generator(no_such_module.Base):\n    size = 3\n"
    path = write(tmp_path, {"G_ema": network(arrays, source)})
    convert(path, tmp_path / "out.safetensors")
    assert "no_such_module" not in sys.modules


def test_one_more_global_is_refused_by_name(tmp_path, arrays):
    trace = tmp_path / "trace"
    content = {"G_ema": network(arrays), "extra": touch(trace)}
    refused(write(tmp_path, content), r"the global 'posix.mkdir'", tmp_path)
    for function, name in ((print, "builtins.print"), (eval, "builtins.eval")):
        content = {"G_ema": network(arrays), "e": Reduced(function, "1")}
        refused(write(tmp_path, content), f"the global '{name}'", tmp_path)
    assert not trace.exists()


@pytest.mark.parametrize("place", ["before", "storage", "alone"])
def test_a_nested_payload_that_runs_code_is_refused(tmp_path, arrays, place):
    trace = tmp_path / "trace"
    array = np.zeros(6, np.float32)

    evil = dumped(touch(trace), protocol=2)
    payloads = {
        "before": evil + storage_bytes(array),
        "storage": storage_bytes(array, extra=touch(trace)),
        "alone": evil,
    }
    content = {"G_ema": network(arrays, **{"mapping.w_avg": tensor(array, payloads[place])})}
    refused(write(tmp_path, content), r"the global 'posix.mkdir'", tmp_path)
    assert not trace.exists()


def test_a_zip_payload_is_refused(tmp_path, arrays):
    bad = tensor(np.zeros(6), b"PK\x03\x04" + bytes(100))
    refused(
        write(tmp_path, {"G_ema": network(arrays, **{"mapping.w_avg": bad})}),
        "not a valid pickle|opcode",
        tmp_path,
    )


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04" + b"]" * 200_000 + b"a" * 199_999 + b".",
        b"\x80\x04)" + b"\x85" * 100_000 + b".",
        b"\x80\x04}" + b")" + b"\x85" * 100_000 + b"K\x01s.",
        b"\x80\x04}\x8c\x01a" + b"]" * 5_000 + b"a" * 4_999 + b"s.",
    ],
    ids=["open lists", "tuples", "tuple as a key", "lists"],
)
def test_deeply_nested_data_is_refused(tmp_path, content):
    path = tmp_path / "network.pkl"
    path.write_bytes(content)
    refused(path, "no generator|too many open objects|neither a text", tmp_path)


@pytest.mark.parametrize(
    ("size", "stride"),
    [
        ((2**40,), (0,)),
        ((2**20, 2**20), (0, 0)),
        ((6,), (2,)),
        ((7,), (1,)),
        ((-1,), (1,)),
        ((1,) * 9, (1,) * 9),
        ((6,), (1, 1)),
    ],
)
def test_tensors_larger_than_their_storage_are_refused(tmp_path, arrays, size, stride):
    bad = tensor(np.zeros(6), size=size, stride=stride)
    content = {"G_ema": network(arrays, **{"mapping.w_avg": bad})}
    refused(write(tmp_path, content), "a tensor of", tmp_path)


def test_lengths_that_claim_more_than_there_is_are_refused(tmp_path):
    path = tmp_path / "network.pkl"
    for content in (
        b"\x80\x04\x8e" + (2**62).to_bytes(8, "little") + b"x.",
        b"\x80\x04B" + (2**31).to_bytes(4, "little") + b"x.",
        b"\x80\x04\x8b" + (2**31 - 1).to_bytes(4, "little") + b"x.",
        b"",
        b"no pickle at all",
        b"\x80\x04}",
        b"\x80\x04h\x05.",
        b"\x80\x04u.",
    ):
        path.write_bytes(content)
        refused(path, "not a valid pickle|the opcode|no end", tmp_path)


def test_a_storage_of_another_size_than_it_claims_is_refused(tmp_path, arrays):
    bad = tensor(np.zeros(6), storage_bytes(np.zeros(6, np.float32))[:-4])
    content = {"G_ema": network(arrays, **{"mapping.w_avg": bad})}
    refused(write(tmp_path, content), "a storage of 20 bytes that claims 6 numbers", tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x80\x04}b.", "not a valid pickle|a state for"),  # a state for a mark
        (b"\x80\x04]}b.", "a state for a list"),
        (b"\x80\x04])R.", "a call of a list"),
        (b"\x80\x04cos\nsystem\n.", r"the global 'os.system'"),
        (b"\x80\x04ios\nsystem\n.", "the opcode INST|not a valid pickle"),
        (b"\x80\x04\x82\x01.", "the opcode EXT1"),
        (b"\x80\x04Pfile\n.", "the opcode PERSID"),
        (b"\x80\x04K\x01Q.", "the opcode BINPERSID"),
        (b"\x80\x04}]a.", "items for a dict"),
    ],
)
def test_other_opcodes_are_refused(content, message):
    with pytest.raises(UnsafePickleError, match=message):
        read_pickle(io.BytesIO(content), {})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "no generator under 'G_ema'"),
        ({"G_ema": 3}, "no generator under 'G_ema'"),
        ({"G": None}, "no generator under 'G_ema'"),
    ],
)
def test_pickles_of_something_else_are_refused(tmp_path, content, message):
    refused(write(tmp_path, content), message, tmp_path)


@pytest.mark.parametrize("place", ["img_resolution", "mapping_kwargs"])
def test_constructor_arguments_that_would_not_end_when_printed_are_refused(tmp_path, arrays, place):
    laughs = ["ha"]
    for _ in range(60):
        laughs = [laughs, laughs]
    content = {"G_ema": network(arrays, arguments={place: laughs})}
    refused(write(tmp_path, content), "arguments that are not numbers", tmp_path)


@pytest.mark.parametrize("name", ["mapping_kwargs", "channel_base", "x"])
def test_odd_constructor_arguments_are_refused_by_name(tmp_path, arrays, name):
    content = {"G_ema": network(arrays, arguments={name: "odd"})}
    refused(write(tmp_path, content), f"{name}.*(got|also)|got also.*{name}", tmp_path)


def test_other_networks_are_refused(tmp_path, arrays):
    some = {name: value for name, value in arrays.items() if "L1" not in name}
    refused(write(tmp_path, {"G_ema": network(some)}), "without .* of them", tmp_path)
    content = {"G_ema": module("Discriminator", {}, _init_kwargs={})}
    refused(write(tmp_path, content), "no generator under 'G_ema'", tmp_path)


def test_torch_is_not_needed(tmp_path, arrays, monkeypatch):
    path = write(tmp_path, {"G_ema": network(arrays)})
    monkeypatch.setitem(sys.modules, "torch", None)
    arguments, tensors = read_official(path)
    assert arguments["img_resolution"] == 16
    assert set(tensors) == set(arrays)
