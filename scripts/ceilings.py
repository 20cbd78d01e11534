"""Compute the ceilings of the study: the sum over all cells of the best possible objective.

    python scripts/ceilings.py --centroids-dir DIR

DIR is the folder with the paper's centroids, ``lp_{10,20,50}d.npy``. The script prints a table and
writes ``src/gloam_lab/ceilings.csv``, which the report of a study reads. It takes about
eight minutes on one core. For each cell there are two numbers, both in exact arithmetic:

- ``attained``: the objective of a solution in the cell, which was found.
- ``bound``: a number that no solution in the cell exceeds.

On linear projection (Sphere, Flat) both are equal, so the ceiling is exact. On the arm,
``attained`` comes from many starts of a local search, and ``bound`` is 1 for every cell within
reach.
"""

import itertools
import os
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import tyro
from jaxtyping import Bool, Float, Int
from scipy.optimize import nnls
from scipy.spatial import KDTree

from gloam._tools.files import write_bytes
from gloam.archives import Archive, CVTArchive, GridArchive
from gloam.domains import Arm, Domain, LinearProjection
from gloam_lab.ceilings import FILE, archive_digest
from gloam_lab.study import domain_named

GRIDS = ("2d-lp-sphere", "2d-lp-flat", "arm")
CVTS = ("10d-lp-sphere", "20d-lp-sphere", "50d-lp-sphere", "10d-lp-flat")

DATA = Path(os.environ.get("GLOAM_DATA", Path(__file__).parents[2] / "shared" / "data"))
EDGE = 5.12
OPTIMUM = 0.4 * EDGE

TURNS = (0, 0.3, 0.6, 0.15, 1, 1.6, -0.3, -0.8, 2.4, 3.2, -1.6)
"""Turns of the arcs from which the arm's search starts."""


class Best(NamedTuple):
    """Best objective of every cell; 0 for a cell that no solution reaches."""

    attained: Float[np.ndarray, " cells"]
    bound: Float[np.ndarray, " cells"]


def main(
    centroids_dir: Path = DATA / "centroids",
    out: Path = FILE,
) -> None:
    """Compute all ceilings, print them and write them as CSV.

    Args:
        centroids_dir: Folder with the paper's centroids.
        out: The CSV file.
    """
    if not centroids_dir.is_dir():
        sys.exit(f"No folder '{centroids_dir}': give --centroids-dir, or set GLOAM_DATA.")
    archives = [(name, "grid", None) for name in GRIDS]
    archives += [(name, "paper", centroids_dir) for name in CVTS]
    archives += [(name, "gloam", None) for name in CVTS]
    rows = []
    for name, cells, folder in archives:
        domain = domain_named(name, folder)
        archive = domain.archive()
        attained, bound = best_objectives(domain, archive)
        row = {"domain": name, "cells": cells, "archive": archive_digest(archive)}
        row |= {"reachable": int(np.sum(bound > 0)), "attained": round(attained.sum(), 2)}
        rows.append(row | {"ceiling": round(bound.sum(), 2)})
        gap = np.max(bound - attained)
        print(*rows[-1].values(), f"largest gap of a cell: {gap:.1e}", flush=True)
    table = pd.DataFrame(rows)
    print(table.to_string(index=False))
    write_bytes(out, table.to_csv(index=False).encode())


def best_objectives(domain: Domain, archive: Archive) -> Best:
    """Return the best objective of every cell of an archive."""
    if isinstance(domain, Arm):
        assert isinstance(archive, GridArchive)
        return best_of_arm(domain, archive)
    assert isinstance(domain, LinearProjection)
    assert domain.objective in ("sphere", "flat")
    if isinstance(archive, GridArchive):
        return best_of_grid(domain, archive)
    assert isinstance(archive, CVTArchive)
    return best_of_cvt(domain, archive)


