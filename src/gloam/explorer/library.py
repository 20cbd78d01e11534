"""The summary of a run: what a list of runs shows, made again only when a file has changed.

The runs and studies below a folder, each with an id by which requests name it.
"""

import dataclasses
import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gloam.explorer.opened_run import (
    OpenedRun,
    RunState,
    RunStates,
    algorithm_name,
    domain_name,
    settings_of,
    unreadable,
)
from gloam.files import stamp
from gloam.formats import DamagedFileError, RunFolder
from gloam.formats.config import RunConfig
from gloam.formats.documents import is_document, read_document
from gloam.formats.tables import MetricsFile

if TYPE_CHECKING:
    import pandas as pd


_RESULTS = ("qd_score", "coverage", "best_objective", "seconds", "evaluations", "failed_total")
_SPARKLINE = 40
# Rows of one seed that are sent to a page.
_MAX_ROWS = 1000


class _Known:
    """What was read of one run."""

    def __init__(self, folder: Path):
        self.folder = RunFolder(folder)
        self.lock = threading.Lock()
        self.config: RunConfig | None = None
        self.error: DamagedFileError | None = None
        self.config_stamp: object = ()
        self.tail: MetricsFile | None = None
        self.settled: dict[str, Any] = {}
        """What only the configuration says."""
        self.scored: tuple[Any, dict[str, Any]] = (None, {})
        """A table of metrics, and what it says."""

    def refresh(self) -> None:
        """Read the configuration again if it has changed."""
        now = stamp(self.folder.path / "config.json")
        if now == self.config_stamp:
            return
        self.config, self.error, self.settled = None, None, {}
        try:
            config = self.folder.read_config()
        except DamagedFileError as error:
            self.error, self.tail = error, None
        else:
            self.config = config
            self.tail = MetricsFile(self.folder.path)
            self.settled = {
                "algorithm": algorithm_name(config),
                "domain": domain_name(config),
                "driver": config.driver,
                "seeds": list(config.seeds),
                "iterations": config.plan.get("iterations"),
                "dataset": config.dataset is not None,
                "settings": settings_of(config),
            }
        self.config_stamp = now

    def scores(self, table: "pd.DataFrame") -> dict[str, Any]:
        """Results and sparkline of a table, which is the same object while nothing changes."""
        if self.scored[0] is not table:
            found = {"results": _results(table), "sparkline": _sparkline(table)}
            self.scored = (table, found)
        return self.scored[1]


class RunSummaries:
    """Summaries of runs by their folders."""

    def __init__(self) -> None:
        self._known: dict[Path, _Known] = {}
        self._states = RunStates()
        self._lock = threading.Lock()

    def summary(self, folder: Path) -> dict[str, Any]:
        """State, names, settings, results and a sparkline of a run."""
        known = self._of(folder)
        with known.lock:
            known.refresh()
            if known.error is not None or known.config is None or known.tail is None:
                error = known.error or DamagedFileError(folder, "it cannot be read", "")
                return _told(unreadable(error))
            table, error = known.tail.read()
            state = self._states.of(folder, known.config)
            return (
                known.settled
                | _told(state)
                | {"warnings": [f"{error.path.name}: {error.problem}."] if error else []}
                | _progress(table, state, known.config)
                | known.scores(table)
            )

    def metrics(self, folder: Path) -> tuple["pd.DataFrame", RunConfig]:
        """The metrics of a run, at most a thousand rows of each seed, spread evenly.

        Raises:
            DamagedFileError: The configuration of the run cannot be read.
        """
        known = self._of(folder)
        with known.lock:
            known.refresh()
            if known.error is not None or known.config is None or known.tail is None:
                raise known.error or DamagedFileError(folder, "it cannot be read", "")
            return _thinned(known.tail.read()[0]), known.config

    def _of(self, folder: Path) -> _Known:
        with self._lock:
            return self._known.setdefault(folder, _Known(folder))


def _told(state: RunState) -> dict[str, Any]:
    return {"state": state.state, "reason": state.reason}


def _progress(table: "pd.DataFrame", state: RunState, config: RunConfig) -> dict[str, Any]:
    """Iterations finished, and seconds that are left by the speed of the last rows."""
    rows = len(table)
    if not rows or not {"iteration", "seconds"} <= set(table.columns):
        return {"iteration": state.iteration or 0, "seconds_left": None, "rows": rows}
    seeds = np.asarray(table["seed"]) if "seed" in table else np.zeros(rows)
    own = np.flatnonzero(seeds == seeds[-1])
    iterations, seconds = np.asarray(table["iteration"])[own], np.asarray(table["seconds"])[own]
    reached = max(int(iterations[-1]), state.iteration or 0)
    planned, left = config.plan.get("iterations"), None
    if state.state == "running" and isinstance(planned, int) and len(iterations) > 1:
        first = max(0, len(iterations) - 20)
        moved, took = iterations[-1] - iterations[first], seconds[-1] - seconds[first]
        if moved > 0 and took >= 0:
            left = float((planned - reached) * took / moved)
    return {"iteration": reached, "seconds_left": left, "rows": rows}


def _results(table: "pd.DataFrame") -> Mapping[str, Any]:
    """Mean over seeds of the last rows, and the standard error of the scores."""
    if not len(table) or not {"seed", "iteration"} <= set(table.columns):
        return {}
    last = table.loc[table.groupby("seed")["iteration"].idxmax()]
    found = {name: float(last[name].mean()) for name in _RESULTS if name in last}
    if len(last) > 1:
        for name in ("qd_score", "coverage", "best_objective"):
            if name in last:
                found[f"{name}_error"] = float(last[name].std(ddof=1) / np.sqrt(len(last)))
    return found


