"""A reader of pickles that runs nothing: opcodes become plain data, globals become their names.

Python's unpickler imports and calls what a file names. Here there is no import and no call: the
caller gives, for each global that it admits, a function of its own that makes data of arguments.
Everything else is refused, with its name.
"""

import io
import pickletools
from collections.abc import Callable, Mapping
from typing import Any

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
