"""Screen searches that aim at empty cells, with the prototype in `prototype.patch`.

    git worktree add ../aim fe8b97a && cd ../aim && git apply .../prototype.patch
    PYTHONPATH=src python .../screen.py --centroids DIR --domain 50-sphere --search slots

Prints the QD score and coverage over the seeds, and every tenth of the coverage on the way.
"""

import argparse
from pathlib import Path

import numpy as np

import gloam
from gloam import discounts, emitters
from gloam.emitters import aimed_emitters, slots


def main() -> None:
    """Run one search on one domain."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--domain", required=True, help="50-sphere, 10-flat, arm, ta-mnist, ...")
    parser.add_argument("--search", choices=("default", "fixed", "kinds", "slots"), required=True)
    parser.add_argument("--separable", action="store_true", help="also for the improvement")
    parser.add_argument("--power", type=float, default=1.0, help="of the worth of a kind")
    parser.add_argument("--centroids", type=Path, required=True, help="folder of lp_10d.npy, ...")
    parser.add_argument("--seeds", type=int, default=4)
    options = parser.parse_args()
    domain, sigma0 = domain_named(options.domain, options.centroids)
    size, budget = (5, 1_800_000) if options.domain.startswith("ta") else (15, 5_400_000)
    slots.SETTINGS["power"] = options.power
    algorithm = search(options, domain, sigma0, size)
    iterations = budget // algorithm.emitter.num_solutions
    seeds = range(100, 100 + options.seeds)
    result = gloam.run(domain, algorithm, iterations, seeds=seeds, log_every=iterations // 10)
    rows = result.metrics
    last = rows[rows["iteration"] == rows["iteration"].max()]
    score, coverage = last["qd_score"], last["coverage"]
    print(f"{score.mean():.1f} +- {score.sem():.1f}, {coverage.mean():.4f}")
    print(rows.groupby("iteration")["coverage"].mean().round(4).tolist())
    print(last.filter(like="share").mean().round(3).to_dict())


def search(options: argparse.Namespace, domain, sigma0: float, size: int) -> gloam.Algorithm:
    """Build the algorithm of an option."""
    archive, x0 = domain.archive(), domain.x0
    strategy = emitters.SepCMAES() if options.separable else None
    small = {"batch_size": 12} if size == 5 else {}
    if options.search == "default":
        return gloam.DMS(archive, x0, sigma0, **small)
    if options.search == "slots":
        emitter = slots.Slots(x0, sigma0, size, 36, strategy=strategy)
    elif options.search == "kinds":
        few = {"num_emitters": 3} if small else {}
        cma = emitters.AimingCma(x0, sigma0, strategy=strategy, **few)
        moves = emitters.Recombination(x0, sigma0, batch_size=2 * cma.num_solutions // 3)
        swaps = emitters.Swaps(x0, sigma0, batch_size=cma.num_solutions + moves.batch_size)
        emitter = emitters.AdaptiveMixture([cma, moves, swaps])
    else:
        usual = gloam.DMS(archive, x0, sigma0, num_emitters=2 if small else 5, **small).emitter
        aimed = emitters.AimedEmitters(x0, sigma0, num_emitters=4 if small else 7)
        emitter = emitters.Mixture([usual, aimed])
    return gloam.Algorithm(emitter, archive, discounts.DiscountModel())


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
    assert aimed_emitters.SETTINGS
    main()
