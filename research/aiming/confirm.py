"""Run the default on several domains of the paper, and print one line for each.

    python research/aiming/confirm.py --centroids DIR 10-sphere:10 50-sphere:6 ta-fashion_mnist:2

A domain is given with its number of seeds, which begin at ``--first``. After ``--limit`` seconds no
further domain begins.
"""

import argparse
import time
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pandas as pd

import gloam


def main() -> None:
    """Run every domain that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("domains", nargs="+", help="50-sphere:20, 10-flat:20, arm:20, ...")
    parser.add_argument("--centroids", type=Path, required=True, help="folder of lp_10d.npy, ...")
    parser.add_argument("--iterations", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--limit", type=float, default=float("inf"))
    help_ = "run each seed by itself: on a CPU, each slot computes all emitters for several seeds"
    parser.add_argument("--separately", action="store_true", help=help_)
    kinds, help_ = ["none", "right", "wrong"], "wrong gradients are those by other variables"
    parser.add_argument("--gradients", choices=kinds, default="none", help=help_)
    options = parser.parse_args()
    begun = time.monotonic()
    for asked in options.domains:
        if time.monotonic() - begun > options.limit:
            break
        name, seeds = asked.split(":")
        domain, sigma0 = domain_named(name, options.centroids)
        few = {"num_emitters": 5} if name.startswith("ta") else {}
        climbs = options.gradients != "none"
        algorithm = gloam.DMS(domain.archive(), domain.x0, sigma0, gradients=climbs, **few)
        evaluate = partial(with_wrong_gradients, domain) if options.gradients == "wrong" else domain
        every, seeds = options.iterations // 10, range(options.first, options.first + int(seeds))
        settings = {"log_every": every, "progress": False}
        groups = [[seed] for seed in seeds] if options.separately else [seeds]
        rows = pd.concat(
            gloam.run(evaluate, algorithm, options.iterations, seeds=group, **settings).metrics
            for group in groups
        )
        last = rows[rows["iteration"] == rows["iteration"].max()]
        score, coverage = last["qd_score"], last["coverage"]
        figures = f"{score.mean():.1f} +- {score.sem():.1f}, {coverage.mean():.4f}"
        print(f"{name}: {figures}, after {time.monotonic() - begun:.0f} s", flush=True)
        print(rows.groupby("iteration")["coverage"].mean().round(3).tolist(), flush=True)
        print(last.filter(like="share").mean().round(3).to_dict(), flush=True)


def with_wrong_gradients(domain: gloam.domains.Domain, solutions: jax.Array) -> tuple:
    """Evaluate a domain; its gradient by a variable is that by another one."""
    order = np.random.default_rng(0).permutation(domain.solution_dim)
    shuffled, stop = solutions[:, order], jax.lax.stop_gradient
    return domain(stop(solutions) + (shuffled - stop(shuffled)))


def domain_named(name: str, centroids: Path) -> tuple[gloam.domains.Domain, float]:
    """Return a domain and the paper's first step size."""
    if name == "arm":
        return gloam.domains.Arm(100), 0.2
    if name.startswith("ta"):
        items = np.load(centroids / f"{name.removeprefix('ta-')}_1000.npy").reshape(-1, 28, 28)
        items = items / 255 if items.max() > 2 else items
        return gloam.domains.Triangles(items, name=name), 0.1
    number, objective = name.split("-")
    file = None if number == "2" else centroids / f"lp_{number}d.npy"
    return gloam.domains.LinearProjection(int(number), objective, centroids=file), 0.5


if __name__ == "__main__":
    main()
