"""Signals that stop a run: Ctrl-C, termination, a closed terminal, the end of a batch job."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class StopRequest:
    """The signal that requested the run to stop, if any."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def is_set(self) -> bool:
        """Return whether a signal has arrived."""
        return self.signal is not None


@contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Turn Ctrl-C and termination signals into a request to stop after the current iteration.

    A second signal acts as usual. If the block does not raise KeyboardInterrupt (the signal arrived
    during the last iteration, or while results were written), the signal is delivered again at the
    end of the block. Only the main thread can handle signals; in others the request is never set.
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
    """Return the signals that stop a run.

    Not included are signals that are ignored, as SIGHUP is under nohup, and those whose handler was
    not installed by Python (``None``) and could not be restored. Batch systems announce the end of
    a job by SIGUSR1, SIGUSR2 or SIGXCPU; a program that handles these itself keeps its handlers.
    """
    usual, of_batch_systems = (
        [getattr(signal, name) for name in names if hasattr(signal, name)]
        for names in (
            ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK"),
            ("SIGUSR1", "SIGUSR2", "SIGXCPU"),
        )
    )
    stopping = [s for s in usual if signal.getsignal(s) not in (signal.SIG_IGN, None)]
    return stopping + [s for s in of_batch_systems if signal.getsignal(s) is signal.SIG_DFL]


@contextmanager
def remembered_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt at the end of the block if one was raised and lost in it.

    Python drops exceptions that are raised in destructors and in callbacks of C libraries, which
    can happen to a KeyboardInterrupt while figures are drawn.
    """
    usual = signal.getsignal(signal.SIGINT)
    main = threading.current_thread() is threading.main_thread()
    if not main or usual is not signal.default_int_handler:
        yield  # Ctrl-C is handled elsewhere
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
