"""Small problems that the tests of all rooms share."""

import numpy as np

import gloam


def small_algorithms() -> dict[str, gloam.algorithms.Algorithm]:
    """Small algorithms, on a grid and a CVT archive."""
    grid = gloam.GridArchive((8, 8), -2.0, 2.0)
    centroids = np.random.default_rng(0).uniform(-2, 2, (50, 2))
    cvt = gloam.CVTArchive(centroids, -2.0, 2.0)
    x0 = np.zeros(5)
    cma = {"num_emitters": 3, "batch_size": 8}
    return {
        "dms-grid": gloam.DMS.paper(grid, x0, 0.3, num_init_points=30, num_empty_points=10, **cma),
        "dds": gloam.DDS(cvt, x0, 0.3, bandwidth=0.5, buffer_size=100, **cma),
        "map-elites-line": gloam.MAPElitesLine(cvt, x0, 0.3, 0.2, batch_size=24),
    }


def evaluate(solutions):
    """Works on NumPy and JAX arrays alike."""
    return 1.0 - (solutions**2).sum(axis=1) / 20.0, solutions[:, :2] * 1.5
