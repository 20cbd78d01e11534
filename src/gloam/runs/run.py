"""Runs from beginning to end: `run` on the device, `optimize` in Python, `resume` for both."""

import dataclasses
import os
import time
from collections.abc import Callable
from collections.abc import Sequence
from concurrent.futures import Executor
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any
from typing import Unpack
import numpy as np
from gloam import checks
from gloam.algorithms import Algorithm
from gloam.callbacks import Callback
from gloam.datasets import Dataset
from gloam.runs.async_driver import AsyncDriver
from gloam.runs.fused_driver import FusedDriver
from gloam.runs.loop import About
from gloam.runs.loop import Earlier
from gloam.runs.loop import drive
from gloam.runs.options import Asynchronous
from gloam.runs.options import OptionKeywords
from gloam.runs.options import RunOptions
from gloam.runs.options import shows_options
from gloam.progress import Display
from gloam.runs.python_driver import PythonDriver
from gloam.runs.loop import restored
from gloam.runs.result import Result
from gloam.evaluators import Evaluator
from gloam.formats import DamagedFileError
from gloam.formats import RunExistsError
from gloam.formats import RunFolder
from gloam.formats.config import describe
from gloam.formats.run_folder import dataset_arrays
from gloam.formats.run_folder import dataset_digest


_Driver = FusedDriver | PythonDriver | AsyncDriver


@shows_options
def run(
    domain: Callable,
    algorithm: Algorithm,
    iterations: int,
    *,
    seeds: int | Sequence[int] = 1,
    **options: Unpack[OptionKeywords],
) -> Result:
    """Search on the device, many seeds at once.

    Args:
        domain: Maps solutions ``(batch, sol)`` to objectives ``(batch,)`` and measures
            ``(batch, meas)`` (or in the archive's shape, such as ``(batch, 28, 28)``), and
            optionally a dict of fields, in operations that JAX can trace.
            It may return measures alone: then closeness to the centre of the cell (a dataset's
            item) is maximised. It may have a start for each seed, ``domain.x0_of(seed)``, which is
            used where the algorithm was built with ``domain.x0``. A function is compiled once: what
            it reads may be set to something else, but not be changed in place.
        algorithm: For instance `gloam.DMS`.
        iterations: Number of iterations, in all.
        seeds: The seeds, or the number of seeds (then 0, 1, ...).
        run_dir: Folder for metrics, archives and checkpoints; see `gloam.RunFolder`.
        resume: Continue the run in ``run_dir`` if there is one.
        log_every: Iterations between two rows of the metrics.
        checkpoint_every: Iterations between two checkpoints, besides those by time.
        checkpoint_seconds: Time between two checkpoints. It is longer where writing one takes more
            than a thirtieth of it, so that checkpoints take about 3% of a run's time.
        keep_checkpoints: Number of checkpoints that are kept. When the newest is damaged, the one
            before it is used.
        snapshots: Iterations at which to keep what a picture of the discount function needs.
        dataset: The items that the archive's cells are (``dataset.archive()``), kept in the run
            folder for galleries.
        progress: Show a progress bar, or a display of your own.
        callbacks: Told of the rows that are logged, and able to stop the run; see
            `gloam.callbacks`.

    Returns:
        Elites and metrics of every seed.

    Raises:
        Interrupted: After Ctrl-C; the state was saved before.
        EvaluationError: Every solution of every seed failed in one iteration. A single seed whose
            batch fails goes on, with a warning.

    Example:
        >>> import gloam
        >>> domain = gloam.domains.LinearProjection(measure_dim=2)
        >>> algorithm = gloam.DMS(domain.archive(), domain.x0, sigma0=0.5)
        >>> result = gloam.run(domain, algorithm, seeds=2, iterations=3, progress=False)
        >>> result.metrics["evaluations"].tolist()
        [1620, 1620]
    """
    chosen = RunOptions(iterations, **options)
    driver = FusedDriver(domain, algorithm, seed_list(seeds))
    return _conduct(driver, domain, algorithm, chosen)


