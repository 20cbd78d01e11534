"""Check that the foreign problems are set up as their authors meant.

    python benchmarks/foreign/check.py [PROBLEM ...]

Evaluates random solutions of each problem twice, and known optima. Prints ranges of the objectives
and the share of measures inside the archive's bounds, and fails if a value is not as expected.
"""

import sys

import jax
import numpy as np

from gloam.evaluation import asks_for
from problems import PROBLEMS, Problem, Setup

STRAIGHT = np.full(100, 0.5)
KNOWN: dict[str, list[tuple[np.ndarray, float, list[float]]]] = {
    # A solution, its objective and its first measures. Straight arm: no deviation of angles.
    "qdax-arm": [(STRAIGHT, 0.0, [1.0, 0.5])],
    "qdax-sphere": [(STRAIGHT, 0.0, [0.5, 0.5]), (np.zeros(100), -2500.0, [0.0, 0.0])],
    "qdax-rastrigin": [(STRAIGHT, 0.0, [0.5, 0.5]), (np.zeros(100), -2500.0, [0.0, 0.0])],
    "square-6": [(np.ones(6), 0.0, [float(np.sin(5))])],
    "continous-islands-6": [(np.ones(6), 1.0, [1.0, 1.0])],
    "non-continous-islands-6": [(np.full(6, 0.52), 0.52**6, [0.5, 0.5])],
    "empty-circle-6": [(np.full(6, 0.5) + 0.5 * np.eye(6)[0], 1.0, [float(np.sin(40))])],
    "checkered-6": [(np.full(6, np.pi / 100), 1.0, [float(np.sin(np.pi / 20))])],
    "kheperax-standard": [(np.zeros(66), 0.0, [0.15, 0.15])],  # a robot that stays at its start
    "pyribs-sphere": [
        (np.full(100, 2.048), 100.0, [102.4, 102.4]),
        (np.full(100, -5.12), 0.0, [-256.0, -256.0]),
    ],
}
BELOW_F_MIN = {"qdax-noisy-arm", "hopper-uni", "ant-uni", "lunar-lander", "noisy"} | {
    name for name in PROBLEMS if name.startswith("bbob")
}
"""Problems whose reference is not a bound: noise, or an offset found by experiment."""


def evaluated(setup: Setup, solutions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Evaluate a batch."""
    rows = np.asarray(solutions, np.float32)
    if setup.per_solution:
        found = zip(*map(setup.evaluate, rows), strict=True)
    else:
        key = {"key": jax.random.key(0)} if asks_for(setup.evaluate, "key") else {}
        found = (jax.jit(setup.evaluate) if setup.is_traced else setup.evaluate)(rows, **key)
    objectives, measures = found
    return np.asarray(objectives), np.asarray(measures)


def samples(setup: Setup, number: int) -> np.ndarray:
    """Return random solutions in the box, or around zero."""
    rng = np.random.default_rng(1)
    if setup.bounds is None:
        return setup.x0 + setup.sigma0 * rng.standard_normal((number, setup.x0.size))
    return rng.uniform(*setup.bounds, (number, setup.x0.size))


def check(problem: Problem) -> None:
    """Check one problem."""
    setup = problem.build()
    solutions = samples(setup, 20 if setup.per_solution or problem.needs_gpu else 500)
    objectives, measures = evaluated(setup, solutions)
    again = evaluated(setup, solutions)
    assert np.array_equal(objectives, again[0])
    assert np.array_equal(measures, again[1])
    assert np.isfinite(objectives).all()
    assert np.isfinite(measures).all()
    assert objectives.shape == (len(solutions),)
    assert measures.reshape(len(solutions), -1).shape[1] == setup.archive.measure_dim
    f_min, f_max = setup.archive.f_min, setup.f_max
    assert problem.name in BELOW_F_MIN or f_min is None or objectives.min() >= f_min - 1e-3
    assert problem.is_noisy or f_max is None or objectives.max() <= f_max + 1e-3
    for solution, objective, first in KNOWN.get(problem.name, []):
        found, place = evaluated(setup, solution[None])
        assert np.allclose(found[0], objective, atol=2e-3), (found, objective)
        assert np.allclose(place[0, : len(first)], first, atol=2e-3), (place, first)
    flat = measures.reshape(len(solutions), -1)
    low, high = np.asarray(setup.archive.lower), np.asarray(setup.archive.upper)
    inside = np.mean((flat >= low - 1e-6) & (flat <= high + 1e-6))
    cells = len(np.unique(np.asarray(setup.archive.index_of(jax.numpy.asarray(flat)))))
    print(
        f"{problem.name:45} objectives {objectives.min():10.4g} to {objectives.max():10.4g}, "
        f"f_min {f_min}, {inside:6.1%} of measures inside, {cells} cells of {len(flat)} solutions",
        flush=True,
    )


if __name__ == "__main__":
    for chosen in PROBLEMS.values():
        # The project's own problems have tests.
        if chosen.group == "own":
            continue
        if not sys.argv[1:] or {chosen.name, chosen.group} & set(sys.argv[1:]):
            check(chosen)
