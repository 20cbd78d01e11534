"""How the run in a folder is continued: its state from a checkpoint, and the metrics up to it."""

import dataclasses
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from gloam.drivers.loop import Earlier
from gloam.formats import RunFolder
from gloam.formats.checkpoints import Checkpoint
from gloam.formats.config import RunConfig

if TYPE_CHECKING:
    import pandas as pd


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
    metrics = _metrics_before(found, folder)
    if config.dataset is None:
        config = dataclasses.replace(config, dataset=stored.dataset)
    folder.write_plan(config)
    folder.write_metrics(metrics)
    return Earlier(found.seconds if found else 0.0, len(metrics))


def _metrics_before(checkpoint: Checkpoint | None, folder: RunFolder) -> "pd.DataFrame":
    """The rows of metrics up to a checkpoint. Those past it are made again.

    Rows that cannot be read do not keep a run from going on: a warning says how many they are.
    """
    table, errors = folder.read_whole_metrics()
    iteration = checkpoint.iteration if checkpoint else 0
    if len(table):
        table = table.loc[table["iteration"] <= iteration]
    expected = checkpoint.num_rows if checkpoint else 0
    num_lost = (1 if errors else 0) if expected is None else expected - len(table)
    if num_lost > 0:
        told = "Some" if expected is None else f"{num_lost} of the {expected}"
        reasons = "; ".join(f"'{error.path}': {error.problem}" for error in errors)
        warnings.warn(
            f"metrics: {told} rows up to iteration {iteration} are lost ({reasons or 'missing'}). "
            "The state of the search is whole, and the run goes on without them.",
            stacklevel=4,
        )
    return table
