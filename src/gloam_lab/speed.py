"""Comparison of speed with pyribs and QDax: contenders do the same work and are timed in turns."""

import dataclasses
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax
import pandas as pd

from gloam._tools import checks
from gloam_lab.contenders import PEERS, Contender, GloamAskTell, GloamFused, Problem

# Share of the CPUs that other processes may use before figures become unreliable.
_MAX_LOAD = 0.05


@dataclasses.dataclass
class Line:
    """Work and times of one contender on one problem."""

    algorithm: str
    measure_dim: int
    contender: str
    num_cells: int
    evaluations_per_iteration: float
    checked_iterations: int
    """Number of iterations of the warm-up, after which the next two figures were taken."""
    qd_score: float
    epochs_per_iteration: float
    stretches_ms: list[float] = dataclasses.field(default_factory=list)
    """Milliseconds per iteration in each timed period."""

    @property
    def median_ms(self) -> float:
        """Median of the timed periods."""
        return statistics.median(self.stretches_ms)


@dataclasses.dataclass
class SpeedComparison:
    """Results of a comparison."""

    lines: list[Line]
    missing: list[str]
    """Notes on libraries that are not installed."""
    differences: list[str]
    """Notes on contenders that did other work than the first one."""

    def frame(self) -> pd.DataFrame:
        """Return one row per contender and problem, with the speed relative to the peers."""
        rows = []
        for line in self.lines:
            row = dataclasses.asdict(line) | {"median_ms": line.median_ms}
            row |= {"min_ms": min(line.stretches_ms), "max_ms": max(line.stretches_ms)}
            row["stretches_ms"] = " ".join(f"{ms:.4f}" for ms in line.stretches_ms)
            for peer in ("pyribs", "QDax"):
                key = (line.algorithm, line.measure_dim, peer)
                times = [
                    other.median_ms / line.median_ms
                    for other in self.lines
                    if (other.algorithm, other.measure_dim, other.contender) == key
                ]
                row[f"times_{peer.lower()}"] = times[0] if times else None
            rows.append(row)
        return pd.DataFrame(rows)


def compare_speed(
    problems: Sequence[Problem],
    *,
    repeats: int = 5,
    seconds: float = 2.0,
    warm_up: int = 200,
    seed: int = 0,
    tolerance: float = 0.15,
    tell: Callable[[str], None] = lambda text: None,
) -> SpeedComparison:
    """Time gloam and the peers that are installed.

    Args:
        problems: The problems.
        repeats: Number of timed periods of each contender.
        seconds: Approximate length of a period.
        warm_up: Number of iterations before the first period, after which the work is compared.
        seed: Seed of every contender.
        tolerance: Largest relative difference of QD scores and training epochs that is not
            reported.
        tell: Called with a line of text for each step.
    """
    checks.integer("repeats", repeats, minimum=1)
    checks.integer("warm_up", warm_up, minimum=1)
    checks.number("seconds", seconds, above=0.0)
    comparison = SpeedComparison([], [], [])
    for problem in problems:
        contenders: list[Contender] = []
        for kind in (*PEERS[problem.name], GloamFused, GloamAskTell):
            tell(f"{problem.name}, {problem.measure_dim} measures: warming up {kind.name}")
            try:
                contenders.append(kind(problem, seed))
            except ImportError as error:
                note = f"{kind.name} is missing ({error}). To compare with it: {kind.install}"
                if note not in comparison.missing:
                    comparison.missing.append(note)
                    tell(note)
        lines = [_line_after_warm_up(problem, contender, warm_up) for contender in contenders]
        tell(f"{problem.name}, {problem.measure_dim} measures: timing")
        _time_in_turns(contenders, lines, repeats, seconds)
        comparison.lines += lines
        comparison.differences += _differences(lines, tolerance)
    return comparison


def _line_after_warm_up(problem: Problem, contender: Contender, iterations: int) -> Line:
    """Run the first iterations, which compile programs, and record the work done."""
    outcomes = []
    for _ in range(iterations):
        contender.advance(1)
        outcomes.append(contender.outcome())
    return Line(
        problem.name,
        problem.measure_dim,
        contender.name,
        contender.num_cells,
        contender.evaluations / iterations,
        iterations,
        qd_score=outcomes[-1][0],
        epochs_per_iteration=statistics.fmean(epochs for _, epochs in outcomes),
    )


def _time_in_turns(
    contenders: Sequence[Contender], lines: Sequence[Line], repeats: int, seconds: float
) -> None:
    """Time the contenders in turns, so that a slow phase of the machine affects all of them."""
    sizes = [max(1, round(10 * seconds / _seconds(contender, 10))) for contender in contenders]
    for _ in range(repeats):
        for contender, line, size in zip(contenders, lines, sizes, strict=True):
            line.stretches_ms.append(1000 * _seconds(contender, size) / size)


def _seconds(contender: Contender, iterations: int) -> float:
    start = time.perf_counter()
    contender.advance(iterations)
    return time.perf_counter() - start


def _differences(lines: Sequence[Line], tolerance: float) -> list[str]:
    """Return where contenders did other work than the first one."""
    first = lines[0]
    limits = {
        "num_cells": 0.0,
        "evaluations_per_iteration": 0.0,
        "epochs_per_iteration": tolerance,
        "qd_score": tolerance,
    }
    notes = []
    for line in lines[1:]:
        for figure, allowed in limits.items():
            value, reference = getattr(line, figure), getattr(first, figure)
            # Written so that NaN counts as a difference.
            if not abs(value - reference) <= allowed * abs(reference):
                notes.append(
                    f"{line.algorithm}, {line.measure_dim} measures, {figure}: {line.contender} "
                    f"{value:g}, {first.contender} {reference:g}, {allowed:.0%} difference allowed"
                )
    return notes


def environment() -> dict[str, Any]:
    """Return the machine and the versions on which figures depend."""
    facts: dict[str, Any] = {
        "python": platform.python_version(),
        "device": jax.devices()[0].device_kind,
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
    }
    for package in ("gloam", "jax", "numpy", "ribs", "torch", "qdax"):
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "not installed"
    return facts


class BackgroundLoad:
    """Share of the CPUs that other processes have used since this object was built.

    It is known on Linux only.
    """

    def __init__(self):
        self._start = self._times()

    @property
    def share(self) -> float | None:
        """Share between 0 and 1, or ``None`` if it is not known."""
        now = self._times()
        if now is None or self._start is None:
            return None
        idle, total, this = (b - a for a, b in zip(self._start, now, strict=True))
        return max(0.0, (total - idle - this) / max(total, 1e-9))

    def __str__(self) -> str:
        share = self.share
        if share is None:
            return "The load of other processes is not known."
        advice = "" if share < _MAX_LOAD else ", too much for reliable figures"
        return f"Other processes used {share:.0%} of the CPUs{advice}."

    @staticmethod
    def _times() -> tuple[float, float, float] | None:
        """Return the seconds of all CPUs that were idle, in total, and used by this process."""
        file = Path("/proc/stat")
        if not file.is_file():
            return None
        # user, nice, system, idle, iowait, irq, softirq, steal; guests are counted in user.
        ticks = [int(word) for word in file.read_text().split("\n", 1)[0].split()[1:9]]
        hertz = os.sysconf("SC_CLK_TCK")
        return (ticks[3] + ticks[4]) / hertz, sum(ticks) / hertz, time.process_time()
