"""The `Callback` base class, what its methods receive, and the `Notifier` that calls them."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from gloam._tools import checks
from gloam._tools.warn import GloamWarning, warn
from gloam.archives import Elites

Row = Mapping[str, Any]
"""Row of metrics: ``seed``, ``iteration``, ``qd_score`` and the other columns."""


@dataclasses.dataclass(frozen=True)
class RunStart:
    """Description of a run, passed to callbacks before its first iteration."""

    title: str
    """Names of the algorithm and the domain."""
    settings: Mapping[str, str | int | float]
    """Sizes and names that describe the run, for experiment trackers."""
    seeds: Sequence[int]
    iterations: int
    """Number of iterations in total."""
    first_iteration: int
    """Number of iterations finished: 0, or more in a resumed run."""
    earlier_rows: Sequence[Row]
    """Rows that were logged before the run was resumed, up to ``first_iteration``."""
    run_dir: Path | None


@dataclasses.dataclass(frozen=True)
class RunEnd:
    """Outcome of a run, passed to callbacks at its end."""

    status: Literal["finished", "stopped", "interrupted", "failed"]
    """``stopped`` by a callback, ``interrupted`` by a signal, ``failed`` by an error."""
    reason: str
    """Why the run was stopped or failed; empty if it finished."""
    iteration: int
    """Number of iterations finished."""
    elites_by_seed: Mapping[int, Elites]
    """Elites of each seed of a run that finished or was stopped; otherwise empty."""


class Callback:
    """Follows a run. Override the methods that you need; by default they do nothing.

    The methods are called in the thread of the run, between two stretches of compiled iterations,
    and the search waits for them. If a method raises an error, the callback is not called again:
    the run continues, a `CallbackWarning` reports the error, and ``Result.callback_failures`` keeps
    it. Only an error in `start` prevents a run, because nothing has been computed yet. `sys.exit`
    and KeyboardInterrupt end the run, after its state was saved.
    """

    def start(self, run: RunStart) -> None:
        """Called once, before the first iteration."""

    def log(self, rows: Sequence[Row]) -> str | None:
        """Called at every logged iteration, with one row of metrics per seed.

        Returns:
            A reason to stop the run after this iteration, or ``None``.
        """

    def checkpoint(self, iteration: int) -> None:
        """Called after a checkpoint was written to the run folder."""

    def end(self, end: RunEnd) -> None:
        """Called once, whether the run finished, was stopped, was interrupted or failed."""


def checked(callbacks: Any) -> tuple[Callback, ...]:
    """Return ``callbacks`` as a tuple, or raise an error if it is not a list of callbacks."""
    fix = "Pass a list, such as callbacks=[gloam.callbacks.StopAt('coverage', 0.9)]."
    is_list = isinstance(callbacks, (list, tuple))
    checks.expect(is_list, "callbacks", "a list of callbacks", checks.short(callbacks), fix)
    fix = "Derive your class from gloam.callbacks.Callback, and pass an instance of it."
    for callback in callbacks:
        is_callback = isinstance(callback, Callback)
        checks.expect(
            is_callback, "callbacks", "instances of Callback", checks.short(callback), fix
        )
    return tuple(callbacks)


@dataclasses.dataclass(frozen=True)
class CallbackFailure:
    """Error that a callback raised during a run."""

    callback: Callback
    method: str
    iteration: int
    error: Exception

    def __str__(self) -> str:
        return (
            f"{type(self.callback).__name__}.{self.method} raised {type(self.error).__name__}: "
            f"{checks.plain_text(self.error)} at iteration {self.iteration}. The run continues "
            "without this callback."
        )


class CallbackWarning(GloamWarning):
    """A callback raised an error and is not called again."""


class Notifier:
    """Calls the callbacks of one run, and collects their errors so that the run continues.

    Errors are reported after the run was saved, because a warning may itself be raised as an error.

    Args:
        callbacks: Callbacks, in the order in which they are called.
    """

    def __init__(self, callbacks: Sequence[Callback]):
        self.failures: list[CallbackFailure] = []
        """Errors that callbacks raised."""
        self.iteration = 0
        """Last iteration that was passed to the callbacks."""
        self._active = list(callbacks)
        self._unreported: list[CallbackFailure] = []

    def start(self, run: RunStart) -> None:
        """Call `Callback.start`. After an error, end the callbacks before it and raise it."""
        self.iteration = run.first_iteration
        waiting, self._active = self._active, []
        for callback in waiting:
            try:
                callback.start(run)
            except BaseException as error:
                self.end(RunEnd("failed", checks.plain_text(error), run.first_iteration, {}))
                self.report()
                raise
            self._active.append(callback)

    def log(self, rows: Sequence[dict[str, Any]]) -> str | None:
        """Pass the rows of an iteration on.

        Returns:
            The first reason to stop the run that a callback returned.
        """
        self.iteration = rows[0]["iteration"]
        reasons = self._call("log", lambda each: _reason(each.log([dict(row) for row in rows])))
        return next((reason for reason in reasons if reason is not None), None)

    def checkpoint(self, iteration: int) -> None:
        """Report that a checkpoint was written."""
        self._call("checkpoint", lambda each: each.checkpoint(iteration))

    def end(self, end: RunEnd) -> None:
        """Report the end of the run."""
        self.iteration = end.iteration
        self._call("end", lambda each: each.end(end))

    @property
    def has_news(self) -> bool:
        """Whether a callback has failed since the last `report`."""
        return bool(self._unreported)

    def report(self) -> None:
        """Warn of the callbacks that have failed since the last call."""
        while self._unreported:
            warn(str(self._unreported.pop(0)), CallbackWarning)

    def _call(self, method: str, call: Callable[[Callback], Any]) -> list[Any]:
        answers = []
        for callback in list(self._active):
            try:
                answers.append(call(callback))
            except Exception as error:
                self._active.remove(callback)
                failure = CallbackFailure(callback, method, self.iteration, error)
                self.failures.append(failure)
                self._unreported.append(failure)
        return answers


def _reason(answer: Any) -> str | None:
    fix = "Return a reason to stop the run as a string, or nothing."
    is_reason = answer is None or (isinstance(answer, str) and answer != "")
    checks.expect(is_reason, "log", "a string or None", checks.short(answer), fix)
    return answer
