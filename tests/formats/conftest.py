import numpy as np
import pytest

import gloam


def small_run(path, *, iterations=4, driver="fused", seeds=(0,), snapshots=(2, 4)):
    """A run of gloam's own parts with every kind of file; compiled once for all tests."""
    pixels = np.random.default_rng(0).random((9, 4, 4), dtype=np.float32)
    data = gloam.datasets.from_array(pixels, labels=list("abcabcabc"))
    domain = gloam.domains.Triangles(pixels, num_triangles=2, canvas=(4, 4))
    algorithm = gloam.DMS.paper(
        domain.archive(),
        domain.x0,
        0.3,
        num_emitters=2,
        batch_size=4,
        num_init_points=9,
        num_empty_points=3,
        network=gloam.discounts.MLP(16, (4,)),
    )
    options = {
        "run_dir": path,
        "snapshots": snapshots,
        "log_every": 2,
        "dataset": data,
        "progress": False,
    }
    if driver == "fused":
        return gloam.run(domain, algorithm, seeds=list(seeds), iterations=iterations, **options)
    return gloam.optimize(domain, algorithm, iterations, **options)


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory):
    path = tmp_path_factory.mktemp("formats") / "run"
    small_run(path)
    return path
