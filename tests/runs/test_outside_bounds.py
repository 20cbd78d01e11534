"""Solutions with measures outside the archive's bounds are counted in the metrics."""

import jax.numpy as jnp
import numpy as np
import pytest

import gloam
from gloam.formats.tables import MetricsFile


def map_elites(archive, batch=6):
    return gloam.MAPElites(archive, np.zeros(3), 0.3, batch_size=batch)


def test_valid_rows_with_a_measure_outside_are_counted():
    search = gloam.Search(map_elites(gloam.GridArchive((2, 2), [0, -1], [1, 1])), seed=1)
    search.ask()
    measures = [[0, -1], [1, 1], [1.5, 0], [-0.1, 2], [0.5, -1.01], [9, 9]]  # bounds are inside
    search.tell([1, 1, 1, 1, 1, np.nan], measures)
    assert search.metrics()["outside_bounds"] == 3
    assert search.metrics()["failed"] == 1


def test_directions_are_compared_with_bounds_of_directions():
    archive = gloam.CVTArchive(np.array([[1.0, 0.0], [0.8, 0.6]]), metric="cosine")
    search = gloam.Search(map_elites(archive, batch=3), seed=1)
    search.ask()
    search.tell(np.ones(3), [[7.0, 1.0], [0.8, 0.6], [0.0, 5.0]])
    assert search.metrics()["outside_bounds"] == 1


@pytest.mark.slow
def test_runs_on_the_device_and_in_python_count_alike(tmp_path):
    def evaluate(solutions):
        return solutions[:, 0] * 0.0, 0.0 * solutions[:, :1] + jnp.arange(6.0)[:, None]

    algorithm = map_elites(gloam.GridArchive((4,), 0, 3.5))
    result = gloam.run(evaluate, algorithm, seeds=[1, 2], iterations=2, progress=False)
    assert (result.metrics["outside_bounds"] == 2).all()
    options = {"log_every": 1, "run_dir": tmp_path, "progress": False}
    result = gloam.optimize(evaluate, algorithm, 2, **options)
    assert (result.metrics["outside_bounds"] == 2).all()

    # A run of a version that did not count them goes on: its rows have no number.
    folder = gloam.RunFolder(tmp_path)
    MetricsFile(folder.path).write(folder.read_metrics().drop(columns="outside_bounds"))
    gloam.optimize(evaluate, algorithm, 3, resume=True, **options)
    counts = folder.read_metrics()["outside_bounds"]
    assert np.isnan(counts[:2]).all()
    assert counts[2] == 2
