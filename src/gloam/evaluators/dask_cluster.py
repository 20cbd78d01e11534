"""Evaluation on a Dask cluster: the evaluator, and the task that runs on a worker."""

import functools
import os
import pickle
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gloam._tools import checks
from gloam._tools.warn import warn
from gloam.errors import WorkerError
from gloam.evaluators.evaluator import Evaluator
from gloam.evaluators.results import (
    Block,
    Evaluated,
    PerSolution,
    ResultSpec,
    evaluated_blocks,
    portable_blocks,
)
from gloam.evaluators.row_queue import Pace, RowQueue

_LOOK_SECONDS = 1.0
_WARNING_SECONDS = 60.0
# Workers of this machine restart in seconds; elsewhere they may be jobs that wait in a queue.
_LOCAL_PATIENCE, _PATIENCE = 120.0, 3600.0


class Dask(Evaluator):
    """Evaluates on a Dask cluster: on this machine, SLURM, Kubernetes, ...

    Chunks of lost workers are evaluated again on others. gloam and the modules that the
    function imports must be installed on the workers. The results do not depend on the chunks,
    under the conditions that `gloam.evaluators.Processes` describes.

    Args:
        cluster: Address of a scheduler such as ``"tcp://10.0.0.1:8786"``, a ``distributed.Client``,
            or a cluster object such as ``dask_jobqueue.SLURMCluster``. By default a cluster on
            this machine, with a process for each processor.
        chunk: Number of solutions that are sent at a time. By default about 0.1 seconds of work,
            by the measured time.
        timeout: Time limit of one evaluation in seconds. A solution that takes longer counts as
            failed, and its worker is restarted after the batch. A function of a batch has this
            time for each row of its chunk; if a chunk takes longer, its rows are evaluated again
            one by one.
        retries: Number of times that a solution is sent again after Dask has given it up. Dask
            itself moves it to another worker three times.
        retry_rows: As in `gloam.evaluators.Processes`.
        patience: Number of seconds to wait while the cluster has no workers; then
            `gloam.errors.WorkerError` is raised. By default an hour, because jobs may wait in a
            queue, and two minutes for a cluster on this machine. Ctrl-C ends the wait at once.
    """

    def __init__(
        self,
        cluster: Any = None,
        *,
        chunk: int | None = None,
        timeout: float | None = None,
        retries: int = 1,
        retry_rows: bool = True,
        patience: float | None = None,
    ):
        if timeout is not None:
            checks.number("timeout", timeout, above=0.0)
        self.timeout, self.retries = timeout, checks.integer("retries", retries, minimum=0)
        self.retry_rows = retry_rows
        self._distributed = _distributed()
        is_address = isinstance(cluster, str) and "://" in cluster
        known = cluster is None or is_address or hasattr(cluster, "scheduler_address")
        known = known or isinstance(cluster, self._distributed.Client)
        checks.expect(
            known,
            "cluster",
            "an address such as 'tcp://10.0.0.1:8786', a Client or a cluster of Dask",
            checks.short(cluster),
        )
        if patience is None:
            owner = getattr(cluster, "cluster", cluster)  # of a client
            is_local = cluster is None or isinstance(owner, self._distributed.LocalCluster)
            patience = _LOCAL_PATIENCE if is_local else _PATIENCE
        self.patience = checks.number("patience", patience, above=0.0)
        self._cluster, self._pace = cluster, Pace(chunk)
        self._client: Any = None
        self._opened: list[Any] = []
        self._stuck: set[str] = set()
        self._function: tuple[Any, bytes] = (None, b"")

    def check(self, function: Callable) -> None:
        """Check that the function can be sent to workers."""
        super().check(function)
        self._pickled(function)

    def evaluate(
        self, function: Callable, solutions: np.ndarray, spec: ResultSpec | None = None
    ) -> Evaluated:
        """Evaluate a batch; see `gloam.evaluators.Evaluator.evaluate`."""
        spec = spec or ResultSpec()
        settings = (spec, self.retry_rows, self.timeout)
        content = self._pickled(function)
        queue = RowQueue(len(solutions), self._pace, retries=self.retries)
        with self:
            self._workers: set[str] = set()
            under_way: dict[Any, list[int]] = {}
            try:
                while not queue.is_done:
                    workers = self._num_threads()
                    # A second chunk waits for each worker, so that workers are never idle.
                    while len(under_way) < 2 * workers and (rows := queue.take(workers)):
                        under_way[self._submit(content, solutions[rows], *settings)] = rows
                    for future in self._finished(list(under_way)):
                        if self._put(queue, under_way[future], future, function):
                            del under_way[future]
            finally:
                for future in under_way:
                    future.release()
            self._restart_stuck_workers()
        return queue.result(spec)

    def _submit(self, content: bytes, *arguments: Any) -> Any:
        # Not pure: equal solutions are evaluated separately, and no result is reused.
        return self._client.submit(evaluated_chunk, content, *arguments, pure=False)

    def _num_threads(self) -> int:
        """Return the number of threads of all workers, at least 1.

        Raises:
            WorkerError: There have been no workers for too long, or a signal came while workers
                are lost, so that nothing may be left to wait for.
        """
        now = time.monotonic()
        if now > self._counted + _LOOK_SECONDS:
            self._counted = now
            threads: dict[str, int] = self._asked(self._client.nthreads)  # by worker
            self._threads = max(1, sum(threads.values()))
            is_lost = not threads or bool(self._workers - set(threads))
            self._workers |= set(threads)
            if is_lost and self.stop_requested():
                raise WorkerError("Dask: stopped by a signal while workers were lost.")
            if threads:
                self._seen, self._warned = now, False
            self._wait_longer(now - self._seen)
        return self._threads

    def _wait_longer(self, seconds: float) -> None:
        """Warn of a cluster without workers for some time, and raise an error after `patience`."""
        if seconds > self.patience:
            raise WorkerError(
                f"Dask: expected workers, got none for {seconds:.0f} s. If they ended during "
                "evaluations, their logs say why. Start a cluster again and resume the run: "
                "gloam.optimize(..., resume=True, evaluator=...). To wait longer for jobs in "
                "a queue: gloam.evaluators.Dask(..., patience=86_400)."
            )
        if seconds > _WARNING_SECONDS and not self._warned:
            self._warned = True
            warn(
                f"Dask: expected workers, got none for {_WARNING_SECONDS:.0f} s. The run waits "
                f"for them for {self.patience:.0f} s; check the cluster, or the queue of its jobs.",
            )

    def _finished(self, under_way: list[Any]) -> list[Any]:
        """Wait for futures to finish, for at most a second."""
        wait = self._distributed.wait
        try:
            with self._client.as_current():
                done = wait(under_way, timeout=_LOOK_SECONDS, return_when="FIRST_COMPLETED").done
        except TimeoutError:
            done = []
        except Exception as error:
            raise self._lost(error) from error
        if self._client.status != "running":
            raise self._lost(f"its status is {self._client.status!r}")
        return list(done)

    def _put(self, queue: RowQueue, rows: list[int], future: Any, function: Callable) -> bool:
        """Store the answer of a chunk; false if it was lost and is being computed again."""
        try:
            answer: ChunkAnswer = future.result(timeout=_LOOK_SECONDS)
        except TimeoutError:
            return False
        except self._distributed.KilledWorker as error:
            queue.lose(rows, "lost worker", f"workers were lost during the evaluation: {error}")
            return True
        except Exception as error:
            if future.status != "error":  # cancelled or lost, with its scheduler
                raise self._lost(error) from error
            raise WorkerError(
                "Dask: expected workers that can evaluate the function, got "
                f"{type(error).__name__}: {error}. Install gloam and the modules that the function "
                "imports on the workers, in the versions that are here."
            ) from error
        for block in answer.blocks:
            queue.put(rows, block)
        if answer.is_late:
            missing = rows[sum(block.num_rows for block in answer.blocks) :]
            error = f"the evaluation took longer than the time limit of {self.timeout:g} s"
            queue.lose(missing, "timeout", error, in_order=isinstance(function, PerSolution))
            if answer.restartable is not None:
                self._stuck.add(answer.restartable)
        return True

    def _restart_stuck_workers(self) -> None:
        """Restart workers that still run evaluations beyond their time limit, without waiting.

        Only between two batches, because answers that a worker has not delivered are lost with it.
        Processes are ended directly, because `Client.restart_workers` waits for hanging threads.
        """
        addresses = sorted(self._stuck)
        self._stuck.clear()
        if addresses:
            self._asked(
                lambda: self._client.run(
                    end_process, workers=addresses, wait=False, on_error="ignore"
                )
            )

    def _asked(self, request: Callable[[], Any]) -> Any:
        """Return the answer of the scheduler to a request."""
        try:
            return request()
        except Exception as error:
            raise self._lost(error) from error

    def _lost(self, reason: Any) -> WorkerError:
        if isinstance(reason, Exception):  # its later lines list every chunk
            reason = f"{type(reason).__name__}: {reason}".split("\n")[0].rstrip(":")
        return WorkerError(
            f"Dask: expected a scheduler that answers, got none ({reason}). Start a cluster again "
            "and resume the run: gloam.optimize(..., resume=True, evaluator=...)."
        )

    def _pickled(self, function: Callable) -> bytes:
        if self._function[0] is not function:
            import cloudpickle  # comes with distributed; also for functions of notebooks

            try:
                content = cloudpickle.dumps(function, protocol=pickle.HIGHEST_PROTOCOL)
            except Exception as error:
                raise ValueError(
                    f"evaluate: expected a function that can be sent to workers, got an error "
                    f"({error}). Open files, locks and devices inside the function."
                ) from error
            self._function = function, content
        return self._function[1]

    def start(self) -> None:
        """Connect to the cluster, or start one."""
        client, cluster = self._distributed.Client, self._cluster
        try:
            if cluster is None:
                cluster = self._distributed.LocalCluster(
                    threads_per_worker=1, dashboard_address=":0"
                )
                self._opened.append(cluster)
            if not isinstance(cluster, client):
                cluster = client(cluster, set_as_default=False)
                self._opened.append(cluster)
        except Exception as error:
            raise self._lost(error) from error
        self._client, self._counted = cluster, -np.inf
        self._seen, self._warned = time.monotonic(), False

    def stop(self, *, failed: bool) -> None:
        """Close what `start` opened, the client before its cluster."""
        while self._opened:
            self._opened.pop().close()
        self._client = None


