"""Objects in a user's own Python file or module, named on the command line as ``where:name``."""

import functools
import importlib
import importlib.util
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from gloam import checks

# Errors that the user's code raised, with the part of the traceback that is the user's.
# Only the last ones, because a run goes on after errors of single solutions.
_failures: deque[tuple[BaseException, TracebackType | None]] = deque(maxlen=20)
_IMPORTLIB = importlib.__file__


def load(reference: str, default: str) -> tuple[ModuleType, Any]:
    """The module and the object that ``reference`` names.

    Args:
        reference: ``my_file.py:evaluate``, ``my.module:evaluate``, or without the part behind the
            colon for the object called ``default``.
        default: Name of the object where none is given.
    """
    where, name = split_reference(reference)
    name = name or default
    module = _file(Path(where)) if where.endswith(".py") else _module(where)
    public = ", ".join(key for key in vars(module) if not key.startswith("_"))
    fix = f"Name another one: {where}:NAME."
    found = hasattr(module, name)
    checks.expect(found, "function", f"'{name}' in {where}", f"only {public or 'nothing'}", fix)
    return module, getattr(module, name)


def split_reference(reference: str) -> tuple[str, str]:
    r"""The place and the name of a reference; the name may be empty.

    >>> split_reference(r"C:\x.py:evaluate"), split_reference(r"C:\x.py")
    (('C:\\x.py', 'evaluate'), ('C:\\x.py', ''))
    """
    where, colon, name = reference.rpartition(":")
    # The colon of a drive (Windows) has a path behind it, which no name of an object is.
    is_path = name.endswith(".py") or "/" in name or "\\" in name
    return (where, name) if colon and not is_path else (reference, "")


def guarded(function: Callable) -> Callable:
    """``function``, so that `traceback_of` knows the errors it raises.

    Objects of gloam are returned as they are: a run folder can name them.
    """
    if type(function).__module__.split(".")[0] == "gloam":
        return function

    @functools.wraps(function)
    def call(solutions: Any) -> Any:
        with _noted():
            return function(solutions)

    call.__qualname__ = getattr(function, "__qualname__", type(function).__qualname__)
    return call


def traceback_of(error: BaseException) -> str | None:
    """The traceback of the user's code if it raised ``error`` or what caused it."""
    current: BaseException | None = error
    while current is not None:
        for failure, trace in _failures:
            if failure is current:
                lines = traceback.format_exception(type(current), current, trace)
                return "".join(lines)
        current = current.__cause__
    return None


@contextmanager
def _noted() -> Iterator[None]:
    """Remember an error of the user's code, without the frames of gloam above it."""
    try:
        yield
    except Exception as error:
        trace = error.__traceback__
        own = Path(__file__).parent
        while trace is not None and _is_ours(trace, own):
            trace = trace.tb_next
        _failures.append((error, trace))
        raise


def _is_ours(trace: TracebackType, own: Path) -> bool:
    file = trace.tb_frame.f_code.co_filename
    return own in Path(file).parents or file.startswith("<frozen importlib") or file == _IMPORTLIB


def _file(path: Path) -> ModuleType:
    checks.existing_file("file", path, "Give a Python file, or `gloam new` writes one.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Files beside it can be imported, as when Python runs it.
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules[path.stem] = module
    try:
        with _noted():
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]  # it is half there only
        raise
    return module


def _module(name: str) -> ModuleType:
    fix = "Give the dotted name of a module, or the path of a .py file."
    is_dotted = all(part.isidentifier() for part in name.split("."))
    checks.expect(is_dotted, "module", "a module that Python can import", repr(name), fix)
    sys.path.insert(0, str(Path.cwd()))
    try:
        with _noted():
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name and not name.startswith(f"{error.name}."):
            raise  # the module is there, and what it imports is not
        raise ValueError(
            f"module: expected a module that Python can import, got '{name}' ({error}). {fix}"
        ) from None
