"""The protocol of callbacks, and what they are told."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from gloam.archives import Elites

Row = Mapping[str, Any]
"""A row of the metrics: ``seed``, ``iteration``, ``qd_score`` and the other columns."""


@dataclasses.dataclass(frozen=True)
class RunStart:
    """What a callback is told before the first iteration."""

    title: str
    """Names of the algorithm and the domain."""
    settings: Mapping[str, str | int | float]
    """Sizes and names that describe the run, for experiment trackers."""
    seeds: Sequence[int]
    iterations: int
    """Number of iterations, in all."""
    first_iteration: int
    """Number of iterations finished: 0, or more in a run that is resumed."""
    earlier_rows: Sequence[Row]
    """Rows logged before a run was resumed, none of them past ``first_iteration``."""
    run_dir: Path | None


@dataclasses.dataclass(frozen=True)
class RunEnd:
    """What a callback is told at the end."""

    status: Literal["finished", "stopped", "interrupted", "failed"]
    """``stopped`` by a callback, ``interrupted`` by a signal, ``failed`` by an error."""
    reason: str
    """Why the run was stopped or failed; empty when it finished."""
    iteration: int
    """Number of iterations finished."""
    elites_by_seed: Mapping[int, Elites]
    """The elites of every seed of a run that finished or was stopped; otherwise empty."""


class Callback:
    """Something that follows a run. Override the methods that you need; each does nothing here.

    The methods are called in the thread of the run, between two stretches of compiled iterations,
    and the search waits for them. A callback whose method raises an error is not called any more:
    the run goes on, a `CallbackWarning` reports the error, and ``Result.callback_failures`` keeps
    it. Only an error in `start` prevents a run, because nothing has been computed yet.
    """

    def start(self, run: RunStart) -> None:
        """Called once, before the first iteration."""

    def log(self, rows: Sequence[Row]) -> str | None:
        """Called for every logged iteration, with a row of metrics for each seed.

        Returns:
            ``None``, or the reason why the run shall stop after this iteration.
        """

    def checkpoint(self, iteration: int) -> None:
        """Called when a checkpoint has been written to the run folder."""

    def end(self, end: RunEnd) -> None:
        """Called once, whether the run finished, was stopped, was interrupted or failed."""


@dataclasses.dataclass(frozen=True)
class CallbackFailure:
    """An error that a callback raised during a run."""

    callback: Callback
    method: str
    iteration: int
    error: Exception

    def __str__(self) -> str:
        what = f"{type(self.error).__name__}: {self.error}"
        return (
            f"{type(self.callback).__name__}.{self.method} raised {what} at iteration "
            f"{self.iteration}. The run goes on without this callback."
        )


class CallbackWarning(UserWarning):
    """A callback raised an error and is not called any more."""
