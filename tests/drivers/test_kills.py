"""Runs that are killed at random moments end as if they had not been: `benchmarks/kills.py`."""

import importlib.util
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "kills.py"


@pytest.fixture(scope="module")
def kills():
    spec = importlib.util.spec_from_file_location("kills", BENCHMARK)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("driver", "number"), [("fused", 3), ("fill", 1)])
def test_runs_that_are_killed_end_with_the_same_bits_and_files(kills, tmp_path, driver, number):
    subject = kills.Subject(driver, tmp_path, iterations=60, every=5)
    runs, different = kills.kill_runs(subject, number, seed=1)
    assert runs >= 1
    assert different == 0
