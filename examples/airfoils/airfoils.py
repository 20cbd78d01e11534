"""Known airfoils, and what makes an airfoil near to one of them good.

A solution is the 18 Kulfan parameters of an airfoil: 8 weights of the upper side, 8 of the lower
side, one of the leading edge, and the thickness of the trailing edge. The measures are the heights
of the outline at 20 positions along each side, scaled so that their Euclidean distance is the root
mean square distance between two outlines, in percent of the chord. The objective is the lift to
drag at one lift coefficient, by NeuralFoil.

    python examples/airfoils/airfoils.py --out airfoils.npz
"""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tyro
from scipy.special import comb

import gloam

REYNOLDS, LIFT, CONFIDENCE = 1e6, 0.7, 0.9
"""The Reynolds number, the lift coefficient, and the least confidence of NeuralFoil in its own
analysis. Without the last, a search finds errors of the network."""
NEAR, APART, THICKEST = 0.5, 0.3, 25.0
"""Largest distance from the known airfoil, smallest distance between two known airfoils, and the
largest thickness of them, in percent of the chord."""
TOLERANCE, SLOPE, FIRST_ANGLE = 0.01, 0.115, 3.0
"""Error of the lift that counts as none, its usual slope by degree, and the first angle."""
SIZE = "large"
"""Size of the network of NeuralFoil."""


class Aero(NamedTuple):
    """Analysis of a batch of airfoils."""

    lift: Any
    drag: Any
    confidence: Any


Analysis = Callable[[Any, Any], Aero]
"""A function of Kulfan parameters and angles of attack in degrees."""


def outline_matrix(positions: np.ndarray) -> np.ndarray:
    """Return the matrix from Kulfan parameters to heights of the upper, then of the lower side."""
    x, order = positions[:, None], np.arange(8)
    weights = np.sqrt(x) * (1 - x) * comb(7, order) * x**order * (1 - x) ** (7 - order)
    leading, trailing, none = x * (1 - x) ** 8.5, x / 2, np.zeros_like(weights)
    upper = np.hstack([weights, none, leading, trailing])
    lower = np.hstack([none, weights, leading, -trailing])
    return np.vstack([upper, lower])


# Denser at both ends, where outlines are curved.
POSITIONS = (1 - np.cos(np.linspace(0, np.pi, 22)[1:-1])) / 2
SCALE = 100 / np.sqrt(2 * len(POSITIONS))
OUTLINE = (SCALE * outline_matrix(POSITIONS)).astype(np.float32)


def thicknesses(outlines: Any) -> Any:
    """Return the distances between both sides of outlines, in percent of the chord."""
    return (outlines[:, : len(POSITIONS)] - outlines[:, len(POSITIONS) :]) * (100 / SCALE)


def at_lift(analysis: Analysis, kulfan: Any) -> tuple[Any, Aero]:
    """Return the angles of attack that bring the required lift, and the analysis there.

    Three corrections by a usual slope of the lift are enough for all airfoils that do not stall.
    Objectives at one lift compare, and a search does not need the angle as a variable.
    """
    angles = FIRST_ANGLE + 0 * kulfan[:, 0]
    for _ in range(3):
        angles = angles + (LIFT - analysis(kulfan, angles).lift) / SLOPE
    return angles, analysis(kulfan, angles)


def evaluate_by(analysis: Analysis, kulfan: Any) -> tuple[Any, Any, dict]:
    """Return objectives, measures and violations of arrays of NumPy or of JAX."""
    _, aero = at_lift(analysis, kulfan)
    outlines = kulfan @ OUTLINE.T
    crossing = (-thicknesses(outlines)).max(axis=1).clip(0)
    wrong_lift = (abs(LIFT - aero.lift) - TOLERANCE).clip(0)
    violation = wrong_lift + (CONFIDENCE - aero.confidence).clip(0) + crossing
    return aero.lift / aero.drag, outlines, {"violation": violation}


