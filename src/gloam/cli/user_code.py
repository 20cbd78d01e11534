"""Objects in a user's own Python file or module, named on the command line as ``where:name``."""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from gloam import checks


def load(reference: str, default: str) -> tuple[ModuleType, Any]:
    """The module and the object that ``reference`` names.

    Args:
        reference: ``my_file.py:evaluate``, ``my.module:evaluate``, or without the part behind the
            colon for the object called ``default``.
        default: Name of the object where none is given.
    """
    where, _, name = reference.partition(":")
    name = name or default
    module = _file(Path(where)) if where.endswith(".py") else _module(where)
    checks.expect(hasattr(module, name), "function", f"'{name}' in {where}",
                  f"only {', '.join(_public(module)) or 'nothing'}",
                  f"Name another one: {where}:NAME.")  # fmt: skip
    return module, getattr(module, name)


def _file(path: Path) -> ModuleType:
    checks.existing_file("file", path, "Give a Python file, or `gloam new` writes one.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Files beside it can be imported, as when Python runs it.
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _module(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"module: expected one that Python can import, got '{name}' ({error}). "
            "Give its dotted name, or the path of a .py file."
        ) from error


def _public(module: ModuleType) -> list[str]:
    return [name for name in vars(module) if not name.startswith("_")]
