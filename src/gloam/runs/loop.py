"""The loop of a run: it advances a driver, and writes metrics, checkpoints and results."""

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gloam._tools import checks
from gloam._tools.progress import Silent, run_display
from gloam._tools.warn import warn
from gloam.algorithms import Algorithm
from gloam.archives import Elites
from gloam.archives.qd_score import with_one_reference
from gloam.callbacks import RunEnd, RunStart
from gloam.callbacks.callback import Notifier
from gloam.errors import Interrupted, RunExistsError, WorkerError
from gloam.evaluators import Evaluator
from gloam.formats import RunFolder
from gloam.formats.checkpoints import Checkpoint
from gloam.formats.config import DriverKind, RunConfig, describe
from gloam.formats.run_folder import dataset_arrays, dataset_digest
from gloam.records import SearchState
from gloam.runs.options import RunOptions
from gloam.runs.result import Result
from gloam.runs.signals import StopRequest, stop_signals
from gloam.searches.starts import Start, read_start

if TYPE_CHECKING:
    import pandas as pd

# Longest time between two looks at the clock and at signals.
_STRETCH_SECONDS = 1.0
# Ratio of the time between two checkpoints to the time of writing one: about 3% of a run.
_CHECKPOINT_WAIT = 30.0
# Rows of metrics are written this often, so that a fast run does not open a file every iteration.
_ROW_SECONDS = 1.0
# Largest number of rows kept as dicts, which take ten times the memory of a table.
_MAX_WAITING = 1000


class Driver(Protocol):
    """A search that a run advances: on the device, by ask-tell, or asynchronously."""

    kind: DriverKind
    batch: int
    """Number of evaluations per iteration and seed."""
    seeds: list[int]
    rows_at_once: int
    """Largest number of logged iterations in one call of `advance`."""

    @property
    def evaluator(self) -> Evaluator | None:
        """Where evaluations in Python run."""
        ...

    def start(self, start: Start | None = None) -> None:
        """Begin at iteration 0, with an archive that is empty or has the solutions of ``start``."""
        ...

    def restore(self, read: Callable[[Any], SearchState]) -> None:
        """Begin at a checkpoint; ``read`` returns its state, given the shapes of the state."""
        ...

    def advance(self, iterations: int, log_every: int) -> None:
        """Run some iterations. Those that are divisible by ``log_every`` are logged."""
        ...

    @property
    def iteration(self) -> int:
        """Number of finished iterations."""
        ...

    def checkpoint(self) -> SearchState:
        """Return the state for a checkpoint."""
        ...

    def metrics(self) -> list[list[dict[str, Any]]]:
        """Return the metrics of each seed, for the logged iterations of the last `advance`.

        The last iteration is among them.
        """
        ...

    def elites(self) -> list[Elites]:
        """Return the elites of each seed."""
        ...

    def snapshot(self) -> dict[str, np.ndarray]:
        """Return the arrays for a figure of the first seed."""
        ...

    def write_failures(self, folder: RunFolder) -> None:
        """Write the evaluations that failed, if the driver records them."""
        ...

    def read_failures(self, folder: RunFolder) -> None:
        """Read the failures in the folder, up to the driver's iteration."""
        ...


