"""What the benchmarks solve: LP Sphere and the paper's settings of DMS, written down once."""

import argparse
import dataclasses
import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

import gloam
from gloam.archives import Archive
from gloam.domains import LinearProjection
from gloam.emitters import BasicRestart, RestartEvery

EDGE = 5.12


@dataclasses.dataclass(frozen=True)
class Problem:
    """LP Sphere with ``measures`` measures. Every side of a comparison reads its numbers here.

    Args:
        measures: Number of measures k.
        centroids: Folder with ``lp_{k}d.npy``; without one, gloam makes them by k-means.
    """

    measures: int
    centroids: Path | None = None

    solution: int = 100
    emitters: int = 15
    batch_size: int = 36
    sigma0: float = 0.5
    alpha: float = 0.1
    empty_points: int = 100
    init_points: int = 1000
    hidden: tuple[int, int] = (128, 128)
    learning_rate: float = 1e-3
    train_batch_size: int = 32
    epochs: int = 5
    cutoff: float = 0.05

    @property
    def restart_every(self) -> int | None:
        """Iterations between restarts; with two measures only CMA-ES's own signs count."""
        return None if self.measures == 2 else 100

    @property
    def centroids_file(self) -> Path | None:
        """The file of the cells; none for two measures, where they are a grid."""
        if self.centroids is None or self.measures == 2:
            return None
        return self.centroids / f"lp_{self.measures}d.npy"

    @cached_property
    def domain(self) -> LinearProjection:
        """The domain, for JAX."""
        return LinearProjection(
            self.measures, solution=self.solution, centroids=self.centroids_file
        )

    @cached_property
    def archive(self) -> Archive:
        """10,000 cells."""
        return self.domain.archive()

    @cached_property
    def dms(self) -> gloam.DMS:
        """Discount Model Search with canonical CMA-ES."""
        every = self.restart_every
        return gloam.DMS(
            self.archive, self.domain.x0, self.sigma0, emitters=self.emitters,
            batch_size=self.batch_size, alpha=self.alpha, empty_points=self.empty_points,
            restart=BasicRestart() if every is None else RestartEvery(every),
            network=gloam.discounts.MLP(self.measures, self.hidden), init_points=self.init_points,
            learning_rate=self.learning_rate, train_batch_size=self.train_batch_size,
            epochs=self.epochs, cutoff=self.cutoff,
        )  # fmt: skip

    def evaluate(self, solutions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The domain in NumPy, as a user of ask and tell would write it."""
        shift = 0.4 * EDGE
        worst = self.solution * (EDGE + shift) ** 2
        objectives = 1 - np.square(solutions - shift).sum(axis=1) / worst
        inside = np.abs(solutions) <= EDGE
        clipped = np.where(inside, solutions, EDGE / np.where(inside, 1, solutions))
        return objectives, clipped.reshape(len(solutions), self.measures, -1).sum(axis=2)


def add_problem_arguments(parser: argparse.ArgumentParser, measures: Sequence[int]) -> None:
    """``--measures`` and ``--centroids``."""
    parser.add_argument(
        "--measures", type=whole(1), nargs="+", default=list(measures), metavar="K",
        help="numbers of measures, divisors of 100: 2 is a grid, others are 10,000 centroids "
        "(%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--centroids", type=Path, metavar="FOLDER",
        help="folder with lp_{K}d.npy, for instance the authors' own; without it gloam makes "
        "centroids by k-means, once, and keeps them in its cache",
    )  # fmt: skip


def checked_problems(options: argparse.Namespace) -> list[Problem]:
    """The problems asked for; ends the program with status 2 where their arguments are wrong."""
    problems = [Problem(k, options.centroids) for k in options.measures]
    try:
        # Domains check their arguments. Nothing else is caught: other errors are not the user's.
        for problem in problems:
            _ = problem.domain
    except ValueError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    return problems


def whole(minimum: int) -> Callable[[str], int]:
    """A whole number of at least ``minimum``, for argparse."""

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < minimum:
            raise argparse.ArgumentTypeError(
                f"expected a whole number of at least {minimum}, got '{text}'"
            )
        return int(text)

    return parse


def markdown(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table: the first column to the left, the others to the right."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    cells.insert(1, rule)
    lines = [[row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
