"""Searches that can be timed, and the timing: contenders take turns in one process."""

import dataclasses
import os
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import jax

import gloam
from gloam.drivers.fused import Fused
from problems import Problem, markdown

# Share of the CPUs in other hands from which on figures mean little.
_BUSY = 0.05


class Contender(ABC):
    """A search that can be timed. Other peers and other algorithms are other subclasses."""

    name: str
    cells: int
    """Cells of the archive, as the contender itself counts them."""
    evaluations: int = 0
    """Solutions evaluated so far."""

    @abstractmethod
    def advance(self, iterations: int) -> None:
        """Run some iterations and wait for the last of them to end."""

    @property
    @abstractmethod
    def qd_score(self) -> float:
        """QD score now."""

    @property
    @abstractmethod
    def last_epochs(self) -> int:
        """Epochs that the discount model was trained for in the last iteration."""

    def warm_up(self, iterations: int) -> float:
        """Compile and fill caches; returns the mean number of epochs per iteration."""
        total = 0
        for _ in range(iterations):
            self.advance(1)
            total += self.last_epochs
        return total / iterations


class GloamFused(Contender):
    """gloam with the domain inside the compiled loop."""

    name = "gloam fused"

    def __init__(self, problem: Problem, seed: int):
        self.driver = Fused(problem.domain, problem.dms, [seed])
        self.driver.start()
        self.cells = self.driver.state.store.objectives.shape[-1]

    def advance(self, iterations: int) -> None:
        """Run some iterations."""
        self.driver.advance(iterations)
        self.evaluations = self.driver.rows()[0]["evaluations"]

    @property
    def qd_score(self) -> float:
        """QD score now."""
        return self.driver.rows()[0]["qd_score"]

    @property
    def last_epochs(self) -> int:
        """Epochs of the last iteration."""
        return self.driver.rows()[0]["epochs"]


class GloamAskTell(Contender):
    """gloam around the same NumPy evaluation that pyribs is given."""

    name = "gloam ask-tell"

    def __init__(self, problem: Problem, seed: int):
        self.search = gloam.Search(problem.dms, seed=seed)
        self.problem = problem
        self.cells = self.search.state.store.objectives.shape[-1]

    def advance(self, iterations: int) -> None:
        """Run some iterations."""
        for _ in range(iterations):
            solutions = self.search.ask()
            self.search.tell(*self.problem.evaluate(solutions))
            self.evaluations += len(solutions)
        jax.block_until_ready(self.search.state)

    @property
    def qd_score(self) -> float:
        """QD score now."""
        return self.search.stats["qd_score"]

    @property
    def last_epochs(self) -> int:
        """Epochs of the last iteration."""
        return self.search.stats["epochs"]


@dataclasses.dataclass
class Line:
    """One contender on one problem: a line of the table and of the CSV file."""

    measures: int
    contender: str
    cells: int
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


def check_and_warm_up(problem: Problem, contender: Contender, iterations: int) -> Line:
    """Advance a new contender, and note what work it did."""
    epochs = contender.warm_up(iterations)
    each = contender.evaluations / iterations
    return Line(problem.measures, contender.name, contender.cells, each, iterations,
                contender.qd_score, epochs)  # fmt: skip


def take_turns(
    contenders: Sequence[Contender], lines: Sequence[Line], stretches: Sequence[int], repeats: int
) -> None:
    """Time stretches of every contender in turn, so that a slow spell falls on all of them."""
    for _ in range(repeats):
        for contender, line, iterations in zip(contenders, lines, stretches, strict=True):
            start = time.perf_counter()
            contender.advance(iterations)
            line.stretches_ms.append(1000 * (time.perf_counter() - start) / iterations)


def differences(lines: Sequence[Line], tolerance: float) -> list[str]:
    """Where contenders did not do the work of the first one; empty when they did."""
    peer = lines[0]
    limits = {
        "cells": 0.0, "evaluations_per_iteration": 0.0,
        "epochs_per_iteration": tolerance, "qd_score": tolerance,
    }  # fmt: skip
    found = []
    for line in lines[1:]:
        for figure, allowed in limits.items():
            ours, theirs = getattr(line, figure), getattr(peer, figure)
            # Written so that a NaN counts as a difference.
            if not abs(ours - theirs) <= allowed * abs(theirs):
                found.append(
                    f"{line.measures} measures, {figure}: {line.contender} {ours:g}, "
                    f"{peer.contender} {theirs:g}, allowed {allowed:.0%} apart"
                )
    return found


def table(lines: Sequence[Line]) -> str:
    """All figures as Markdown; the first line of each problem is the peer of its speed-ups."""
    peers: dict[int, Line] = {}
    rows = []
    for line in lines:
        peer = peers.setdefault(line.measures, line)
        rows.append([
            line.contender, line.measures, f"{line.median_ms:.2f}",
            f"{min(line.stretches_ms):.2f} - {max(line.stretches_ms):.2f}",
            f"{peer.median_ms / line.median_ms:.1f}x", f"{line.evaluations_per_iteration:g}",
            line.cells, f"{line.epochs_per_iteration:.2f}",
            f"{line.qd_score:.1f} ({line.qd_score / peer.qd_score - 1:+.1%})",
        ])  # fmt: skip
    header = ["contender", "measures", "ms/iteration", "min - max", "speed-up", "evaluations",
              "cells", "epochs", f"QD score at {lines[0].checked_iterations}"]  # fmt: skip
    return markdown(header, rows)


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