def drive(driver: Driver, domain: Callable, algorithm: Algorithm, options: RunOptions) -> Result:
    """Run a driver to the last iteration, from the beginning or from a checkpoint.

    Args:
        driver: The search.
        domain: The evaluation, which gives the run its name.
        algorithm: The algorithm.
        options: Options of the run.
    """
    began = time.perf_counter()
    dataset = options.dataset
    arrays = None if dataset is None else dataset_arrays(dataset)
    if dataset is not None:
        expected = f"{algorithm.archive.num_cells} items, one for each cell"
        fits = algorithm.archive.num_cells == len(dataset)
        fix = "Build the archive by dataset.archive()."
        checks.expect(fits, "dataset", expected, f"{len(dataset)}", fix)
    start = None
    if options.start_from is not None:
        again = options.reevaluate_start
        start = read_start(options.start_from, algorithm, reevaluate=again)
    if options.run_dir is None:
        driver.start(start)
        return _Loop(driver, domain, algorithm, options, began).run()
    folder = RunFolder(options.run_dir)
    config, config_arrays = describe(
        algorithm,
        domain,
        driver=driver.kind,
        seeds=driver.seeds,
        dataset=None if arrays is None else dataset_digest(arrays),
        plan=options.plan | {"started": time.time()},
        start=None if start is None else start.digest,
    )
    with folder.locked():
        seconds, num_rows, is_new = 0.0, 0, not folder.holds_run
        if is_new:
            folder.check_free()
            driver.start(start)
        elif options.resume:
            seconds, num_rows = _restore(driver, folder, config, start)
        else:
            raise RunExistsError(folder.path)

        def write_first_files() -> None:
            if is_new:
                folder.write_config(config, config_arrays)
            if dataset is not None:
                folder.write_dataset(dataset)

        loop = _Loop(driver, domain, algorithm, options, began - seconds, folder, num_rows)
        result = loop.run(write_first_files)
        if result.stopped is not None:
            stored = folder.read_config()
            plan = {**stored.plan, "stopped": result.stopped}
            folder.write_plan(dataclasses.replace(stored, plan=plan))
        return result


