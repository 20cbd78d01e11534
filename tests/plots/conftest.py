import numpy as np
import pandas as pd
import pytest

import gloam
from gloam.archives import Elites
from gloam.archives.store import Store
from tests.run_folders import small_dms, write_grid_run, write_run


def bowl(solutions):
    """Best at 0; measures are the first numbers of the solution. For JAX and NumPy alike."""
    return 1.0 - (solutions**2).sum(axis=1) / 10.0, solutions[:, :2]


@pytest.fixture(scope="session")
def run_2d(tmp_path_factory):
    """Two seeds on a grid of 8 by 6 cells."""
    return write_grid_run(tmp_path_factory.mktemp("plots") / "grid")


@pytest.fixture(scope="session")
def run_3d(tmp_path_factory):
    """One seed on centroids of three measures."""
    centroids = np.random.default_rng(0).uniform(-1, 1, (40, 3)) * [1.0, 3.0, 0.2]
    algorithm = small_dms(gloam.CVTArchive(centroids), np.zeros(4))
    return write_run(tmp_path_factory.mktemp("plots") / "cvt", algorithm, bowl, seeds=[2])


def filled(archive, objectives, fields=None):
    """Elites with these objectives, at the centers of their cells."""
    cells = np.arange(archive.num_cells, dtype=np.int32)
    measures = np.asarray(archive.centers_of(cells))
    solutions = np.zeros((archive.num_cells, 2), np.float32)
    objectives = np.asarray(objectives, np.float32)
    return Elites(archive, Store(solutions, objectives, np.float32(measures), fields or {}))


def random_objectives(number):
    draws = np.random.default_rng(0)
    found = draws.uniform(0, 1, number)
    found[draws.uniform(size=number) < 0.3] = -np.inf
    return found.astype(np.float32)


@pytest.fixture(scope="session")
def plane():
    """Two measures, and a field."""
    archive = gloam.GridArchive((6, 5), 0, 1, fields={"age": ()}, measure_names=("speed", "height"))
    ages = np.arange(30, dtype=np.float32)
    return filled(archive, random_objectives(30), fields={"age": ages})


@pytest.fixture(scope="session")
def four():
    """Four measures."""
    names = ("a", "b", "c", "d")
    archive = gloam.GridArchive((3, 4, 2, 5), [0, 0, 0, 0], [3, 4, 2, 5], measure_names=names)
    return filled(archive, random_objectives(120))


@pytest.fixture(scope="session")
def metrics():
    """Two iterations of two seeds."""
    rows = [(seed, at, 20 * at) for at in (1, 2) for seed in (1, 2)]
    table = pd.DataFrame(rows, columns=["seed", "iteration", "evaluations"])
    return table.assign(qd_score=[1.0, 2, 3, 4], unique_cells=[5, 7, 9, 11])


def drawn(axes, kind):
    """The artists of a kind."""
    return [child for child in axes.get_children() if isinstance(child, kind)]
