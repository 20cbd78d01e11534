import numpy as np
import pytest

import gloam

PIXELS = np.random.default_rng(0).random((9, 4, 4), dtype=np.float32)


def small_problem(pixels=PIXELS, x0=None, **settings):
    """A dataset, a domain and an algorithm whose programs all tests share."""
    data = gloam.datasets.from_array(pixels, labels=list("abcabcabc"))
    domain = gloam.domains.Triangles(pixels, num_triangles=2, canvas=(4, 4))
    start = domain.x0 if x0 is None else x0
    options = {"num_emitters": 2, "batch_size": 4, "alpha": 0.1} | settings
    return data, domain, gloam.CMAMAE(domain.archive(), start, 0.3, **options)


def small_run(path, *, iterations=4, seeds=(0,), snapshots=(2, 4)):
    """A run of gloam's own parts with every kind of file."""
    data, domain, algorithm = small_problem()
    options = {"snapshots": snapshots, "log_every": 2, "dataset": data, "progress": False}
    return gloam.run(domain, algorithm, iterations, seeds=list(seeds), run_dir=path, **options)


def quick_search(path, evaluate=None, iterations=2, **options):
    """A run of a function of the user's own, whose programs compile in no time."""
    archive = gloam.GridArchive((4, 4), -1, 1)
    algorithm = gloam.MAPElites(archive, np.zeros(2), 0.3, batch_size=4)
    options = {"run_dir": path, "progress": False} | options
    return gloam.optimize(evaluate or parabola, algorithm, iterations, **options)


def parabola(solutions):
    return 1 - np.square(solutions).mean(axis=1), solutions


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory):
    path = tmp_path_factory.mktemp("formats") / "run"
    small_run(path)
    return path


def damaged(content: bytes, rng) -> bytes:
    """The content truncated, or with one byte changed."""
    place = int(rng.integers(len(content)))
    if rng.random() < 0.3:
        return content[:place]
    changed = bytearray(content)
    changed[place] ^= int(rng.integers(1, 256))
    return bytes(changed)
