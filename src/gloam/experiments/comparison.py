"""What is compared: one of the paper's algorithms with the paper's settings on LP Sphere.

Searches that can be timed: what a contender is, and gloam's own two drivers.

The comparison: everyone does the same work first, then they are timed in turns.
"""

import dataclasses
import os
import platform
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from gloam import checks
from gloam.algorithms import Algorithm
from gloam.domains import LinearProjection
from gloam.experiments import paper_algorithm
from gloam.runs.fused_driver import FusedDriver
from gloam.searches.search import Search

ALGORITHMS = ("dms", "cma-mae", "map-elites-line")
_EDGE = 5.12


@dataclasses.dataclass(frozen=True)
class Problem:
    """An algorithm on LP Sphere. Every side of a comparison reads its numbers here.

    Args:
        algorithm: One of `ALGORITHMS`.
        measure_dim: Number of measures; 2 has a grid, others have 10,000 centroids.
        centroids_dir: Folder with ``lp_{k}d.npy``; without it, they are computed by k-means.
    """

    algorithm: str
    measure_dim: int
    centroids_dir: Path | None = None

    def __post_init__(self) -> None:
        checks.expect(
            self.algorithm in ALGORITHMS,
            "algorithm",
            f"one of {', '.join(ALGORITHMS)}",
            repr(self.algorithm),
        )

    @cached_property
    def domain(self) -> LinearProjection:
        """The domain, for JAX."""
        needs_file = self.centroids_dir is not None and self.measure_dim != 2
        file = self.centroids_dir / f"lp_{self.measure_dim}d.npy" if needs_file else None  # pyright: ignore
        return LinearProjection(self.measure_dim, centroids=file)

    @cached_property
    def ours(self) -> Algorithm:
        """The algorithm as gloam runs it."""
        return paper_algorithm(self.algorithm, self.domain)

    @cached_property
    def x0(self) -> np.ndarray:
        """Where everyone starts."""
        return np.asarray(self.domain.x0, np.float64)

    def evaluate(self, solutions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The domain in NumPy, as a user of ask and tell would write it."""
        shift = 0.4 * _EDGE
        worst = solutions.shape[1] * (_EDGE + shift) ** 2
        objectives = 1 - np.square(solutions - shift).sum(axis=1) / worst
        inside = np.abs(solutions) <= _EDGE
        clipped = np.where(inside, solutions, _EDGE / np.where(inside, 1, solutions))
        return objectives, clipped.reshape(len(solutions), self.measure_dim, -1).sum(axis=2)


class Contender(ABC):
    """A search that can be timed."""

    name: str
    num_cells: int
    """Cells of the archive, as the contender itself counts them."""
    evaluations: int = 0
    """Solutions evaluated so far."""

    @abstractmethod
    def __init__(self, problem: Problem, seed: int):
        """Set it up, ready to run."""

    @abstractmethod
    def advance(self, iterations: int) -> None:
        """Run some iterations and wait for the last of them to end."""

    @property
    @abstractmethod
    def qd_score(self) -> float:
        """QD score now."""

    def last_epochs(self) -> int:
        """Epochs that a discount model was trained for in the last iteration."""
        return 0

    def warm_up(self, iterations: int) -> float:
        """Compile and fill caches; returns the mean number of epochs per iteration."""
        total = 0
        for _ in range(iterations):
            self.advance(1)
            total += self.last_epochs()
        return total / iterations


class GloamFused(Contender):
    """gloam with the domain inside the compiled loop."""

    name = "gloam fused"

    def __init__(self, problem: Problem, seed: int):
        self.driver = FusedDriver(problem.domain, problem.ours, [seed])
        self.driver.start()
        self.num_cells = self.driver.checkpoint().store.objectives.shape[-1]

    def advance(self, iterations: int) -> None:
        """Run some iterations."""
        self.driver.advance(iterations)
        self.evaluations = self.driver.metrics()[0]["evaluations"]

    def last_epochs(self) -> int:
        """Epochs of the last iteration."""
        return self.driver.metrics()[0]["epochs"]

    @property
    def qd_score(self) -> float:
        """QD score now."""
        return self.driver.metrics()[0]["qd_score"]


class GloamAskTell(Contender):
    """gloam around the same NumPy evaluation that pyribs is given."""

    name = "gloam ask-tell"

    def __init__(self, problem: Problem, seed: int):
        self.search = Search(problem.ours, seed=seed)
        self.problem = problem
        self.num_cells = self.search.state.store.objectives.shape[-1]

    def advance(self, iterations: int) -> None:
        """Run some iterations."""
        for _ in range(iterations):
            solutions = self.search.ask()
            self.search.tell(*self.problem.evaluate(solutions))
            self.evaluations += len(solutions)
        jax.block_until_ready(self.search.state)

    def last_epochs(self) -> int:
        """Epochs of the last iteration."""
        return self.search.metrics()["epochs"]

    @property
    def qd_score(self) -> float:
        """QD score now."""
        return self.search.metrics()["qd_score"]


# Share of the CPUs in other hands from which on figures mean little.
_BUSY = 0.05
# The peers of each algorithm, in the order in which they are the measure of speed.
PEERS = {"dms": ("pyribs",), "cma-mae": ("pyribs",), "map-elites-line": ("pyribs", "qdax")}
_CLASSES = {"pyribs": "Pyribs", "qdax": "Qdax"}
_INSTALL = {"pyribs": "pip install 'gloam[bench]'", "qdax": "pip install qdax"}


@dataclasses.dataclass
class Line:
    """One contender on one problem: a line of the table and of the CSV file."""

    algorithm: str
    measure_dim: int
    contender: str
    num_cells: int
    evaluations_per_iteration: float
    checked_iterations: int
    """Iterations of the warm-up, after which the next two figures were taken."""
    qd_score: float
    epochs_per_iteration: float
    stretches_ms: list[float] = dataclasses.field(default_factory=list)
    """Milliseconds per iteration of each timed stretch."""

    @property
    def median_ms(self) -> float:
        """The figure that is compared."""
        return statistics.median(self.stretches_ms)


@dataclasses.dataclass
class Comparison:
    """All lines, the peers that could not be asked, and differences in the work done."""

    lines: list[Line]
    missing: list[str]
    differences: list[str]

    def frame(self) -> pd.DataFrame:
        """A row for each contender on each problem, with its speed relative to the peers."""
        rows = []
        for line in self.lines:
            same = [
                o
                for o in self.lines
                if (o.algorithm, o.measure_dim) == (line.algorithm, line.measure_dim)
            ]
            row = dataclasses.asdict(line) | {"median_ms": line.median_ms}
            row |= {"min_ms": min(line.stretches_ms), "max_ms": max(line.stretches_ms)}
            row["stretches_ms"] = " ".join(f"{ms:.4f}" for ms in line.stretches_ms)
            for peer in ("pyribs", "QDax"):
                theirs = [o.median_ms for o in same if o.contender == peer]
                row[f"times_{peer.lower()}"] = theirs[0] / line.median_ms if theirs else None
            rows.append(row)
        return pd.DataFrame(rows)


def measure(
    problems: Sequence[Problem],
    *,
    repeats: int = 5,
    seconds: float = 2.0,
    warm_up: int = 200,
    seed: int = 0,
    tolerance: float = 0.15,
    tell: Callable[[str], None] = lambda text: None,
) -> Comparison:
    """Time gloam and the peers that are installed.

    Args:
        problems: What to compare on.
        repeats: Timed stretches of each contender.
        seconds: Roughly how long a stretch is.
        warm_up: Iterations of everyone before the first stretch, after which the QD scores are
            compared.
        seed: Of everyone.
        tolerance: How far QD scores and training epochs may be from the first peer's.
        tell: Called with a line of text for each step.
    """
    checks.integer("repeats", repeats, minimum=1)
    checks.integer("warm_up", warm_up, minimum=1)
    checks.number("seconds", seconds, above=0.0)
    comparison = Comparison([], [], [])
    for problem in problems:
        kinds: list[type[Contender]] = []
        for peer in PEERS[problem.algorithm]:
            try:
                module = import_module(f"gloam.peers.{peer}")
                kinds.append(getattr(module, _CLASSES[peer]))
            except ImportError as error:
                note = f"{peer} is missing ({error}). To compare with it: {_INSTALL[peer]}"
                if note not in comparison.missing:
                    comparison.missing.append(note)
                    tell(note)
        contenders = []
        for kind in (*kinds, GloamFused, GloamAskTell):
            tell(f"{problem.algorithm}, {problem.measure_dim} measures: warming up {kind.name}")
            contenders.append(kind(problem, seed))
        lines = [_line(problem, contender, warm_up) for contender in contenders]
        tell(f"{problem.algorithm}, {problem.measure_dim} measures: timing")
        _take_turns(contenders, lines, repeats, seconds)
        comparison.lines += lines
        comparison.differences += _differences(lines, tolerance)
    return comparison


def _line(problem: Problem, contender: Contender, iterations: int) -> Line:
    """Advance a new contender, and note what work it did."""
    epochs = contender.warm_up(iterations)
    each = contender.evaluations / iterations
    return Line(
        problem.algorithm,
        problem.measure_dim,
        contender.name,
        contender.num_cells,
        each,
        iterations,
        contender.qd_score,
        epochs,
    )


def _take_turns(
    contenders: Sequence[Contender], lines: Sequence[Line], repeats: int, seconds: float
) -> None:
    """Time stretches of every contender in turn, so that a slow spell falls on all of them."""
    sizes = [_iterations_in(contender, seconds) for contender in contenders]
    for _ in range(repeats):
        for contender, line, size in zip(contenders, lines, sizes, strict=True):
            line.stretches_ms.append(1000 * _seconds(contender, size) / size)


def _iterations_in(contender: Contender, seconds: float) -> int:
    """How many iterations take roughly so many seconds."""
    return max(1, round(10 * seconds / _seconds(contender, 10)))


def _seconds(contender: Contender, iterations: int) -> float:
    start = time.perf_counter()
    contender.advance(iterations)
    return time.perf_counter() - start


def _differences(lines: Sequence[Line], tolerance: float) -> list[str]:
    """Where contenders did not do the work of the first one; empty when they did."""
    peer = lines[0]
    limits = {
        "num_cells": 0.0,
        "evaluations_per_iteration": 0.0,
        "epochs_per_iteration": tolerance,
        "qd_score": tolerance,
    }
    found = []
    for line in lines[1:]:
        for figure, allowed in limits.items():
            ours, theirs = getattr(line, figure), getattr(peer, figure)
            # Written so that a NaN counts as a difference.
            if not abs(ours - theirs) <= allowed * abs(theirs):
                found.append(
                    f"{line.algorithm}, {line.measure_dim} measures, {figure}: {line.contender} "
                    f"{ours:g}, {peer.contender} {theirs:g}, allowed {allowed:.0%} apart"
                )
    return found


def surroundings() -> dict[str, Any]:
    """What figures depend on besides the code."""
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "device": jax.devices()[0].device_kind,
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
    }
    for package in ("gloam", "jax", "numpy", "ribs", "torch", "qdax"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


class Neighbours:
    """How much of the CPUs other processes and machines used since this was made (Linux only)."""

    def __init__(self):
        self._start = self._times()

    @property
    def share(self) -> float | None:
        """Between 0 and 1; none where it cannot be told."""
        now = self._times()
        if now is None or self._start is None:
            return None
        idle, total, own = (b - a for a, b in zip(self._start, now, strict=True))
        return max(0.0, (total - idle - own) / max(total, 1e-9))

    def __str__(self) -> str:
        share = self.share
        if share is None:
            return "How busy the machine was with other work is not known."
        advice = "" if share < _BUSY else ": too much for figures to quote"
        return f"Other work took {share:.0%} of the CPUs meanwhile{advice}."

    @staticmethod
    def _times() -> tuple[float, float, float] | None:
        """Seconds of all CPUs spent idle, spent in all, and spent on this process."""
        file = Path("/proc/stat")
        if not file.is_file():
            return None
        # user, nice, system, idle, iowait, irq, softirq, steal; guests are inside user.
        ticks = [int(word) for word in file.read_text().split("\n", 1)[0].split()[1:9]]
        hertz = os.sysconf("SC_CLK_TCK")
        return (ticks[3] + ticks[4]) / hertz, sum(ticks) / hertz, time.process_time()
