"""Small problems that the tests of all rooms share, so that few programs are compiled."""

from collections.abc import Callable
from functools import cache

import numpy as np

import gloam
import gloam_lab
from gloam.algorithms import dms
from gloam.emitters import AdaptiveMixture, CmaEmitters, GradientAscent, Recombination

BATCH = 30
"""Solutions per iteration of all algorithms."""
GRADIENTS = 6
"""Solutions per iteration of ``climbing`` that have gradients."""


def small(name: str) -> gloam.Algorithm:
    """A small algorithm by its name, with fewer emitters in most tests (`tests.conftest`)."""
    return _built(name, dms._mixture)


@cache
def _built(name: str, mixture: Callable) -> gloam.Algorithm:
    grid = gloam.GridArchive((8, 8), -2.0, 2.0)
    cvt = gloam.CVTArchive(np.random.default_rng(0).uniform(-2, 2, (50, 2)), -2.0, 2.0)
    x0, few = np.zeros(5), {"num_init_points": 30, "num_empty_points": 10}
    cma = {"num_emitters": 3, "batch_size": 10}
    builders = {
        # Three slots of ten solutions, which four emitters share.
        "dms": lambda: gloam.DMS(grid, x0, 0.3, num_init_points=30, **cma),
        "dms-paper": lambda: gloam.DMS.paper(grid, x0, 0.3, **few, **cma),
        "cma-mae": lambda: gloam.CMAMAE(grid, x0, 0.3, **cma),
        "dds": lambda: gloam_lab.DDS(cvt, x0, 0.3, bandwidth=0.5, buffer_size=100, **cma),
        "map-elites-line": lambda: gloam.MAPElitesLine(cvt, x0, 0.3, 0.2, batch_size=BATCH),
        "climbing": lambda: climbing(grid),
        "aimed-ascent": lambda: gloam.Algorithm(
            gloam.emitters.GradientAscent(x0, 0.3, goal="target", batch_size=BATCH),
            grid,
            gloam.discounts.NoDiscount(),
        ),
    }
    return builders[name]()


def climbing(archive: gloam.archives.Archive) -> gloam.Algorithm:
    """Five slots of six solutions, of which the first may climb by gradients."""
    x0 = np.zeros(5)
    emitters = [
        gloam.emitters.GradientAscent(x0, 0.3, batch_size=GRADIENTS),
        gloam.emitters.GradientAscent(x0, 0.3, goal="target", batch_size=GRADIENTS),
        gloam.emitters.CmaEmitters(x0, 0.3, num_emitters=5, batch_size=6),
        gloam.emitters.Recombination(x0, 0.3, batch_size=BATCH),
    ]
    discount = gloam.discounts.DiscountModel(num_init_points=30)
    return gloam.Algorithm(gloam.emitters.AdaptiveMixture(emitters), archive, discount)


WHOLE_MIXTURE = dms._mixture


def few_emitters(cma, gradients):
    """CMA-ES by improvement, moves and gradients of `gloam.DMS`: they compile in two thirds."""
    kinds = CmaEmitters, Recombination, GradientAscent
    emitters = WHOLE_MIXTURE(cma, gradients).emitters
    return AdaptiveMixture([each for each in emitters if isinstance(each, kinds)])


ARM = gloam.domains.Arm(num_joints=5)
"""A domain for all of them. gloam knows it by name: a run on it is resumed from its folder."""


def evaluate(solutions):
    """Work on NumPy and JAX arrays alike."""
    return 1.0 - (solutions**2).sum(axis=1) / 100.0, solutions[:, :2] * 1.5


def vjp(solutions, objective_weights, measure_weights):
    """The vector-Jacobian product of `evaluate`, in NumPy."""
    gradients = -objective_weights[:, None] * solutions / 50.0
    gradients[:, :2] += 1.5 * measure_weights
    return gradients


def advanced(search, iterations: int):
    """A search after some more iterations."""
    for _ in range(iterations):
        search.tell(*evaluate(search.ask()))
    return search
