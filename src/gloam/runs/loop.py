"""The rows of metrics that a run logs: in its folder, or in memory when it has none.

The loop around both drivers: metrics, checkpoints, snapshots, progress, and a clean stop.

How the run in a folder is continued: its state from a checkpoint, and the metrics up to it.
"""

import time
from typing import TYPE_CHECKING
from typing import Any
from gloam.formats import RunFolder
import dataclasses
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from contextlib import contextmanager
from typing import Protocol
import numpy as np
from gloam.archives import Elites
from gloam.callbacks import RunEnd
from gloam.callbacks import RunStart
from gloam.callbacks.callback import Notifier
from gloam.runs.options import RunOptions
from gloam.progress import Silent
from gloam.progress import run_display
from gloam.runs.result import Interrupted
from gloam.runs.result import Result
from gloam.runs.signals import stop_signals
import warnings
from gloam.formats.checkpoints import Checkpoint
from gloam.formats.config import RunConfig

if TYPE_CHECKING:
    import pandas as pd


# Rows wait this long, so that a fast run does not open a file at every iteration.
_SECONDS = 1.0
# Rows as dicts take ten times the memory of rows in a table.
_MAX_WAITING = 1000


class MetricRows:
    """Rows of metrics, few of them as Python objects, however long the run is.

    Args:
        folder: Where the rows are kept; ``None`` keeps them in memory, as columns of numbers.
        num_rows: Number of rows that the folder has.
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
        is_late = self._folder is not None and time.perf_counter() - self._moved_at > _SECONDS
        if is_late or len(self._waiting) >= _MAX_WAITING:
            self._move(sync=False)

    def save(self) -> None:
        """Bring all rows to the disk."""
        self._move(sync=True)

    def table(self) -> "pd.DataFrame":
        """All rows."""
        import pandas as pd

        self._move(sync=False)
        if self._folder is not None:
            return self._folder.read_metrics()
        return pd.concat(self._tables, ignore_index=True) if self._tables else pd.DataFrame()

    def _move(self, *, sync: bool) -> None:
        """Bring the waiting rows to where they are kept."""
        if self._folder is not None:
            self._folder.append_metrics(self._waiting, sync=sync)
        elif self._waiting:
            import pandas as pd

            self._tables.append(pd.DataFrame(self._waiting))
        self._waiting.clear()
        self._moved_at = time.perf_counter()


# Longest stretch of work between two looks at the clock and at Ctrl-C.
_STRETCH_SECONDS = 1.0
# A checkpoint by time waits for this many times what the last one took: about 3% of a run.
_CHECKPOINT_WAIT = 30.0


class Driver(Protocol):
    """A search that can be advanced: fused on the device, or ask-tell around Python."""

    batch: int
    """Evaluations per iteration and seed."""
    seeds: list[int]

    @property
    def iteration(self) -> int:
        """Iterations finished."""
        ...

    @property
    def state(self) -> Any:
        """The state to checkpoint."""
        ...

    def advance(self, iterations: int) -> None:
        """Run some iterations."""
        ...

    def metrics(self) -> list[dict[str, Any]]:
        """The metrics of each seed after the last iteration."""
        ...

    def elites(self) -> list[Elites]:
        """The elites of each seed."""
        ...

    def snapshot(self) -> dict[str, np.ndarray]:
        """Arrays for a picture of the first seed as it is now."""
        ...

    def write_failures(self, folder: RunFolder) -> None:
        """Write the evaluations that failed, where the driver knows them."""
        ...


@dataclasses.dataclass(frozen=True)
class Earlier:
    """What was spent and logged before, by earlier sessions of a run."""

    seconds: float = 0.0
    num_rows: int = 0
    """Number of rows of metrics in the folder, none of them past the driver's iteration."""


@dataclasses.dataclass(frozen=True)
class About:
    """Names that describe a run."""

    title: str
    settings: Mapping[str, str | int | float]