class _Loop:
    """One run of a driver, with its progress bar, callbacks, metrics and checkpoints.

    Args:
        driver: The search.
        domain: The evaluation, which gives the run its name.
        algorithm: The algorithm.
        options: Options of the run.
        began: Time at which the run began, earlier sessions included.
        folder: The run folder, or ``None`` to write nothing.
        num_rows: Number of rows of metrics in the folder.
    """

    def __init__(
        self,
        driver: Driver,
        domain: Callable,
        algorithm: Algorithm,
        options: RunOptions,
        began: float,
        folder: RunFolder | None = None,
        num_rows: int = 0,
    ):
        self._driver, self._options = driver, options
        self._began, self._folder = began, folder
        self._rows = MetricRows(folder, num_rows)
        self._notifier = Notifier(options.callbacks)
        # Not by the driver, which would wait here for its programs to compile.
        self._done, self._saved_at, self._wait = 0, began, options.checkpoint_seconds
        self._is_saved = self._has_warned = False
        given_name = options.name or getattr(domain, "name", "")
        name = str(given_name or getattr(domain, "__name__", ""))
        self._title = f"{algorithm.name} {given_name}".strip()
        self._settings: Mapping[str, str | int | float] = {
            "algorithm": algorithm.name,
            "domain": name,
            "cells": algorithm.archive.num_cells,
            "iterations": options.iterations,
            "seeds": len(driver.seeds),
            "batch": driver.batch,
        }

    def run(self, write_first_files: Callable[[], None] = lambda: None) -> Result:
        """Advance the driver to the last iteration, and tell callbacks how the run ended.

        Args:
            write_first_files: Called after all callbacks have started: a callback that cannot
                start, such as a logger without a writable file, leaves no run behind.
        """
        # Not at the top: `import gloam` does not wait for it, and programs compile meanwhile.
        import pandas  # noqa: F401

        notifier, driver = self._notifier, self._driver
        if self._options.callbacks:
            notifier.start(self._run_start())
        try:
            write_first_files()
            result = self._advance_to_end()
        except BaseException as error:
            status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            notifier.end(RunEnd(status, checks.plain_text(error), notifier.iteration, {}))
            notifier.report()
            raise
        status = "finished" if result.stopped is None else "stopped"
        notifier.end(RunEnd(status, result.stopped or "", driver.iteration, result.elites_by_seed))
        notifier.report()
        return dataclasses.replace(result, callback_failures=tuple(notifier.failures))

    def _run_start(self) -> RunStart:
        folder, done = self._folder, self._driver.iteration
        rows: Any = folder.read_metrics().to_dict("records") if folder is not None and done else []
        return RunStart(
            self._title,
            self._settings,
            tuple(self._driver.seeds),
            self._options.iterations,
            done,
            rows,
            folder.path if folder else None,
        )

    def _advance_to_end(self) -> Result:
        driver, options, display = self._driver, self._options, self._options.progress
        first_iteration, pace, reason = driver.iteration, None, None
        self._done, self._saved_at = first_iteration, time.perf_counter()
        if isinstance(display, bool):
            display = run_display(self._title, options.iterations) if display else Silent()
        # A callback may stop the run after any row.
        rows = 1 if options.callbacks else driver.rows_at_once
        with stop_signals() as stop, display as bar, _stop_passed_to(driver.evaluator, stop):
            while driver.iteration < options.iterations and reason is None:
                length = options.next_stop(driver.iteration, rows) - driver.iteration
                # The first stretch is one iteration: it compiles, and shows that the run works.
                length = min(length, max(1, int(_STRETCH_SECONDS / pace)) if pace else 1)
                with self._saved_on_error(), self._interrupted_while_waiting(stop):
                    self._is_saved, before = False, time.perf_counter()
                    driver.advance(length, options.log_every)
                    now = time.perf_counter()
                    pace = (now - before) / length
                    current, reason = self._log(before, now)
                    self._write(now, stop, is_due=reason is not None)
                    self._notifier.report()
                    current = with_one_reference(current)
                    bar.update(
                        driver.iteration,
                        float(np.mean([row["qd_score"] for row in current])),
                        float(np.mean([row["coverage"] for row in current])),
                        driver.batch * len(driver.seeds) / pace,
                        int(sum(row["failed_total"] for row in current)),
                        current[0]["f_min"],
                    )
                if stop.is_set() and driver.iteration < options.iterations:
                    raise self._interrupted(stop)
            with self._saved_on_error():
                if driver.iteration == first_iteration:
                    self._save()
                return self._result(reason)

    @contextmanager
    def _saved_on_error(self) -> Iterator[None]:
        """Save the run if the block raises, and add a note that says how to continue.

        Also after exceptions that are not errors: an evaluation or a callback may call `sys.exit`,
        and a second Ctrl-C raises KeyboardInterrupt at once.
        """
        before = time.perf_counter()
        try:
            yield
        except BaseException as error:
            if self._folder is not None:
                error.add_note(self._keep(self._folder, before, error))
            raise

    def _keep(self, folder: RunFolder, before: float, error: BaseException) -> str:
        """Save the run after an error, and return a note that says how to continue."""
        path, problem = folder.path, error
        try:
            if not self._is_saved:
                self._log(before, time.perf_counter())
                self._save()
        except Exception as second:  # the device lost the state, or the disk is full
            problem = second
        errors = [e for e in (error, problem) if isinstance(e, OSError)]
        cannot_write = any(str(path) in str(e.filename) for e in errors)
        fix = " Make room, or make the folder writable, and resume the run." if cannot_write else ""
        if self._is_saved:
            return f"The run was saved after iteration {self._done} in '{path}'.{fix}"
        try:
            newest = f"its newest checkpoint is of iteration {folder.read_checkpoint_iteration()}"
        except Exception:
            newest = "it has no checkpoint yet"
        what = f"The run in '{path}' stopped at iteration {self._done}"
        if problem is not error:
            what += f" and could not be saved ({checks.plain_text(problem)})"
        return f"{what}; {newest}.{fix or ' Resume the run.'}"

    def _log(self, before: float, now: float) -> tuple[list[dict[str, Any]], str | None]:
        """Log the rows of a stretch.

        Args:
            before: Time at which the stretch began. Rows are taken to be equally far apart.
            now: Time at which it ended.

        Returns:
            The metrics after the last iteration, and the reason of a callback to stop.
        """
        current, reason, first, last = [], None, self._done, self._driver.iteration
        logged: list[list[dict[str, Any]]] = []
        for rows in self._driver.metrics():
            current, iteration = rows, rows[0]["iteration"]
            # After an error, seeds of an asynchronous run may be ahead of the run.
            if first < iteration <= last and self._options.is_logged(iteration):
                share = (iteration - first) / (last - first)
                seconds = before + share * (now - before) - self._began
                logged.append([row | {"seconds": seconds} for row in current])
        # No row is logged twice, should writing it or a callback end the run.
        self._done = last
        self._rows.add([row for rows in logged for row in rows])
        for rows in logged:
            reason = self._notifier.log(rows)
        return current, reason

    def _write(self, now: float, stop: StopRequest, *, is_due: bool) -> None:
        """Write the snapshot and the checkpoint that are due after a stretch."""
        options, done = self._options, self._driver.iteration
        if self._folder and done in options.snapshots:
            self._folder.write_snapshot(done, self._driver.snapshot())
        is_due |= options.is_checkpoint(done) or now - self._saved_at > self._wait
        if is_due or stop.is_set() or self._notifier.has_news:
            started = time.perf_counter()
            self._save()
            self._saved_at = time.perf_counter()
            needed = _CHECKPOINT_WAIT * (self._saved_at - started)
            self._wait = max(options.checkpoint_seconds, needed)

    def _save(self) -> None:
        """Write a checkpoint, if there is a folder."""
        if self._folder is None:
            return
        try:
            self._driver.write_failures(self._folder)
            unwritten = None
        except Exception as error:  # the state of the search matters more than this log
            unwritten = error
        # Metrics before the state: rows past a checkpoint can be dropped, missing ones are lost.
        self._rows.save()
        self._folder.write_checkpoint(
            self._driver.checkpoint(),
            seconds=time.perf_counter() - self._began,
            num_rows=self._rows.num_rows,
            keep=self._options.keep_checkpoints,
        )
        self._is_saved = True
        self._notifier.checkpoint(self._driver.iteration)
        if unwritten is not None and not self._has_warned:
            self._has_warned = True
            warn(
                f"failures: expected to write '{self._folder.path / 'failures.parquet'}', got "
                f"{type(unwritten).__name__}: {checks.plain_text(unwritten)}. The run goes on, and "
                "tries again at each checkpoint; the metrics count all failures."
            )

    def _result(self, reason: str | None) -> Result:
        driver, folder = self._driver, self._folder
        by_seed = dict(zip(driver.seeds, driver.elites(), strict=True))
        if folder is not None:
            for seed, elites in by_seed.items():
                folder.write_archive(elites, seed=seed)
        path, metrics = folder.path if folder else None, self._rows.table()
        dataset = self._options.dataset
        return Result(by_seed, metrics, driver.seeds, path, stopped=reason, _dataset=dataset)

    def _interrupted(self, stop: StopRequest) -> Interrupted:
        path = self._folder.path if self._folder else None
        return Interrupted(path, self._driver.iteration, signal=stop.signal)

    @contextmanager
    def _interrupted_while_waiting(self, stop: StopRequest) -> Iterator[None]:
        """Raise `Interrupted` if an evaluator stops waiting because a stop was requested."""
        try:
            yield
        except WorkerError as error:
            if stop.is_set():
                raise self._interrupted(stop) from error
            raise