class ChunkAnswer(NamedTuple):
    """The answer of a worker for a chunk."""

    blocks: list[Block]
    """Results, up to the evaluation that exceeded its limit."""
    is_late: bool
    """True if an evaluation exceeded its limit. It still runs, in a thread of its own."""
    restartable: str | None
    """Address of the worker, if a nanny restarts it when its process ends."""


def evaluated_chunk(
    content: bytes,
    solutions: np.ndarray,
    spec: ResultSpec,
    retry_rows: bool,
    timeout: float | None,
) -> ChunkAnswer:
    """Evaluate a chunk; ``content`` is the pickled function."""
    function = _loaded(content)
    solutions = solutions.view()
    solutions.flags.writeable = False  # as in the process of the search
    if timeout is None:
        return ChunkAnswer(portable_blocks(function, solutions, spec, retry_rows), False, None)
    blocks, is_late = _within(timeout, function, solutions, spec, retry_rows)
    return ChunkAnswer(blocks, is_late, _restartable() if is_late else None)


async def end_process() -> None:
    """End the process of a worker, which its nanny restarts. Dask does not wait for coroutines."""
    os._exit(1)


@functools.lru_cache(maxsize=4)
def _loaded(content: bytes) -> Callable:
    return pickle.loads(content)


def _within(
    timeout: float, function: Callable, solutions: np.ndarray, spec: ResultSpec, retry_rows: bool
) -> tuple[list[Block], bool]:
    """Return the blocks within the time limit, and whether an evaluation exceeded it.

    Python cannot end a thread, so one that exceeds its limit is left running.
    """
    finished: queue.SimpleQueue[Block] = queue.SimpleQueue()

    def work() -> None:
        for block in evaluated_blocks(function, solutions, spec, retry_rows=retry_rows):
            finished.put(block.portable())

    threading.Thread(target=work, daemon=True).start()
    each_alone, blocks, left = isinstance(function, PerSolution), [], len(solutions)
    while left:
        try:
            block = finished.get(timeout=timeout * (1 if each_alone else left))
        except queue.Empty:
            return blocks, True
        blocks.append(block)
        left -= block.num_rows
    return blocks, False


def _restartable() -> str | None:
    from distributed import get_worker  # pyright: ignore[reportMissingImports]

    worker = get_worker()
    return worker.address if worker.nanny else None


def _distributed() -> Any:
    try:
        import distributed  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ImportError(
            "Dask needs the package distributed. Install it: pip install 'gloam[dask]'."
        ) from None
    return distributed
