"""Odd calls of every public function, class and method: a documented error, or a sound object.

The names are found by inspection: a new one is attacked without being listed here.
"""

import contextlib
import inspect
import io
import types
import typing
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from beartype.door import is_bearable
from jaxtyping import TypeCheckError

import gloam
from tests import problems
from tests.run_folders import write_grid_run, write_pictures_run

from .attack import Attack, check_refusal
from .odd import ODD
from .test_constructors import ALGORITHMS, ARCHIVES, OTHERS, sound, too_large

# Compiled functions and the data that they exchange: what they get was checked before.
_TRUSTED_MODULES = ("step", "records")
# Records without checks: gloam makes them, users read them.
_RECORDS = ("Elite", "EliteBatch", "EliteStatistics", "Evaluated", "Failure", "Skipped", "RunStart")
_RECORDS += (
    "RunEnd",
    "CallbackFailure",
    "Comparison",
    "Corrected",
    "Result",
    "Ticket",
    "FaissIndex",
    "ElitesWanted",
)
# Objects whose methods users call; those of other objects run inside of compiled programs. Some
# methods are for gloam's drivers, which pass what they made.
_INTERNAL = ("learn", "gradients", "snapshot", "checkpoint", "restore", "metrics_of", "seed_of")
_INTERNAL += ("vector_of", "append_metrics", "drop_metrics_after", "read_checkpoint")
_OBJECTS = ("search", "async_search", "elites", "folder", "dataset", "space", "result", "matches")
_PATHS = (
    "path",
    "file",
    "folder",
    "dir",
    "out",
    "where",
    "source",
    "target",
    "pickle",
    "centroids",
)
_DOWNLOADS = ("fetch",)
_STRICT_PACKAGES = ("archives", "discounts", "domains", "emitters")
# What Python and NumPy say of a value of a type that they cannot use.
_OF_PYTHON = (TypeError, AttributeError, ValueError, LookupError, ArithmeticError)


def _public(module: types.ModuleType) -> Iterator[tuple[str, Any]]:
    """Public names of a module of gloam with their values, also of its public submodules."""
    for name in sorted(getattr(module, "__all__", None) or dir(module)):
        if name.startswith("_") or name in _TRUSTED_MODULES:
            continue
        value = getattr(module, name)
        whole = f"{module.__name__}.{name}"
        if isinstance(value, types.ModuleType):
            if module is gloam and value.__name__ == whole:
                yield from _public(value)
        elif callable(value) and str(getattr(value, "__module__", "")).startswith("gloam"):
            yield whole, value


def public_calls() -> dict[str, Callable]:
    """Every public function and class, by one of its names."""
    found: dict[int, tuple[str, Callable]] = {}
    for name, value in _public(gloam):
        is_error = isinstance(value, type) and issubclass(value, BaseException)
        if not is_error and value.__name__ not in (*_RECORDS, *_DOWNLOADS):
            found.setdefault(id(value), (name, value))
    return dict(found.values())


class Calls:
    """A public function, class or method with odd arguments.

    Args:
        work: A folder.
    """

    def __init__(self, work: Path):
        here = work / "calls"
        write_grid_run(here / "grid")
        write_pictures_run(here / "pictures")
        self._valid = _valid_arguments(here)
        self._calls = {**public_calls(), **self._methods()}
        self._tables = {
            kind.__name__: arguments
            for kind, arguments in (ALGORITHMS | ARCHIVES | OTHERS).values()
        }

    def _methods(self) -> dict[str, Callable]:
        """The public methods of objects that users hold."""
        found = {}
        for name in _OBJECTS:
            value = self._valid[name]
            for method in dir(type(value)):
                is_internal = method.startswith(("_", "write_")) or method in _INTERNAL
                static = inspect.getattr_static(type(value), method)
                if not is_internal and inspect.isfunction(static):
                    found[f"{type(value).__name__}.{method}"] = getattr(value, method)
        return found

    def draw(self, rng: np.random.Generator) -> Attack:
        """Return a random call."""
        names = list(self._calls)
        name = names[rng.integers(len(names))]
        call = self._calls[name]
        arguments, odd = self._arguments(call, rng)
        told = ", ".join(f"{key}={_short(value)}" for key, value in arguments.items())

        def run() -> None:
            if too_large({key: value for key, value in arguments.items() if key in odd}):
                return
            _try(name, call, arguments)

        return Attack(f"{name}({told})"[:400], run)

    def _arguments(
        self, call: Callable, rng: np.random.Generator
    ) -> tuple[dict[str, Any], set[str]]:
        """Return arguments by name, and the names of those that are odd."""
        try:
            parameters = inspect.signature(call).parameters.values()
        except ValueError:
            return {}, set()
        table = self._tables.get(getattr(call, "__name__", ""), {})
        arguments, odd = {}, set()
        usable = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        for parameter in usable:
            valid = {**self._valid, **table}
            if parameter.default is parameter.empty or rng.random() < 0.15:
                if parameter.name in valid:
                    arguments[parameter.name] = valid[parameter.name]
                elif parameter.default is parameter.empty:
                    arguments[parameter.name] = ODD[rng.integers(len(ODD))]
                    odd.add(parameter.name)
        for _ in range(int(rng.integers(1, 3))):
            if usable:
                name = usable[rng.integers(len(usable))].name
                arguments[name] = ODD[rng.integers(len(ODD))]
                odd.add(name)
        if rng.random() < 0.03:
            arguments["nonsense"] = 1
        if rng.random() < 0.03 and arguments:
            del arguments[list(arguments)[rng.integers(len(arguments))]]
        return arguments, odd


