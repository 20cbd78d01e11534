"""The summary of a run: its state, settings, progress and results.

A list of many runs is refreshed every few seconds, so files are read again only if they have
changed.
"""

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from gloam._tools.files import stamp
from gloam.archives.qd_score import tables_with_one_reference
from gloam.datasets.rows import evenly_spaced
from gloam.errors import DamagedFileError
from gloam.formats import RunFolder
from gloam.formats.arrays import read_arrays
from gloam.formats.checkpoints import Checkpoints
from gloam.formats.config import RunConfig
from gloam.formats.ownership import ARCHIVE, NAME, holder
from gloam.formats.tables import MetricsFile
from gloam.plots.run_figures import algorithm_name, domain_name

if TYPE_CHECKING:
    import pandas as pd

_RESULTS = ("qd_score", "coverage", "best_objective", "seconds", "evaluations", "gradients")
_RESULTS += ("failed_total", "infeasible_total", "f_min")
_SPARKLINE = 40
# Options that determine when a run first shows its curves and its archive.
_FIRST = ("log_every", "checkpoint_every", "checkpoint_seconds")
# Rows of one seed that are sent to a page.
_MAX_ROWS = 1000
_MAX_SETTINGS = 400
_MAX_TEXT = 120
_LATEST = 1e11  # seconds since 1970, in the year 5138
# Initial parameters of networks, which are not settings.
_LEARNED = ("weights", "biases")


class RunState(NamedTuple):
    """The state of a run, with a reason unless it is finished."""

    state: Literal["running", "finished", "stopped", "interrupted", "failed", "damaged", "newer"]
    reason: str
    iteration: int | None
    """Iteration of the newest checkpoint."""


class RunSummary:
    """Reads the summary of one run.

    Args:
        path: The run folder.
    """

    def __init__(self, path: Path):
        self._folder = RunFolder(path)
        self._lock = threading.Lock()
        self._config_stamp: object = ()
        self._config: RunConfig | None = None
        self._file: MetricsFile | None = None
        self._described: dict[str, Any] = {}
        """The part of the summary that depends on the configuration only."""
        self._scored: tuple[Any, dict[str, Any]] = (None, {})
        """A table of metrics, and the part of the summary that depends on it."""
        self._free_lock: object = None
        """Stamp of a lock file that no process held."""
        self._rescored: tuple[Any, Any, DamagedFileError | None] | None = None
        """Stamp and content of the corrected scores, or what is wrong with them."""
        self._checked: dict[Path, tuple[object, DamagedFileError | None]] = {}
        """Files of arrays with their stamps, and what is wrong with them."""

    def read(self) -> dict[str, Any]:
        """Return the summary; if the configuration cannot be read, only state and reason."""
        with self._lock:
            try:
                config, file = self._refresh()
            except DamagedFileError as error:
                is_newer = "a newer version of gloam wrote it" in error.problem
                return {"state": "newer" if is_newer else "damaged", "reason": _told(error)}
            table, error = file.read()
            state, path = self._state(config), self._folder.path
            corrected, problem = self._corrected(state.iteration)
            scores = self._scores(table)
            return (
                self._described
                | {"state": state.state, "reason": state.reason}
                | {"warnings": [_told(each) for each in (error, problem) if each]}
                | _progress(table, state, config)
                | scores
                | {"results": scores["results"] | corrected}
                | {"version": elites_version(path, config.seeds), "elites": has_elites(path)}
            )

    def metrics(self) -> "pd.DataFrame":
        """Return the metrics, at most a thousand rows of each seed at even intervals.

        Raises:
            DamagedFileError: The configuration of the run cannot be read.
        """
        with self._lock:
            _, file = self._refresh()
            return _thinned(file.read()[0])

    def _refresh(self) -> tuple[RunConfig, MetricsFile]:
        """Read the configuration again if it has changed."""
        now = stamp(self._folder.path / "config.json")
        if self._config is None or self._file is None or now != self._config_stamp:
            self._config = None
            config = self._folder.read_config()
            self._file = MetricsFile(self._folder.path, lambda: config)
            self._described = {
                "algorithm": algorithm_name(config),
                "domain": domain_name(config),
                "driver": config.driver,
                "seeds": list(config.seeds),
                "iterations": config.plan.get("iterations"),
                "first": {name: config.plan.get(name) for name in _FIRST},
                "started": _started(config),
                "dataset": config.dataset is not None,
                "settings": settings_of(config),
            }
            self._config, self._config_stamp = config, now
        return self._config, self._file

    def _scores(self, table: "pd.DataFrame") -> dict[str, Any]:
        """Return results and sparkline. The table is the same object while nothing changes."""
        if self._scored[0] is not table:
            (counted,), _ = tables_with_one_reference([table])
            scored = {"results": _results(counted), "sparkline": _sparkline(counted)}
            self._scored = table, scored
        return self._scored[1]

    def _corrected(self, reached: int | None) -> tuple[dict[str, float], DamagedFileError | None]:
        """Return the corrected scores of the elites of the newest checkpoint, if there are any."""
        now = stamp(self._folder.path / "corrected.npz")
        if now is None:
            return {}, None
        if self._rescored is None or self._rescored[0] != now:
            try:
                self._rescored = now, self._folder.read_corrected(), None
            except DamagedFileError as error:
                self._rescored = now, None, error
        _, found, problem = self._rescored
        if found is None or found[2] != reached:
            return {}, problem
        scores, number, _ = found
        shown = {name: float(values.mean()) for name, values in scores.items() if name != "f_min"}
        for name in ("corrected_qd_score", "corrected_coverage"):
            if len(scores[name]) > 1:
                error = scores[name].std(ddof=1) / np.sqrt(len(scores[name]))
                shown[f"{name}_error"] = float(error)
        return shown | {"corrected_f_min": float(scores["f_min"].min()), "corrected": number}, None

    def _state(self, config: RunConfig) -> RunState:
        path = self._folder.path
        reached = newest_checkpoint(path)
        process = self._holder()
        if process is not None:
            return RunState("running", process, reached)
        torn = self._torn_file()
        if torn is not None:
            return RunState("damaged", _told(torn), reached)
        if reached is None:
            return RunState("failed", "It ended before its first checkpoint.", None)
        planned = config.plan.get("iterations")
        if isinstance(planned, int) and reached >= planned and _archive_files(path):
            return RunState("finished", "", reached)
        if isinstance(stopped := config.plan.get("stopped"), str):
            why = f"A callback stopped it at iteration {reached:,}: {stopped[:_MAX_TEXT]}"
            return RunState("stopped", why, reached)
        return RunState("interrupted", f"Its last checkpoint is at iteration {reached:,}.", reached)

    def _holder(self) -> str | None:
        """Return the process that writes to the folder. A free lock is not tried again."""
        lock = stamp(self._folder.path / NAME)
        if lock is None or self._free_lock == lock:
            return None
        process = holder(self._folder.path)
        if process is None:
            self._free_lock = lock
        return process

    def _torn_file(self) -> DamagedFileError | None:
        """Return the error of an incomplete file. Digests are checked when files are read."""
        kinds = {self._folder.path / "config.npz": "config"}
        kinds |= dict.fromkeys(_archive_files(self._folder.path), "archive")
        for path, kind in kinds.items():
            now = stamp(path)
            if path not in self._checked or self._checked[path][0] != now:
                self._checked[path] = (now, _problem_of(path, kind))
        return next((self._checked[path][1] for path in kinds if self._checked[path][1]), None)


