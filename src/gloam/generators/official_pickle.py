"""Official StyleGAN3 pickles to safetensors, without PyTorch and without running what they hold.

Loaded plainly, such a file executes the source text inside it. `read_official` reads its data by
`gloam.generators.safe_pickle`: it admits exactly the globals below, never executes the source text,
and reads the tensors' bytes by itself.
"""

import functools
import io
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from gloam import checks
from gloam.generators.safe_pickle import Buildable, Global, UnsafePickleError, read_pickle
from gloam.generators.source_text import only_defines
from gloam.generators.stylegan3 import METADATA_KEY
from gloam.generators.stylegan3_settings import StyleGAN3Settings
from gloam.generators.stylegan3_tensors import tensor_shapes
from gloam.generators.tensor_files import check_shapes, write_tensors

MAX_BYTES = 4 * 2**30
_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
_STORAGES = {
    "torch.FloatStorage": "<f4",
    "torch.DoubleStorage": "<f8",
    "torch.HalfStorage": "<f2",
    "torch.LongStorage": "<i8",
    "torch.IntStorage": "<i4",
    "torch.BoolStorage": "?",
}
# Every module of a pickle has the whole text of its file.
_only_defines = functools.lru_cache(maxsize=32)(only_defines)
_FIX = "Use a network pickle of NVIDIA's StyleGAN3, as downloaded."


def convert(pickle_path: str | os.PathLike, safetensors_path: str | os.PathLike) -> None:
    """Convert an official StyleGAN3 pickle to the file that `StyleGAN3.load` reads.

    The generator is the one with averaged weights (``G_ema``). Nothing of the pickle is executed.

    Args:
        pickle_path: Such as ``stylegan3-t-ffhqu-256x256.pkl``.
        safetensors_path: File to write.

    Raises:
        ValueError: The pickle names anything that is not admitted, or is not a StyleGAN3.
    """
    arguments, tensors = read_official(pickle_path)
    settings = StyleGAN3Settings.from_constructor(arguments)
    shapes = tensor_shapes(settings)
    check_shapes(f"'{pickle_path}'", shapes, tensors, _FIX)
    arrays = {name: tensors[name].astype(np.float32) for name in shapes}
    write_tensors(safetensors_path, arrays, {METADATA_KEY: settings.to_json()})


def read_official(path: str | os.PathLike) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Constructor arguments and tensors of the generator ``G_ema`` in an official pickle."""
    file = checks.existing_file("pickle", path)
    size = file.stat().st_size
    checks.expect(size <= MAX_BYTES, "pickle", f"at most {MAX_BYTES} bytes", f"{size}", _FIX)
    try:
        content = read_pickle(io.BytesIO(Path(file).read_bytes()), _MAKERS)
        generator = content.get("G_ema") if isinstance(content, dict) else None
        if not isinstance(generator, _Module) or generator.class_name != "Generator":
            raise UnsafePickleError("no generator under 'G_ema'")
        arguments = generator.state.get("_init_kwargs")
        if not isinstance(arguments, dict) or generator.state.get("_init_args"):
            raise UnsafePickleError("a generator without named constructor arguments")
        return arguments, _tensors(generator)
    except UnsafePickleError as error:
        raise UnsafePickleError(
            f"pickle: expected an official StyleGAN3 network, got '{path}' with {error}. {_FIX}"
        ) from None


class _Module(Buildable):
    """A PyTorch module: the name of its class and its state. Its source text is never executed."""

    def __init__(self, meta: Any):
        fits = isinstance(meta, dict) and meta.get("type") == "class" and meta.get("version") == 6
        if not fits or not isinstance(meta.get("state"), dict):
            raise UnsafePickleError("a module of another layout than version 6")
        source = meta.get("module_src")
        if not isinstance(source, str) or not _only_defines(source):
            raise UnsafePickleError("source text that does more than to define networks")
        self.class_name, self.state = meta.get("class_name"), meta["state"]

    def build(self, state: Any) -> None:
        raise UnsafePickleError("a second state for a module")


class _DType(Buildable):
    """A NumPy type of numbers."""

    def __init__(self, code: Any, align: Any = False, copy: Any = True):
        if not isinstance(code, str) or code not in ("f8", "f4", "i8", "i4", "b1"):
            shown = f"'{code:.20}'" if isinstance(code, str) else type(code).__name__
            raise UnsafePickleError(f"the NumPy type {shown}")
        self.code = code

    def build(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) < 2 or state[1] not in ("<", "|"):
            raise UnsafePickleError("a NumPy type of another byte order")

    def array(self, content: Any, shape: tuple[int, ...]) -> np.ndarray:
        if not isinstance(content, bytes):
            raise UnsafePickleError("a NumPy array without bytes")
        return np.frombuffer(content, f"<{self.code}").reshape(shape)


class _Array(Buildable):
    """A NumPy array."""

    def __init__(self, kind: Any, shape: Any, code: Any):
        if not isinstance(kind, Global) or kind.name != "numpy.ndarray":
            raise UnsafePickleError("an array of another class than numpy.ndarray")
        self.value = np.zeros(0)

    def build(self, state: Any) -> None:
        _, shape, dtype, fortran, content = state
        if not isinstance(dtype, _DType) or fortran is not False:
            raise UnsafePickleError("a NumPy array of another layout")
        self.value = dtype.array(content, shape)


def _scalar(dtype: Any, content: Any) -> Any:
    if not isinstance(dtype, _DType):
        raise UnsafePickleError("a NumPy number without a type")
    return dtype.array(content, ()).item()


def _storage(content: Any) -> np.ndarray:
    """The numbers of one storage in PyTorch's older format: five pickles, then raw bytes."""
    if not isinstance(content, bytes):
        raise UnsafePickleError("a tensor without bytes")
    file, found = io.BytesIO(content), []

    def persistent(identifier: Any) -> None:
        kind, storage, key, _, count, view = identifier
        if kind != "storage" or not isinstance(storage, Global) or view is not None:
            raise UnsafePickleError("a storage of another layout")
        found.append((_STORAGES[storage.name], key, count))

    magic, protocol, system = (read_pickle(file, {}) for _ in range(3))
    if magic != _MAGIC or protocol != _PROTOCOL or system.get("little_endian") is not True:
        raise UnsafePickleError("a tensor that is not in PyTorch's older format")
    read_pickle(file, dict.fromkeys(_STORAGES, _never_called), persistent)
    keys = read_pickle(file, {})
    if len(found) != 1 or keys != [found[0][1]]:
        raise UnsafePickleError("a tensor with several storages")
    dtype, _, count = found[0]
    claimed = int.from_bytes(file.read(8), "little")
    rest = content[file.tell() :]
    if claimed != count or len(rest) != count * np.dtype(dtype).itemsize:
        raise UnsafePickleError(f"a storage of {len(rest)} bytes that claims {count} numbers")
    return np.frombuffer(rest, dtype)


