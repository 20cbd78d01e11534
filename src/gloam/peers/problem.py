"""What is compared: one of the paper's algorithms with the paper's settings on LP Sphere."""

import dataclasses
from functools import cached_property
from pathlib import Path

import numpy as np

from gloam import checks
from gloam.algorithms import Algorithm
from gloam.domains import LinearProjection
from gloam.experiments import paper_algorithm

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
