"""What an aerodynamicist would do: improve each airfoil by itself, with AeroSandbox.

    python examples/airfoils/descend_airfoils.py --number 100 --search runs/airfoils

`asb.Opti` minimizes the drag from random known airfoils by IPOPT, with exact first and second
derivatives of NeuralFoil and the constraints of the search: lift, confidence, the distance from the
known airfoil, sides that do not cross, and bounds. The results are compared with those of a search.
"""

import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tyro
from airfoils import (
    CONFIDENCE,
    LIFT,
    NEAR,
    OUTLINE,
    POSITIONS,
    REYNOLDS,
    SIZE,
    Known,
    at_lift,
    evaluate,
    load,
    neuralfoil_analysis,
)
from search_airfoils import best_near

import gloam


class Descent(NamedTuple):
    """The outcome of one optimization."""

    solution: np.ndarray
    objective: float
    evaluations: int
    """Evaluations of the drag; nearly as many gradients and Hessians are an additional cost."""
    seconds: float


def descend(known: Known, row: int) -> Descent:
    """Improve one airfoil by `asb.Opti`; without success the known airfoil is the result."""
    import aerosandbox as asb
    import aerosandbox.numpy as anp
    import neuralfoil

    begin, first = time.process_time(), np.float64(known.solutions[row])
    lower, upper = known.bounds
    outline = np.float64(OUTLINE)
    opti = asb.Opti()
    x = opti.variable(first, lower_bound=lower, upper_bound=upper, scale=(upper - lower) / 10)
    angles, _ = at_lift(neuralfoil_analysis, known.solutions[[row]])
    angle = opti.variable(float(angles[0]))
    kulfan = {
        "upper_weights": x[:8],
        "lower_weights": x[8:16],
        "leading_edge_weight": x[16],
        "TE_thickness": x[17],
    }
    aero = neuralfoil.get_aero_from_kulfan_parameters(kulfan, angle, REYNOLDS, model_size=SIZE)
    heights = outline @ x
    moved = heights - outline @ first
    limits = [
        aero["CL"][0] == LIFT,
        aero["analysis_confidence"][0] >= CONFIDENCE,
        anp.sum(moved**2) <= NEAR**2,
        heights[: len(POSITIONS)] >= heights[len(POSITIONS) :],
    ]
    opti.subject_to(limits)
    opti.minimize(anp.log(aero["CD"][0]))
    try:
        found = np.float32(opti.solve(max_iter=200, verbose=False)(x))
    except RuntimeError:  # IPOPT did not converge
        found = known.solutions[row]
    objectives, _, fields = evaluate(found[None])
    # IPOPT meets constraints to its tolerance.
    is_feasible = fields["violation"][0] < 1e-4
    best = found if is_feasible else known.solutions[row]
    objective = objectives[0] if is_feasible else known.objectives[row]
    calls = opti.stats()["n_call_nlp_f"]
    return Descent(best, float(objective), calls, time.process_time() - begin)


def main(
    number: int = 100,
    search: Path = Path("runs/airfoils"),
    seed: int = 0,
    data: Path = Path("airfoils.npz"),
) -> None:
    """Improve random airfoils one by one, and compare with a search.

    Args:
        number: Number of airfoils.
        search: Run folder of `search_airfoils.py`.
        seed: Seed by which the airfoils are drawn.
        data: File of the known airfoils.
    """
    warnings.simplefilter("ignore", FutureWarning)  # of CasADi, about NumPy
    known = load(data)
    rows = np.random.default_rng(seed).choice(len(known.names), number, replace=False)
    descents = [descend(known, row) for row in rows]
    before = known.objectives[rows]
    by_search = best_near(known, gloam.RunFolder(search).read_archive())[1][rows]
    by_descent = np.array([descent.objective for descent in descents])
    seconds = np.array([descent.seconds for descent in descents])
    evaluations = np.mean([descent.evaluations for descent in descents])
    print(f"{number} airfoils: mean L/D {before.mean():.1f} before")
    for name, after in (("search", by_search), ("descent", by_descent)):
        error = after.std(ddof=1) / np.sqrt(number)
        print(
            f"{name}: mean L/D {after.mean():.1f} ± {error:.1f}, median gain "
            f"{np.median(after / before - 1):.0%}"
        )
    print(
        f"the search is better on {np.mean(by_search > by_descent):.0%} of them; a descent takes "
        f"{seconds.mean():.2f} s of CPU time and {evaluations:.0f} evaluations with derivatives, "
        f"{seconds.mean() * len(known.names):.0f} s for all airfoils"
    )
    print(f"{np.sum(by_descent <= before)} descents did not end at a better airfoil")


if __name__ == "__main__":
    tyro.cli(main)
