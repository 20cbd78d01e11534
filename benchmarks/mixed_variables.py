"""Compare searches of mixed variables with the known optimum, and with rounding in pyribs.

    python benchmarks/mixed_variables.py --iterations 100 --seeds 10

The problem is that of examples/mixed.py. All algorithms have 540 evaluations per iteration. pyribs
searches the unit box with CMA-MAE, and rounds integers and indices of choices. Prints mean and
standard error of coverage and QD score over seeds, as shares of the optimum, which is enumerated.
With --boundary, it prints instead how many evaluations CMA-ES needs for an optimum on the boundary
by what happens to solutions outside.
"""

import argparse
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import gloam

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import mixed  # pyright: ignore[reportMissingImports]

LOWER, UPPER = mixed.SPACE.bounds


def by_gloam(algorithm: gloam.Algorithm, iterations: int, seeds: int) -> list[np.ndarray]:
    """Return the objectives of all cells for each seed."""
    result = gloam.optimize(mixed.evaluate, algorithm, iterations, seeds=seeds, progress=False)
    return [np.asarray(elites.store.objectives) for elites in result.elites_by_seed.values()]


def by_pyribs(iterations: int, seeds: int) -> list[np.ndarray]:
    """Return the objectives of all cells, of CMA-MAE on rounded numbers."""
    from ribs.archives import GridArchive
    from ribs.emitters import EvolutionStrategyEmitter
    from ribs.schedulers import Scheduler

    found, size = [], mixed.SPACE.size
    start = (mixed.SPACE.start - LOWER) / (UPPER - LOWER)
    for seed in range(seeds):
        sizes = {"solution_dim": size, "dims": (20, 20), "ranges": [(0, 1)] * 2}
        archive = GridArchive(**sizes, learning_rate=0.01, threshold_min=0.0)
        best = GridArchive(**sizes)
        emitters = [
            EvolutionStrategyEmitter(
                archive,
                x0=start,
                sigma0=0.2,
                ranker="imp",
                selection_rule="mu",
                restart_rule="basic",
                bounds=[(0, 1)] * size,
                batch_size=36,
                seed=100 * seed + number,
            )
            for number in range(15)
        ]
        scheduler = Scheduler(archive, emitters, result_archive=best)
        for _ in range(iterations):
            vectors = np.float32(LOWER + scheduler.ask() * (UPPER - LOWER))
            scheduler.tell(*mixed.evaluate(mixed.SPACE.values(vectors)))
        cells = np.full(400, -np.inf)
        elites = best.data()
        cells[elites["index"]] = elites["objective"]
        found.append(cells)
    return found


def boundary(seeds: int) -> None:
    """Print evaluations of CMA-ES until it is 1e-5 from an optimum on the boundary."""
    target = jnp.where(jnp.arange(10) < 5, 1.0, 0.3)
    scale = 10 ** (jnp.arange(10) / 9)
    costs = {
        "sphere": lambda x: jnp.square(x - target).sum(axis=1),
        "ellipsoid": lambda x: jnp.square((x - target) * scale).sum(axis=1),
        "linear": lambda x: (1 - x).sum(axis=1),
    }
    archive = gloam.GridArchive((1,), -1, 1)
    for name, cost in costs.items():
        for outside in ("clip", "reflect"):
            emitter = gloam.emitters.CmaEmitters(
                np.full(10, 0.3),
                num_emitters=1,
                restart=gloam.emitters.BasicRestart(),
                bounds=(-1, 1),
                outside=outside,
            )
            algorithm = gloam.Algorithm(emitter, archive, gloam.discounts.NoDiscount())
            result = gloam.run(
                lambda x, cost=cost: (-cost(x), jnp.zeros((x.shape[0], 1))),
                algorithm,
                300,
                seeds=seeds,
                log_every=1,
                progress=False,
            )
            rows = result.metrics[result.metrics["best_objective"] > -1e-5]
            needed = rows.groupby("seed")["evaluations"].min()
            low, middle, high = needed.quantile([0.25, 0.5, 0.75])
            print(
                f"{name:>10} {outside:>8} {len(needed)} of {seeds} seeds, median {middle:,.0f}, "
                f"quartiles {low:,.0f} and {high:,.0f}"
            )


def main() -> None:
    """Print the shares of the optimum."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--boundary", action="store_true")
    options = parser.parse_args()
    if options.boundary:
        boundary(options.seeds)
        return
    best = mixed.optimum().ravel()
    possible = np.isfinite(best)
    archive, space = mixed.ARCHIVE, mixed.SPACE
    arguments = options.iterations, options.seeds
    contenders = {
        "gloam.DMS": lambda: by_gloam(gloam.DMS(archive, space), *arguments),
        "gloam.CMAMAE": lambda: by_gloam(gloam.CMAMAE(archive, space), *arguments),
        "gloam.MAPElites": lambda: by_gloam(gloam.MAPElites(archive, space), *arguments),
        "pyribs CMA-MAE, rounded": lambda: by_pyribs(*arguments),
    }
    for name, search in contenders.items():
        found = search()
        coverage = [np.isfinite(cells).sum() / possible.sum() for cells in found]
        scores = [cells[np.isfinite(cells)].sum() / best[possible].sum() for cells in found]
        shown = [
            f"{np.mean(share):.2%} ± {np.std(share, ddof=1) / len(share) ** 0.5:.2%}"
            for share in (coverage, scores)
        ]
        print(f"{name:>25}  coverage {shown[0]}  QD score {shown[1]}", flush=True)


if __name__ == "__main__":
    main()