# Linear projection. A measure is a sum of clipped variables, and each clipped variable is between
# -5.12 and 5.12. A clipped variable v is the clip of v itself and, if it is between -1 and 1, of
# 5.12 / v, too; but v is always nearer to the optimum 2.048. The cost is convex, so the best block
# with measure m has r equal variables m / r, at the cost (m - 2.048 r)^2 / r. The best solution in
# a cell is therefore the point of the cell that is nearest to (2.048 r, ..., 2.048 r).


def sphere(
    domain: LinearProjection, square_distances: Float[np.ndarray, " cells"]
) -> Float[np.ndarray, " cells"]:
    """Return the best objective at a squared distance of the measures from the optimum's."""
    block_size = domain.solution_dim / domain.measure_dim
    worst = domain.solution_dim * (EDGE + OPTIMUM) ** 2
    return 1 - square_distances / (block_size * worst)


def best_of_grid(domain: LinearProjection, archive: GridArchive) -> Best:
    """Return the best objectives on a grid: each measure separately is nearest to the optimum."""
    low, high = box_of_cells(archive)
    low, high = np.maximum(low, -domain.edge), np.minimum(high, domain.edge)
    is_reachable = np.all(low <= high, axis=1)
    optimum = OPTIMUM * domain.solution_dim / domain.measure_dim
    square_distances = np.sum((np.clip(optimum, low, high) - optimum) ** 2, axis=1)
    best = 1.0 if domain.objective == "flat" else sphere(domain, square_distances)
    return Best(np.where(is_reachable, best, 0), np.where(is_reachable, best, 0))


def box_of_cells(
    archive: GridArchive,
) -> tuple[Float[np.ndarray, "cells meas"], Float[np.ndarray, "cells meas"]]:
    """Return the lowest and the highest measures of each cell of a grid.

    Measures outside the bounds belong to the cells at the edge.
    """
    lows, highs = [], []
    for size, low, high in zip(archive.shape, archive.lower, archive.upper, strict=True):
        inner = np.linspace(float(low), float(high), size + 1)[1:-1]
        lows.append([-np.inf, *inner])
        highs.append([*inner, np.inf])
    return np.array([*itertools.product(*lows)]), np.array([*itertools.product(*highs)])


def best_of_cvt(domain: LinearProjection, archive: CVTArchive) -> Best:
    """Return the best objectives on a CVT: the optimum is projected onto each Voronoi cell."""
    centroids = np.asarray(archive.centroids, np.float64)
    assert np.abs(centroids).max() <= domain.edge, "a cell without its centroid may be empty"
    if domain.objective == "flat":
        return Best(np.ones(len(centroids)), np.ones(len(centroids)))
    optimum = np.full(domain.measure_dim, OPTIMUM * domain.solution_dim / domain.measure_dim)
    found = [
        nearest_in_cell(cell, centroids, optimum, domain.edge) for cell in range(len(centroids))
    ]
    points, bounds = (np.array(column) for column in zip(*found, strict=True))
    attained = sphere(domain, np.sum((points - optimum) ** 2, axis=1))
    return Best(attained, sphere(domain, bounds))


def nearest_in_cell(
    cell: int,
    centroids: Float[np.ndarray, "cells meas"],
    target: Float[np.ndarray, " meas"],
    edge: float,
) -> tuple[Float[np.ndarray, " meas"], float]:
    """Return the point of a Voronoi cell within the box that is nearest to ``target``.

    A quadratic program with one half-space for each other centroid. Few of them matter: those
    that the current point violates are added until there are none.

    Returns:
        The point, and a lower bound of its squared distance from the dual problem.
    """
    sides = np.vstack([np.eye(len(target)), -np.eye(len(target))])
    half_squares = 0.5 * np.sum(centroids**2, axis=1)
    chosen, point, bound = np.array([], int), target, 0.0
    while True:
        distances = half_squares - centroids @ point  # half the squared distances, up to a constant
        nearer = np.argsort(distances)[:32]
        nearer = nearer[distances[nearer] < distances[cell] - 1e-8]
        if len(nearer) == 0:
            break
        chosen = np.union1d(chosen, nearer)
        normals = centroids[chosen] - centroids[cell]
        lengths = np.linalg.norm(normals, axis=1)
        offsets = (half_squares[chosen] - half_squares[cell]) / lengths
        A = np.vstack([normals / lengths[:, None], sides])
        b = np.append(offsets, np.full(len(sides), edge))
        multipliers = dual_of_projection(A, A @ target - b)
        move = -A.T @ multipliers
        point = target + move
        # Any multipliers that are not negative give a bound.
        bound = 2 * multipliers @ (A @ target - b) - move @ move
    # Rounding may leave the point a little outside; the cell contains the way to its centroid.
    return point + 1e-9 * (centroids[cell] - point), max(bound, 0.0)


