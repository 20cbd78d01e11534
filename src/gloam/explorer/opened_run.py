"""The settings of a run as a flat table of names and values, from its configuration.

The state of a run, from its folder: running, finished, interrupted, failed, or not readable.

A run that is looked at: its archive, elites, dataset and pictures, read once and kept.
"""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from gloam.archives import Archive, CVTArchive, Elites, GridArchive
from gloam.datasets import Dataset
from gloam.files import stamp
from gloam.formats import DamagedFileError, ForeignError, RunFolder, objects
from gloam.formats.arrays import read_arrays
from gloam.formats.checkpoints import Checkpoints
from gloam.formats.config import RunConfig
from gloam.formats.ownership import ARCHIVE, NAME, holder
from gloam.gallery.pairs import Pictures, elite_pictures, has_pictures

_MAX_SETTINGS = 400
_MAX_TEXT = 120
# What networks begin with, which is no setting.
_LEARNED = ("weights", "biases")


def settings_of(config: RunConfig) -> dict[str, Any]:
    """Names and values, such as ``discount.alpha``: numbers, texts, booleans and ``None``.

    >>> flatten({"class": "CMAES", "arguments": {"a": {"tuple": [1, 2]}, "b": 0.5}}, "strategy")
    {'strategy': 'CMAES', 'strategy.a': '1, 2', 'strategy.b': 0.5}
    """
    found: dict[str, Any] = {}
    for name in ("algorithm", "domain"):
        found |= flatten(getattr(config, name), name)
    # The parts of an algorithm are known by their own names.
    found = {name.removeprefix("algorithm."): value for name, value in found.items()}
    plan = {name: config.plan[name] for name in ("iterations",) if name in config.plan}
    seeds = config.seeds
    listed = ", ".join(map(str, seeds[:8])) + (", …" if len(seeds) > 8 else "")
    more = {"driver": config.driver, "seeds": listed, "number of seeds": len(seeds)}
    whole = found | plan | more | {"gloam": config.version}
    return dict(list(whole.items())[:_MAX_SETTINGS])


def flatten(content: Any, name: str) -> dict[str, Any]:
    """An encoded object (see `gloam.formats.objects`) as names and values."""
    if content is None or isinstance(content, (bool, int, float)):
        return {name: content}
    if isinstance(content, str):
        return {name: content[:_MAX_TEXT]}
    if isinstance(content, list):
        return _flatten_list(content, name)
    if not isinstance(content, dict):
        return {}
    if isinstance(content.get("class"), str):
        found: dict[str, Any] = {name: content["class"][:_MAX_TEXT]}
        arguments = content.get("arguments")
        for key, part in (arguments if isinstance(arguments, dict) else {}).items():
            if key in _LEARNED:
                continue
            found |= flatten(part, f"{name}.{key}")
        return found
    if isinstance(content.get("foreign"), str):
        return {name: content["foreign"].rpartition(":")[2][:_MAX_TEXT]}
    if "values" in content:
        return {name: _short(content["values"])}
    if "array" in content or "shape" in content:
        return {name: f"{content.get('dtype')}{content.get('shape')}"[:_MAX_TEXT]}
    if isinstance(content.get("tuple"), list):
        return _flatten_list(content["tuple"], name)
    if isinstance(content.get("dict"), dict):
        parts = [flatten(part, f"{name}.{key}") for key, part in content["dict"].items()]
        return {key: value for part in parts for key, value in part.items()}
    return {}


def _flatten_list(items: list, name: str) -> dict[str, Any]:
    if all(isinstance(item, (bool, int, float, str)) for item in items):
        return {name: _short(items)}
    found: dict[str, Any] = {}
    for number, item in enumerate(items):
        found |= flatten(item, f"{name}.{number + 1}")
    return found


def _short(values: Any) -> str:
    text = ", ".join(map(str, values)) if isinstance(values, list) else str(values)
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"


def algorithm_name(config: RunConfig) -> str:
    """The class of the algorithm."""
    return str(flatten(config.algorithm, "a").get("a", "?"))


def domain_name(config: RunConfig) -> str:
    """What was searched, without building objects that hold arrays."""
    content = config.domain
    arguments = content.get("arguments") if isinstance(content, dict) else None
    if isinstance(arguments, dict) and isinstance(arguments.get("name"), str):
        return arguments["name"][:_MAX_TEXT]
    if isinstance(content, dict) and "class" in content and _is_small(content):
        try:
            name = getattr(objects.decode(content, {}), "name", None)
        except (ForeignError, ValueError, TypeError, OverflowError):
            name = None
        if isinstance(name, str):
            return name[:_MAX_TEXT]
    short = str(flatten(content, "d").get("d", "?"))
    return short.rpartition(".")[2] or short


