"""Prints a line for each logged iteration."""

import math
import sys
from collections.abc import Sequence
from typing import TextIO

from gloam import checks
from gloam.callbacks.callback import Callback, Row, RunEnd


class PrintLogger(Callback):
    """Prints a line for each logged iteration: the means over the seeds.

    Args:
        every: Number of logged iterations for each line.
        file: An open text file. Default: standard output.
    """

    def __init__(self, every: int = 1, *, file: TextIO | None = None):
        self._every = checks.integer("every", every, minimum=1)
        self._file = file
        self._calls = 0

    def log(self, rows: Sequence[Row]) -> None:
        """Print the line."""
        self._calls += 1
        if self._calls % self._every:
            return

        def mean(name: str) -> float:
            return math.fsum(row[name] for row in rows) / len(rows)

        best = max(row["best_objective"] for row in rows)
        self._print(
            f"iteration {rows[0]['iteration']:,}: QD score {mean('qd_score'):,.4g}, "
            f"coverage {mean('coverage'):.2%}, best objective {best:.4g}, "
            f"{mean('seconds'):,.1f} s"
        )

    def end(self, end: RunEnd) -> None:
        """Print how the run ended."""
        why = f" ({end.reason})" if end.reason else ""
        self._print(f"{end.status} after iteration {end.iteration:,}{why}")

    def _print(self, line: str) -> None:
        print(line, file=self._file or sys.stdout, flush=True)