def dual_of_projection(
    A: Float[np.ndarray, "rows meas"], violation: Float[np.ndarray, " rows"]
) -> Float[np.ndarray, " rows"]:
    """Return the multipliers of: minimize |z|^2 / 2 subject to ``A z <= -violation``.

    Least distance programming (Lawson and Hanson, Solving Least Squares Problems, chapter 23).
    """
    scale = max(1.0, np.abs(violation).max())
    E = np.vstack([A.T, violation / scale])
    unit = np.append(np.zeros(A.shape[1]), 1.0)
    weights, _ = nnls(E, unit)
    return weights * scale / (1 - E[-1] @ weights)


# Arm. With the absolute angles p_1, ..., p_n of the links, n times the variance of the joint angles
# is the quadratic form sum_k (p_k - p_{k-1})^2 - p_n^2 / n with p_0 = 0, and the end effector is a
# sum of one term for each link, sum_k (cos p_k, sin p_k). So the Hessian of the Lagrangian is
# tridiagonal, and a Newton step for all cells at once is cheap.


def best_of_arm(domain: Arm, archive: GridArchive) -> Best:
    """Return the objectives found from many starts, and 1 as the bound of cells within reach."""
    n = domain.num_joints
    assert n > 1, "an arm of one link reaches a circle only"
    low, high = box_of_cells(archive)
    nearest = np.clip(0.0, low, high)
    distances = np.linalg.norm(nearest, axis=1)
    # A cell that meets the circle of reach in one point has it unless it is on an upper edge.
    on_upper_edge = np.any((nearest == high) & (nearest < 0), axis=1)
    is_reachable = (distances < n) | ((distances == n) & ~on_upper_edge)
    bound = is_reachable.astype(np.float64)
    # Mirror images have the same objectives. Newton's method needs cells with reach to spare.
    low, high = np.clip(low, -n - 1, n + 1), np.clip(high, -n - 1, n + 1)
    is_below = low[:, 1] + high[:, 1] < 0
    mirrored = np.where(is_below[:, None], [[1, -1]], [[1, 1]])
    boxes = np.hstack(
        [np.minimum(low * mirrored, high * mirrored), np.maximum(low * mirrored, high * mirrored)]
    )
    inside = np.flatnonzero(distances < n)
    boxes, inverse = np.unique(boxes[inside], axis=0, return_inverse=True)
    variances = least_variances(n, boxes[:, :2], boxes[:, 2:])
    attained = np.zeros(archive.num_cells)
    attained[inside] = np.maximum(1 - variances, 0)[inverse]
    return Best(attained, bound)


