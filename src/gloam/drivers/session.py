"""Runs from beginning to end: `run` on the device, `optimize` in Python, `resume` for both."""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gloam import checks
from gloam._version import __version__
from gloam.algorithms import Algorithm
from gloam.datasets import Dataset
from gloam.drivers import codec
from gloam.drivers.folder import RunFolder
from gloam.drivers.fused import Fused
from gloam.drivers.host import Host
from gloam.drivers.loop import Plan, Result, drive
from gloam.drivers.progress import Display


def run(
    domain: Callable,
    algorithm: Algorithm,
    *,
    seeds: int | Sequence[int] = 1,
    iterations: int,
    run_dir: str | os.PathLike | None = None,
    resume: bool = False,
    log_every: int = 50,
    checkpoint_every: int | None = None,
    checkpoint_seconds: float = 60.0,
    snapshots: Sequence[int] = (),
    dataset: Dataset | None = None,
    progress: bool | Display = True,
) -> Result:
    """Search on the device, many seeds at once.

    Args:
        domain: Maps solutions ``(batch, sol)`` to objectives ``(batch,)`` and measures
            ``(batch, meas)`` (or in the archive's shape, such as ``(batch, 28, 28)``), and
            optionally a dict of fields, in operations that JAX can trace.
            It may return measures alone: then closeness to the centre of the cell (a dataset's
            item) is maximised.
        algorithm: For instance `gloam.DMS`.
        seeds: The seeds, or how many of them (then 0, 1, ...).
        iterations: How many, in all.
        run_dir: Folder for metrics, archives and checkpoints; see `gloam.drivers.folder`.
        resume: Continue the run in ``run_dir`` if there is one.
        log_every: Iterations between two rows of the metrics.
        checkpoint_every: Iterations between two checkpoints, besides those by time.
        checkpoint_seconds: Longest time between two checkpoints.
        snapshots: Iterations at which to keep what a picture of the discount function needs.
        dataset: The items that the archive's cells are (``dataset.archive()``), kept in the run
            folder for galleries.
        progress: Show a progress bar, or a display of your own.

    Returns:
        Archives and metrics of every seed.

    Raises:
        Interrupted: After Ctrl-C; the state was saved before.

    Example:
        >>> import gloam
        >>> domain = gloam.domains.LinearProjection(measures=2)
        >>> algorithm = gloam.DMS(domain.archive(), domain.x0, sigma0=0.5)
        >>> result = gloam.run(domain, algorithm, seeds=2, iterations=3, progress=False)
        >>> result.metrics["evaluations"].tolist()
        [1620, 1620]
    """
    plan = Plan(iterations, log_every, checkpoint_every, checkpoint_seconds, tuple(snapshots))
    driver = Fused(domain, algorithm, seed_list(seeds))
    return _conduct(driver, domain, algorithm, plan, run_dir, resume, dataset, progress)


def optimize(
    evaluate: Callable[[np.ndarray], Sequence[Any]],
    algorithm: Algorithm,
    iterations: int,
    *,
    seed: int = 0,
    run_dir: str | os.PathLike | None = None,
    resume: bool = False,
    log_every: int = 50,
    checkpoint_every: int | None = None,
    checkpoint_seconds: float = 60.0,
    snapshots: Sequence[int] = (),
    dataset: Dataset | None = None,
    progress: bool | Display = True,
) -> Result:
    """Search with an evaluation in plain Python: NumPy, PyTorch, a simulator.

    Args:
        evaluate: Maps solutions ``(batch, sol)`` to objectives ``(batch,)`` and measures
            ``(batch, meas)`` (or in the archive's shape, such as ``(batch, 28, 28)``), and
            optionally a dict of fields. Rows of NaN count as failed. It may
            return measures alone: then closeness to the centre of the cell (a dataset's item) is
            maximised.
        algorithm: For instance `gloam.DMS`.
        iterations: How many, in all.
        seed: The same seed gives the same search.
        run_dir, resume, log_every, checkpoint_every, checkpoint_seconds, snapshots, dataset,
            progress: As in `gloam.run`.

    Returns:
        The archive and the metrics.

    Example:
        >>> import gloam
        >>> def evaluate(x):
        ...     return 1 - np.square(x).sum(axis=1), x[:, :2]
        >>> archive = gloam.GridArchive(shape=(10, 10), lower=-1, upper=1)
        >>> algorithm = gloam.DMS(archive, x0=np.zeros(3), sigma0=0.3)
        >>> result = gloam.optimize(evaluate, algorithm, iterations=2, progress=False)
        >>> len(result.archive) > 10
        True
    """
    plan = Plan(iterations, log_every, checkpoint_every, checkpoint_seconds, tuple(snapshots))
    driver = Host(evaluate, algorithm, seed)
    return _conduct(driver, evaluate, algorithm, plan, run_dir, resume, dataset, progress)