def _is_small(content: Any) -> bool:
    """Whether an object is built in no time: without arrays, and with sizes that are not large."""
    if isinstance(content, dict):
        return "array" not in content and all(_is_small(part) for part in content.values())
    if isinstance(content, list):
        return all(_is_small(part) for part in content)
    return not isinstance(content, int) or abs(content) <= 100_000


State = Literal["running", "finished", "interrupted", "failed", "damaged", "newer"]


class RunState(NamedTuple):
    """The state of a run, with a reason where there is one to tell."""

    state: State
    reason: str
    iteration: int | None
    """Iteration of the newest checkpoint."""


class RunStates:
    """States of runs. It remembers which locks nobody holds."""

    def __init__(self) -> None:
        self._free: dict[Path, object] = {}
        self._checked: dict[Path, tuple[object, DamagedFileError | None]] = {}
        self._lock = threading.Lock()

    def of(self, folder: Path, config: RunConfig) -> RunState:
        """The state of a run whose configuration can be read."""
        reached = newest_checkpoint(folder)
        by = self._holder(folder)
        if by is not None:
            return RunState("running", by, reached)
        planned = config.plan.get("iterations")
        torn = self._torn_file(folder)
        if torn is not None:
            return RunState("damaged", f"{torn.path.name}: {torn.problem}.", reached)
        if reached is None:
            return RunState("failed", "It ended before its first checkpoint.", None)
        if isinstance(planned, int) and reached >= planned and archive_files(folder):
            return RunState("finished", "", reached)
        return RunState("interrupted", f"Its last checkpoint is at iteration {reached:,}.", reached)

    def _torn_file(self, folder: Path) -> DamagedFileError | None:
        """A file of arrays that is not whole. Their digests are compared when they are read."""
        kinds = {folder / "config.npz": "config"}
        kinds |= dict.fromkeys(archive_files(folder), "archive")
        found = None
        for path, kind in kinds.items():
            now = stamp(path)
            if path not in self._checked or self._checked[path][0] != now:
                self._checked[path] = (now, _problem_of(path, kind))
            found = found or self._checked[path][1]
        return found

    def _holder(self, folder: Path) -> str | None:
        """Who writes to the folder. A lock that was found free is not tried again."""
        with self._lock:
            found = stamp(folder / NAME)
            if found is None or self._free.get(folder) == found:
                return None
            by = holder(folder)
            if by is None:
                self._free[folder] = found
            return by


def unreadable(error: DamagedFileError) -> RunState:
    """The state of a run whose configuration cannot be read."""
    newer = "a newer version of gloam wrote it" in error.problem
    problem = f"{error.path.name}: {error.problem}."
    return RunState("newer" if newer else "damaged", problem, None)


def newest_checkpoint(folder: Path) -> int | None:
    """Iteration of the newest checkpoint, by the names of the files."""
    try:
        files = Checkpoints(folder / "checkpoint").files()
    except OSError:
        return None
    return int(files[0].stem) if files and files[0].stem.isdecimal() else None


def has_elites(folder: Path) -> bool:
    """Whether there are elites to read, in a checkpoint or in files of their own."""
    return newest_checkpoint(folder) is not None or bool(archive_files(folder))


def archive_files(folder: Path) -> list[Path]:
    """The files of the elites, which are there at the end of a run."""
    return [file for file in folder.glob("archive*.npz") if ARCHIVE.fullmatch(file.name)]


def _problem_of(path: Path, kind: str) -> DamagedFileError | None:
    """What is wrong with a file of arrays, by its list of contents."""
    try:
        read_arrays(path, kind=kind, fix="", prefix="no array")
    except DamagedFileError as error:
        return error
    return None


_FIX = "Restore it from a copy."
# Elites of so many seeds stay in memory.
_MAX_SEEDS = 3


class EliteRows(NamedTuple):
    """The elites of one seed, a row for each, in the order of their cells."""

    version: str
    """Changes when the elites do."""
    iteration: int | None
    elites: Elites
    cells: Int[np.ndarray, " n"]
    solutions: Float[np.ndarray, "n sol"]
    objectives: Float[np.ndarray, " n"]
    measures: Float[np.ndarray, "n meas"]

    def row_of(self, cell: int) -> int | None:
        """The row of a cell, or ``None`` where it is empty."""
        row = int(np.searchsorted(self.cells, cell))
        return row if row < len(self.cells) and self.cells[row] == cell else None