def least_variances(
    n: int, low: Float[np.ndarray, "cells 2"], high: Float[np.ndarray, "cells 2"]
) -> Float[np.ndarray, " cells"]:
    """Return the least variance found for each box: from arcs, then from the boxes around it."""
    links = np.arange(1.0, n + 1)[:, None]
    angles, variances = np.zeros((n, len(low))), np.full(len(low), np.inf)

    def search(starts: Float[np.ndarray, "n tried"], tried: Int[np.ndarray, " tried"]) -> None:
        found, values = newton(starts, low[tried], high[tried])
        is_better = values < variances[tried] - 1e-9
        angles[:, tried[is_better]] = found[:, is_better]
        variances[tried[is_better]] = values[is_better]

    for turns in TURNS:
        # An arc that is a little uneven: even arcs may be saddle points.
        arc = 2 * np.pi * turns * links / n + 1e-3 * np.sin(links)
        search(np.repeat(arc, len(low), axis=1), np.arange(len(low)))
    centres = (low + high) / 2
    _, neighbours = KDTree(centres).query(centres, k=min(9, len(low)))
    has_changed = np.isfinite(variances)
    while has_changed.any():
        before = variances.copy()
        for neighbour in neighbours.T[1:]:
            tried = np.flatnonzero(has_changed[neighbour])
            search(angles[:, neighbour[tried]], tried)
        has_changed = variances < before
    return variances


def newton(
    angles: Float[np.ndarray, "n cells"],
    low: Float[np.ndarray, "cells 2"],
    high: Float[np.ndarray, "cells 2"],
    num_steps: int = 40,
) -> tuple[Float[np.ndarray, "n cells"], Float[np.ndarray, " cells"]]:
    """Minimize the variance of the joint angles with the end effector in a box, from starts.

    Damped Newton steps with a line search for the variance plus a penalty for the distance.

    Returns:
        Absolute angles of the links, and the variances: infinite if the box was not reached.
    """
    angles, n = angles.copy(), len(angles)
    damping, penalty = np.full(len(low), 1e-3), np.ones(len(low))
    active = np.arange(len(low))
    for _ in range(num_steps):
        if len(active) == 0:
            break
        here, box = angles[:, active], (low[active], high[active])
        step, multipliers = newton_step(here, *box, damping[active])
        penalty[active] = np.maximum(penalty[active], 1.5 * np.abs(multipliers).max(axis=1))
        largest = np.abs(step).max(axis=0)
        length = np.minimum(1, 0.5 / np.maximum(largest, 1e-12))

        def merit(angles, box=box, weight=penalty[active]):
            return energy(angles) + weight * outside(angles, *box).sum(axis=1)

        target, is_done, is_first = merit(here) + 1e-13, np.zeros(len(active), bool), True
        for _ in range(6):
            trial = here + np.where(is_done, 0, length) * step
            improves = (merit(trial) < target) & ~is_done
            angles[:, active[improves]] = trial[:, improves]
            is_done |= improves
            if is_first:
                factor = np.where(is_done, 0.25, 4.0)
                is_first = False
            length = length / 3
        damping[active] = np.clip(damping[active] * factor, 1e-9, 10)
        active = active[largest > 1e-9]
    is_inside = np.all(outside(angles, low, high) < 1e-9, axis=1)
    return angles, np.where(is_inside, 2 * energy(angles) / n, np.inf)


def energy(angles: Float[np.ndarray, "n cells"]) -> Float[np.ndarray, " cells"]:
    """Return half the sum of squared deviations of the joint angles from their mean."""
    joints = np.diff(angles, axis=0, prepend=0.0)
    return 0.5 * np.sum((joints - joints.mean(axis=0)) ** 2, axis=0)


def end_effector(angles: Float[np.ndarray, "n cells"]) -> Float[np.ndarray, "cells 2"]:
    """Return the positions of the end effector."""
    return np.stack([np.cos(angles).sum(axis=0), np.sin(angles).sum(axis=0)], axis=1)


def outside(
    angles: Float[np.ndarray, "n cells"],
    low: Float[np.ndarray, "cells 2"],
    high: Float[np.ndarray, "cells 2"],
) -> Float[np.ndarray, "cells 2"]:
    """Return the distances of the end effector from a box, along each axis."""
    end = end_effector(angles)
    return np.maximum(np.maximum(low - end, end - high), 0)


