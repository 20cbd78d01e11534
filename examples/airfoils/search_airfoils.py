"""The best airfoil within a distance of every known airfoil.

    python examples/airfoils/search_airfoils.py --out runs/airfoils
    python examples/airfoils/search_airfoils.py --black-box --iterations 300 --out runs/black_box

By default NeuralFoil is evaluated in JAX, and the whole search is compiled. With ``--black-box``
NumPy and the package itself evaluate, as any other program could. Both searches start from the
known airfoils.
"""

import time
from functools import partial
from pathlib import Path

import numpy as np
import tyro
from airfoils import LIFT, NEAR, REYNOLDS, SIZE, Aero, Known, evaluate, evaluate_by, load
from foil_network import FoilNetwork, read_network

import gloam


def algorithm(known: Known, *, gradients: bool = False) -> gloam.DMS:
    """Return Discount Model Search, with the known airfoils as the cells."""
    archive = known.dataset.archive(within=NEAR)
    middle = known.solutions.mean(axis=0)
    return gloam.DMS(archive, middle, sigma0=0.02, bounds=known.bounds, gradients=gradients)


def in_jax(network: FoilNetwork):
    """Return the evaluation as a function that JAX can compile and differentiate."""

    def analysis(kulfan, angles):
        aero = network(kulfan, angles, REYNOLDS)
        return Aero(aero["CL"], aero["CD"], aero["analysis_confidence"])

    return partial(evaluate_by, analysis)


def best_near(known: Known, elites: gloam.Elites) -> tuple[np.ndarray, np.ndarray]:
    """Return the best solution within the distance of each known airfoil, and its objective.

    It may be the elite of another cell that is near enough, or the known airfoil itself.
    """
    matches = gloam.datasets.Matches(elites, known.dataset)
    solutions, objectives = elites.solutions[matches.rows], elites.objectives[matches.rows]
    is_better = matches.reached & (objectives > known.objectives)
    return (
        np.where(is_better[:, None], solutions, known.solutions),
        np.where(is_better, objectives, known.objectives),
    )


def main(
    iterations: int = 3000,
    black_box: bool = False,
    gradients: bool = False,
    seed: int = 0,
    data: Path = Path("airfoils.npz"),
    out: Path = Path("runs/airfoils"),
) -> None:
    """Search, and compare with the known airfoils.

    Args:
        iterations: Number of iterations, of 540 evaluations each.
        black_box: Evaluate by NumPy and the package NeuralFoil instead of JAX.
        gradients: Let up to half of the solutions climb by gradients.
        seed: Seed of the search.
        data: File of the known airfoils, which is written if there is none.
        out: New run folder.
    """
    known, start = load(data), time.process_time()
    chosen = algorithm(known, gradients=gradients)
    options = {
        "seeds": [seed],
        "start_from": known.elites(chosen.archive),
        "run_dir": out,
        "dataset": known.dataset,
        "log_every": max(1, iterations // 30),
    }
    if black_box:
        result = gloam.optimize(evaluate, chosen, iterations, **options)
    else:
        result = gloam.run(in_jax(read_network(SIZE)), chosen, iterations, **options)
    seconds = time.process_time() - start
    _, objectives = best_near(known, result.elites)
    gains = objectives / known.objectives - 1
    low, middle, high = np.percentile(gains, [5, 50, 95])
    print(
        f"{len(gains)} airfoils at a lift of {LIFT}: mean L/D {known.objectives.mean():.1f} "
        f"before, {objectives.mean():.1f} after; gain {middle:.0%} (median; {low:.0%} to "
        f"{high:.0%} for 90% of them); {540 * iterations / len(gains):,.0f} evaluations for each, "
        f"{seconds:.0f} s of CPU time"
    )


if __name__ == "__main__":
    tyro.cli(main)
