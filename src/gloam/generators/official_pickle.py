"""A reader of pickles that runs nothing: opcodes become plain data, globals become their names.

Python's unpickler imports and calls what a file names. Here there is no import and no call: the
caller gives, for each global that it admits, a function of its own that makes data of arguments.
Everything else is refused, with its name.

Source texts inside official pickles: looked at, never executed.

Official StyleGAN3 pickles to safetensors, without PyTorch and without running what they hold.

Loaded plainly, such a file executes the source text inside it. `read_official` reads its data: it
admits exactly the globals below, never executes the source text, and reads the bytes of tensors
itself.
"""

import ast
import functools
import io
import math
import os
import pickletools
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gloam import checks
from gloam.generators.stylegan3 import METADATA_KEY
from gloam.generators.stylegan3_settings import StyleGAN3Settings, tensor_shapes
from gloam.generators.tensor_files import check_shapes, write_tensors

MAX_OPCODES = 5_000_000
MAX_DEPTH = 100
_MAX_STACK = 100_000


class UnsafePickleError(ValueError):
    """A pickle has something that is not admitted."""


class Global:
    """A global that a pickle names. It is never looked up."""

    def __init__(self, name: str):
        self.name = name


class Buildable:
    """Data that is completed by a second record of the pickle."""

    def build(self, state: Any) -> None:
        """Take the state."""
        raise NotImplementedError


Makers = Mapping[str, Callable[..., Any]]
_MARK = object()
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_NEW = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_SET": set, "EMPTY_TUPLE": tuple}
_SIZED_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_VALUES = {
    "BININT",
    "BININT1",
    "BININT2",
    "LONG1",
    "LONG4",
    "BINFLOAT",
    "SHORT_BINBYTES",
    "BINBYTES",
    "BINBYTES8",
    "SHORT_BINUNICODE",
    "BINUNICODE",
    "BINUNICODE8",
}
_IGNORED = {"PROTO", "FRAME"}
# What broken or malicious content makes of a reader that expects sound content.
_UNSOUND = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)


def read_pickle(
    file: io.BytesIO, makers: Makers, persistent: Callable[[Any], Any] | None = None
) -> Any:
    """The next pickle of a file, as plain data.

    Args:
        file: The content, read into memory, so that no length in it can claim more than there is.
        makers: For each global admitted (``"module.name"``), a function of its arguments.
        persistent: Function of persistent identifiers, if these are admitted.

    Raises:
        UnsafePickleError: Something is not admitted, too deep, or not a pickle.
    """
    try:
        result = _Machine(makers, persistent).run(file)
    except UnsafePickleError:
        raise
    except _UNSOUND as error:
        raise UnsafePickleError(f"content that is no sound pickle ({error})") from None
    _check_depth(result)
    return result


class _Machine:
    """Stack and memory of one pickle."""

    def __init__(self, makers: Makers, persistent: Callable[[Any], Any] | None):
        self.makers, self.persistent = makers, persistent
        self.stack: list[Any] = []
        self.memory: dict[int, Any] = {}

    def run(self, file: io.BytesIO) -> Any:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(file)):
            if count > MAX_OPCODES or len(self.stack) > _MAX_STACK:
                raise UnsafePickleError(f"more than {MAX_OPCODES} opcodes or too many open objects")
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
            self.memory[len(self.memory)] = self._top()
        elif name in ("BINPUT", "LONG_BINPUT"):
            self.memory[argument] = self._top()
        elif name in ("BINGET", "LONG_BINGET"):
            self.stack.append(self.memory[argument])
        elif name not in _IGNORED:
            self._compound(name, argument)

    def _compound(self, name: str, argument: Any) -> None:
        if name == "TUPLE":
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
            if not isinstance(function, Global) or not isinstance(arguments, tuple):
                raise UnsafePickleError(f"a call of a {type(function).__name__}, not of a global")
            self.stack.append(self.makers[function.name](*arguments))
        elif name == "BUILD":
            state = self._pop()
            if not isinstance(self._top(), Buildable):
                raise UnsafePickleError(f"a state for a {type(self._top()).__name__}")
            self._top().build(state)
        elif name == "BINPERSID" and self.persistent is not None:
            self.stack.append(self.persistent(self._pop()))
        else:
            raise UnsafePickleError(f"the opcode {name}")

    def _global(self, module: Any, attribute: Any) -> None:
        if not isinstance(module, str) or not isinstance(attribute, str):
            raise UnsafePickleError("a global without a name")
        name = f"{module}.{attribute}"
        if name not in self.makers:
            raise UnsafePickleError(f"the global '{name}'")
        self.stack.append(Global(name))

    def _pop(self) -> Any:
        value = self.stack.pop()
        if value is _MARK:
            raise UnsafePickleError("a mark where a value should be")
        return value

    def _top(self) -> Any:
        return self.stack[-1]

    def _to_mark(self) -> list[Any]:
        items: list[Any] = []
        while (item := self.stack.pop()) is not _MARK:
            items.append(item)
        return items[::-1]

    def _target(self, kind: type) -> Any:
        if not isinstance(self._top(), kind):
            raise UnsafePickleError(f"items for a {type(self._top()).__name__}")
        return self._top()

    def _keys(self, items: list[Any]) -> list[Any]:
        # The hash of a nested tuple recurses; keys of networks are texts.
        if not all(isinstance(item, (str, int)) for item in items):
            raise UnsafePickleError("a key that is neither a text nor a whole number")
        return items


def _check_depth(value: Any) -> None:
    """Refuse data nested deeper than any network, level by level, without recursion."""
    level, seen = [value], {id(value)}
    for _ in range(MAX_DEPTH):
        inner = []
        for item in level:
            for part in _parts(item):
                if id(part) not in seen:
                    seen.add(id(part))
                    inner.append(part)
        if not inner:
            return
        level = inner
    raise UnsafePickleError(f"data nested more than {MAX_DEPTH} levels deep")


def _parts(item: Any) -> list[Any]:
    containers = (dict, list, tuple, set)
    values = vars(item) if isinstance(item, Buildable) else item
    if isinstance(values, dict):
        values = values.values()
    elif not isinstance(values, containers):
        return []
    return [part for part in values if isinstance(part, (*containers, Buildable))]


_MAX_CHARACTERS = 1_000_000


def only_defines(source: str) -> bool:
    r"""Whether a module's source, if imported, would import and define, and call nothing.

    The sources of StyleGAN3's networks are such. A text that calls something when it is imported
    is not one of them, although nothing here would ever execute it.

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
            warnings.simplefilter("ignore")  # of doubtful escapes in texts
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
