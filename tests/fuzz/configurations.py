"""Crafted configurations and arrays with valid digests: refused, or used within bounds."""

import contextlib
import json
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import gloam
from gloam._tools.registry import REGISTRY
from gloam.explorer.app import explorer_app
from gloam.explorer.library import Library
from gloam.formats.arrays import read_arrays, write_arrays
from gloam.formats.documents import read_document, write_document
from tests import problems
from tests.formats.test_crafted import DOMAINS, deep
from tests.run_folders import write_grid_run, write_pictures_run

from .attack import CODE, Attack, check_refusal
from .command_lines import called
from .requests import ask, every_view
from .test_resumes import changed, rewrite

_KINDS = {"config": "config", "archive": "archive", "0": "checkpoint"}
# Fragments of JSON that Python cannot write, or that it takes as something else.
_TEXTS = (
    "[" * 100_000 + "]" * 100_000,
    '{"a":' * 100_000 + "1" + "}" * 100_000,
    "1" * 5000,
    "-" + "9" * 400,
    "1e999999",
    "NaN",
    "-Infinity",
    '{"a": 1, "a": 2}',
    '{"class": "Arm", "class": "os:system"}',
    '"\\ud800"',
    '"' + "x" * 1_000_000 + '"',
    "[" + "0," * 1_000_000 + "0]",
    "\0",
    "tru",
    "",
)
_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    3,
    1.5,
    -0.0,
    1e-45,
    1e39,
    float("inf"),
    float("nan"),
    2**31 - 1,
    2**31,
    2**63,
    10**30,
    10**400,
    "",
    "x",
    "auto",
    CODE,
    "\udc80",
    "../../x",
    [],
    {},
    [[]],
    [None],
    list(range(10_000)),
    {"tuple": []},
    {"tuple": [1, 2, 3]},
    {"dict": {}},
    {"array": "x"},
    {"values": [1.0], "dtype": "float32", "shape": [1]},
    {"values": [1.0] * 5, "dtype": "float64", "shape": [5]},
    {"values": [], "dtype": "float32", "shape": [0, 10**18]},
    deep(150),
    deep(400),
    *DOMAINS.values(),
)
_DTYPES = (np.float64, np.float16, np.int8, np.int64, np.complex64, np.bool_, "U3")
_TIME = ("max_epochs", "num_iterations", "iterations", "refinement_steps")