def newton_step(
    angles: Float[np.ndarray, "n cells"],
    low: Float[np.ndarray, "cells 2"],
    high: Float[np.ndarray, "cells 2"],
    damping: Float[np.ndarray, " cells"],
) -> tuple[Float[np.ndarray, "n cells"], Float[np.ndarray, "cells 2"]]:
    """Return the step to the solution of the quadratic subproblem, and its multipliers."""
    n = len(angles)
    gradient = 2 * angles
    gradient[:-1] -= angles[1:]
    gradient[1:] -= angles[:-1]
    gradient[-1] -= angles[-1] * (1 + 1 / n)
    jacobian = np.stack([-np.sin(angles), np.cos(angles)], axis=2)
    # The multipliers for which the gradient of the Lagrangian is least.
    squares = np.einsum("nci,ncj->cij", jacobian, jacobian) + 1e-9 * np.eye(2)
    pull = np.linalg.solve(squares, np.einsum("nci,nc->ci", jacobian, gradient)[..., None])[..., 0]
    diagonal = np.full(angles.shape, 2.0)
    diagonal[-1] = 1 - 1 / n
    diagonal += pull[:, 0] * np.cos(angles) + pull[:, 1] * np.sin(angles)
    rhs = np.concatenate([-gradient[..., None], jacobian], axis=2)
    damping = damping.copy()
    for _ in range(12):
        solved, is_positive = solve_tridiagonal(diagonal + damping, rhs)
        if is_positive.all():
            break
        damping[~is_positive] = np.maximum(4 * damping[~is_positive], 1e-2)
    free, response = solved[..., 0], solved[..., 1:]
    # The end effector is `end` without multipliers, and moves by `compliance` times multipliers.
    end = end_effector(angles) + np.einsum("nci,nc->ci", jacobian, free)
    compliance = np.einsum("nci,ncj->cij", jacobian, response) + 1e-12 * np.eye(2)
    stiffness = np.linalg.inv(compliance)
    move = nearest_in_box(end, stiffness, low, high) - end
    multipliers = np.einsum("cij,cj->ci", stiffness, move)
    return free + np.einsum("nci,ci->nc", response, multipliers), multipliers


def solve_tridiagonal(
    diagonal: Float[np.ndarray, "n cells"], rhs: Float[np.ndarray, "n cells columns"]
) -> tuple[Float[np.ndarray, "n cells columns"], Bool[np.ndarray, " cells"]]:
    """Solve systems with -1 beside the diagonal; also return which are positive definite."""
    pivots, x = diagonal.copy(), rhs.copy()
    is_positive = np.ones(diagonal.shape[1], bool)
    for k in range(len(x)):
        if k > 0:
            pivots[k] -= 1 / pivots[k - 1]
            x[k] += x[k - 1] / pivots[k - 1][:, None]
        is_positive &= pivots[k] > 1e-8
        pivots[k] = np.where(is_positive, pivots[k], 1.0)  # the caller adds damping
    for k in reversed(range(len(x))):
        if k < len(x) - 1:
            x[k] += x[k + 1]
        x[k] /= pivots[k][:, None]
    return x, is_positive


def nearest_in_box(
    point: Float[np.ndarray, "cells 2"],
    metric: Float[np.ndarray, "cells 2 2"],
    low: Float[np.ndarray, "cells 2"],
    high: Float[np.ndarray, "cells 2"],
) -> Float[np.ndarray, "cells 2"]:
    """Return the point of each box that is nearest by ``metric``: inside, or on a side."""
    candidates = [np.clip(point, low, high)]
    for axis, sides in itertools.product((0, 1), (low, high)):
        other, on_side = 1 - axis, sides.copy()
        shift = metric[:, 0, 1] * (sides[:, axis] - point[:, axis]) / metric[:, other, other]
        on_side[:, other] = np.clip(point[:, other] - shift, low[:, other], high[:, other])
        candidates.append(on_side)
    moves = np.stack(candidates) - point
    nearest = np.einsum("sci,cij,scj->sc", moves, metric, moves).argmin(axis=0)
    return np.stack(candidates)[nearest, np.arange(len(point))]


if __name__ == "__main__":
    tyro.cli(main)
