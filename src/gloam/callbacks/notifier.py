"""Calls the callbacks of a run, so that an error in one of them does not end the run.

Errors are kept, and reported when the run has been saved: a warning may itself be an error.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from gloam import checks
from gloam.callbacks.callback import Callback, CallbackFailure, CallbackWarning, RunEnd, RunStart

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