class Configurations:
    """A run whose settings or arrays someone changed who knows the format.

    Args:
        work: A folder.
    """

    def __init__(self, work: Path):
        folder = work / "configurations"
        self._sources = {name: folder / name for name in ("map-elites-line", "grid", "pictures")}
        algorithm, path = problems.small("map-elites-line"), self._sources["map-elites-line"]
        gloam.run(problems.ARM, algorithm, 2, run_dir=path, progress=False)
        write_grid_run(self._sources["grid"])
        write_pictures_run(self._sources["pictures"])
        self._root = folder / "runs"
        self._run = self._root / "run"

    def draw(self, rng: np.random.Generator) -> Attack:
        """Craft the run, and return the way in which it is read."""
        name = str(rng.choice(list(self._sources)))
        source = self._sources[name]
        shutil.rmtree(self._root, ignore_errors=True)
        shutil.copytree(source, self._run)
        crafts = (self._settings, self._settings, self._settings, self._text, self._arrays)
        told = crafts[rng.integers(len(crafts))](source, rng)
        ways = [self._read, self._explore, self._plot, self._report, self._gallery]
        if name == "map-elites-line":  # the others would compile for long
            ways += [self._resume] * 10
        way = ways[rng.integers(len(ways))]
        return Attack(f"{name}, {told}: {way.__name__.strip('_')}", way)

    # What is crafted

    def _settings(self, source: Path, rng: np.random.Generator) -> str:
        """Change one or two values of the settings."""
        content = read_document(source / "config.json", kind="run", fix="")
        told = []
        for _ in range(int(rng.integers(1, 3))):
            places = [place for place in _places(content) if place[0] != "identity"]
            place = places[rng.integers(len(places))]
            value, how = self._value(content, places, place, rng)
            content = changed(content, place, value)
            told.append(f"{_text_of(place)} {how}")
        try:
            rewrite(source, self._run, content, keep_checkpoint=True)
        except (TypeError, ValueError, AttributeError, KeyError, RecursionError):
            # No configuration has this form: only the document is sealed. JSON cannot hold all.
            with contextlib.suppress(RecursionError):
                write_document(self._run / "config.json", content, kind="run")
        return ", ".join(told)

    def _value(
        self, content: Any, places: list[tuple], place: tuple, rng: np.random.Generator
    ) -> tuple[Any, str]:
        """Return a value for a place of the settings, and what it is."""
        current: Any = content
        for key in place:
            current = current[key]
        match rng.integers(6):
            case 0 if isinstance(current, str):
                name = str(rng.choice([*REGISTRY, "float16", "object", "uint64"]))
                return name, name
            case 0 | 1 if isinstance(current, dict) and current:
                key = list(current)[rng.integers(len(current))]
                return {k: v for k, v in current.items() if k != key}, f"without {key}"
            case 0 | 1 if isinstance(current, list):
                factor = int(rng.choice([0, 2, 100]))
                return current * factor, f"{factor} times"
            case 0 | 1 if type(current) in (int, float) and place[-1] not in _TIME:
                factor = float(rng.choice([-1, 0, 0.5, 2, 1000, 1e9]))
                value = current * factor
                return type(current)(value), f"times {factor:g}"
            case 2:
                other = content
                source = places[rng.integers(len(places))]
                for key in source:
                    other = other[key]
                return other, f"as {_text_of(source)}"
            case 3 if isinstance(current, dict):
                return current | {"x": 1}, "with x"
        if place[-1] in _TIME:  # a crafted run may be long
            return -1, "-1"
        at = int(rng.integers(len(_VALUES)))
        return _VALUES[at], f"value {at}"

    def _text(self, source: Path, rng: np.random.Generator) -> str:
        """Write JSON that Python would not write."""
        path = self._run / "config.json"
        content = json.loads(path.read_text())
        places = list(_places(content))
        place, at = places[rng.integers(len(places))], int(rng.integers(len(_TEXTS)))
        text = json.dumps(changed(content, place, "@@")).replace('"@@"', _TEXTS[at])
        path.write_text(text)
        return f"{_text_of(place)} text {at}"

    def _arrays(self, source: Path, rng: np.random.Generator) -> str:
        """Change an array of a file."""
        paths = [p for p in self._run.rglob("*.npz") if p.name[0] in "ca0" and "snap" not in str(p)]
        path = sorted(paths)[rng.integers(len(paths))]
        kind = next(kind for start, kind in _KINDS.items() if path.name.startswith(start))
        arrays, about = read_arrays(path, kind=kind, fix="")
        if not arrays:
            return "nothing"
        name = sorted(arrays)[rng.integers(len(arrays))]
        array = arrays[name]
        how = str(rng.choice(["gone", "more", "dtype", "shape", "nan", "huge", "negative", "none"]))
        match how:
            case "gone":
                del arrays[name]
            case "more":
                arrays[str(rng.choice(["x", "../x", ".store.x", ".\udc80"]))] = array
            case "dtype":
                with np.errstate(all="ignore"), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    arrays[name] = array.astype(_DTYPES[rng.integers(len(_DTYPES))])
            case "shape":
                shapes = (array[None], array.ravel(), np.concatenate([array.ravel()] * 2))
                arrays[name] = shapes[rng.integers(3)]
            case "none":
                arrays[name] = array[..., :0] if array.ndim else array
            case _:
                value = {"nan": np.nan, "huge": 3e38, "negative": -7}[how]
                with np.errstate(all="ignore"), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    arrays[name] = np.full(array.shape, value).astype(array.dtype)
        try:
            write_arrays(path, arrays, kind=kind, about=about)
        except ValueError:  # not a name or a dtype that is written
            return "nothing"
        return f"{path.relative_to(self._run)} {name} {how}"

    # How it is read

    def _read(self) -> None:
        run = gloam.RunFolder(self._run)
        readers = [run.read_config, run.read_form, run.read_archive, run.read_metrics]
        readers += [run.read_checkpoint_iteration, run.check_number_of_seeds, run.read_snapshots]
        readers += [lambda name=name: run.read_part(name) for name in ("algorithm", "domain")]
        for read in readers:
            try:
                read()
            except Exception as error:
                check_refusal(error, naming=self._run)

    def _resume(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            try:
                result = gloam.resume(self._run, iterations=3, progress=False)
            except Exception as error:
                check_refusal(error)
                return
        assert result.metrics["iteration"].max() == 3

    def _explore(self) -> None:
        app = explorer_app(Library(self._root))
        answer = ask(app, "api/folder").check()
        assert answer.status == 200, answer.content
        for run in json.loads(answer.content)["runs"]:
            for path in every_view(run["id"]):
                ask(app, path).check()

    def _plot(self) -> None:
        self._command("plot")

    def _report(self) -> None:
        self._command("report")

    def _gallery(self) -> None:
        self._command("gallery")

    def _command(self, name: str) -> None:
        code, _, err = called([name, str(self._run)])
        assert code in (0, 2), f"exit code {code}: {err}"
        assert len(err) < 5000, err[:300]


def _text_of(place: tuple) -> str:
    return ".".join(str(key) for key in place if key != "arguments")[-100:]


def _places(content: Any, place: tuple = ()) -> Iterator[tuple]:
    """Every place in a JSON value."""
    if place:
        yield place
    if isinstance(content, dict):
        for key, part in content.items():
            yield from _places(part, (*place, key))
    elif isinstance(content, list):
        for key, part in enumerate(content[:5]):
            yield from _places(part, (*place, key))
