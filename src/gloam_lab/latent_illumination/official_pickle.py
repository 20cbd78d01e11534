"""Converts official StyleGAN3 pickles to safetensors without PyTorch, and without running them.

Python's unpickler imports and calls whatever a file names, and an official pickle also contains
source text that is executed when it is loaded. The reader here interprets the opcodes as plain
data: it imports nothing, and for each of the few globals that official pickles name it has a
function that builds data. Everything else is refused by name. Source text is parsed to check that
it only defines networks, and never executed.
"""

import ast
import functools
import io
import math
import os
import pickletools
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gloam._tools import checks
from gloam_lab.generator import check_shapes, write_tensors
from gloam_lab.latent_illumination.stylegan3 import METADATA_KEY
from gloam_lab.latent_illumination.stylegan3_settings import StyleGAN3Settings, tensor_shapes

_MAX_BYTES = 4 * 2**30
_MAX_OPCODES = 5_000_000
_MAX_STACK = 100_000
_MAX_MODULE_DEPTH = 10
_MAX_CHARACTERS = 1_000_000
_FIX = "Use a network pickle of NVIDIA's StyleGAN3, as downloaded."

# PyTorch's older file format.
_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
_STORAGES = {
    "torch.FloatStorage": "<f4",
    "torch.DoubleStorage": "<f8",
    "torch.HalfStorage": "<f2",
    "torch.LongStorage": "<i8",
    "torch.IntStorage": "<i4",
    "torch.BoolStorage": "?",
}

# Opcodes that push their argument, a constant, a new container or a short tuple.
_VALUES = {"BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT"}
_VALUES |= {"SHORT_BINBYTES", "BINBYTES", "BINBYTES8"}
_VALUES |= {"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_NEW = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_SET": set, "EMPTY_TUPLE": tuple}
_SIZED_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_NO_OPS = {"PROTO", "FRAME"}
_MARK = object()
# Errors that a reader of valid content raises if the content is damaged or malicious.
_INVALID = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)


class UnsafePickleError(ValueError):
    """A pickle contains something that is not allowed."""


def convert(pickle_path: str | os.PathLike, safetensors_path: str | os.PathLike) -> None:
    """Convert an official StyleGAN3 pickle to a file for `StyleGAN3.load`.

    The generator is the one with averaged weights (``G_ema``). Nothing in the pickle is executed.

    Args:
        pickle_path: For example ``stylegan3-t-ffhqu-256x256.pkl``.
        safetensors_path: File to write.

    Raises:
        ValueError: The pickle contains something that is not allowed, or is not a StyleGAN3.
    """
    arguments, tensors = read_official(pickle_path)
    try:
        settings = StyleGAN3Settings.from_constructor(arguments)
    except ValueError as error:
        raise ValueError(f"'{pickle_path}': {error}") from None
    shapes = tensor_shapes(settings)
    check_shapes(f"'{pickle_path}'", shapes, tensors, _FIX)
    arrays = {name: tensors[name].astype(np.float32) for name in shapes}
    write_tensors(safetensors_path, arrays, {METADATA_KEY: settings.to_json()})