@contextmanager
def _stop_passed_to(evaluator: Evaluator | None, stop: StopRequest) -> Iterator[None]:
    """Let an evaluator see requests to stop, while the block runs."""
    if evaluator is None:
        yield
        return
    # Not by assignment, because an evaluator may be a frozen dataclass.
    object.__setattr__(evaluator, "stop_requested", stop.is_set)
    try:
        yield
    finally:
        object.__delattr__(evaluator, "stop_requested")


def _restore(
    driver: Driver, folder: RunFolder, config: RunConfig, start: Start | None = None
) -> tuple[float, int]:
    """Continue the run in a folder, which is written to only after everything fits.

    Returns:
        Time that earlier sessions took, and the number of rows of metrics in the folder.
    """
    stored = folder.read_config()
    if start is None and stored.start is not None:
        config = dataclasses.replace(config, start=stored.start)
        expected = "the elites that the run started from, because it has no checkpoint yet"
        fix = "Give the same start_from as before."
        checks.expect(folder.holds_checkpoint, "start_from", expected, "None", fix)
    differences = stored.differences(config)
    if differences:
        listed = "; ".join(differences[:5]) + ("; ..." if len(differences) > 5 else "")
        raise ValueError(
            f"The run in '{folder.path}' cannot be resumed with other settings or data: {listed}. "
            "Resume it with the same ones, or start in another folder."
        )
    checkpoint: Checkpoint | None = None

    def read(like: Any) -> SearchState:
        nonlocal checkpoint
        checkpoint = folder.read_checkpoint(like)
        return checkpoint.state

    if folder.holds_checkpoint:
        driver.restore(read)
        driver.read_failures(folder)
    else:  # it was stopped before its first checkpoint
        folder.check_not_finished()
        driver.start(start)
    is_begun = checkpoint is not None and checkpoint.iteration > 0
    changed = stored.changed_sources(config) if is_begun else []
    if changed:
        warn(
            f"The run in '{folder.path}' began with other code: {'; '.join(changed)}. It continues "
            "with the new code, and elites that it has found keep their objectives and measures. "
            "If the code computes something else, start in another folder."
        )
    if config.dataset is None:
        config = dataclasses.replace(config, dataset=stored.dataset)
    plan = {**config.plan, "started": stored.plan.get("started")}
    if plan.get("name") is None:
        plan["name"] = stored.plan.get("name")
    folder.write_plan(dataclasses.replace(config, plan=plan))
    return checkpoint.seconds if checkpoint else 0.0, _restore_metrics(checkpoint, folder)


