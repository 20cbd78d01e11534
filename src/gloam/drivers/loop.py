"""The loop around both drivers: metrics, checkpoints, snapshots, progress, and a clean stop."""

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from gloam.archives import Elites
from gloam.callbacks import RunEnd, RunStart
from gloam.callbacks.notifier import Notifier
from gloam.drivers.metric_rows import MetricRows
from gloam.drivers.options import RunOptions
from gloam.drivers.progress_bars import Silent, bar
from gloam.drivers.result import Interrupted, Result
from gloam.drivers.signals import stop_signals
from gloam.formats import RunFolder

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
        progress = bar(about.title, options.iterations) if progress else Silent()

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