def read_official(path: str | os.PathLike) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read constructor arguments and tensors of the generator ``G_ema`` in an official pickle."""
    file = checks.existing_file("pickle", path)
    size = file.stat().st_size
    checks.expect(size <= _MAX_BYTES, "pickle", f"at most {_MAX_BYTES} bytes", f"{size}", _FIX)
    try:
        content = read_pickle(io.BytesIO(file.read_bytes()), _MAKERS)
        generator = content.get("G_ema") if isinstance(content, dict) else None
        if not isinstance(generator, _Module) or generator.class_name != "Generator":
            raise UnsafePickleError("no generator under 'G_ema'")
        arguments = generator.state.get("_init_kwargs")
        if not isinstance(arguments, dict) or generator.state.get("_init_args"):
            raise UnsafePickleError("a generator without named constructor arguments")
        mapping = arguments.get("mapping_kwargs")
        values = [arguments[name] for name in arguments if name != "mapping_kwargs"]
        values += mapping.values() if isinstance(mapping, dict) else [mapping]
        # Nested data could take forever to print in an error message.
        if not all(isinstance(value, (int, float, str, type(None))) for value in values):
            raise UnsafePickleError("constructor arguments that are not numbers")
        return arguments, _tensors(generator)
    except UnsafePickleError as error:
        raise UnsafePickleError(
            f"pickle: expected an official StyleGAN3 network, got '{path}' with {error}. {_FIX}"
        ) from None


class _Buildable:
    """Data that a second record of the pickle completes."""

    def build(self, state: Any) -> None:
        raise NotImplementedError


class _Module(_Buildable):
    """Class name and state of a PyTorch module. Its source text is checked, never executed."""

    def __init__(self, meta: Any):
        fits = isinstance(meta, dict) and meta.get("type") == "class" and meta.get("version") == 6
        if not fits or not isinstance(meta.get("state"), dict):
            raise UnsafePickleError("a module of another layout than version 6")
        source = meta.get("module_src")
        if not isinstance(source, str) or not only_defines(source):
            raise UnsafePickleError("source text that does more than define networks")
        self.class_name, self.state = meta.get("class_name"), meta["state"]

    def build(self, state: Any) -> None:
        raise UnsafePickleError("a second state for a module")


# Every module of a pickle contains the text of its whole file.
@functools.lru_cache(maxsize=32)
def only_defines(source: str) -> bool:
    r"""Return whether importing a module with this source would only import and define things.

    This holds for the sources of StyleGAN3's networks. Text that calls something on import is not
    one of them.

    Example:
        >>> only_defines("import torch\nclass Net:\n    def forward(self):\n        run()")
        True
        >>> only_defines("open('file', 'w')"), only_defines("class Net:\n    x = print()")
        (False, False)
    """
    if len(source) > _MAX_CHARACTERS:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about invalid escape sequences in the text
            nodes: list[ast.AST] = [ast.parse(source)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Call):
            return False
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            defaults = [default for default in node.args.kw_defaults if default is not None]
            nodes += [*node.decorator_list, *node.args.defaults, *defaults]
        elif not isinstance(node, ast.Lambda):
            nodes += ast.iter_child_nodes(node)
    return True


def _tensors(module: _Module, prefix: str = "", depth: int = 0) -> dict[str, np.ndarray]:
    """Return the parameters and buffers of a module and its submodules by name."""
    if depth > _MAX_MODULE_DEPTH:
        raise UnsafePickleError(f"modules nested more than {_MAX_MODULE_DEPTH} levels deep")
    kinds = ("_parameters", "_buffers", "_modules")
    parameters, buffers, modules = (module.state.get(kind, {}) for kind in kinds)
    skipped = module.state.get("_non_persistent_buffers_set", set())
    is_valid = all(isinstance(entries, dict) for entries in (parameters, buffers, modules))
    if not is_valid or not isinstance(skipped, set):
        raise UnsafePickleError("a module of another layout")
    tensors = {
        f"{prefix}{name}": tensor
        for name, tensor in (parameters | buffers).items()
        if isinstance(tensor, np.ndarray) and name not in skipped
    }
    for name, inner in modules.items():
        if isinstance(inner, _Module):
            tensors |= _tensors(inner, f"{prefix}{name}.", depth + 1)
    return tensors


class _DType(_Buildable):
    """A NumPy dtype."""

    def __init__(self, code: Any, align: Any = False, copy: Any = True):
        if code not in ("f8", "f4", "i8", "i4", "b1"):
            raise UnsafePickleError("a NumPy type that is not a plain number")
        self.code = code

    def build(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) < 2 or state[1] not in ("<", "|"):
            raise UnsafePickleError("a NumPy type of another byte order")


class _Array(_Buildable):
    """A NumPy array. Its content is dropped: the tensors of a network are PyTorch's."""

    def build(self, state: Any) -> None:
        pass