@shows_options
def optimize(
    evaluate: Callable[[np.ndarray], Sequence[Any]],
    algorithm: Algorithm,
    iterations: int,
    *,
    seeds: int | Sequence[int] = 1,
    evaluator: Evaluator | Executor | None = None,
    per_solution: bool = False,
    max_failure_rate: float = 1.0,
    asynchronous: bool | Asynchronous = False,
    **options: Unpack[OptionKeywords],
) -> Result:
    """Search with an evaluation in plain Python: NumPy, PyTorch, a simulator.

    A solution whose evaluation raises, takes too long, or returns NaN or another shape has failed:
    it is masked, and the others count. With a run folder, failures are written to
    ``failures.parquet`` (see `gloam.RunFolder.read_failures`).

    Args:
        evaluate: Maps solutions ``(batch, sol)`` to objectives ``(batch,)`` and measures
            ``(batch, meas)`` (or in the archive's shape, such as ``(batch, 28, 28)``), and
            optionally a dict of fields. It may return measures alone: then closeness to the centre
            of the cell (a dataset's item) is maximised. If it raises for a batch, it is called
            again for each row alone.
        algorithm: For instance `gloam.DMS`.
        iterations: Number of iterations, in all.
        seeds: The seeds, or the number of seeds (then 0, 1, ...). In each iteration they are
            evaluated in turn, each seed's batch in a call of its own.
        evaluator: Where to evaluate: `gloam.Processes`, `gloam.Dask`, or any executor of
            `concurrent.futures`. By default in this process. The archive does not depend on it.
        per_solution: True when ``evaluate`` takes one solution ``(sol,)`` and returns its objective
            and measures.
        max_failure_rate: Stop when more than this share of the evaluations of three iterations in
            a row failed. By default only when all of them failed.
        asynchronous: Evaluate one solution at a time (``evaluate`` gets a batch of one), and let
            each emitter go on when its own solutions are evaluated, for evaluations that take
            uneven times; see docs/asynchronous.md. The evaluator is then an executor, by default
            one thread. `gloam.Asynchronous` has settings for it.
        run_dir, resume, log_every, checkpoint_every, checkpoint_seconds: As in `gloam.run`.
        keep_checkpoints, snapshots, dataset, progress, callbacks: As in `gloam.run`.

    Returns:
        Elites and metrics of every seed.

    Raises:
        Interrupted: After Ctrl-C; the state was saved before.
        EvaluationError: Too many solutions failed; the state was saved before.
        ValueError: Every answer to the first batch had a shape that does not fit the archive.
        EvaluatorError: Workers do not start, or a cluster is lost; the state was saved before.

    Example:
        >>> import gloam
        >>> def evaluate(x):
        ...     return 1 - np.square(x).sum(axis=1), x[:, :2]
        >>> archive = gloam.GridArchive(shape=(10, 10), lower=-1, upper=1)
        >>> algorithm = gloam.DMS(archive, x0=np.zeros(3), sigma0=0.3)
        >>> result = gloam.optimize(evaluate, algorithm, iterations=2, progress=False)
        >>> len(result.elites) > 10
        True
    """
    chosen = RunOptions(iterations, **options)
    if asynchronous:
        settings = asynchronous if isinstance(asynchronous, Asynchronous) else Asynchronous()
        with ExitStack() as stack:
            executor: Any = evaluator or stack.enter_context(ThreadPoolExecutor(1))
            driver = AsyncDriver(
                evaluate,
                algorithm,
                seed_list(seeds),
                executor,
                settings,
                per_solution=per_solution,
                max_failure_rate=max_failure_rate,
            )
            stack.callback(driver.close)
            return _conduct(driver, evaluate, algorithm, chosen)
    driver = PythonDriver(
        evaluate,
        algorithm,
        seed_list(seeds),
        evaluator=evaluator,
        per_solution=per_solution,
        max_failure_rate=max_failure_rate,
    )
    with driver.evaluator:
        return _conduct(driver, evaluate, algorithm, chosen)


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
        iterations: A new total, to make a run longer.
        progress: Show a progress bar, or a display of your own.
        callbacks: As in `run`. A folder keeps none: pass those of the earlier session again.

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
    domain, algorithm = folder.read_part("domain"), folder.read_part("algorithm")
    try:
        options = RunOptions.of_plan(config.plan)
        drivers = {"fused": FusedDriver, "ask-tell": PythonDriver}
        driver = drivers[config.driver](domain, algorithm, seed_list(config.seeds))
    except (TypeError, KeyError, IndexError, ValueError) as error:
        path, problem = folder.path / "config.json", f"its parts do not fit together ({error})"
        raise DamagedFileError(path, problem, "Restore it from a copy.") from None
    options = dataclasses.replace(
        options, run_dir=run_dir, resume=True, progress=progress, callbacks=callbacks
    )
    if iterations is not None:
        options = dataclasses.replace(options, iterations=iterations)
    return _conduct(driver, domain, algorithm, options)