def _sparkline(table: "pd.DataFrame") -> list[float]:
    """The mean QD score over iterations, at a few of them."""
    if not len(table) or not {"iteration", "qd_score"} <= set(table.columns):
        return []
    means = np.asarray(table.groupby("iteration")["qd_score"].mean(), float)
    chosen = np.linspace(0, len(means) - 1, min(len(means), _SPARKLINE)).round().astype(int)
    return [float(f"{value:.5g}") for value in means[chosen]]


def _thinned(table: "pd.DataFrame") -> "pd.DataFrame":
    if not len(table) or "seed" not in table:
        return table
    rows = np.sort(
        np.concatenate(
            [
                places[np.linspace(0, len(places) - 1, min(len(places), _MAX_ROWS)).astype(int)]
                for places in table.groupby("seed").indices.values()
            ]
        )
    )
    return table.iloc[rows]


_MAX_DEPTH = 6
_MAX_FOLDERS = 20_000
_MAX_RUNS = 2000
# Folders inside of run folders and studies that hold no runs.
_SKIPPED = {"checkpoint", "snapshots", "figures", "report", "__pycache__"}
# Runs whose elites stay in memory.
_MAX_OPEN = 4


@dataclasses.dataclass(frozen=True)
class Entry:
    """A run or a study of the library."""

    id: str
    path: Path
    name: str
    """Path relative to the folder of the library."""


@dataclasses.dataclass(frozen=True)
class Contents:
    """What a look into the folder found."""

    runs: dict[str, Entry]
    studies: dict[str, Entry]
    complete: bool
    """False when there are more folders or runs than are looked at."""


class Library:
    """The runs below one folder.

    Requests name a run by its id. Paths never come from a request.

    Args:
        root: The folder.
    """

    def __init__(self, root: Path):
        self.root = Path(root).resolve()
        self.summaries = RunSummaries()
        self._contents = Contents({}, {}, True)
        self._opened: OrderedDict[str, OpenedRun] = OrderedDict()
        self._lock = threading.Lock()

    def look(self) -> Contents:
        """Look into the folder again."""
        self._contents = _contents(self.root)
        return self._contents

    def run(self, run_id: str) -> Entry | None:
        """The run with an id."""
        return self._contents.runs.get(run_id) or self.look().runs.get(run_id)

    def study(self, study_id: str) -> Entry | None:
        """The study with an id."""
        return self._contents.studies.get(study_id) or self.look().studies.get(study_id)

    def opened(self, entry: Entry) -> OpenedRun:
        """A run with what was read of it; the last few are kept."""
        with self._lock:
            found = self._opened.pop(entry.id, None)
            if found is None or found.folder.path != entry.path:
                found = OpenedRun(entry.path)
            self._opened[entry.id] = found
            while len(self._opened) > _MAX_OPEN:
                self._opened.popitem(last=False)
            return found


def read_study(entry: Entry) -> dict:
    """What a study runs: its domains, algorithms, seeds and iterations.

    Raises:
        DamagedFileError: The file is damaged.
    """
    content = read_document(entry.path / "study.json", kind="study", fix="Restore it from a copy.")
    lists = [content.get(name) for name in ("domains", "algorithms")]
    if not all(isinstance(part, list) and all(isinstance(n, str) for n in part) for part in lists):
        raise DamagedFileError(entry.path / "study.json", "it has no domains", "Restore a copy.")
    names = ("domains", "algorithms", "num_seeds", "iterations")
    return {name: content.get(name) for name in names}


def _contents(root: Path) -> Contents:
    runs: dict[str, Entry] = {}
    studies: dict[str, Entry] = {}
    waiting, seen = [(root, 0)], 0
    while waiting:
        folder, depth = waiting.pop()
        seen += 1
        if seen > _MAX_FOLDERS or len(runs) >= _MAX_RUNS:
            return Contents(runs, studies, complete=False)
        try:
            with os.scandir(folder) as found:
                parts = list(found)
        except OSError:
            continue
        names = {part.name for part in parts}
        if _is_run(folder, names):
            entry = _entry(root, folder)
            runs[entry.id] = entry
        elif "study.json" in names and is_document(folder / "study.json", "study"):
            entry = _entry(root, folder)
            studies[entry.id] = entry
        if depth < _MAX_DEPTH:
            waiting += [(folder / part.name, depth + 1) for part in parts if _is_searched(part)]
    return Contents(runs, studies, complete=True)


def _is_searched(part: os.DirEntry) -> bool:
    if part.name in _SKIPPED or part.name.startswith("."):
        return False
    try:
        # Links could lead in a circle, or out of the folder.
        return part.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _is_run(folder: Path, names: set[str]) -> bool:
    """Whether gloam began a run here, although its files may be damaged."""
    if "config.json" not in names:
        return False
    return "config.npz" in names or is_document(folder / "config.json", "run")


def _entry(root: Path, folder: Path) -> Entry:
    name = "." if folder == root else str(folder.relative_to(root))
    digest = hashlib.sha256(os.fsencode(name)).hexdigest()
    return Entry(digest[:12], folder, root.name if name == "." else name)