def _tensor(
    storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any
) -> np.ndarray:
    """A view of a storage that lies inside it, and is not larger."""
    whole = all(isinstance(n, int) and n >= 0 for n in (offset, *size, *stride))
    if not isinstance(storage, np.ndarray) or not whole or not len(size) == len(stride) <= 8:
        raise UnsafePickleError("a tensor of another layout")
    count = math.prod(size)
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if count > storage.size or (count and last >= storage.size):
        raise UnsafePickleError(f"a tensor of {size} numbers in a storage of {storage.size}")
    steps = [step * storage.itemsize for step in stride]
    view = np.lib.stride_tricks.as_strided(storage[offset:], size, steps, writeable=False)
    return view.copy()


def _parameter(tensor: Any, requires_grad: Any, hooks: Any) -> Any:
    return tensor


def _empty() -> dict:
    return {}  # its items follow as records of the pickle


def _never_called(*arguments: Any) -> Any:
    raise UnsafePickleError("a call of a class that only names a type")


def _tensors(module: _Module, prefix: str = "", depth: int = 0) -> dict[str, np.ndarray]:
    """Parameters and buffers of a module and of those inside it, by their names."""
    if depth > 10:
        raise UnsafePickleError("modules nested more than 10 levels deep")
    found: dict[str, np.ndarray] = {}
    parameters, buffers, modules = (
        module.state.get(kind, {}) for kind in ("_parameters", "_buffers", "_modules")
    )
    left_out = module.state.get("_non_persistent_buffers_set", set())
    if not all(isinstance(part, dict) for part in (parameters, buffers, modules)):
        raise UnsafePickleError("a module of another layout")
    for name, tensor in (parameters | buffers).items():
        if isinstance(tensor, np.ndarray) and not (isinstance(left_out, set) and name in left_out):
            found[f"{prefix}{name}"] = tensor
    for name, inner in modules.items():
        if isinstance(inner, _Module):
            found |= _tensors(inner, f"{prefix}{name}.", depth + 1)
    return found


# Exactly the globals that official pickles name.
_MAKERS = {
    "torch_utils.persistence._reconstruct_persistent_obj": _Module,
    "dnnlib.util.EasyDict": _empty,
    "collections.OrderedDict": _empty,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_parameter": _parameter,
    "torch.storage._load_from_bytes": _storage,
    "numpy.dtype": _DType,
    "numpy.ndarray": _never_called,
}
for _module in ("numpy.core.multiarray", "numpy._core.multiarray"):
    _MAKERS[f"{_module}._reconstruct"] = _Array
    _MAKERS[f"{_module}.scalar"] = _scalar