class OpenedRun:
    """Reads the parts of one run folder when they are asked for.

    All methods raise ``DamagedFileError``, ``ForeignError`` or ``ValueError`` where the folder does
    not hold what is asked for.

    Args:
        path: The run folder.
    """

    def __init__(self, path: Path):
        self.folder = RunFolder(path)
        self._kept: dict[Any, tuple[Any, Any]] = {}
        self._locks: dict[Any, threading.RLock] = {}
        self._lock = threading.Lock()

    def kept(self, name: Any, version: Any, make: Any) -> Any:
        """What ``make`` returns, made once for a version; the last version is kept."""
        with self._lock:
            own = self._locks.setdefault(name, threading.RLock())
        with own:  # others can be made meanwhile
            known = self._kept.get(name)
            if known is None or known[0] != version:
                known = (version, make())
                self._kept[name] = known
            return known[1]

    @property
    def config(self) -> RunConfig:
        """The configuration."""
        return self.kept("config", self._config_stamp, self.folder.read_config)

    @property
    def archive(self) -> Archive:
        """The archive. An algorithm with parts of the user's own has one that can be built."""
        return self.kept("archive", self.config.identity, self._read_archive)

    @property
    def dataset(self) -> Dataset | None:
        """The items that the cells are, or ``None``."""
        if self.config.dataset is None:
            return None
        version = stamp(self.folder.path / "dataset.npz")
        return self.kept("dataset", version, self.folder.read_dataset)

    @property
    def domain(self) -> Any:
        """What was searched, or ``None`` where only the user's program can build it."""

        def read() -> Any:
            try:
                return self.folder.read_part("domain")
            except (ForeignError, DamagedFileError):
                return None

        return self.kept("domain", self.config.identity, read)

    def elites(self, seed: int) -> EliteRows:
        """The elites of a seed, as of the newest checkpoint."""
        version = self.version(seed)

        def read() -> EliteRows:
            others = [name for name in list(self._kept) if name[:1] == ("elites",)]
            for name in others[: max(0, len(others) + 1 - _MAX_SEEDS)]:
                self._kept.pop(name, None)
            found = self.folder.read_archive(seed, archive=self.archive)
            occupied = found.occupied
            parts = found.store.solutions, found.store.objectives, found.store.measures
            rows = [np.asarray(part)[occupied] for part in parts]
            reached = newest_checkpoint(self.folder.path)
            return EliteRows(version, reached, found, np.flatnonzero(occupied), *rows)

        return self.kept(("elites", seed), version, read)

    def version(self, seed: int) -> str:
        """A text that changes when the elites of a seed do."""
        return f"{seed}-{elites_version(self.folder.path, self.config.seeds)}"

    def pictures(self, rows: EliteRows) -> Pictures | None:
        """What the elites look like, or ``None`` where nothing can show them."""
        dataset = self.dataset
        if dataset is None or not has_pictures(rows.elites, dataset, self.domain):
            return None
        return elite_pictures(rows.elites, dataset, self.domain)

    @property
    def centers(self) -> Float[np.ndarray, "cells meas"]:
        """The centres of all cells."""

        def read() -> np.ndarray:
            cells = jnp.arange(self.archive.num_cells, dtype=jnp.int32)
            return np.asarray(self.archive.centers_of(cells))

        return self.kept("centers", self.config.identity, read)

    @property
    def is_plane_grid(self) -> bool:
        """Whether the archive is a grid of two measures, which a heatmap shows."""
        return isinstance(self.archive, GridArchive) and self.archive.measure_dim == 2

    @property
    def metric(self) -> str:
        """The metric of distances between measures."""
        return self.archive.metric if isinstance(self.archive, CVTArchive) else "euclidean"

    @property
    def _config_stamp(self) -> Any:
        return stamp(self.folder.path / "config.json")

    def _read_archive(self) -> Archive:
        config = self.config
        path = self.folder.path / "config.npz"
        arrays, about = read_arrays(path, kind="config", fix=_FIX)
        if about.get("run") != config.identity:
            raise DamagedFileError(path, "it belongs to another run", _FIX)
        content = config.algorithm
        arguments = content.get("arguments") if isinstance(content, dict) else None
        part = arguments.get("archive") if isinstance(arguments, dict) else None
        if part is None:  # an algorithm of the user's own class
            raise ForeignError(str(content.get("foreign")) if isinstance(content, dict) else "?")
        try:
            archive = objects.decode(part, arrays)
        except ForeignError:
            raise
        except (TypeError, ValueError, OverflowError) as error:
            raise DamagedFileError(self.folder.path / "config.json", str(error), _FIX) from None
        if not isinstance(archive, Archive):
            raise DamagedFileError(self.folder.path / "config.json", "it has no archive", _FIX)
        return archive


def elites_version(folder: Path, seeds: Sequence[int]) -> str:
    """A text that changes when the elites of a run do; files are not read."""
    last = "archive.npz" if len(seeds) == 1 else f"archive-{seeds[-1]}.npz"
    found = stamp(folder / last)
    return f"{newest_checkpoint(folder)}-{found[2] if found else 0}"
