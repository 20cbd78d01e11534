"""The options of a run: its length, what is written when, its seeds and starting solutions."""

import dataclasses
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from gloam._tools import checks
from gloam._tools.progress import Display
from gloam.algorithms import Algorithm
from gloam.callbacks import Callback
from gloam.callbacks.callback import checked
from gloam.datasets import Dataset

# Options that a run folder stores. They may change when a run is resumed.
_PLAN = (
    "name",
    "iterations",
    "log_every",
    "checkpoint_every",
    "checkpoint_seconds",
    "keep_checkpoints",
    "snapshots",
)

_MOST_SEEDS = 10_000
_LONGEST_NAME = 120


@dataclasses.dataclass(frozen=True)
class Asynchronous:
    """Settings of asynchronous evaluation in `gloam.optimize`.

    Args:
        close_at: Share of its solutions that must be evaluated before an instance adapts, as in
            `gloam.AsyncSearch`.
        timeout: Seconds after which an evaluation by an executor counts as failed, or ``None``. An
            executor cannot end it: its worker stays busy, and a late result still enters the
            archive. Other evaluators have time limits of their own.
        in_flight: Number of solutions that the evaluator has at a time; by default twice the
            number of its workers, so that workers are never idle. Executors that do not tell their
            number count as the number of processors of this machine.
    """

    close_at: float = 1.0
    timeout: float | None = None
    in_flight: int | None = None

    def __post_init__(self) -> None:
        checks.number("close_at", self.close_at, above=0.0, at_most=1.0)
        if self.timeout is not None:
            checks.number("timeout", self.timeout, above=0.0)
        if self.in_flight is not None:
            checks.integer("in_flight", self.in_flight, minimum=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of a run, which `gloam.run` describes.

    Those without a default are stored in run folders.
    """

    iterations: int
    name: str | None
    log_every: int
    checkpoint_every: int | None
    checkpoint_seconds: float
    keep_checkpoints: int
    snapshots: Sequence[int]
    run_dir: str | os.PathLike | None = None
    resume: bool = False
    dataset: Dataset | None = None
    start_from: Any = None
    reevaluate_start: bool = False
    progress: bool | Display = True
    callbacks: Sequence[Callback] = ()

    def __post_init__(self) -> None:
        checks.integer("iterations", self.iterations, minimum=1)
        if self.name is not None:
            is_name = isinstance(self.name, str) and 0 < len(self.name.strip()) <= _LONGEST_NAME
            expected = f"a string of 1 to {_LONGEST_NAME} printable characters"
            is_printable = is_name and self.name.isprintable()
            checks.expect(is_printable, "name", expected, checks.short(self.name))
        if self.run_dir is not None:
            checks.path("run_dir", self.run_dir, "Give a folder; '.' is the current one.")
        checks.integer("log_every", self.log_every, minimum=1)
        if self.checkpoint_every is not None:
            checks.integer("checkpoint_every", self.checkpoint_every, minimum=1)
        checks.number("checkpoint_seconds", self.checkpoint_seconds, above=0.0)
        checks.integer("keep_checkpoints", self.keep_checkpoints, minimum=1)
        snapshots = checks.integers("snapshots", self.snapshots, minimum=1)
        object.__setattr__(self, "snapshots", snapshots)
        if self.dataset is not None:
            fix = "Build one: gloam.datasets.from_array(items)."
            checks.instance("dataset", self.dataset, Dataset, fix)
        checks.instance("reevaluate_start", self.reevaluate_start, bool)
        is_used = self.start_from is not None or not self.reevaluate_start
        fix, got = "Give start_from=..., whose solutions it evaluates again.", self.reevaluate_start
        checks.expect(is_used, "reevaluate_start", "False without start_from", got, fix)
        fix = "Give True, False, or an instance of a class derived from gloam.callbacks.Display."
        checks.instance("progress", self.progress, (bool, Display), fix)
        object.__setattr__(self, "callbacks", checked(self.callbacks))

    @classmethod
    def of_plan(cls, plan: Mapping[str, Any]) -> "RunOptions":
        """Return options from the `plan` of a run folder.

        Raises:
            ValueError, TypeError: It is not a plan.
        """
        # Neither the time of the start nor the reason of a callback that stopped is an option.
        told = ("started", "stopped")
        options = {name: value for name, value in plan.items() if name not in told}
        if set(options) != set(_PLAN):
            raise ValueError(f"its plan has the parts {sorted(plan)}")
        return cls(**options)

    @property
    def plan(self) -> dict[str, Any]:
        """The options that a run folder stores."""
        return {name: getattr(self, name) for name in _PLAN}

    def is_logged(self, iteration: int) -> bool:
        """Return whether metrics are logged for ``iteration``."""
        return iteration % self.log_every == 0 or iteration == self.iterations

    def is_checkpoint(self, iteration: int) -> bool:
        """Return whether a checkpoint is due after ``iteration``, regardless of time."""
        every = self.checkpoint_every
        return iteration == self.iterations or (every is not None and iteration % every == 0)

    def next_stop(self, iteration: int, rows: int = 1) -> int:
        """Return where a stretch ends: after some rows, or at a checkpoint or a snapshot."""
        stops = [self.iterations, (iteration // self.log_every + rows) * self.log_every]
        if self.checkpoint_every:
            stops.append((iteration // self.checkpoint_every + 1) * self.checkpoint_every)
        stops += [at for at in self.snapshots if at > iteration]
        return min(stops)


def seed_list(seeds: int | Sequence[int]) -> list[int]:
    """Return seeds as a list; a number ``n`` means seeds 0 to ``n - 1``."""
    if isinstance(seeds, (int, np.integer)):
        return list(range(checks.count("seeds", seeds, maximum=_MOST_SEEDS)))
    is_list = isinstance(seeds, (list, tuple, range)) or np.ndim(seeds) == 1
    expected = "a number of seeds, or a list of them"
    checks.expect(is_list and not isinstance(seeds, str), "seeds", expected, checks.short(seeds))
    most = f"at most {_MOST_SEEDS:,} seeds"
    # Not by its length, which a long range does not have.
    values = list(itertools.islice(seeds, _MOST_SEEDS + 1))
    checks.expect(len(values) <= _MOST_SEEDS, "seeds", most, f"more, {checks.short(seeds)}")
    checked_seeds = [checks.seed("seeds", value) for value in values]
    is_set = 0 < len(checked_seeds) == len(set(checked_seeds))
    checks.expect(is_set, "seeds", "different seeds, at least one", checks.short(seeds))
    return checked_seeds


def start_of(domain: Callable, algorithm: Algorithm, seed: int) -> Float[np.ndarray, " sol"]:
    """Return the starting solution of a seed.

    It is ``domain.x0_of(seed)`` if the domain has this method and the algorithm was built with
    ``domain.x0``. Otherwise it is the algorithm's ``x0``.
    """
    x0 = np.asarray(algorithm.emitter.x0)
    x0_of: Any = getattr(domain, "x0_of", None)
    if x0_of is None or not np.array_equal(x0, np.asarray(getattr(domain, "x0", None))):
        return x0
    start = checks.finite_array("x0_of", x0_of(seed), ndim=1)
    got = f"{start.size} for seed {seed}"
    checks.expect(start.shape == x0.shape, "x0_of", f"{x0.size} numbers, as x0 has", got)
    return start