def _scalar(dtype: Any, content: Any) -> Any:
    if not isinstance(dtype, _DType) or not isinstance(content, bytes):
        raise UnsafePickleError("a NumPy number of another layout")
    return np.frombuffer(content, f"<{dtype.code}").item()


def _storage(content: Any) -> np.ndarray:
    """Return the numbers of one storage in PyTorch's older format: five pickles, then raw bytes."""
    if not isinstance(content, bytes):
        raise UnsafePickleError("a tensor without bytes")
    file, storages = io.BytesIO(content), []

    def persistent(identifier: Any) -> None:
        kind, storage, key, _, count, view = identifier
        if kind != "storage" or not isinstance(storage, _Global) or view is not None:
            raise UnsafePickleError("a storage of another layout")
        storages.append((_STORAGES[storage.name], key, count))

    magic, protocol, system = (read_pickle(file, {}) for _ in range(3))
    if magic != _MAGIC or protocol != _PROTOCOL or system.get("little_endian") is not True:
        raise UnsafePickleError("a tensor that is not in PyTorch's older format")
    read_pickle(file, dict.fromkeys(_STORAGES, _never_called), persistent)
    keys = read_pickle(file, {})
    if len(storages) != 1 or keys != [storages[0][1]]:
        raise UnsafePickleError("a tensor with several storages")
    dtype, _, count = storages[0]
    claimed = int.from_bytes(file.read(8), "little")
    rest = content[file.tell() :]
    if claimed != count or len(rest) != count * np.dtype(dtype).itemsize:
        raise UnsafePickleError(f"a storage of {len(rest)} bytes that claims {count} numbers")
    return np.frombuffer(rest, dtype)


def _tensor(
    storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any
) -> np.ndarray:
    """Copy a strided view of a storage, after checking that it lies inside the storage."""
    valid = all(isinstance(n, int) and n >= 0 for n in (offset, *size, *stride))
    if not isinstance(storage, np.ndarray) or not valid or not len(size) == len(stride) <= 8:
        raise UnsafePickleError("a tensor of another layout")
    count = math.prod(size)
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if count > storage.size or (count and last >= storage.size):
        raise UnsafePickleError(f"a tensor of {size} numbers in a storage of {storage.size}")
    steps = [step * storage.itemsize for step in stride]
    view = np.lib.stride_tricks.as_strided(storage[offset:], size, steps, writeable=False)
    return view.copy()


def _empty() -> dict:
    return {}  # later records of the pickle add the items


def _never_called(*arguments: Any) -> Any:
    raise UnsafePickleError("a call of a class that only names a type")


# Exactly the globals that official pickles name.
_MAKERS = {
    "torch_utils.persistence._reconstruct_persistent_obj": _Module,
    "dnnlib.util.EasyDict": _empty,
    "collections.OrderedDict": _empty,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_parameter": lambda tensor, requires_grad, hooks: tensor,
    "torch.storage._load_from_bytes": _storage,
    "numpy.dtype": _DType,
    "numpy.ndarray": _never_called,
    "numpy.core.multiarray._reconstruct": lambda kind, shape, code: _Array(),
    "numpy._core.multiarray._reconstruct": lambda kind, shape, code: _Array(),
    "numpy.core.multiarray.scalar": _scalar,
    "numpy._core.multiarray.scalar": _scalar,
}


class _Global:
    """The name of a global in a pickle. It is never looked up."""

    def __init__(self, name: str):
        self.name = name


def read_pickle(
    file: io.BytesIO,
    makers: Mapping[str, Callable[..., Any]],
    persistent: Callable[[Any], Any] | None = None,
) -> Any:
    """Read the next pickle of a file as plain data.

    Args:
        file: The content in memory, so that no length in it can claim more than there is.
        makers: For each allowed global (``"module.name"``), a function of its arguments.
        persistent: Function of persistent identifiers, if these are allowed.

    Raises:
        UnsafePickleError: Something is not allowed, or the content is not a pickle.
    """
    try:
        return _Machine(makers, persistent).run(file)
    except UnsafePickleError:
        raise
    except _INVALID as error:
        raise UnsafePickleError(f"content that is not a valid pickle ({error})") from None


