"""Runs that are killed at random moments end as if they had not been: `benchmarks/kills.py`."""

import importlib.util
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "kills.py"


# Each kill is a process more, which takes seconds to start. The seed gives a kill that comes after
# a checkpoint.
@pytest.mark.parametrize(
    ("driver", "num_kills", "seed"),
    [
        ("map-elites", 1, 0),
        pytest.param("fused", 4, 1, marks=pytest.mark.slow),
        pytest.param("optimize", 2, 0, marks=pytest.mark.slow),
    ],
)
def test_runs_that_are_killed_end_with_the_same_bits_and_files(tmp_path, driver, num_kills, seed):
    spec = importlib.util.spec_from_file_location("kills", BENCHMARK)
    kills = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kills)
    subject = kills.Subject(driver, tmp_path, iterations=100, every=5)
    runs, different = kills.kill_runs(subject, num_kills, seed=seed)
    assert runs >= 1
    assert different == 0
