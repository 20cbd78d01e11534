"""Signals that ask a run to stop: Ctrl-C, a termination, a closed terminal, the end of a job.

`stop_signals` lets the loop of a run stop at a whole state. `remembered_interrupt` is for the work
around runs (reading, drawing). Neither lets a signal pass without effect.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class StopRequest:
    """Whether a signal asked the run to stop, and which one."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def is_set(self) -> bool:
        """Whether a signal has come."""
        return self.signal is not None


@contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """A request that Ctrl-C or a termination signal sets, so that the loop stops at a whole state.

    A second signal acts as usual. A signal that the block did not answer by a KeyboardInterrupt
    (it came during the last iteration, or while results were written) is delivered again at the
    end of the block, so that it ends what follows. Only the main thread may handle signals;
    elsewhere the request is never set.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    usual = {kind: signal.getsignal(kind) for kind in _stopping()}

    def restore() -> None:
        for kind, handler in usual.items():
            signal.signal(kind, handler)

    def note(kind: int, frame: Any) -> None:
        request.signal = kind
        restore()

    for kind in usual:
        signal.signal(kind, note)
    answered = False
    try:
        yield request
    except KeyboardInterrupt:
        answered = True
        raise
    finally:
        restore()
        if request.signal is not None and not answered:
            signal.raise_signal(request.signal)


def _stopping() -> list[signal.Signals]:
    """The signals that stop a run.

    Left out are those that are ignored, as SIGHUP is under nohup, and those whose handler Python
    did not install (``None``) and could not install again. Batch systems announce the end of a
    job by SIGUSR1, SIGUSR2 or SIGXCPU, which end a process; a program that handles these itself
    goes on to do so.
    """
    found = []
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK"):
        if hasattr(signal, name):
            kind = getattr(signal, name)
            found += [kind] if signal.getsignal(kind) not in (signal.SIG_IGN, None) else []
    for name in ("SIGUSR1", "SIGUSR2", "SIGXCPU"):
        if hasattr(signal, name):
            kind = getattr(signal, name)
            found += [kind] if signal.getsignal(kind) is signal.SIG_DFL else []
    return found


@contextmanager
def remembered_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt at the end of the block if Ctrl-C came and was lost in it.

    Python drops an exception that is raised while an object is destroyed or a library written in C
    calls back. A KeyboardInterrupt can meet that fate while figures are drawn.
    """
    usual = signal.getsignal(signal.SIGINT)
    main = threading.current_thread() is threading.main_thread()
    if not main or usual is not signal.default_int_handler:
        yield  # somebody else decides what Ctrl-C does
        return
    came = False

    def note(kind: int, frame: Any) -> None:
        nonlocal came
        came = True
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if came:
        raise KeyboardInterrupt
