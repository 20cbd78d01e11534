"""A user's own code, named as ``file.py:name`` or ``module:name``, and tracebacks of its errors."""

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from gloam._tools import checks

# Files of the user's code. An error with a frame in one of them is reported with its traceback.
_user_files: set[str] = set()


def load(reference: str, default: str) -> tuple[ModuleType, Any]:
    """Import a module, and return it with the object that ``reference`` names.

    Args:
        reference: ``my_file.py:evaluate`` or ``my.module:evaluate``; without a name behind the
            colon, the object called ``default``.
        default: Default name of the object.
    """
    where, name = split_reference(reference)
    name = name or default
    module = _import_file(Path(where)) if where.endswith(".py") else _import_module(where)
    public = ", ".join(key for key in vars(module) if not key.startswith("_"))
    fix = f"Name another one: {where}:NAME."
    checks.expect(
        hasattr(module, name),
        "function",
        f"'{name}' in {where}",
        f"only {public or 'nothing'}",
        fix,
    )
    loaded = getattr(module, name)
    if inspect.isfunction(loaded):  # it may be defined in another file
        _user_files.add(loaded.__code__.co_filename)
    _user_files.add(str(module.__file__))
    return module, loaded


def split_reference(reference: str) -> tuple[str, str]:
    r"""Split a reference into place and name; the name may be empty.

    >>> split_reference(r"C:\x.py:evaluate"), split_reference(r"C:\x.py")
    (('C:\\x.py', 'evaluate'), ('C:\\x.py', ''))
    """
    where, colon, name = reference.rpartition(":")
    # The colon of a drive (Windows) is followed by a path, which cannot be a name.
    is_path = name.endswith(".py") or "/" in name or "\\" in name
    return (where, name) if colon and not is_path else (reference, "")


def traceback_of(error: BaseException) -> str | None:
    """Return the traceback of an error, from the user's code on, if that caused the error."""
    current: BaseException | None = error
    while current is not None:
        trace = current.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename not in _user_files:
            trace = trace.tb_next
        is_in_text = isinstance(current, SyntaxError) and current.filename in _user_files
        if trace is not None or is_in_text:
            return "".join(traceback.format_exception(type(current), current, trace))
        current = current.__cause__
    return None


@contextmanager
def _importing() -> Iterator[None]:
    """Remember the files of an import that fails as the user's code."""
    try:
        yield
    except Exception as error:
        files = {frame.filename for frame in traceback.extract_tb(error.__traceback__)}
        files |= {str(error.filename)} if isinstance(error, SyntaxError) else set()
        ours = {__file__, importlib.__file__}
        _user_files.update(file for file in files - ours if not file.startswith("<frozen"))
        raise


def _import_file(path: Path) -> ModuleType:
    checks.existing_file("file", path, "Give a Python file, or `gloam new` writes one.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Files beside it can be imported, as when Python runs it.
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules[path.stem] = module
    try:
        with _importing():
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]  # it is incomplete
        raise
    return module


def _import_module(name: str) -> ModuleType:
    fix = "Give the dotted name of a module, or the path of a .py file."
    is_dotted = all(part.isidentifier() for part in name.split("."))
    checks.expect(is_dotted, "module", "a module that Python can import", repr(name), fix)
    sys.path.insert(0, str(Path.cwd()))
    try:
        with _importing():
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name and not name.startswith(f"{error.name}."):
            raise  # the module exists, and something that it imports does not
        raise ValueError(
            f"module: expected a module that Python can import, got '{name}' ({error}). {fix}"
        ) from None
