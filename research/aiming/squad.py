"""Compare the default with gradients with SQUAD on SQUAD's tasks.

    python research/aiming/squad.py --squad DIR rastrigin-1024-4 sphere-2048-8

A task is an objective, a number of variables and a number of measures. DIR is a checkout of
`conflictednerd/soft-qd`, whose training steps are used unchanged. Both have about a million
evaluations. SQUAD has a row of its Jacobian for the objective and for every measure of each
solution; `gloam.DMS` has one vector-Jacobian product, for half of its solutions.

The score is the QD score in 512 cells that neither saw, of objectives from 0 to 100.
"""

import argparse
import sys
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd

import gloam
from gloam.archives import kmeans_centroids

POPULATION, BATCH, NEIGHBORS, EPOCHS = 1024, 64, 16, 1000
"""SQUAD's settings (`configs/config.yaml`)."""

ITERATIONS = 1_900


def main() -> None:
    """Run both on every task, and print one line for each setting."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--squad", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=10)
    bandwidths, help_ = [0.01, 0.1, 0.5, 1.0, 2.0, 4.0], "of SQUAD; by default those of its authors"
    parser.add_argument("--bandwidths", type=float, nargs="*", default=bandwidths, help=help_)
    parser.add_argument("--learning-rates", type=float, nargs="*", default=[0.05, 0.1])
    kinds = ["with", "without"]
    parser.add_argument("--gradients", nargs="*", choices=kinds, default=kinds, help="of gloam")
    parser.add_argument("--share", type=float, default=1.0, help="of the evaluations, for a try")
    options = parser.parse_args()
    seeds = range(options.seeds)
    for name in options.tasks:
        objective, variables, measures = name.split("-")
        domain = gloam.domains.LinearProjection(
            int(measures), objective, solution_dim=int(variables)
        )
        edge, number = domain.edge, int(measures)
        cells = kmeans_centroids(512, -edge, edge, number, seed=512)
        for kind in options.gradients:
            algorithm = gloam.DMS(domain.archive(), domain.x0, 0.5, gradients=kind == "with")
            iterations = round(options.share * ITERATIONS)
            result = gloam.run(domain, algorithm, iterations, seeds=seeds, progress=False)
            populations = [each.solutions for each in result.elites_by_seed.values()]
            report(name, f"gloam, {kind} gradients", populations, domain, cells)
        task = squad_task(options.squad, objective, int(variables), number)
        for rate in options.learning_rates:
            epochs = round(options.share * EPOCHS)
            solutions = squad(task, rate, options.bandwidths, options.seeds, epochs)
            for bandwidth, populations in zip(options.bandwidths, solutions, strict=True):
                report(name, f"SQUAD {rate} {bandwidth}", populations, domain, cells)


def report(task: str, name: str, populations: list, domain: gloam.domains.Domain, cells) -> None:
    """Print the mean score of one setting."""
    scores = pd.Series([score(np.asarray(each), domain, cells) for each in populations])
    figures = f"{scores.mean():9.0f} +- {scores.sem():6.0f}"
    print(f"{task:18s} {name:24s} {figures} ({scores.min():.0f} to {scores.max():.0f})", flush=True)


def score(solutions: np.ndarray, domain: gloam.domains.Domain, cells: np.ndarray) -> float:
    """Return the sum of the best objectives in the cells, none below 0."""
    objectives, measures = map(np.asarray, jax.jit(domain)(solutions))
    squares = np.square(cells).sum(axis=1) - 2 * measures @ cells.T
    best = np.zeros(len(cells))
    np.maximum.at(best, squares.argmin(axis=1), 100 * objectives)
    return best.sum()


def squad_task(folder: Path, objective: str, variables: int, measures: int):
    """Return a task of SQUAD's code."""
    sys.modules.setdefault("wandb", types.ModuleType("wandb"))  # imported, and used by no step
    sys.path.insert(0, str(folder))
    from src.tasks.rastrigin import RastriginTask
    from src.tasks.sphere import SphereTask

    kind = {"rastrigin": RastriginTask, "sphere": SphereTask}[objective]
    return kind(variables, measures)


def squad(task, rate: float, bandwidths: list[float], seeds: int, epochs: int) -> jax.Array:
    """Return ``(bandwidths, seeds, population, sol)`` solutions of SQUAD's last populations."""
    from src.qd import softqd

    optimizer = softqd.population_optimizer(lambda: optax.adam(rate), POPULATION)

    def run(bandwidth: jax.Array, key: jax.Array) -> jax.Array:
        key, start = jax.random.split(key)
        solutions = task.get_random_solution(POPULATION, start)
        first = task.evaluate(solutions, key, return_grad=False)
        state = softqd.TrainState(
            solutions=solutions,
            fitnesses=jnp.clip(first.fitnesses, 1e-6),
            descriptors=first.descriptors,
            opt_state=optimizer.init(solutions),
            sigma_sq=bandwidth,
            key=key,
        )

        def epoch(state, key):
            settings = (POPULATION, BATCH, NEIGHBORS, 0.0)  # a bandwidth that does not change
            after = softqd._train_epoch(state, task.evaluate, optimizer.update, key, *settings)
            return after, None

        return jax.lax.scan(epoch, state, jax.random.split(start, epochs))[0].solutions

    over_seeds = jax.vmap(run, (None, 0))
    keys = jax.random.split(jax.random.key(0), seeds)
    return jax.jit(jax.vmap(over_seeds, (0, None)))(jnp.asarray(bandwidths), keys)


if __name__ == "__main__":
    main()