def drive(
    driver: Driver, options: RunOptions, folder: RunFolder | None, about: About, earlier: Earlier
) -> Result:
    """Advance a driver to the last iteration, keeping what the options say.

    Args:
        driver: The search, possibly resumed in the middle.
        options: How far, what to keep, and whom to tell.
        folder: Where to keep it; ``None`` keeps nothing on disk.
        about: Describes the run, beside the progress bar and to callbacks.
        earlier: What was spent and logged before.
    """
    began = time.perf_counter() - earlier.seconds
    # Here, and not above: `import gloam` need not wait for it, and programs compile meanwhile.
    import pandas  # noqa: F401

    notifier = Notifier(options.callbacks)
    if options.callbacks:
        notifier.start(_run_start(driver, options, folder, about))
    try:
        result = _advanced(driver, options, folder, about, earlier, began, notifier)
    except BaseException as error:
        status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        notifier.end(RunEnd(status, str(error), notifier.iteration, {}))
        notifier.report()
        raise
    status = "finished" if result.stopped is None else "stopped"
    notifier.end(RunEnd(status, result.stopped or "", driver.iteration, result.elites_by_seed))
    notifier.report()
    return dataclasses.replace(result, callback_failures=tuple(notifier.failures))


def _run_start(
    driver: Driver, options: RunOptions, folder: RunFolder | None, about: About
) -> RunStart:
    done = driver.iteration
    rows: Any = folder.read_metrics().to_dict("records") if folder is not None and done else []
    sizes = {"iterations": options.iterations, "seeds": len(driver.seeds), "batch": driver.batch}
    return RunStart(
        about.title,
        {**about.settings, **sizes},
        tuple(driver.seeds),
        options.iterations,
        done,
        rows,
        folder.path if folder else None,
    )


def _advanced(
    driver: Driver,
    options: RunOptions,
    folder: RunFolder | None,
    about: About,
    earlier: Earlier,
    began: float,
    notifier: Notifier,
) -> Result:
    rows, progress = MetricRows(folder, earlier.num_rows), options.progress
    first_iteration = driver.iteration
    saved_at, wait = time.perf_counter(), options.checkpoint_seconds
    pace = None
    if isinstance(progress, bool):
        progress = run_display(about.title, options.iterations) if progress else Silent()

    def save() -> None:
        if folder is None:
            return
        driver.write_failures(folder)
        # Metrics before state: rows past a checkpoint can be dropped, missing ones not made up.
        rows.save()
        seconds = time.perf_counter() - began
        keep = options.keep_checkpoints
        folder.write_checkpoint(driver.state, seconds=seconds, num_rows=rows.num_rows, keep=keep)
        notifier.checkpoint(driver.iteration)

    with stop_signals() as stop, progress as display:
        reason: str | None = None
        while driver.iteration < options.iterations and reason is None:
            length = options.next_stop(driver.iteration) - driver.iteration
            # The first stretch is one iteration: it compiles, and shows that the run works.
            length = min(length, max(1, int(_STRETCH_SECONDS / pace)) if pace else 1)
            before = time.perf_counter()
            try:
                driver.advance(length)
            except Exception as error:
                _save_after(error, save, driver, folder)
                raise
            now = time.perf_counter()
            pace = (now - before) / length
            done = driver.iteration
            current = driver.metrics()
            with _resumable(folder, done):
                if options.is_logged(done):
                    logged = [row | {"seconds": now - began} for row in current]
                    rows.add(logged)
                    reason = notifier.log(logged)
                if folder and done in options.snapshots:
                    folder.write_snapshot(done, driver.snapshot())
                is_due = options.is_checkpoint(done) or now - saved_at > wait
                if is_due or stop.is_set() or reason is not None or notifier.has_news:
                    started = time.perf_counter()
                    save()
                    saved_at = time.perf_counter()
                    wait = max(options.checkpoint_seconds, _CHECKPOINT_WAIT * (saved_at - started))
            notifier.report()
            rate = driver.batch * len(driver.seeds) / pace
            display.update(
                done,
                float(np.mean([row["qd_score"] for row in current])),
                float(np.mean([row["coverage"] for row in current])),
                rate,
                int(sum(row["failed_total"] for row in current)),
            )
            if stop.is_set() and done < options.iterations:
                raise Interrupted(folder.path if folder else None, done, signal=stop.signal)
        with _resumable(folder, driver.iteration):
            if driver.iteration == first_iteration:
                save()
            found = dict(zip(driver.seeds, driver.elites(), strict=True))
            if folder is not None:
                for seed, elites in found.items():
                    folder.write_archive(elites, seed=seed)
            path = folder.path if folder else None
            return Result(found, rows.table(), driver.seeds, path, stopped=reason)


