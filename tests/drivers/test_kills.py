"""Runs that are killed at random moments end as if they had not been: `benchmarks/kills.py`."""

import importlib.util
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "kills.py"


def test_runs_that_are_killed_end_with_the_same_bits_and_files(tmp_path):
    spec = importlib.util.spec_from_file_location("kills", BENCHMARK)
    kills = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kills)
    subject = kills.Subject("fused", tmp_path, iterations=60, every=5)
    runs, different = kills.kill_runs(subject, 4, seed=1)
    assert runs >= 1
    assert different == 0