def _restore_metrics(checkpoint: Checkpoint | None, folder: RunFolder) -> int:
    """Drop the rows of metrics past a checkpoint, and return the number of the others.

    Rows that cannot be read do not prevent a resume: a warning says how many are lost.
    """
    iteration, expected = (checkpoint.iteration, checkpoint.num_rows) if checkpoint else (0, 0)
    num_rows, error = folder.drop_metrics_after(iteration)
    if num_rows < expected:
        problem = error.problem if error else "it has fewer rows"
        warn(
            f"metrics: {expected - num_rows} of the {expected} rows up to iteration {iteration} "
            f"are lost ('{folder.path / 'metrics.csv'}': {problem}). The state of the search is "
            "intact, and the run continues without them."
        )
    return num_rows


class MetricRows:
    """Rows of metrics, in the run folder or in memory; few of them are kept as Python objects.

    Args:
        folder: The run folder, or ``None`` to keep rows in memory.
        num_rows: Number of rows in the folder.
    """

    def __init__(self, folder: RunFolder | None, num_rows: int = 0):
        self.num_rows = num_rows
        """Number of rows so far."""
        self._folder = folder
        self._waiting: list[dict[str, Any]] = []
        self._tables: list[pd.DataFrame] = []
        self._moved_at = time.perf_counter()

    def add(self, rows: list[dict[str, Any]]) -> None:
        """Add rows.

        Raises:
            OSError: They could not be written.
        """
        self._waiting += rows
        self.num_rows += len(rows)
        is_late = self._folder is not None and time.perf_counter() - self._moved_at > _ROW_SECONDS
        if is_late or len(self._waiting) >= _MAX_WAITING:
            self._move(sync=False)

    def save(self) -> None:
        """Write all rows to the disk."""
        self._move(sync=True)

    def table(self) -> "pd.DataFrame":
        """Return all rows."""
        import pandas as pd

        self._move(sync=False)
        if self._folder is not None:
            return self._folder.read_metrics()
        return pd.concat(self._tables, ignore_index=True) if self._tables else pd.DataFrame()

    def _move(self, *, sync: bool) -> None:
        """Move the waiting rows to the folder or to a table."""
        if self._folder is not None:
            self._folder.append_metrics(self._waiting, sync=sync)
        elif self._waiting:
            import pandas as pd

            self._tables.append(pd.DataFrame(self._waiting))
        self._waiting.clear()
        self._moved_at = time.perf_counter()
