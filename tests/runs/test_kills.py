"""Runs of the default algorithm: whole, stopped or killed, they end with the same bits and files.

Kills at random moments are in `benchmarks/kills.py`.
"""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import gloam
from gloam.formats.tables import MetricsFile
from tests.helpers import assert_same_bits
from tests.problems import ARM, BATCH, small

pytestmark = pytest.mark.slow  # searches of its own are compiled

ROOT = Path(__file__).parents[2]
# Labels of the emitters that share a batch.
LABELS = small("dms").emitter.labels
COLUMNS = [
    "seed",
    "iteration",
    "infeasible",
    "infeasible_total",
    "started_from",
    "evaluations",
    "gradients",
    "qd_score",
    "num_counted",
    "mean_objective",
    "f_min",
    "num_elites",
    "coverage",
    "best_objective",
    "loss",
    "epochs",
    "restarts",
    *(
        f"{label}_{name}"
        for label in LABELS
        for name in ("restarts", "accepted", "filled", "share")
    ),
    "aimed_reached",
    "unique_cells",
    "failed",
    "failed_total",
    "below_f_min",
    "outside_bounds",
    "empty_discount",
    "rank_correlation",
    "seconds",
]
SEEDS = [2, 7]


def run(folder, iterations=40, **options):
    settings = {"seeds": SEEDS, "log_every": 7, "checkpoint_every": 5, "progress": False}
    return gloam.run(ARM, small("dms"), iterations, run_dir=folder, **(settings | options))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run."""
    return run(tmp_path_factory.mktemp("whole") / "run", snapshots=[40])


def files(result) -> list[str]:
    return sorted(str(path.relative_to(result.run_dir)) for path in result.run_dir.rglob("*.*"))


def test_metrics_hold_a_row_for_each_seed_and_logged_iteration(whole):
    metrics = whole.metrics
    assert sorted(metrics.columns) == sorted(COLUMNS)
    rows = metrics[["iteration", "seed"]].to_numpy().tolist()
    assert rows == [[at, seed] for at in (7, 14, 21, 28, 35, 40) for seed in SEEDS]
    assert (metrics["evaluations"] == metrics["iteration"] * BATCH).all()
    assert (metrics["gradients"] == 0).all()
    assert metrics["coverage"].between(0, 1).all()
    filled = metrics[[f"{label}_filled" for label in LABELS]].sum(axis=1)
    np.testing.assert_allclose(filled, metrics["coverage"] * 64, rtol=1e-5)
    last = metrics[metrics["iteration"] == 40]
    for row, elites in zip(last.itertuples(), whole.elites_by_seed.values(), strict=True):
        objectives = elites.objectives.astype(np.float64)
        heights = np.maximum(objectives - row.f_min, 0)  # the archive has no f_min of its own
        assert np.isclose(row.qd_score, heights.sum(), rtol=1e-5)
        assert np.isclose(row.coverage, len(elites) / 64)
        assert np.isclose(row.best_objective, objectives.max())


def test_a_snapshot_holds_the_points_that_were_trained_on(whole):
    snapshot = gloam.RunFolder(whole.run_dir).read_snapshot(40)
    assert len(snapshot["points"]) == BATCH + 10


def assert_same_run(found, whole, besides=None):
    """The same elites and metrics; a run that ended at an iteration also logged that one."""
    for seed in SEEDS:
        assert_same_bits(found.elites_by_seed[seed], whole.elites_by_seed[seed])
    rows = found.metrics[found.metrics["iteration"] != besides].reset_index(drop=True)
    pd.testing.assert_frame_equal(
        whole.metrics.drop(columns="seconds"), rows.drop(columns="seconds")
    )
    assert found.metrics["seconds"].is_monotonic_increasing


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, whole):
    run(tmp_path, 17)
    assert_same_run(gloam.resume(tmp_path, iterations=40, progress=False), whole, besides=17)


def test_rows_logged_after_the_checkpoint_are_made_again(tmp_path, whole):
    run(tmp_path, 14)
    folder = gloam.RunFolder(tmp_path)
    # As after a kill between writing the metrics and writing the checkpoint.
    stray = folder.read_metrics().tail(2).assign(iteration=21, qd_score=-1.0)
    MetricsFile(folder.path).write(pd.concat([folder.read_metrics(), stray]))
    assert_same_run(gloam.resume(tmp_path, iterations=40, progress=False), whole)


KILLED = """
import os, signal, sys
import gloam
from tests.runs.test_kills import run

class Kills(gloam.callbacks.Callback):
    def log(self, rows):
        if rows[0]["iteration"] == 28:
            os.kill(os.getpid(), signal.SIGKILL)

run(sys.argv[1], snapshots=[40], callbacks=[Kills()])
"""


def test_a_killed_run_ends_with_the_same_bits_and_files(tmp_path, whole):
    """A process that is killed between two checkpoints."""
    command = [sys.executable, "-c", KILLED, str(tmp_path / "run")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert gloam.RunFolder(tmp_path / "run").read_checkpoint_iteration() == 25
    resumed = run(tmp_path / "run", snapshots=[40], resume=True)
    assert_same_run(resumed, whole)
    assert files(resumed) == files(whole)