def newest_checkpoint(path: Path) -> int | None:
    """Return the iteration of the newest checkpoint, by the names of the files."""
    try:
        files = Checkpoints(path / "checkpoint").files()
    except OSError:
        return None
    return int(files[0].stem) if files and files[0].stem.isdecimal() else None


def _started(config: RunConfig) -> float | None:
    """Return the time at which a run was started, in seconds since 1970, if it is recorded."""
    started = config.plan.get("started")
    if isinstance(started, bool) or not isinstance(started, (int, float)):
        return None
    return float(started) if 0 < started < _LATEST else None


def has_elites(path: Path) -> bool:
    """Whether a run folder has elites, in a checkpoint or in their own files."""
    return newest_checkpoint(path) is not None or bool(_archive_files(path))


def elites_version(path: Path, seeds: Sequence[int]) -> str:
    """Return a version of the elites of a run, from names and times of files."""
    last = "archive.npz" if len(seeds) == 1 else f"archive-{seeds[-1]}.npz"
    file = stamp(path / last)
    return f"{newest_checkpoint(path)}-{file[2] if file else 0}"


def _archive_files(path: Path) -> list[Path]:
    """Return the files of elites, which are written at the end of a run."""
    return [file for file in path.glob("archive*.npz") if ARCHIVE.fullmatch(file.name)]


def _problem_of(path: Path, kind: str) -> DamagedFileError | None:
    """Return what is wrong with the list of contents of a file of arrays."""
    try:
        read_arrays(path, kind=kind, fix="", prefix=())
    except DamagedFileError as error:
        return error
    return None


def _told(error: DamagedFileError) -> str:
    return f"{error.path.name}: {error.problem}."


