"""The loop around both drivers: metrics, checkpoints, snapshots, progress, and a clean stop."""

import dataclasses
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gloam.archives import Elites
from gloam.drivers.options import RunOptions
from gloam.drivers.progress_bars import Silent, bar
from gloam.drivers.result import Interrupted, Result
from gloam.drivers.signals import stop_signals
from gloam.formats import RunFolder

if TYPE_CHECKING:
    import pandas as pd

# Longest stretch of work between two looks at the clock and at Ctrl-C.
_STRETCH_SECONDS = 1.0


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
    metrics: "pd.DataFrame | None" = None
    """Rows past the driver's iteration are dropped: they were logged after the checkpoint and will
    be made again."""


def drive(
    driver: Driver, options: RunOptions, folder: RunFolder | None, title: str, earlier: Earlier
) -> Result:
    """Advance a driver to the last iteration, keeping what the options say.

    Args:
        driver: The search, possibly resumed in the middle.
        options: How far, and what to keep.
        folder: Where to keep it; ``None`` keeps nothing on disk.
        title: Shown beside the progress bar.
        earlier: What was spent and logged before.
    """
    began = time.perf_counter() - earlier.seconds
    # Here, and not above: `import gloam` need not wait for it, and programs compile meanwhile.
    import pandas as pd

    rows: list[dict[str, Any]] = []
    metrics, progress = earlier.metrics, options.progress
    if metrics is not None and len(metrics):
        rows = metrics[metrics["iteration"] <= driver.iteration].to_dict("records")  # pyright: ignore
    first_iteration = driver.iteration
    saved_at = time.perf_counter()
    pace = None
    if isinstance(progress, bool):
        progress = bar(title, options.iterations) if progress else Silent()

    def save() -> None:
        if folder is None:
            return
        driver.write_failures(folder)
        # Metrics before state: rows past a checkpoint can be dropped, missing ones not made up.
        folder.write_metrics(pd.DataFrame(rows))
        alone = len(driver.seeds) == 1
        for seed, elites in zip(driver.seeds, driver.elites(), strict=True):
            folder.write_archive(elites, seed=seed, alone=alone)
        folder.write_checkpoint(driver.state, seconds=time.perf_counter() - began)

    with stop_signals() as stop, progress as display:
        while driver.iteration < options.iterations:
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
            if options.is_logged(done):
                rows += [row | {"seconds": now - began} for row in current]
            if folder and done in options.snapshots:
                folder.write_snapshot(done, driver.snapshot())
            is_late = now - saved_at > options.checkpoint_seconds
            if options.is_checkpoint(done) or is_late or stop.is_set():
                save()
                saved_at = time.perf_counter()
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
    if driver.iteration == first_iteration:
        save()
    found = dict(zip(driver.seeds, driver.elites(), strict=True))
    return Result(found, pd.DataFrame(rows), driver.seeds, folder.path if folder else None)


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
