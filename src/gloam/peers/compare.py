"""The comparison: everyone does the same work first, then they are timed in turns."""

import dataclasses
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax
import pandas as pd

from gloam import checks
from gloam.peers.contenders import Contender, GloamAskTell, GloamFused
from gloam.peers.problem import Problem

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
