"""Show why two baselines differ from the paper, by changing one thing in pyribs' CMA-MAE and DDS.

`research/study.md` compares gloam's baselines with the paper, whose results are from pyribs.
The reasons for differences are shown in pyribs itself, without gloam:

* ``cma-mae`` in float64 (pyribs' default, and the paper's) or in float32 (gloam's), and with
  restarts from the archive of thresholds (pyribs: the latest solution that passed its threshold) or
  from the elites (gloam: the best solution of a cell).
* ``dds`` with pyribs' buffer as released or with a uniform sample of all measures (what its
  documentation means), and with pyribs' scale of the density or with a normalised one.

    python benchmarks/baselines_in_pyribs.py dds --measures 10 --buffer uniform --centroids-dir DIR
"""

import argparse
import csv
import time
from pathlib import Path

import numpy as np
from ribs.archives import CVTArchive, DensityArchive, GridArchive
from ribs.emitters import EvolutionStrategyEmitter
from ribs.schedulers import Scheduler

from gloam_lab.contenders import Problem

SIZE = 100
BANDWIDTH = {2: 25.6, 10: 5.12, 20: 2.56, 50: 1.024}


def squared_distances(points: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return all squared distances by one matrix product, in float64."""
    points, others = points.astype(np.float64), others.astype(np.float64)
    product = points @ others.T
    product *= -2
    product += np.square(points).sum(axis=1)[:, None]
    product += np.square(others).sum(axis=1)
    return np.maximum(product, 0.0, out=product)


class QuickCVT(CVTArchive):
    """pyribs' archive with a faster, also exact, search for the nearest centroid."""

    def index_of(self, measures: np.ndarray) -> np.ndarray:
        """Return the cell of each row."""
        return squared_distances(measures, self._centroids).argmin(axis=1).astype(np.int32)


class BufferedDensity(DensityArchive):
    """pyribs' density with a configurable buffer and scale, and the elites of the result archive.

    The emitter asks its archive for elites on a restart; pyribs' density archive has none.
    """

    def __init__(self, elites: CVTArchive, measures: int, buffer: str, scale: str, seed: int):
        super().__init__(measure_dim=measures, bandwidth=BANDWIDTH[measures], seed=seed)
        self._elites, self._buffer_rule, self._scale = elites, buffer, scale
        self._seen = 0

    @property
    def solution_dim(self) -> int:
        """Number of variables, which the scheduler requires."""
        return SIZE

    @property
    def dtypes(self) -> dict:
        """Data types, which the emitter requires."""
        return self._elites.dtypes

    def sample_elites(self, n: int) -> dict:
        """Return random elites."""
        return self._elites.sample_elites(n)

    def compute_density(self, measures: np.ndarray) -> np.ndarray:
        """Return the kernel density on the chosen scale."""
        if not len(self.buffer):
            return np.zeros(len(measures))
        exponents = squared_distances(measures, self.buffer)
        exponents *= -0.5 / self._bandwidth**2
        kernel = np.exp(exponents, out=exponents).mean(axis=1)
        power = self.measure_dim if self._scale == "normalised" else 1
        return kernel / (np.sqrt(2 * np.pi) * self._bandwidth) ** power

    def add(self, solution: object, objective: object, measures: np.ndarray, **fields) -> dict:
        """Return the density before the batch, then add the batch to the buffer."""
        if self._buffer_rule == "pyribs":
            return super().add(solution, objective, measures, **fields)
        info = {"status": np.full(len(measures), 2), "density": self.compute_density(measures)}
        for row in measures:
            full = self._seen >= len(self._buffer)
            slot = self._rng.integers(self._seen + 1) if full else self._seen
            if slot < len(self._buffer):
                self._buffer[slot] = row
            self._seen += 1
        self._n_occupied = min(self._seen, len(self._buffer))
        return info


def search(args: argparse.Namespace) -> Scheduler:
    """Build the scheduler of pyribs for one of the two baselines."""
    edge = 5.12 * SIZE / args.measures
    dtype = np.dtype(args.dtype)
    shape = {"solution_dim": SIZE, "ranges": [(-edge, edge)] * args.measures, "dtype": dtype}

    def archive(**options: float) -> GridArchive | CVTArchive:
        if args.measures == 2:
            return GridArchive(dims=(100, 100), **shape, **options)
        centroids = np.load(args.centroids_dir / f"lp_{args.measures}d.npy")
        return QuickCVT(centroids=centroids, **shape, **options)

    result = archive()
    if args.algorithm == "dds":
        guide = BufferedDensity(result, args.measures, args.buffer, args.scale, args.seed)
        sigma0, ranker = 1.5, "density"
    else:
        guide = archive(learning_rate=0.01, threshold_min=0.0)
        if args.restart_from == "elites":
            guide.sample_elites = result.sample_elites
        sigma0, ranker = 0.5, "imp"
    emitters = [
        EvolutionStrategyEmitter(
            guide,
            x0=np.zeros(SIZE),
            sigma0=sigma0,
            ranker=ranker,
            selection_rule="mu",
            restart_rule="basic",
            batch_size=36,
            seed=1000 * args.seed + number,
        )
        for number in range(15)
    ]
    return Scheduler(guide, emitters, result_archive=result)


def main() -> None:
    """Run one search, print its progress and append it to a CSV file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("algorithm", choices=["cma-mae", "dds"])
    parser.add_argument("--measures", type=int, default=10, choices=sorted(BANDWIDTH))
    parser.add_argument("--objective", default="sphere", choices=["sphere", "flat"])
    parser.add_argument("--dtype", default="float64", choices=["float32", "float64"])
    parser.add_argument("--restart-from", default="thresholds", choices=["thresholds", "elites"])
    parser.add_argument("--buffer", default="pyribs", choices=["pyribs", "uniform"])
    parser.add_argument("--scale", default="pyribs", choices=["pyribs", "normalised"])
    parser.add_argument("--iterations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--centroids-dir", type=Path, default=Path("../shared/data/centroids"))
    parser.add_argument("--csv", type=Path, help="append a row at every 500 iterations")
    args = parser.parse_args()

    problem, scheduler, start = Problem("cma-mae", args.measures), search(args), time.perf_counter()
    for iteration in range(1, args.iterations + 1):
        objectives, measures = problem.evaluate(scheduler.ask())
        if args.objective == "flat":
            objectives = np.ones_like(objectives)
        scheduler.tell(objectives.astype(args.dtype), measures.astype(args.dtype))
        if iteration % 500 and iteration != args.iterations:
            continue
        stats = scheduler.result_archive.stats
        row = {
            name: getattr(args, name)
            for name in (
                "algorithm",
                "measures",
                "objective",
                "dtype",
                "restart_from",
                "buffer",
                "scale",
                "seed",
            )
        } | {
            "iteration": iteration,
            "qd_score": round(float(stats.qd_score), 1),
            "coverage": round(float(stats.coverage), 4),
            "restarts": sum(emitter.restarts for emitter in scheduler.emitters),
            "seconds": round(time.perf_counter() - start),
        }
        print(*row.values(), flush=True)
        if args.csv:
            new = not args.csv.exists()
            with args.csv.open("a", newline="") as file:
                writer = csv.DictWriter(file, row)
                if new:
                    writer.writeheader()
                writer.writerow(row)


if __name__ == "__main__":
    main()