@contextmanager
def _resumable(folder: RunFolder | None, iteration: int) -> Iterator[None]:
    """Say of an error of writing, such as that of a full disk, what is left and how to go on."""
    try:
        yield
    except OSError as error:
        if folder is not None:
            try:
                saved = (
                    f"its newest checkpoint is of iteration {folder.read_checkpoint_iteration()}"
                )
            except (OSError, ValueError):
                saved = "it has no checkpoint yet"
            error.add_note(
                f"The run in '{folder.path}' stopped at iteration {iteration}; {saved}. Make room, "
                "or make the folder writable, and resume the run."
            )
        raise


def _save_after(
    error: Exception, save: Callable[[], None], driver: Driver, folder: RunFolder | None
) -> None:
    """Keep what was found before an evaluation, or the device, raised an error."""
    if folder is None:
        return
    try:
        save()
        note = f"The run was saved after iteration {driver.iteration} in '{folder.path}'."
    except Exception as second:  # for instance: the device lost the state, or the disk is full
        note = f"The run could not be saved in '{folder.path}' ({second}). Resume its checkpoint."
    error.add_note(note)


class Restorable(Protocol):
    """The part of a driver that begins a search."""

    def start(self) -> None:
        """Begin at iteration 0."""
        ...

    def restore(self, read: Callable[[Any], Any]) -> None:
        """Begin where a checkpoint ended; ``read`` is given the shapes of the state."""
        ...

    def read_failures(self, folder: RunFolder) -> None:
        """Take over the failures that the folder holds, up to the driver's iteration."""
        ...


def restored(driver: Restorable, folder: RunFolder, config: RunConfig) -> Earlier:
    """Continue the run in a folder. It is written to only after everything was read and fits."""
    stored = folder.read_config()
    differences = stored.differences(config)
    if differences:
        listed = "; ".join(differences[:5]) + ("; ..." if len(differences) > 5 else "")
        raise ValueError(
            f"The run in '{folder.path}' cannot be resumed with other settings or data: {listed}. "
            "Resume it with the same ones, or start in another folder."
        )
    found = None
    if folder.holds_checkpoint:
        checkpoints = []

        def read(like: Any) -> Any:
            checkpoints.append(folder.read_checkpoint(like))
            return checkpoints[0].state

        driver.restore(read)
        driver.read_failures(folder)
        found = checkpoints[0]
    else:  # it was stopped before its first checkpoint
        driver.start()
    if config.dataset is None:
        config = dataclasses.replace(config, dataset=stored.dataset)
    folder.write_plan(config)
    return Earlier(found.seconds if found else 0.0, _restore_metrics(found, folder))


def _restore_metrics(checkpoint: Checkpoint | None, folder: RunFolder) -> int:
    """Drop the rows of metrics past a checkpoint, and return the number of the others.

    Rows that cannot be read do not keep a run from going on: a warning states their number.
    """
    iteration, expected = (checkpoint.iteration, checkpoint.num_rows) if checkpoint else (0, 0)
    num_rows, error = folder.drop_metrics_after(iteration)
    if num_rows < expected:
        problem = error.problem if error else "it has fewer rows"
        warnings.warn(
            f"metrics: {expected - num_rows} of the {expected} rows up to iteration {iteration} "
            f"are lost ('{folder.path / 'metrics.csv'}': {problem}). The state of the search is "
            "complete, and the run goes on without them.",
            stacklevel=4,
        )
    return num_rows
