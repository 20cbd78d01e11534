"""Answers for airfoils that were held out of a search, compared with a whole new search for them.

    PYTHONPATH=examples/airfoils python benchmarks/answers_airfoils.py [--seeds 3]

Each seed holds out 100 of the known airfoils of `examples/airfoils`. A search for the others is
asked for them (`gloam.answer`); a whole new search for them has 540,000 evaluations. The table has
means and standard errors over the seeds of lift to drag, of the known airfoil where no solution
within the distance is better.
"""

import argparse
from pathlib import Path

import numpy as np
from airfoils import SIZE, Known, load
from foil_network import read_network
from search_airfoils import algorithm, best_near, in_jax

import gloam
from answers import show


def searched(evaluate, known, iterations, seed):
    """Return the elites of a search that starts from known airfoils."""
    chosen = algorithm(known)
    start = known.elites(chosen.archive)
    options = {"seeds": [seed], "start_from": start, "progress": False}
    return gloam.run(evaluate, chosen, iterations, **options).elites


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data", type=Path, default=Path("airfoils.npz"))
    options = parser.parse_args()
    every, evaluate, rows = load(options.data), in_jax(read_network(SIZE)), []
    for seed in range(options.seeds):
        order = np.random.default_rng(seed).permutation(len(every.names))
        new, known = (Known(*(part[at] for part in every)) for at in (order[:100], order[100:]))
        elites, whole = searched(evaluate, known, 1000, seed), searched(evaluate, new, 1000, seed)

        def add(name, elites, new=new, whole=whole):
            before, best = new.objectives.mean(), best_near(new, whole)[1].mean()
            mean = best_near(new, elites)[1].mean()
            share = (mean - before) / (best - before)
            rows.append({"evaluations": name, "lift to drag": mean, "share of the gain": share})

        add("540,000 (a new search)", whole)
        for evaluations in (0, 1000, 5400):
            answers = gloam.answer(evaluate, elites, new.dataset, evaluations, bounds=known.bounds)
            add(f"{evaluations:,}", answers.elites)
        print(f"seed {seed} is done", flush=True)
    show(rows)


if __name__ == "__main__":
    main()
