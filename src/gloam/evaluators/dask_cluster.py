"""Evaluation on a Dask cluster: the evaluator, and the task that runs on a worker."""

import os
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from gloam._tools import checks
from gloam.errors import WorkerError
from gloam.evaluators.chunk import ChunkAnswer, FunctionBytes, evaluated_chunk
from gloam.evaluators.results import ResultSpec
from gloam.evaluators.row_queue import Pace
from gloam.evaluators.workers import Futures, Patience, Work

_LOOK_SECONDS = 1.0
# Workers of this machine restart in seconds; elsewhere they may be jobs that wait in a queue.
_LOCAL_PATIENCE, _PATIENCE = 120.0, 3600.0


class Dask(Futures):
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
        import cloudpickle  # comes with distributed

        self._pickled = FunctionBytes(cloudpickle.dumps)

    def check(self, function: Callable) -> None:
        """Check that the function can be sent to workers."""
        super().check(function)
        self._pickled(function)

    @property
    def num_workers(self) -> int:
        """Number of threads of all workers, at least 1."""
        return self._num_threads()

    def _free(self, work: Work) -> float:
        # Dask gives up all solutions of a worker that ends, also those that wait. One that has lost
        # a worker is therefore evaluated while no others are under way.
        if any(work.queue.is_suspect(rows) for rows in work.under_way.values()):
            return 0
        if work.queue.next_is_suspect:
            return 0 if work.under_way else 1
        return super()._free(work)

    def _submit(self, work: Work, chunks: list[list[int]]) -> Iterable[Any]:
        content = self._pickled(work.function)
        for rows in chunks:
            settings = (work.spec, work.retry_rows, self.timeout)
            # Not pure: equal solutions are evaluated separately, and no result is reused.
            yield self._client.submit(
                evaluated_by_worker, content, work.solutions(rows), *settings, pure=False
            )

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
                self._waiting.renew()
            else:
                self._waiting.wait()
        return self._threads

    def _finished(self, work: Work, seconds: float | None) -> Iterable[Any]:
        wait, under_way = self._distributed.wait, list(work.under_way)
        seconds = _LOOK_SECONDS if seconds is None else min(seconds, _LOOK_SECONDS)
        try:
            with self._client.as_current():
                done = wait(under_way, timeout=seconds, return_when="FIRST_COMPLETED").done
        except TimeoutError:
            done = []
        except Exception as error:
            raise self._lost(error) from error
        if self._client.status != "running":
            raise self._lost(f"its status is {self._client.status!r}")
        return [future for future in under_way if future in done]

    def _put(self, work: Work, rows: list[int], future: Any) -> bool:
        try:
            answer: ChunkAnswer = future.result(timeout=_LOOK_SECONDS)
        except TimeoutError:
            return False
        except self._distributed.KilledWorker as error:
            error = f"workers were lost during the evaluation: {error}"
            work.queue.lose(rows, "lost worker", error)
            return True
        except Exception as error:
            if future.status != "error":  # cancelled or lost, with its scheduler
                raise self._lost(error) from error
            raise WorkerError(
                "Dask: expected workers that can evaluate the function, got "
                f"{type(error).__name__}: {error}. Install gloam and the modules that the function "
                "imports on the workers, in the versions that are here."
            ) from error
        self._store(work, rows, answer)
        if answer.restartable is not None:
            self._stuck.add(answer.restartable)
            if work.is_stream:  # which has no end of a batch; Dask repeats what is lost by it
                self._restart_stuck_workers()
        return True

    def _end(self, work: Work) -> None:
        for future in work.under_way:
            future.release()
        self._workers: set[str] = set()
        if work.queue.is_done:
            self._restart_stuck_workers()

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
        self._workers, self._waiting = set(), Patience("Dask", self.patience)

    def stop(self, *, failed: bool) -> None:
        """Close what `start` opened, the client before its cluster."""
        while self._opened:
            self._opened.pop().close()
        self._client = None


def evaluated_by_worker(
    content: bytes,
    solutions: np.ndarray,
    spec: ResultSpec,
    retry_rows: bool,
    timeout: float | None,
) -> ChunkAnswer:
    """Evaluate a chunk on a worker of Dask."""
    answer = evaluated_chunk(content, solutions, spec, retry_rows, timeout)
    return answer._replace(restartable=_restartable() if answer.is_late else None)


async def end_process() -> None:
    """End the process of a worker, which its nanny restarts. Dask does not wait for coroutines."""
    os._exit(1)


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