def seed_list(seeds: int | Sequence[int]) -> list[int]:
    """``seeds`` as a list: a number means seeds 0, 1, ..."""
    if isinstance(seeds, (int, np.integer)):
        return list(range(checks.integer("seeds", seeds, minimum=1)))
    listed = isinstance(seeds, (list, tuple, range)) or np.ndim(seeds) == 1
    checks.expect(
        listed and not isinstance(seeds, str),
        "seeds",
        "a number of seeds, or a list of them",
        checks.short(seeds),
    )
    found = [checks.seed("seeds", seed) for seed in seeds]
    checks.expect(
        0 < len(found) == len(set(found)), "seeds", "different seeds, at least one", repr(seeds)
    )
    return found


def _conduct(
    driver: _Driver,
    domain: Callable,
    algorithm: Algorithm,
    options: RunOptions,
) -> Result:
    """Open the folder, begin or restore the search, and drive it to its last iteration."""
    began = time.perf_counter()
    about = _about(domain, algorithm)
    dataset = options.dataset
    arrays = {} if dataset is None else _dataset_arrays(dataset, algorithm)
    if options.run_dir is None:
        driver.start()
        return drive(driver, options, None, about, Earlier(time.perf_counter() - began))
    folder = RunFolder(options.run_dir)
    config, config_arrays = describe(
        algorithm,
        domain,
        driver=driver.kind,
        seeds=driver.seeds,
        dataset=None if dataset is None else dataset_digest(arrays),
        plan=options.plan,
    )
    with folder.locked():
        if not folder.holds_run:
            folder.check_free()
            driver.start()
            folder.write_config(config, config_arrays)
            earlier = Earlier()
        elif options.resume:
            earlier = restored(driver, folder, config)
        else:
            raise RunExistsError(folder.path)
        if dataset is not None:
            folder.write_dataset(dataset)
        seconds = earlier.seconds + time.perf_counter() - began  # compiling counts
        earlier = dataclasses.replace(earlier, seconds=seconds)
        return drive(driver, options, folder, about, earlier)


def _about(domain: Callable, algorithm: Algorithm) -> About:
    names = {
        "algorithm": type(algorithm).__name__,
        "domain": str(getattr(domain, "name", getattr(domain, "__name__", ""))),
    }
    title = f"{names['algorithm']} {getattr(domain, 'name', '')}".strip()
    return About(title, {**names, "cells": algorithm.archive.num_cells})


def _dataset_arrays(dataset: Dataset, algorithm: Algorithm) -> dict[str, np.ndarray]:
    checks.expect(
        algorithm.archive.num_cells == len(dataset),
        "dataset",
        f"{algorithm.archive.num_cells} items, one for each cell",
        f"{len(dataset)}",
        "Build the archive by dataset.archive().",
    )
    return dataset_arrays(dataset)
