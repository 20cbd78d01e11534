"""Whole runs: `run` on the device, `optimize` in Python, and `resume` for both."""

import dataclasses
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from gloam._tools import checks
from gloam._tools.progress import Display
from gloam.algorithms import Algorithm
from gloam.callbacks import Callback
from gloam.datasets import Dataset
from gloam.errors import DamagedFileError
from gloam.evaluators import Evaluator, as_evaluator
from gloam.formats import RunFolder
from gloam.runs.async_driver import AsyncDriver
from gloam.runs.fused_driver import FusedDriver
from gloam.runs.loop import drive
from gloam.runs.options import (
    Asynchronous,
    RunOptions,
    seed_list,
)
from gloam.runs.python_driver import PythonDriver
from gloam.runs.reevaluation import Problem
from gloam.runs.result import Result
from gloam.searches.gradients import VJP


@checks.names_arguments
def run(
    domain: Callable,
    algorithm: Algorithm,
    iterations: int,
    *,
    seeds: int | Sequence[int] = 1,
    name: str | None = None,
    run_dir: str | os.PathLike | None = None,
    resume: bool = False,
    log_every: int = 50,
    checkpoint_every: int | None = None,
    checkpoint_seconds: float = 60.0,
    keep_checkpoints: int = 2,
    snapshots: Sequence[int] = (),
    dataset: Dataset | None = None,
    start_from: Any = None,
    reevaluate_start: bool = False,
    progress: bool | Display = True,
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Run a search on the device, with many seeds at once.

    Args:
        domain: Maps solutions ``(batch, sol)`` to objectives ``(batch,)`` and measures
            ``(batch, meas)`` (or in the archive's shape, such as ``(batch, 28, 28)``), and
            optionally a dict of fields, in operations that JAX can trace. It may return measures
            alone: then closeness to the center of the cell (a dataset's item) is maximized. It may
            have a starting solution for each seed, ``domain.x0_of(seed)``, which is used if the
            algorithm was built with ``domain.x0``. If it has noise, it takes a random key for each
            batch: ``def domain(solutions, *, key)``, see `Result.reevaluated`. As with `jax.jit`,
            a function is compiled once, and other values that it reads become constants.
        algorithm: For instance `gloam.DMS`.
        iterations: Total number of iterations.
        seeds: The seeds, or the number of seeds (then 0, 1, ...).
        name: Name of the problem in figures, the explorer and reports. Default: the name of the
            domain, or of your function.
        run_dir: Folder for metrics, archives and checkpoints; see `gloam.RunFolder`.
        resume: Continue the run in ``run_dir`` if there is one.
        log_every: Number of iterations between two rows of the metrics.
        checkpoint_every: Number of iterations between two checkpoints, in addition to those by
            time.
        checkpoint_seconds: Time between two checkpoints. It is longer if writing one takes more
            than a thirtieth of it, so that checkpoints take about 3% of a run's time.
        keep_checkpoints: Number of checkpoints that are kept. If the newest is damaged, the one
            before it is used.
        snapshots: Iterations for which the data of figures of the discount function is kept.
        dataset: Dataset whose items are the archive's cells (``dataset.archive()``). It is stored
            in the run folder for galleries.
        start_from: Solutions that were found before: `gloam.Elites`, a table as of
            `gloam.Elites.to_pandas`, or the path of a run folder. They enter the archive and train
            the discount, and emitters begin at elites. The archive may have other cells and bounds.
            The column ``started_from`` of the metrics counts them.
        reevaluate_start: Evaluate the solutions of ``start_from`` again, for instance because this
            search has other measures. These evaluations are not in the column ``evaluations``.
        progress: Whether to show a progress bar, or a display of your own.
        callbacks: Callbacks that receive the logged rows and can stop the run; see
            `gloam.callbacks`.

    Returns:
        Elites and metrics of every seed.

    Raises:
        Interrupted: After Ctrl-C. The state was saved before.
        EvaluationError: Every solution of every seed failed in one iteration. If the batch of one
            seed fails, it continues with a warning.

    Example:
        >>> import gloam
        >>> domain = gloam.domains.LinearProjection(measure_dim=2)
        >>> algorithm = gloam.DMS(domain.archive(), domain.x0, sigma0=0.5)
        >>> result = gloam.run(domain, algorithm, seeds=2, iterations=3, progress=False)
        >>> result.metrics["evaluations"].tolist()
        [1620, 1620]
    """
    options = RunOptions(
        iterations=iterations,
        name=name,
        run_dir=run_dir,
        resume=resume,
        log_every=log_every,
        checkpoint_every=checkpoint_every,
        checkpoint_seconds=checkpoint_seconds,
        keep_checkpoints=keep_checkpoints,
        snapshots=snapshots,
        dataset=dataset,
        start_from=start_from,
        reevaluate_start=reevaluate_start,
        progress=progress,
        callbacks=callbacks,
    )
    driver = FusedDriver(domain, algorithm, seed_list(seeds))
    result = drive(driver, domain, algorithm, options)
    return dataclasses.replace(result, _problem=Problem(domain, is_traced=True))


@checks.names_arguments
def optimize(
    evaluate: Callable[..., Sequence[Any]],
    algorithm: Algorithm,
    iterations: int,
    *,
    seeds: int | Sequence[int] = 1,
    evaluator: Evaluator | Executor | None = None,
    per_solution: bool = False,
    max_failure_rate: float = 1.0,
    asynchronous: bool | Asynchronous = False,
    vjp: VJP | None = None,
    name: str | None = None,
    run_dir: str | os.PathLike | None = None,
    resume: bool = False,
    log_every: int = 50,
    checkpoint_every: int | None = None,
    checkpoint_seconds: float = 60.0,
    keep_checkpoints: int = 2,
    snapshots: Sequence[int] = (),
    dataset: Dataset | None = None,
    start_from: Any = None,
    reevaluate_start: bool = False,
    progress: bool | Display = True,
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Run a search with an evaluation in Python: NumPy, PyTorch, a simulator.

    A solution whose evaluation raises, exceeds the time limit, or returns NaN or another shape has
    failed and is masked. With a run folder, failures are written to ``failures.parquet`` (see
    `gloam.RunFolder.read_failures`).

    Args:
        evaluate: Maps solutions ``(batch, sol)`` to objectives ``(batch,)`` and measures
            ``(batch, meas)`` (or in the archive's shape, such as ``(batch, 28, 28)``), and
            optionally a dict of fields. It may return measures alone: then closeness to the center
            of the cell (a dataset's item) is maximized. If it raises for a batch, it is called
            again for each row alone. If it has noise, it may take ``(batch,)`` seeds below 2**31:
            ``def evaluate(solutions, *, seeds)``, or ``def evaluate(solution, *, seed)`` with
            ``per_solution``. Then the run is reproducible; see `Result.reevaluated`.
        algorithm: For instance `gloam.DMS`.
        iterations: Total number of iterations.
        seeds: The seeds, or the number of seeds (then 0, 1, ...). In each iteration their batches
            are evaluated in turn, in separate calls.
        evaluator: Where to evaluate: `gloam.evaluators.Processes`, `gloam.evaluators.Dask`,
            `gloam.evaluators.Ray`, `gloam.evaluators.Submitit`, or any executor of
            `concurrent.futures`. By default in this process. The archive does not depend on it.
        per_solution: True if ``evaluate`` takes one solution ``(sol,)`` and returns its objective
            and measures.
        max_failure_rate: Largest share of failed evaluations in three consecutive iterations, above
            which the run stops. By default it stops only if all of them failed.
        asynchronous: Evaluate one solution at a time (``evaluate`` gets a batch of one), and let
            each emitter continue when its own solutions are evaluated, for evaluations of uneven
            duration; see docs/asynchronous.md. By default it runs in one thread.
            `gloam.Asynchronous` has settings for it.
        vjp: The vector-Jacobian product of ``evaluate``, for emitters that need gradients: as in
            `gloam.Search.tell`. It is called in this process, with the batch of each seed, also if
            ``per_solution`` is true. An error of it ends the run.
        name, run_dir, resume, log_every, checkpoint_every, checkpoint_seconds: As in `gloam.run`.
        keep_checkpoints, snapshots, dataset, start_from: As in `gloam.run`.
        reevaluate_start, progress, callbacks: As in `gloam.run`.

    Returns:
        Elites and metrics of every seed.

    Raises:
        Interrupted: After Ctrl-C. The state was saved before.
        EvaluationError: Too many solutions failed, or every solution of the first batch raised an
            exception. The state was saved before.
        ValueError: All results of the first batch had a shape that does not fit the archive, or
            ``vjp`` is missing or returned another shape.
        WorkerError: Workers do not start, or a cluster is lost. The state was saved before.

    Example:
        >>> import gloam
        >>> import numpy as np
        >>> def evaluate(x):
        ...     return 1 - np.square(x).sum(axis=1), x[:, :2]
        >>> archive = gloam.GridArchive(shape=(10, 10), lower=-1, upper=1)
        >>> algorithm = gloam.DMS(archive, x0=np.zeros(3), sigma0=0.3)
        >>> result = gloam.optimize(evaluate, algorithm, iterations=2, progress=False)
        >>> len(result.elites) > 10
        True
    """
    options = RunOptions(
        iterations=iterations,
        name=name,
        run_dir=run_dir,
        resume=resume,
        log_every=log_every,
        checkpoint_every=checkpoint_every,
        checkpoint_seconds=checkpoint_seconds,
        keep_checkpoints=keep_checkpoints,
        snapshots=snapshots,
        dataset=dataset,
        start_from=start_from,
        reevaluate_start=reevaluate_start,
        progress=progress,
        callbacks=callbacks,
    )
    fix = "For settings: asynchronous=gloam.Asynchronous(...)."
    checks.instance("per_solution", per_solution, bool)
    checks.instance("asynchronous", asynchronous, (bool, Asynchronous), fix)
    common: dict[str, Any] = {"per_solution": per_solution, "max_failure_rate": max_failure_rate}
    with ExitStack() as stack:
        if asynchronous:
            settings = asynchronous if isinstance(asynchronous, Asynchronous) else Asynchronous()
            fix = "Leave out asynchronous=True, or use an algorithm without gradients."
            got = type(vjp).__name__
            checks.expect(vjp is None, "vjp", "None for an asynchronous run", got, fix)
            workers = evaluator or stack.enter_context(ThreadPoolExecutor(1))
            driver = AsyncDriver(
                evaluate, algorithm, seed_list(seeds), as_evaluator(workers), settings, **common
            )
        else:
            driver = PythonDriver(
                evaluate, algorithm, seed_list(seeds), evaluator=evaluator, vjp=vjp, **common
            )
        stack.enter_context(driver.evaluator)
        if isinstance(driver, AsyncDriver):
            stack.callback(driver.close)
        result = drive(driver, evaluate, algorithm, options)
    problem = Problem(evaluate, False, per_solution, evaluator)
    return dataclasses.replace(result, _problem=problem)


def resume(
    run_dir: str | os.PathLike,
    *,
    iterations: int | None = None,
    progress: bool | Display = True,
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Continue the run in a folder, to the same bits as if it had never stopped.

    Args:
        run_dir: A folder that `run` wrote.
        iterations: A new total number of iterations, to extend the run.
        progress: Whether to show a progress bar, or a display of your own.
        callbacks: As in `run`. They are not stored: pass those of the earlier session again.

    Raises:
        ForeignError: The run evaluates a function of your own. Call `run` or `optimize` again with
            it, the same settings and ``resume=True``.
    """
    folder = RunFolder(run_dir).must_hold_run()
    config = folder.read_config()
    checks.expect(
        config.driver != "asynchronous",
        "run_dir",
        "a run that is not asynchronous",
        f"'{run_dir}'",
        "Call gloam.optimize again with its evaluator, the same settings and resume=True.",
    )
    folder.check_number_of_seeds()
    domain, algorithm = folder.read_part("domain"), folder.read_part("algorithm")
    checks.expect(
        config.driver == "fused" or not len(algorithm.emitter.gradient_rows),
        "run_dir",
        "a run without gradients of a function of your own",
        f"'{run_dir}'",
        "Call gloam.optimize again with vjp=..., the same settings and resume=True.",
    )
    try:
        options = RunOptions.of_plan(config.plan)
        drivers = {"fused": FusedDriver, "ask-tell": PythonDriver}
        driver = drivers[config.driver](domain, algorithm, seed_list(config.seeds))
    except (TypeError, KeyError, IndexError, ValueError) as error:
        path, problem = folder.path / "config.json", f"its parts do not fit together ({error})"
        raise DamagedFileError(path, problem, "Restore it from a copy.") from None
    options = dataclasses.replace(
        options,
        iterations=options.iterations if iterations is None else iterations,
        run_dir=run_dir,
        resume=True,
        progress=progress,
        callbacks=callbacks,
    )
    result = drive(driver, domain, algorithm, options)
    problem = Problem(domain, is_traced=config.driver == "fused")
    return dataclasses.replace(result, _problem=problem)
