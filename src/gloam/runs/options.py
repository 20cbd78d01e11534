"""The options of a run: how long, what is kept and when, and what is shown.

Where seeds start: at the algorithm's ``x0``, or each where its domain says.
"""

import dataclasses
import inspect
import os
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import TypedDict
from typing import TypeVar
from gloam import checks
from gloam.callbacks import Callback
from gloam.callbacks.callback import checked
from gloam.datasets import Dataset
from gloam.progress import Display
import numpy as np
from jaxtyping import Float
from gloam.algorithms import Algorithm


# What a run folder keeps of the options. It may change when a run is resumed.
_PLAN = (
    "iterations",
    "log_every",
    "checkpoint_every",
    "checkpoint_seconds",
    "keep_checkpoints",
    "snapshots",
)


@dataclasses.dataclass(frozen=True)
class Asynchronous:
    """How `gloam.optimize` evaluates asynchronously.

    Args:
        close_at: As in `gloam.AsyncSearch`: an emitter adapts when this share of its solutions is
            evaluated.
        timeout: Seconds after which an evaluation counts as failed, or ``None``. An executor cannot
            end it: its worker stays busy, and if it answers after all, the result enters the
            archive.
        in_flight: Number of solutions that are handed to the executor at a time; by default twice
            the number of its workers, so that none waits for the search.
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


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """The options of `gloam.run`, which describes them, besides what is searched and the seeds."""

    iterations: int
    run_dir: str | os.PathLike | None = None
    resume: bool = False
    log_every: int = 50
    checkpoint_every: int | None = None
    checkpoint_seconds: float = 60.0
    keep_checkpoints: int = 2
    snapshots: Sequence[int] = ()
    dataset: Dataset | None = None
    progress: bool | Display = True
    callbacks: Sequence[Callback] = ()

    def __post_init__(self) -> None:
        checks.integer("iterations", self.iterations, minimum=1)
        checks.integer("log_every", self.log_every, minimum=1)
        if self.checkpoint_every is not None:
            checks.integer("checkpoint_every", self.checkpoint_every, minimum=1)
        checks.number("checkpoint_seconds", self.checkpoint_seconds, above=0.0)
        checks.integer("keep_checkpoints", self.keep_checkpoints, minimum=1)
        snapshots = checks.integers("snapshots", self.snapshots, minimum=1)
        object.__setattr__(self, "snapshots", snapshots)
        object.__setattr__(self, "callbacks", checked(self.callbacks))

    @classmethod
    def of_plan(cls, plan: Mapping[str, Any]) -> "RunOptions":
        """Options from the `plan` of a run folder.

        Raises:
            ValueError, TypeError, KeyError: It is not what `plan` gives.
        """
        # A folder of an earlier version may lack an option; its default was what happened.
        if not set(plan) <= set(_PLAN):
            raise ValueError(f"its plan has the parts {sorted(plan)}")
        return cls(**plan)

    @property
    def plan(self) -> dict[str, Any]:
        """What a run folder keeps of the options."""
        return {name: getattr(self, name) for name in _PLAN}

    def is_logged(self, iteration: int) -> bool:
        """True when metrics are kept for ``iteration``."""
        return iteration % self.log_every == 0 or iteration == self.iterations

    def is_checkpoint(self, iteration: int) -> bool:
        """True when the state is kept after ``iteration``, whatever the time."""
        every = self.checkpoint_every
        return iteration == self.iterations or (every is not None and iteration % every == 0)

    def next_stop(self, iteration: int) -> int:
        """The next iteration at which something must be kept."""
        stops = [self.iterations, (iteration // self.log_every + 1) * self.log_every]
        if self.checkpoint_every:
            stops.append((iteration // self.checkpoint_every + 1) * self.checkpoint_every)
        stops += [at for at in self.snapshots if at > iteration]
        return min(stops)


class OptionKeywords(TypedDict, total=False):
    """The options of `RunOptions` that have a default, for type checkers."""

    run_dir: str | os.PathLike | None
    resume: bool
    log_every: int
    checkpoint_every: int | None
    checkpoint_seconds: float
    keep_checkpoints: int
    snapshots: Sequence[int]
    dataset: Dataset | None
    progress: bool | Display
    callbacks: Sequence[Callback]


_Function = TypeVar("_Function", bound=Callable)


def shows_options(function: _Function) -> _Function:
    """Make ``help`` list the options that ``function`` takes as ``**options``."""
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    options = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type
        )
        for field in dataclasses.fields(RunOptions)
        if field.name not in signature.parameters
    ]
    setattr(function, "__signature__", signature.replace(parameters=[*own, *options]))  # noqa: B010
    return function


def start_of(domain: Callable, algorithm: Algorithm, seed: int) -> Float[np.ndarray, " sol"]:
    """The start of a seed.

    A domain may have a start for each seed (``domain.x0_of(seed)``). It is used where the algorithm
    was built with the domain's own ``x0``; an algorithm with another ``x0`` starts all seeds there.
    """
    own = np.asarray(algorithm.emitter.x0)
    x0_of: Any = getattr(domain, "x0_of", None)
    if x0_of is None or not np.array_equal(own, np.asarray(getattr(domain, "x0", None))):
        return own
    start = checks.finite_array("x0_of", x0_of(seed), ndim=1)
    checks.expect(
        start.shape == own.shape,
        "x0_of",
        f"{own.size} numbers, as x0 has",
        f"{start.size} for seed {seed}",
    )
    return start
