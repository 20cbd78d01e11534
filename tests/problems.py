"""Small problems that the tests of all rooms share, so that few programs are compiled."""

from functools import cache

import numpy as np

import gloam

BATCH = 30
"""Solutions per iteration of all algorithms."""


@cache
def small(name: str) -> gloam.Algorithm:
    """A small algorithm: ``dms``, ``dms-paper``, ``cma-mae``, ``dds`` or ``map-elites-line``."""
    grid = gloam.GridArchive((8, 8), -2.0, 2.0)
    cvt = gloam.CVTArchive(np.random.default_rng(0).uniform(-2, 2, (50, 2)), -2.0, 2.0)
    x0, few = np.zeros(5), {"num_init_points": 30, "num_empty_points": 10}
    cma = {"num_emitters": 3, "batch_size": 10}
    builders = {
        # 18 solutions by CMA-ES and 12 by moves between elites.
        "dms": lambda: gloam.DMS(grid, x0, 0.3, num_emitters=3, batch_size=6, num_init_points=30),
        "dms-paper": lambda: gloam.DMS.paper(grid, x0, 0.3, **few, **cma),
        "cma-mae": lambda: gloam.CMAMAE(grid, x0, 0.3, **cma),
        "dds": lambda: gloam.DDS(cvt, x0, 0.3, bandwidth=0.5, buffer_size=100, **cma),
        "map-elites-line": lambda: gloam.MAPElitesLine(cvt, x0, 0.3, 0.2, batch_size=BATCH),
    }
    return builders[name]()


ARM = gloam.domains.Arm(num_joints=5)
"""A domain for all of them. gloam knows it by name: a run on it is resumed from its folder."""


def evaluate(solutions):
    """Work on NumPy and JAX arrays alike."""
    return 1.0 - (solutions**2).sum(axis=1) / 100.0, solutions[:, :2] * 1.5


def advanced(search, iterations: int):
    """A search after some more iterations."""
    for _ in range(iterations):
        search.tell(*evaluate(search.ask()))
    return search
