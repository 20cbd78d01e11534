"""Evaluation by jobs of Slurm, through submitit."""

import contextlib
import math
import subprocess
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from gloam._tools import checks
from gloam.errors import WorkerError
from gloam.evaluators.chunk import ChunkAnswer, FunctionBytes, collect, loaded, read_only
from gloam.evaluators.results import Block, ResultSpec
from gloam.evaluators.row_queue import Pace
from gloam.evaluators.workers import Futures, Work

_SHORTEST_LOOK, _LONGEST_LOOK = 0.05, 2.0
# Of Slurm; submitit's local jobs have none of them.
_QUEUED = {"PENDING", "REQUEUED", "UNKNOWN"}
# A result may be visible later than the end of its job, on a slow file system.
_SECONDS_TO_WRITE = 15.0


class Submitit(Futures):
    """Evaluates in jobs of Slurm, which submitit submits as job arrays.

    In each iteration, the batch is divided into as many jobs as ``jobs`` allows. They wait in the
    queue of the cluster, so one job should evaluate for minutes; for shorter evaluations keep
    workers, by `gloam.evaluators.Dask` with a ``SLURMCluster`` or `gloam.evaluators.Ray`. The
    rows of jobs that ended without a result, because their node or their time was lost, are
    submitted again, each in a job of its own. gloam and the modules that the function imports must
    be installed where jobs run.

    Args:
        executor: ``submitit.AutoExecutor(folder="jobs")`` after its ``update_parameters``, which
            sets the resources and the time of a job. ``cluster="local"`` starts processes of this
            machine, and ``cluster="debug"`` evaluates in this process. Submitit writes functions,
            results and logs to the folder, which all nodes must reach; the files of a job are
            deleted when its results have arrived, those of lost jobs stay.
        jobs: Largest number of jobs that are in the queue or run at the same time.
        chunk: Number of solutions in a job. By default the batch divided by ``jobs``.
        timeout: Time limit of one evaluation in seconds, after which it counts as failed. It ends
            with its job. A function of a batch has this time for each row of its chunk; if a chunk
            takes longer, its rows are evaluated again one by one.
        retries: Number of times that a solution is submitted again after its job was lost alone.
        retry_rows: As in `gloam.evaluators.Processes`.

    Example:
        >>> # executor = submitit.AutoExecutor(folder="jobs")
        >>> # executor.update_parameters(timeout_min=60, slurm_partition="cpu", cpus_per_task=4)
        >>> # gloam.optimize(simulate, algorithm, 100, per_solution=True,
        >>> #     evaluator=gloam.evaluators.Submitit(executor, jobs=50))
    """

    _chunks_per_worker = 1

    def __init__(
        self,
        executor: Any,
        *,
        jobs: int,
        chunk: int | None = None,
        timeout: float | None = None,
        retries: int = 1,
        retry_rows: bool = True,
    ):
        submitit = _submitit()
        fix = "For instance submitit.AutoExecutor(folder='jobs')."
        checks.instance("executor", executor, submitit.Executor, fix)
        self._jobs = checks.integer("jobs", jobs, minimum=1)
        if timeout is not None:
            checks.number("timeout", timeout, above=0.0)
        self.timeout, self.retries = timeout, checks.integer("retries", retries, minimum=0)
        self.retry_rows = retry_rows
        self._submitit, self._executor = submitit, executor
        self._chunk, self._pace = chunk, Pace(chunk)
        self._ended: dict[Any, float] = {}  # when jobs without a result were first seen to end
        import cloudpickle  # comes with submitit

        self._pickled = FunctionBytes(cloudpickle.dumps)

    def check(self, function: Callable) -> None:
        """Check that the function can be sent to jobs."""
        super().check(function)
        self._pickled(function)

    @property
    def num_workers(self) -> int:
        """Largest number of jobs."""
        return self._jobs

    def _pace_of(self, number: int) -> Pace:
        return Pace(self._chunk or max(1, math.ceil(number / self._jobs)))

    def _free(self, work: Work) -> float:
        return self._jobs - len(work.under_way)

    def _submit(self, work: Work, chunks: list[list[int]]) -> Iterable[Any]:
        content = self._pickled(work.function)
        settings = (work.spec, work.retry_rows, self.timeout)
        try:
            with self._executor.batch():  # a job array
                return [
                    self._executor.submit(
                        evaluated_in_job, content, work.solutions(rows), *settings
                    )
                    for rows in chunks
                ]
        except Exception as error:
            raise WorkerError(
                f"Submitit: expected jobs that can be submitted, got {type(error).__name__}: "
                f"{checks.plain_text(error)}. Check the parameters of the executor."
            ) from error

    def _finished(self, work: Work, seconds: float | None) -> Iterable[Any]:
        began, look = time.monotonic(), _SHORTEST_LOOK
        while not (done := [job for job in work.under_way if self._is_done(job)]):
            spent = time.monotonic() - began
            if not work.under_way or (seconds is not None and spent >= seconds):
                return []
            if self.stop_requested() and all(job.state in _QUEUED for job in work.under_way):
                raise WorkerError("Submitit: stopped by a signal while all jobs were queued.")
            time.sleep(look if seconds is None else min(look, max(0.0, seconds - spent)))
            look = min(2 * look, _LONGEST_LOOK)
        return done

    def _is_done(self, job: Any) -> bool:
        if not job.done():
            return False
        return self._has_result(job) or time.monotonic() > _SECONDS_TO_WRITE + (
            self._ended.setdefault(job, time.monotonic())
        )

    def _has_result(self, job: Any) -> bool:
        return isinstance(job, self._submitit.DebugJob) or job.paths.result_pickle.exists()

    def _put(self, work: Work, rows: list[int], future: Any) -> bool:
        job, lost = future, ""
        self._ended.pop(job, None)
        if not self._has_result(job):
            lost = "without a result"
        else:
            try:
                answer: ChunkAnswer = job.result()
            except self._submitit.core.utils.UncompletedJobError as error:
                lost = "by an error"
                if "UncompletedJobError" not in str(error):  # not at its time limit
                    raise WorkerError(
                        f"Submitit: expected jobs that can evaluate the function, got {error}. "
                        "Install gloam and the modules that the function imports where jobs run."
                    ) from error
            else:
                self._store(work, rows, answer)
                if not answer.is_late:
                    rows = rows[sum(block.num_rows for block in answer.blocks) :]
                    lost = "at its time limit" if rows else ""
        if lost:
            error = f"job {job.job_id} ended {lost} (state {job.state}): see {job.paths.stderr}"
            work.queue.lose(rows, "lost worker", error)
        else:
            _delete_files(job)
        return True

    def _end(self, work: Work) -> None:
        for job in work.under_way:
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                job.cancel(check=False)

    def _is_running(self, chunk: Any) -> bool:
        return chunk.state == "RUNNING"


def evaluated_in_job(
    content: bytes,
    solutions: np.ndarray,
    spec: ResultSpec,
    retry_rows: bool,
    timeout: float | None,
) -> ChunkAnswer:
    """Evaluate a chunk in a job, up to the time limit of the job."""
    from submitit.core.utils import UncompletedJobError  # pyright: ignore[reportMissingImports]

    blocks: list[Block] = []
    is_late = False
    # Shortly before the limit submitit raises this in the main thread, so evaluations have another.
    with contextlib.suppress(UncompletedJobError):
        function = loaded(content)
        is_late = collect(blocks, timeout, function, read_only(solutions), spec, retry_rows)
    return ChunkAnswer(blocks, is_late)


def _delete_files(job: Any) -> None:
    paths = job.paths
    for path in (paths.submitted_pickle, paths.result_pickle, paths.stdout, paths.stderr):
        with contextlib.suppress(OSError):
            path.unlink()


def _submitit() -> Any:
    try:
        import submitit  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ImportError(
            "Submitit needs the package submitit. Install it: pip install 'gloam[submitit]'."
        ) from None
    return submitit