def _progress(table: "pd.DataFrame", state: RunState, config: RunConfig) -> dict[str, Any]:
    """Return the finished iterations, and the remaining seconds at the speed of the last rows."""
    rows = len(table)
    if not rows or not {"iteration", "seconds"} <= set(table.columns):
        return {"iteration": state.iteration or 0, "seconds_left": None, "rows": rows}
    seeds = np.asarray(table["seed"]) if "seed" in table else np.zeros(rows)
    of_seed = table.iloc[np.flatnonzero(seeds == seeds[-1])]
    iterations, seconds = np.asarray(of_seed["iteration"]), np.asarray(of_seed["seconds"])
    reached = max(int(iterations[-1]), state.iteration or 0)
    planned, left = config.plan.get("iterations"), None
    if state.state == "running" and isinstance(planned, int) and len(iterations) > 1:
        first = max(0, len(iterations) - 20)
        moved, took = iterations[-1] - iterations[first], seconds[-1] - seconds[first]
        if moved > 0 and took >= 0:
            left = float((planned - reached) * took / moved)
    return {"iteration": reached, "seconds_left": left, "rows": rows}


def _results(table: "pd.DataFrame") -> dict[str, float]:
    """Return means over seeds of the last rows, and standard errors of the scores."""
    if not len(table) or not {"seed", "iteration"} <= set(table.columns):
        return {}
    last = table.loc[table.groupby("seed")["iteration"].idxmax()]
    results = {name: float(last[name].mean()) for name in _RESULTS if name in last}
    if len(last) > 1:
        for name in ("qd_score", "coverage", "best_objective"):
            if name in last:
                results[f"{name}_error"] = float(last[name].std(ddof=1) / np.sqrt(len(last)))
    return results


def _sparkline(table: "pd.DataFrame") -> list[float]:
    """Return the mean QD score at a few iterations."""
    if not len(table) or not {"iteration", "qd_score"} <= set(table.columns):
        return []
    means = np.asarray(table.groupby("iteration")["qd_score"].mean(), float)
    return [float(f"{value:.5g}") for value in means[evenly_spaced(len(means), _SPARKLINE)]]


def _thinned(table: "pd.DataFrame") -> "pd.DataFrame":
    if not len(table) or "seed" not in table:
        return table
    groups = table.groupby("seed").indices.values()
    return table.iloc[
        np.sort(np.concatenate([g[evenly_spaced(len(g), _MAX_ROWS)] for g in groups]))
    ]


def settings_of(config: RunConfig) -> dict[str, Any]:
    """Return names and values, such as ``discount.alpha``: numbers, texts, booleans and ``None``.

    >>> flatten({"class": "CMAES", "arguments": {"a": {"tuple": [1, 2]}, "b": 0.5}}, "strategy")
    {'strategy': 'CMAES', 'strategy.a': '1, 2', 'strategy.b': 0.5}
    """
    encoded = flatten(config.algorithm, "algorithm") | flatten(config.domain, "domain")
    # The emitter, archive and discount of an algorithm are shown by their own names.
    settings = {name.removeprefix("algorithm."): value for name, value in encoded.items()}
    if "iterations" in config.plan:
        settings["iterations"] = config.plan["iterations"]
    seeds = config.seeds
    listed = ", ".join(map(str, seeds[:8])) + (", …" if len(seeds) > 8 else "")
    settings |= {"driver": config.driver, "seeds": listed, "number of seeds": len(seeds)}
    settings["gloam"] = config.version
    return dict(list(settings.items())[:_MAX_SETTINGS])


def flatten(content: Any, name: str) -> dict[str, Any]:
    """Flatten an encoded object (see `gloam.formats.objects`) into names and values."""
    if content is None or isinstance(content, (bool, int, float)):
        return {name: content}
    if isinstance(content, str):
        return {name: content[:_MAX_TEXT]}
    if isinstance(content, list):
        if all(isinstance(item, (bool, int, float, str)) for item in content):
            return {name: _short(content)}
        return _joined(flatten(item, f"{name}.{k}") for k, item in enumerate(content, 1))
    if not isinstance(content, dict):
        return {}
    if isinstance(content.get("class"), str):
        arguments = content.get("arguments")
        parts = arguments.items() if isinstance(arguments, dict) else ()
        return {name: content["class"][:_MAX_TEXT]} | _joined(
            flatten(value, f"{name}.{key}") for key, value in parts if key not in _LEARNED
        )
    if isinstance(content.get("foreign"), str):
        return {name: content["foreign"].rpartition(":")[2][:_MAX_TEXT]}
    if "values" in content:
        return {name: _short(content["values"])}
    if "array" in content or "shape" in content:
        return {name: f"{content.get('dtype')}{content.get('shape')}"[:_MAX_TEXT]}
    if isinstance(content.get("tuple"), list):
        return flatten(content["tuple"], name)
    if isinstance(content.get("dict"), dict):
        return _joined(flatten(part, f"{name}.{key}") for key, part in content["dict"].items())
    return {}


def _joined(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return {name: value for part in parts for name, value in part.items()}


def _short(values: Any) -> str:
    text = ", ".join(map(str, values)) if isinstance(values, list) else str(values)
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"
