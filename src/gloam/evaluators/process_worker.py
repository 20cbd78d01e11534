"""One worker process: how it is started, spoken to and ended; and the loop that runs in it."""

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing import connection
from typing import Any

import numpy as np

from gloam.evaluators.answers import AnswerForm
from gloam.evaluators.blocks import Block, evaluated_blocks
from gloam.evaluators.evaluator import EvaluatorError

_READY, _BROKEN = "ready", "broken"
_SECONDS_TO_END = 3.0


class Worker:
    """A worker process, as its parent sees it.

    Args:
        initializer: Called once in the process before the first evaluation.
        initargs: Its arguments.
    """

    def __init__(self, initializer: Callable | None, initargs: Sequence[Any]):
        # Spawned, because a fork would copy the locks that JAX's threads hold.
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, initializer, initargs), name="gloam-worker"
        )
        self._process.start()
        theirs.close()
        self.is_ready = False
        self.rows: list[int] = []
        """Rows it works on that have no result yet."""
        self._chunk: list[int] = []
        self._function: bytes | None = None
        self._began = 0.0

    @property
    def is_idle(self) -> bool:
        """True when it can be given rows."""
        return self.is_ready and not self.rows

    @property
    def is_alive(self) -> bool:
        """True while the process runs."""
        return self._process.is_alive()

    @property
    def exit_code(self) -> int | None:
        """The exit code of a process that ended; negative numbers are signals."""
        self._process.join(_SECONDS_TO_END)
        return self._process.exitcode

    def deadline(self, timeout: float, each_alone: bool) -> float:
        """When the evaluation that is going on has taken too long.

        Args:
            timeout: Longest time of one evaluation.
            each_alone: Whether results come row by row, or all at once.
        """
        return self._began + timeout * (1 if each_alone else max(1, len(self.rows)))

    def send(
        self, function: bytes, rows: list[int], solutions: np.ndarray, form: AnswerForm, retry: bool
    ) -> None:
        """Give it rows to evaluate.

        Raises:
            OSError: The process has ended.
        """
        self.rows, self._chunk, self._began = list(rows), rows, time.monotonic()
        if function is not self._function:
            self.connection.send_bytes(function)
            self._function = function
        self.connection.send((solutions, form, retry))

    def receive(self) -> tuple[list[int], Block] | None:
        """Its next message: a block with the rows of its chunk, or none when it became ready.

        Raises:
            EOFError, OSError: The process has ended.
            EvaluatorError: The initializer raised, or the function could not be imported.
        """
        message = self.connection.recv()
        self._began = time.monotonic()
        if isinstance(message, Block):
            done = set(self._chunk[message.start : message.start + message.num_rows])
            self.rows = [row for row in self.rows if row not in done]
            return self._chunk, message
        kind, text = message
        if kind == _BROKEN:
            raise EvaluatorError(f"workers: expected {text}")
        self.is_ready = True
        return None

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._close()

    def stop(self) -> None:
        """Ask it to end in its own way."""
        with contextlib.suppress(OSError):
            self.connection.send_bytes(b"")

    def end(self) -> None:
        """Wait for its end, but not for long."""
        self._process.join(_SECONDS_TO_END)
        self.kill()

    def _close(self) -> None:
        self._process.join()
        self._process.close()
        self.connection.close()


def _serve(
    parent: connection.Connection, initializer: Callable | None, initargs: Sequence[Any]
) -> None:
    """Evaluate what the parent sends until it says stop or ends."""
    # Ctrl-C reaches all processes of a terminal. The parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        if initializer is not None:
            initializer(*initargs)
    except Exception:
        told = f"an initializer that runs, got an error from it:\n{traceback.format_exc()}"
        parent.send((_BROKEN, told))
        return
    function: Any = None
    with contextlib.suppress(EOFError, OSError):  # the parent has ended
        parent.send((_READY, ""))
        while content := parent.recv_bytes():
            try:
                message = pickle.loads(content)
            except Exception:
                told = "a function that worker processes can import, got an error from the import"
                parent.send((_BROKEN, f"{told}:\n{traceback.format_exc()}"))
                return
            if not isinstance(message, tuple):
                function = message
                continue
            solutions, form, retry = message
            solutions.flags.writeable = False  # as in the process of the search
            for block in evaluated_blocks(function, solutions, form, retry_rows=retry):
                parent.send(block.portable())


def _end_with_parent() -> None:
    """End this process when its parent was killed, whatever the evaluation is doing."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)