def resume(
    run_dir: str | os.PathLike, *, iterations: int | None = None, progress: bool | Display = True
) -> Result:
    """Continue the run in a folder, to the same bits as if it had never stopped.

    Args:
        run_dir: A folder that `run` wrote.
        iterations: A new total, to make a run longer.
        progress: Show a progress bar, or a display of your own.

    Raises:
        ForeignError: The run evaluates a function of your own. Call `run` or `optimize` again with
            it, the same settings and ``resume=True``.
    """
    folder = RunFolder(run_dir).must_hold_run()
    settings = folder.read_settings()
    return run(
        folder.read_part("domain"),
        folder.read_part("algorithm"),
        seeds=settings["seeds"],
        iterations=settings["iterations"] if iterations is None else iterations,
        run_dir=run_dir,
        resume=True,
        log_every=settings["log_every"],
        checkpoint_every=settings["checkpoint_every"],
        checkpoint_seconds=settings["checkpoint_seconds"],
        snapshots=settings["snapshots"],
        progress=progress,
    )


def seed_list(seeds: int | Sequence[int]) -> list[int]:
    """``seeds`` as a list: a number of trials means seeds 0, 1, ..."""
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
    checks.expect(0 < len(found) == len(set(found)), "seeds", "different seeds, at least one",
                  repr(seeds))  # fmt: skip
    return found


def _conduct(
    driver: Fused | Host,
    domain: Callable,
    algorithm: Algorithm,
    plan: Plan,
    run_dir: str | os.PathLike | None,
    resume: bool,
    dataset: Dataset | None,
    progress: bool | Display,
) -> Result:
    """Open the folder, begin or restore the search, and drive it to the end of its plan."""
    began = time.perf_counter()
    title = f"{type(algorithm).__name__} {getattr(domain, 'name', '')}".strip()
    if dataset is not None:
        same = algorithm.archive.cells == len(dataset)
        checks.expect(same, "dataset", f"{algorithm.archive.cells} items, one for each cell",
                      f"{len(dataset)}", "Build the archive by dataset.archive().")  # fmt: skip
    if run_dir is None:
        driver.start()
        spent = time.perf_counter() - began
        return drive(driver, plan, None, title=title, progress=progress, seconds=spent)
    folder = RunFolder(run_dir)
    seconds, metrics = 0.0, None
    if folder.holds_run and folder.holds_checkpoint:
        checks.expect(resume, "run_dir", "a folder without a run", f"'{run_dir}'",
                      "Pass resume=True to continue it, or choose another folder.")  # fmt: skip
        _check_same_run(folder, algorithm, driver.seeds)
        spent = []

        def read(like: Any) -> Any:
            state, seconds = folder.read_checkpoint(like)
            spent.append(seconds)
            return state

        driver.restore(read)
        seconds, metrics = spent[0], folder.read_metrics()
    else:
        driver.start()
    settings = {
        "gloam": __version__, "driver": type(driver).__name__, "seeds": driver.seeds,
        "iterations": plan.iterations, "log_every": plan.log_every,
        "checkpoint_every": plan.checkpoint_every, "checkpoint_seconds": plan.checkpoint_seconds,
        "snapshots": list(plan.snapshots),
    }  # fmt: skip
    folder.write_config(algorithm=algorithm, domain=domain, settings=settings)
    if dataset is not None:
        folder.write_dataset(dataset)
    seconds += time.perf_counter() - began  # compiling counts
    return drive(
        driver, plan, folder, title=title, progress=progress, seconds=seconds, metrics=metrics
    )


def _check_same_run(folder: RunFolder, algorithm: Algorithm, seeds: list[int]) -> None:
    """A checkpoint only fits the algorithm and the seeds that wrote it."""
    arrays: dict[str, np.ndarray] = {}
    mine = codec.encode(algorithm, arrays)
    theirs = folder.read_settings()
    same = codec.agree(theirs["algorithm"], mine) and theirs["seeds"] == seeds
    checks.expect(same, "resume", "the algorithm and seeds that the run was started with",
                  f"others than '{folder.path / 'config.json'}' holds",
                  "Resume with the same settings, or start in another folder.")  # fmt: skip