def neuralfoil_analysis(kulfan: np.ndarray, angles: np.ndarray) -> Aero:
    """Analyze a batch by NeuralFoil itself."""
    import neuralfoil

    columns = np.float64(kulfan).T
    names = "upper_weights", "lower_weights", "leading_edge_weight", "TE_thickness"
    parts = columns[:8], columns[8:16], columns[16], columns[17]
    aero = neuralfoil.get_aero_from_kulfan_parameters(
        dict(zip(names, parts, strict=True)), angles, REYNOLDS, model_size=SIZE
    )
    return Aero(aero["CL"], aero["CD"], aero["analysis_confidence"])


def evaluate(kulfan: np.ndarray) -> tuple[np.ndarray, np.ndarray, dict]:
    """Evaluate a batch by NeuralFoil: the black box."""
    return evaluate_by(neuralfoil_analysis, kulfan)


class Known(NamedTuple):
    """Known airfoils that meet the constraints."""

    names: np.ndarray
    solutions: np.ndarray
    objectives: np.ndarray

    @property
    def dataset(self) -> gloam.datasets.Dataset:
        """Their outlines as items."""
        return gloam.datasets.Dataset(self.solutions @ OUTLINE.T, names=self.names)

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of solutions: the extremes of the known airfoils and a tenth more."""
        low, high = self.solutions.min(axis=0), self.solutions.max(axis=0)
        margin = (high - low) / 10
        low, high = low - margin, high + margin
        low[17] = 0.0  # of the trailing edge
        return low, high

    def elites(self, archive: gloam.CVTArchive) -> gloam.Elites:
        """Return them as the elites from which a search starts."""
        measures = self.solutions @ OUTLINE.T
        return gloam.interop.elites_from_arrays(archive, self.solutions, self.objectives, measures)


def read_database(step: int = 1) -> Known:
    """Return the airfoils of AeroSandbox that fit the problem; ``step`` 2 takes every second file.

    Left out are those thicker than ``THICKEST``, those that violate a constraint, and those nearer
    than ``APART`` to one that is kept.
    """
    import aerosandbox

    folder = Path(aerosandbox.__file__).parent / "geometry/airfoil/airfoil_database"
    names = sorted(file.stem for file in folder.glob("*.dat"))[::step]
    rows = []
    for name in names:
        with warnings.catch_warnings():  # of some files
            warnings.simplefilter("ignore")
            fit = aerosandbox.Airfoil(name).normalize().to_kulfan_airfoil()
        rows.append([*fit.upper_weights, *fit.lower_weights, fit.leading_edge_weight])
        rows[-1].append(fit.TE_thickness)
    return chosen(np.array(names), np.float32(rows))


def chosen(names: np.ndarray, solutions: np.ndarray) -> Known:
    """Return the airfoils that fit the problem."""
    objectives, outlines, fields = evaluate(solutions)
    is_thin = thicknesses(outlines).max(axis=1) <= THICKEST
    kept: list[int] = []
    for row in np.flatnonzero(is_thin & (fields["violation"] == 0)):
        distances = np.linalg.norm(outlines[kept] - outlines[row], axis=1)
        if distances.min(initial=np.inf) >= APART:
            kept.append(row)
    return Known(names[kept], solutions[kept], objectives[kept])


def load(path: Path) -> Known:
    """Read the known airfoils from a file, and write it first if there is none."""
    if not path.exists():
        np.savez(path, **read_database()._asdict())
    with np.load(path) as file:
        return Known(*(file[name] for name in Known._fields))


def main(out: Path = Path("airfoils.npz")) -> None:
    """Write the known airfoils to a file.

    Args:
        out: The file.
    """
    known = load(out)
    low, middle, high = np.percentile(known.objectives, [5, 50, 95])
    print(f"{len(known.names)} airfoils with L/D {low:.0f} to {high:.0f}, median {middle:.0f}")


if __name__ == "__main__":
    tyro.cli(main)
