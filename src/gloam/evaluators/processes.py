"""Evaluation in worker processes of this machine, which are replaced when they crash or hang."""

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Sequence
from multiprocessing import connection
from typing import Any

import numpy as np

from gloam._tools import checks
from gloam.errors import WorkerError
from gloam.evaluators.results import Block, ResultSpec, evaluated_blocks, function_of_user
from gloam.evaluators.row_queue import Pace
from gloam.evaluators.workers import Work, Workers

_READY, _BROKEN = "ready", "broken"
_SECONDS_TO_END = 3.0
_LONGEST_WAIT = 3600.0
# Number of workers in a row that may end before their first evaluation.
_FAILED_STARTS = 3
# Evaluations that wait for something else may have more workers than processors. Each takes a
# process with its own memory.
_MOST_WORKERS, _MOST_PER_PROCESSOR = 64, 8


class Processes(Workers):
    """Evaluates in worker processes, which are replaced when they crash or hang.

    Workers are spawned, so the function must be importable: defined in a module, or in a script
    that starts its work under ``if __name__ == "__main__":``. A function of a batch gets chunks of
    the batch. The results do not depend on the chunks if each row depends on its own solution only.
    Matrix products may round differently in chunks of another size, so give ``chunk`` or use
    `gloam.evaluators.PerSolution` if runs have to be reproducible to the bit.

    Args:
        workers: Number of processes; by default the number of processors, and at most 8 for each
            processor, or 64. A batch of fewer rows starts no more than it has processors or rows.
        chunk: Number of solutions that are sent at a time. By default about 0.1 seconds of work,
            by the measured time.
        initializer: Function that is called once in each process, for instance to load a model.
        initargs: Arguments of the initializer.
        timeout: Time limit of one evaluation in seconds. A worker that takes longer is replaced,
            and the solution counts as failed. A function of a batch has this time for each row of
            its chunk; if a chunk takes longer, its rows are evaluated again one by one.
        retries: Number of times that a solution is evaluated again after its worker crashed.
        retry_rows: If a function of a batch raises, call it again for each row of the chunk, so
            that only the rows that fail alone are lost.

    Example:
        >>> import gloam
        >>> workers = gloam.evaluators.Processes(8, timeout=60.0)
        >>> # gloam.optimize(simulate, algorithm, 1000, evaluator=workers, per_solution=True)
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        chunk: int | None = None,
        initializer: Callable | None = None,
        initargs: Sequence[Any] = (),
        timeout: float | None = None,
        retries: int = 1,
        retry_rows: bool = True,
    ):
        processors = os.cpu_count() or 1
        most = max(_MOST_WORKERS, _MOST_PER_PROCESSOR * processors)
        fix = f"This machine has {processors} processors. For more, use a cluster: Dask or Ray."
        number = processors if workers is None else workers
        self._num_workers = checks.integer("workers", number, minimum=1, maximum=most, fix=fix)
        if timeout is not None:
            checks.number("timeout", timeout, above=0.0)
        fix = "For instance initializer=load, initargs=('model.pt',)."
        checks.instance("initargs", initargs, (tuple, list), fix)
        if initializer is not None:
            got = type(initializer).__name__
            checks.expect(callable(initializer), "initializer", "a function", got, fix)
            _pickled("initializer", (initializer, tuple(initargs)), initializer)
        self.timeout, self.retries = timeout, checks.integer("retries", retries, minimum=0)
        self.retry_rows = retry_rows
        self._start = (initializer, tuple(initargs))
        self._pace = Pace(chunk)
        self._workers: list[Worker] = []
        self._function: tuple[Any, bytes] = (None, b"")
        self._failed_starts = 0
        self._were_ready = False
        # At the end of the program Python waits for processes that nobody ended.
        weakref.finalize(self, _kill_all, self._workers)

    def check(self, function: Callable) -> None:
        """Check that a worker process can import the function."""
        super().check(function)
        self._pickled_function(function)

    @property
    def num_workers(self) -> int:
        """Largest number of processes."""
        return self._num_workers

    def _advance(self, work: Work, seconds: float | None) -> None:
        self._grow(min(self.num_workers, work.queue.num_missing))
        self._give_out(work)
        for worker in self._waited_for(work.each_alone, seconds):
            self._receive(worker, work)
        self._end_late_ones(work)

    def _give_out(self, work: Work) -> None:
        content = self._pickled_function(work.function)
        for number, worker in enumerate(self._workers):
            if not worker.is_idle:
                continue
            if not worker.is_alive:  # it ended between two batches, so no row caused it
                self._replace(number)
                continue
            rows = work.queue.take(self.num_workers)
            if not rows:
                return
            try:
                worker.send(content, rows, work.solutions(rows), work.spec, work.retry_rows)
            except OSError:
                work.queue.put_back(rows)
                self._replace(number)

    def _waited_for(self, each_alone: bool, seconds: float | None) -> "list[Worker]":
        """Return the workers that have sent a message or ended."""
        busy = {w.connection: w for w in self._workers if not w.is_idle}
        seconds = _LONGEST_WAIT if seconds is None else seconds
        if self.timeout is not None:
            ends = [w.deadline(self.timeout, each_alone) for w in busy.values() if w.rows]
            left = max(0.0, min(ends, default=np.inf) - time.monotonic())
            seconds = min(seconds, left)
        ready = connection.wait(list(busy), seconds)
        return [busy[pipe] for pipe in ready]  # pyright: ignore[reportArgumentType]

    def _receive(self, worker: "Worker", work: Work) -> None:
        try:
            answer = worker.receive()
        except (EOFError, OSError):
            self._lost(worker, work)
            return
        if answer is not None:
            work.queue.put(*answer)
        self._failed_starts, self._were_ready = 0, True

    def _lost(self, worker: "Worker", work: Work) -> None:
        """Replace a worker that ended, and evaluate its rows again."""
        code = worker.exit_code
        self._failed_starts += not worker.is_ready
        if self._failed_starts > (_FAILED_STARTS if self._were_ready else 0):
            raise WorkerError(
                f"workers: expected processes that start, got exit code {code} from one. "
                "Its output is above. A script must start its work under "
                "`if __name__ == '__main__':`, because worker processes import it."
            )
        self._replace(self._workers.index(worker))
        error = f"the worker process ended with exit code {code} during the evaluation"
        work.queue.lose(worker.rows, "lost worker", error, in_order=work.each_alone)

    def _end_late_ones(self, work: Work) -> None:
        if self.timeout is None:
            return
        now = time.monotonic()
        for number, worker in enumerate(self._workers):
            if not worker.rows or now < worker.deadline(self.timeout, work.each_alone):
                continue
            if worker.connection.poll():  # it has just finished
                continue
            self._replace(number)
            error = f"the evaluation took longer than the time limit of {self.timeout:g} s"
            work.queue.lose(worker.rows, "timeout", error, in_order=work.each_alone)

    def _end(self, work: Work) -> None:
        # Workers end an evaluation only with their process. Usually none is under way.
        busy = [worker for worker in self._workers if worker.rows]
        self._workers[:] = [worker for worker in self._workers if not worker.rows]
        _kill_all(busy)

    def _replace(self, number: int) -> None:
        self._workers[number].kill()
        self._workers[number] = Worker(*self._start)

    def _pickled_function(self, function: Callable) -> bytes:
        if self._function[0] is not function:
            self._function = function, _pickled("evaluate", function, function)
        return self._function[1]

    def start(self) -> None:
        """Start workers for the processors of this machine; `evaluate` starts the others."""
        self._grow(min(self.num_workers, os.cpu_count() or 1))

    def _grow(self, number: int) -> None:
        while len(self._workers) < number:
            self._workers.append(Worker(*self._start))

    def stop(self, *, failed: bool) -> None:
        """Request idle workers to end, unless there was an error; kill the others."""
        idle = [worker for worker in self._workers if worker.is_idle and not failed]
        busy = [worker for worker in self._workers if worker not in idle]
        self._workers.clear()
        _kill_all(busy)
        for worker in idle:
            worker.stop()
        for worker in idle:
            worker.end()


class Worker:
    """The parent's handle of a worker process.

    Args:
        initializer: Function that is called once in the process before the first evaluation.
        initargs: Arguments of the initializer.
    """

    def __init__(self, initializer: Callable | None, initargs: Sequence[Any]):
        # Spawned, because a fork would copy the locks that JAX's threads hold.
        context = multiprocessing.get_context("spawn")
        self.connection, child_connection = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(child_connection, initializer, initargs), name="gloam-worker"
        )
        self._process.start()
        child_connection.close()
        self.is_ready = False
        self.rows: list[int] = []
        """Rows that it has received and not finished."""
        self._chunk: list[int] = []
        self._function: bytes | None = None
        self._began = 0.0

    @property
    def is_idle(self) -> bool:
        """True if it can be given rows."""
        return self.is_ready and not self.rows

    @property
    def is_alive(self) -> bool:
        """True while the process runs."""
        return self._process.is_alive()

    @property
    def exit_code(self) -> int | None:
        """Exit code of a process that ended; negative numbers are signals."""
        self._process.join(_SECONDS_TO_END)
        return self._process.exitcode

    def deadline(self, timeout: float, each_alone: bool) -> float:
        """Return the time at which the current evaluation exceeds its limit.

        Args:
            timeout: Time limit of one evaluation.
            each_alone: True if results come row by row, false if all at once.
        """
        return self._began + timeout * (1 if each_alone else max(1, len(self.rows)))

    def send(
        self, function: bytes, rows: list[int], solutions: np.ndarray, spec: ResultSpec, retry: bool
    ) -> None:
        """Send rows to evaluate.

        Raises:
            OSError: The process has ended.
        """
        self.rows, self._chunk, self._began = list(rows), rows, time.monotonic()
        if function is not self._function:
            self.connection.send_bytes(function)
            self._function = function
        self.connection.send((solutions, spec, retry))

    def receive(self) -> tuple[list[int], Block] | None:
        """Return the next block with the rows of its chunk, or ``None`` when the worker is ready.

        Raises:
            EOFError, OSError: The process has ended.
            WorkerError: The initializer raised, or the function could not be imported.
        """
        message = self.connection.recv()
        self._began = time.monotonic()
        if isinstance(message, Block):
            finished = set(self._chunk[message.start : message.start + message.num_rows])
            self.rows = [row for row in self.rows if row not in finished]
            return self._chunk, message
        kind, text = message
        if kind == _BROKEN:
            raise WorkerError(f"workers: expected {text}")
        self.is_ready = True
        return None

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._close()

    def stop(self) -> None:
        """Request the process to end."""
        with contextlib.suppress(OSError):
            self.connection.send_bytes(b"")

    def end(self) -> None:
        """Wait a few seconds for the process to end, then kill it."""
        self._process.join(_SECONDS_TO_END)
        self.kill()

    def _close(self) -> None:
        self._process.join()
        self._process.close()
        self.connection.close()


def _serve(
    parent: connection.Connection, initializer: Callable | None, initargs: Sequence[Any]
) -> None:
    """Evaluate rows until the parent requests the end, or ends itself."""
    # Ctrl-C reaches all processes of a terminal; the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        if initializer is not None:
            initializer(*initargs)
    except Exception:
        problem = f"an initializer that runs, got an error from it:\n{traceback.format_exc()}"
        parent.send((_BROKEN, problem))
        return
    function: Any = None
    with contextlib.suppress(EOFError, OSError):  # the parent has ended
        parent.send((_READY, ""))
        while content := parent.recv_bytes():
            try:
                message = pickle.loads(content)
            except Exception:
                problem = "a function that worker processes can import, got an error"
                parent.send((_BROKEN, f"{problem}:\n{traceback.format_exc()}"))
                return
            if not isinstance(message, tuple):
                function = message
                continue
            solutions, spec, retry = message
            solutions.flags.writeable = False  # as in the process of the search
            for block in evaluated_blocks(function, solutions, spec, retry_rows=retry):
                parent.send(block.portable())


def _end_with_parent() -> None:
    """End this process if its parent is killed, even during an evaluation."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


def _kill_all(workers: list[Worker]) -> None:
    for worker in workers:
        worker.kill()


def _pickled(name: str, value: Any, function: Any) -> bytes:
    """Pickle ``value``, or raise an error if a spawned process cannot import it."""
    inner = function_of_user(function)
    shown = getattr(inner, "__qualname__", type(inner).__name__)
    fix = (
        "Define it with def in a module (a .py file) and import it from there; functions of a "
        "notebook, lambdas and functions inside of functions cannot be imported."
    )
    expected = "a function that worker processes can import"
    # Workers import the file of a script. Notebooks and interactive sessions do not have one.
    main = sys.modules["__main__"]
    is_typed = getattr(inner, "__module__", "") == "__main__" and not hasattr(main, "__file__")
    checks.expect(not is_typed, name, expected, f"'{shown}' of an interactive session", fix)
    try:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise ValueError(f"{name}: expected {expected}, got '{shown}' ({error}). {fix}") from None
