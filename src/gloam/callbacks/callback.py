"""The protocol of callbacks, and what they are told.

Calls the callbacks of a run, so that an error in one of them does not end the run.

Errors are kept, and reported when the run has been saved: a warning may itself be an error.
"""

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from gloam import checks
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


_METHODS = ("start", "log", "checkpoint", "end")


def checked(callbacks: Any) -> tuple[Callback, ...]:
    """``callbacks`` as a tuple, if each of them has the methods of `Callback`."""
    fix = "Pass a list, such as callbacks=[gloam.callbacks.StopAt('coverage', 0.9)]."
    is_list = isinstance(callbacks, (list, tuple))
    checks.expect(is_list, "callbacks", "a list of callbacks", checks.short(callbacks), fix)
    for one in callbacks:
        fits = not isinstance(one, type) and all(
            callable(getattr(one, name, None)) for name in _METHODS
        )
        fix = "Derive your class from gloam.callbacks.Callback, and pass an instance of it."
        checks.expect(fits, "callbacks", "callbacks", checks.short(one), fix)
    return tuple(callbacks)


class Notifier:
    """The callbacks of one run.

    Args:
        callbacks: They are called in this order.
    """

    def __init__(self, callbacks: Sequence[Callback]):
        self.failures: list[CallbackFailure] = []
        """Errors that callbacks raised."""
        self.iteration = 0
        """Last iteration that callbacks were told of."""
        self._active = list(callbacks)
        self._num_reported = 0

    def start(self, run: RunStart) -> None:
        """Tell all callbacks that a run starts. An error is raised; those before it are ended."""
        self.iteration = run.first_iteration
        waiting, self._active = self._active, []
        for one in waiting:
            try:
                one.start(run)
            except BaseException as error:
                self.end(RunEnd("failed", str(error), run.first_iteration, {}))
                self.report()
                raise
            self._active.append(one)

    def log(self, rows: Sequence[dict[str, Any]]) -> str | None:
        """Pass on the rows of an iteration.

        Returns:
            The first reason that a callback gave to stop the run.
        """
        self.iteration = rows[0]["iteration"]
        answers = self._call("log", lambda one: _reason(one, one.log([dict(row) for row in rows])))
        return next((answer for answer in answers if answer is not None), None)

    def checkpoint(self, iteration: int) -> None:
        """Pass on that a checkpoint was written."""
        self._call("checkpoint", lambda one: one.checkpoint(iteration))

    def end(self, end: RunEnd) -> None:
        """Tell all callbacks that the run has ended."""
        self.iteration = end.iteration
        self._call("end", lambda one: one.end(end))

    @property
    def has_news(self) -> bool:
        """Whether a callback has failed that `report` has not named."""
        return len(self.failures) > self._num_reported

    def report(self) -> None:
        """Warn of the callbacks that have failed since the last call."""
        while self.has_news:
            failure = self.failures[self._num_reported]
            self._num_reported += 1
            warnings.warn(str(failure), CallbackWarning, stacklevel=2)

    def _call(self, method: str, call: Callable[[Callback], Any]) -> list[Any]:
        answers = []
        for one in list(self._active):
            try:
                answers.append(call(one))
            except Exception as error:
                self._active.remove(one)
                self.failures.append(CallbackFailure(one, method, self.iteration, error))
        return answers


def _reason(callback: Callback, answer: Any) -> str | None:
    fix = "Return the reason to stop the run as a text, or nothing."
    is_reason = answer is None or (isinstance(answer, str) and answer != "")
    checks.expect(is_reason, "log", "a text or None", checks.short(answer), fix)
    return answer