class _Machine:
    """Stack and memo of one pickle."""

    def __init__(self, makers: Mapping[str, Callable], persistent: Callable | None):
        self.makers, self.persistent = makers, persistent
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self, file: io.BytesIO) -> Any:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(file)):
            if count > _MAX_OPCODES or len(self.stack) > _MAX_STACK:
                raise UnsafePickleError("too many opcodes or too many open objects")
            if opcode.name == "STOP":
                return self._pop()
            self._step(opcode.name, argument)
        raise UnsafePickleError("the pickle has no end")

    def _step(self, name: str, argument: Any) -> None:
        if name in _VALUES:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _NEW:
            self.stack.append(_NEW[name]())
        elif name in _SIZED_TUPLES:
            items = [self._pop() for _ in range(_SIZED_TUPLES[name])]
            self.stack.append(tuple(reversed(items)))
        elif name == "MARK":
            self.stack.append(_MARK)
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = self.stack[-1]
        elif name in ("BINPUT", "LONG_BINPUT"):
            self.memo[argument] = self.stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            self.stack.append(self.memo[argument])
        elif name == "TUPLE":
            self.stack.append(tuple(self._to_mark()))
        elif name in ("APPEND", "APPENDS"):
            items = [self._pop()] if name == "APPEND" else self._to_mark()
            self._target(list).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = [self._pop(), self._pop()][::-1] if name == "SETITEM" else self._to_mark()
            keys = self._keys(items[::2])
            self._target(dict).update(zip(keys, items[1::2], strict=True))
        elif name == "ADDITEMS":
            items = self._keys(self._to_mark())
            self._target(set).update(items)
        elif name == "GLOBAL":
            self._global(*argument.split(" ", 1))
        elif name == "STACK_GLOBAL":
            attribute, module = self._pop(), self._pop()
            self._global(module, attribute)
        elif name in ("REDUCE", "NEWOBJ"):
            arguments, function = self._pop(), self._pop()
            if not isinstance(function, _Global) or not isinstance(arguments, tuple):
                raise UnsafePickleError(f"a call of a {type(function).__name__}, not of a global")
            self.stack.append(self.makers[function.name](*arguments))
        elif name == "BUILD":
            state, target = self._pop(), self.stack[-1]
            if not isinstance(target, _Buildable):
                raise UnsafePickleError(f"a state for a {type(target).__name__}")
            target.build(state)
        elif name == "BINPERSID" and self.persistent is not None:
            self.stack.append(self.persistent(self._pop()))
        elif name not in _NO_OPS:
            raise UnsafePickleError(f"the opcode {name}")

    def _global(self, module: Any, attribute: Any) -> None:
        if not isinstance(module, str) or not isinstance(attribute, str):
            raise UnsafePickleError("a global without a name")
        name = f"{module}.{attribute}"
        if name not in self.makers:
            raise UnsafePickleError(f"the global '{name}'")
        self.stack.append(_Global(name))

    def _pop(self) -> Any:
        value = self.stack.pop()
        if value is _MARK:
            raise UnsafePickleError("a mark where a value should be")
        return value

    def _to_mark(self) -> list[Any]:
        items: list[Any] = []
        while (item := self.stack.pop()) is not _MARK:
            items.append(item)
        return items[::-1]

    def _target(self, kind: type) -> Any:
        if not isinstance(self.stack[-1], kind):
            raise UnsafePickleError(f"items for a {type(self.stack[-1]).__name__}")
        return self.stack[-1]

    def _keys(self, items: list[Any]) -> list[Any]:
        # The hash of a nested tuple recurses; the keys of networks are texts.
        if not all(isinstance(item, (str, int)) for item in items):
            raise UnsafePickleError("a key that is neither a text nor a whole number")
        return items