def _is_strict(name: str, call: Callable) -> bool:
    """Whether a call checks the types of all arguments itself: what a search is made of."""
    _, *packages, _ = name.split(".")
    if not name.startswith("gloam.") or not packages:
        return not packages and name.startswith("gloam.")
    return isinstance(call, type) and packages[0] in _STRICT_PACKAGES


def _fits(name: str, call: Callable, arguments: dict[str, Any]) -> bool:
    """Whether a call fits the signature: its names, and unless it is strict, also its types."""
    is_abstract = inspect.isabstract(call) or getattr(call, "_is_protocol", False)
    try:
        inspect.signature(call).bind(**arguments)
        if is_abstract or _is_strict(name, call):
            return not is_abstract
        hints = typing.get_type_hints(call.__init__ if isinstance(call, type) else call)
    except (TypeError, NameError):
        return False
    values = [(value, hints[key]) for key, value in arguments.items() if key in hints]
    # An array of one number has a method for iteration, which raises.
    is_scalar = any(isinstance(value, np.ndarray) and value.ndim == 0 for value, _ in values)
    return not is_scalar and all(is_bearable(value, hint) for value, hint in values)


def _try(name: str, call: Callable, arguments: dict[str, Any]) -> None:
    fits = _fits(name, call, arguments)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            value = call(**arguments)
        except (OSError, ImportError) as error:
            is_path = any(part in name for name in arguments for part in _PATHS)
            if not (is_path or isinstance(error, ImportError)):
                raise
            return
        except TypeCheckError:  # of the tests alone, before gloam's own check
            return
        except _OF_PYTHON as error:
            # The class `object` as a function raises an error of its own.
            if fits and str(error) != "object() takes no arguments":
                check_refusal(error)
            return
        except Exception as error:
            check_refusal(error)
            return
    if isinstance(call, type) and _is_strict(name, call):
        sound(value)


def _valid_arguments(here: Path) -> dict[str, Any]:
    """Values for parameters by name, so that calls get past their first check."""
    folder = gloam.RunFolder(here / "grid")
    elites = folder.read_archive()
    pictures = gloam.RunFolder(here / "pictures")
    data = pictures.read_dataset()
    algorithm = problems.small("map-elites-line")
    space = gloam.Space(rate=gloam.Real(1e-3, 1.0, log=True), layers=gloam.Integer(1, 9))
    result = gloam.run(problems.ARM, algorithm, 2, progress=False)
    search = problems.advanced(gloam.Search(algorithm, 1), 1)
    grid = gloam.GridArchive((3, 3), -1, 1)
    (here / "table.csv").write_text("a,b\n1,2\n3,4\n")
    return {
        "folder": folder,
        "search": search,
        "async_search": gloam.AsyncSearch(gloam.MAPElites(grid, np.zeros(2), 0.5, batch_size=4)),
        "result": result,
        "space": space,
        "elites": elites,
        "dataset": data,
        "matches": gloam.datasets.Matches(pictures.read_archive(), data),
        "algorithm": algorithm,
        "archive": grid,
        "domain": problems.ARM,
        "evaluate": problems.evaluate,
        "function": problems.evaluate,
        "iterations": 2,
        "seeds": [1],
        "seed": 1,
        "progress": False,
        "x0": np.zeros(5),
        "sigma0": 0.5,
        "bounds": (-1, 1),
        "lower": 0.0,
        "upper": 1.0,
        "run": here / "grid",
        "runs": {"a": here / "grid", "b": here / "grid"},
        "run_dir": here / "grid",
        "path": here / "grid",
        "file": here / "table.csv",
        "items": np.random.default_rng(0).random((6, 4)),
        "array": np.random.default_rng(0).random((6, 4)),
        "table": pd.DataFrame({"a": [1.0, 2.0], "b": [2.0, 3.0]}),
        "frame": pd.DataFrame({"a": [1.0, 2.0], "b": [2.0, 3.0]}),
        "metrics": result.metrics,
        "metric": "qd_score",
        "name": "qd_score",
        "batch_size": 4,
        "measures": np.zeros((30, 2)),
        "objectives": np.zeros(30),
        "solutions": np.zeros((30, 5)),
        "groups": {"a": [1.0, 2.0, 3.0], "b": [2.0, 3.0, 5.0]},
        "emitters": [gloam.emitters.Variation(np.zeros(5), 0.5, batch_size=4)],
        "emitter": gloam.emitters.Variation(np.zeros(5), 0.5, batch_size=4),
        "discount": gloam.discounts.NoDiscount(),
        "columns": ["a"],
        "column": "a",
        "size": (4, 4),
        "shape": (3, 3),
    }


def _short(value: Any) -> str:
    try:
        return " ".join(repr(value).split())[:40]
    except Exception:  # an integer that is too long to print
        return f"a long {type(value).__name__}"
