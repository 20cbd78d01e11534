"""Evaluation on a Ray cluster: the evaluator, and the actor that evaluates chunks on a worker."""

import pickle
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gloam._tools import checks
from gloam.errors import WorkerError
from gloam.evaluators.chunk import ChunkAnswer, FunctionBytes, evaluated_chunk
from gloam.evaluators.results import ResultSpec
from gloam.evaluators.row_queue import Pace
from gloam.evaluators.workers import Futures, Patience, Work

_LOOK_SECONDS = 1.0
# Actors of this machine start in seconds; elsewhere they may wait for nodes.
_LOCAL_PATIENCE, _PATIENCE = 120.0, 3600.0
# Number of actors in a row that may end before their first evaluation.
_FAILED_STARTS = 3


class Ray(Futures):
    """Evaluates on a Ray cluster, or in a Ray of this machine, by actors with resources.

    Each worker is an actor, which keeps its CPUs and GPUs, and what ``initializer`` has loaded,
    until the run ends. Chunks of lost actors are evaluated again by others. gloam and the modules
    that the function imports must be installed on the nodes. The results do not depend on the
    chunks, under the conditions that `gloam.evaluators.Processes` describes.

    Args:
        address: Address of a cluster, as for ``ray.init``: ``"auto"``, ``"ray://10.0.0.1:10001"``.
            By default the Ray that the program has initialized, and otherwise that of
            ``ray.init()``: the cluster that ``RAY_ADDRESS`` names, or a new one on this machine.
        workers: Number of actors; by default as many as the resources of the cluster allow when the
            evaluator is entered. A cluster that scales starts nodes for more.
        num_cpus: Number of CPUs of each actor.
        num_gpus: Number of GPUs of each actor, such as 0.25.
        resources: Custom resources of each actor, such as ``{"licence": 1}``.
        chunk: Number of solutions that are sent at a time. By default about 0.1 seconds of work,
            by the measured time.
        initializer: Function that is called once in each actor, for instance to load a model.
        initargs: Arguments of the initializer.
        timeout: Time limit of one evaluation in seconds. A solution that takes longer counts as
            failed, and its actor is replaced. A function of a batch has this time for each row of
            its chunk; if a chunk takes longer, its rows are evaluated again one by one.
        retries: Number of times that a solution is evaluated again after its actor was lost.
        retry_rows: As in `gloam.evaluators.Processes`.
        patience: Number of seconds to wait while no actor can be started; then
            `gloam.errors.WorkerError` is raised. By default an hour, because nodes may wait in a
            queue, and two minutes on this machine. Ctrl-C ends the wait at once.

    Example:
        >>> # gloam.optimize(simulate, algorithm, 1000, per_solution=True,
        >>> #     evaluator=gloam.evaluators.Ray("auto", num_gpus=0.5, initializer=load))
    """

    _chunks_per_worker = 1

    def __init__(
        self,
        address: str | None = None,
        *,
        workers: int | None = None,
        num_cpus: float = 1.0,
        num_gpus: float = 0.0,
        resources: Mapping[str, float] | None = None,
        chunk: int | None = None,
        initializer: Callable | None = None,
        initargs: Sequence[Any] = (),
        timeout: float | None = None,
        retries: int = 1,
        retry_rows: bool = True,
        patience: float | None = None,
    ):
        fix = "For instance gloam.evaluators.Ray('auto'), or Ray() for this machine."
        checks.instance("address", address, (str, type(None)), fix)
        if workers is not None:
            checks.integer("workers", workers, minimum=1)
        checks.number("num_cpus", num_cpus, at_least=0.0)
        checks.number("num_gpus", num_gpus, at_least=0.0)
        checks.instance("resources", resources, (Mapping, type(None)), "Such as {'licence': 1}.")
        fix = "For instance initializer=load, initargs=('model.pt',)."
        checks.instance("initargs", initargs, (tuple, list), fix)
        if initializer is not None:
            got = type(initializer).__name__
            checks.expect(callable(initializer), "initializer", "a function", got, fix)
        if timeout is not None:
            checks.number("timeout", timeout, above=0.0)
        if patience is not None:
            checks.number("patience", patience, above=0.0)
        self.timeout, self.retries = timeout, checks.integer("retries", retries, minimum=0)
        self.retry_rows, self.patience = retry_rows, patience
        self._ray = _ray()
        self._address, self._most, self._pace = address, workers, Pace(chunk)
        self._need = {
            "num_cpus": num_cpus,
            "num_gpus": num_gpus,
            "resources": dict(resources or {}),
        }
        self._pickled = FunctionBytes(self._ray.cloudpickle.dumps)
        self._start = self._pickled((initializer, tuple(initargs)), "initializer")
        self._owns_ray = False
        self._starting: dict[Any, Any] = {}  # actors by the reference of their start
        self._idle: list[Any] = []
        self._busy: dict[Any, Any] = {}  # actors by the reference of their chunk
        self._failed_starts = 0

    def check(self, function: Callable) -> None:
        """Check that the function can be sent to workers."""
        super().check(function)
        self._pickled(function)

    @property
    def num_workers(self) -> int:
        """Number of actors."""
        return self._num_workers

    def start(self) -> None:
        """Connect to the cluster or start one, and start the actors."""
        ray = self._ray
        try:
            if not ray.is_initialized():
                # What workers print is in the files of Ray.
                ray.init(self._address, log_to_driver=False)
                self._owns_ray = True
            total = ray.cluster_resources()
            is_local = len([node for node in ray.nodes() if node["Alive"]]) == 1
        except Exception as error:
            raise self._lost(error) from error
        self._num_workers = self._most or self._fitting(total)
        seconds = _LOCAL_PATIENCE if is_local else _PATIENCE
        self._waiting = Patience("Ray", self.patience or seconds)
        self._failed_starts = 0
        self._actor = ray.remote(Actor).options(**self._need, max_restarts=0)
        self._grow(self._num_workers)

    def _fitting(self, total: Mapping[str, float]) -> int:
        """Return the number of actors for which the cluster has resources."""
        need = {"CPU": self._need["num_cpus"], "GPU": self._need["num_gpus"]}
        need |= self._need["resources"]
        numbers = [int(total.get(name, 0.0) / one) for name, one in need.items() if one]
        number = min(numbers, default=1)
        if number == 0:
            needed = {name: one for name, one in need.items() if one}
            offered = {name: total.get(name, 0.0) for name in needed}
            raise WorkerError(
                f"Ray: expected resources for at least one worker {needed}, got a cluster with "
                f"{offered}. Change num_cpus, num_gpus or resources, or give workers=... if the "
                "cluster starts nodes on demand."
            )
        return number

    def _grow(self, number: int) -> None:
        while len(self._starting) + len(self._idle) + len(self._busy) < number:
            actor = self._actor.remote(self._start)
            self._starting[actor.start.remote()] = actor

    def stop(self, *, failed: bool) -> None:
        """End the actors, and the Ray that `start` started."""
        for actor in (*self._starting.values(), *self._idle, *self._busy.values()):
            self._kill(actor)
        self._starting.clear()
        self._idle.clear()
        self._busy.clear()
        if self._owns_ray:
            self._owns_ray = False
            self._ray.shutdown()

    def _free(self, work: Work) -> float:
        self._grow(self._num_workers)  # in the place of those that were lost
        return len(self._idle)

    def _submit(self, work: Work, chunks: list[list[int]]) -> Iterable[Any]:
        content = self._pickled(work.function)
        for rows in chunks:
            actor = self._idle.pop()
            settings = (work.spec, work.retry_rows, self.timeout)
            reference = actor.evaluate.remote(content, work.solutions(rows), *settings)
            self._busy[reference] = actor
            yield reference

    def _finished(self, work: Work, seconds: float | None) -> Iterable[Any]:
        seconds = _LOOK_SECONDS if seconds is None else min(seconds, _LOOK_SECONDS)
        references = [*work.under_way, *self._starting]
        if not references:
            return []
        try:
            self._ray.wait(references, timeout=seconds)
            # All that have finished, without waiting for more.
            done, _ = self._ray.wait(references, num_returns=len(references), timeout=0.0)
        except self._ray.exceptions.RayError as error:
            raise self._lost(error) from error
        for reference in done:
            if reference in self._starting:
                self._ready(reference)
        if self._idle or self._busy:
            self._waiting.renew()
        elif self.stop_requested():
            raise WorkerError("Ray: stopped by a signal while there were no workers.")
        else:
            self._waiting.wait()
        return [reference for reference in done if reference in work.under_way]

    def _ready(self, reference: Any) -> None:
        """Note that an actor has started, or replace it."""
        actor = self._starting.pop(reference)
        try:
            problem = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            self._failed_starts += 1
            if self._failed_starts > _FAILED_STARTS:
                raise self._lost(error) from error
            return
        if problem:
            self._kill(actor)
            raise WorkerError(f"workers: expected an initializer that runs, got:\n{problem}")
        self._failed_starts = 0
        self._idle.append(actor)

    def _put(self, work: Work, rows: list[int], future: Any) -> bool:
        actor = self._busy.pop(future)
        exceptions = self._ray.exceptions
        try:
            answer: ChunkAnswer = self._ray.get(future)
        except (exceptions.RayActorError, exceptions.ObjectLostError) as error:
            text = f"the worker was lost during the evaluation: {_first_line(error)}"
            work.queue.lose(rows, "lost worker", text)
            self._kill(actor)
            return True
        except exceptions.RayTaskError as error:
            raise WorkerError(
                "Ray: expected workers that can evaluate the function, got "
                f"{_first_line(error.cause)}. Install gloam and the modules that the function "
                "imports on the nodes, in the versions that are here."
            ) from error
        except exceptions.RayError as error:
            raise self._lost(error) from error
        self._store(work, rows, answer)
        if answer.is_late:  # Python cannot end the thread that still evaluates
            self._kill(actor)
        else:
            self._idle.append(actor)
        return True

    def _end(self, work: Work) -> None:
        for reference in work.under_way:
            if reference in self._busy:
                self._kill(self._busy.pop(reference))

    def _kill(self, actor: Any) -> None:
        if self._ray.is_initialized():
            self._ray.kill(actor)

    def _lost(self, reason: Exception) -> WorkerError:
        return WorkerError(
            f"Ray: expected a cluster that answers, got none ({_first_line(reason)}). Start a "
            "cluster again and resume the run: gloam.optimize(..., resume=True, evaluator=...)."
        )


class Actor:
    """A worker: evaluates chunks in a process of its own.

    Args:
        start: The pickled initializer and its arguments.
    """

    def __init__(self, start: bytes):
        self._start = start

    def start(self) -> str:
        """Call the initializer, and return the traceback of its error."""
        try:
            initializer, initargs = pickle.loads(self._start)
            if initializer is not None:
                initializer(*initargs)
        except Exception:
            return traceback.format_exc()
        return ""

    def evaluate(
        self,
        content: bytes,
        solutions: np.ndarray,
        spec: ResultSpec,
        retry_rows: bool,
        timeout: float | None,
    ) -> ChunkAnswer:
        """Evaluate a chunk; see `gloam.evaluators.chunk.evaluated_chunk`."""
        return evaluated_chunk(content, solutions, spec, retry_rows, timeout)


def _first_line(error: object) -> str:
    return f"{type(error).__name__}: {error}".split("\n")[0].rstrip(":")


def _ray() -> Any:
    try:
        import ray  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ImportError(
            "Ray needs the package ray. Install it: pip install 'gloam[ray]'."
        ) from None
    return ray
