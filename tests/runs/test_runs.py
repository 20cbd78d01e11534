"""Runs from beginning to end: metrics, folders, checkpoints, kills and resumption."""

import json
import os
import signal
import subprocess
import sys
import time

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import gloam
from gloam.files import write_bytes
from tests.helpers import assert_same_bits
from tests.problems import BATCH, evaluate

COLUMNS = [
    "seed",
    "iteration",
    "evaluations",
    "qd_score",
    "coverage",
    "best_objective",
    "loss",
    "epochs",
    "restarts",
    "cma_es_restarts",
    "cma_es_accepted",
    "cma_es_filled",
    "moves_restarts",
    "moves_swap_share",
    "moves_accepted",
    "moves_filled",
    "unique_cells",
    "failed",
    "failed_total",
    "below_f_min",
    "outside_bounds",
    "empty_discount",
    "rank_correlation",
    "seconds",
]


def domain_and_algorithm():
    """Known to gloam entirely, so that a folder can be resumed by name."""
    domain = gloam.domains.LinearProjection(measure_dim=2, solution_dim=6)
    archive = gloam.GridArchive((10, 10), -domain.edge, domain.edge)
    options = {"num_emitters": 3, "batch_size": 6, "num_init_points": 30}
    algorithm = gloam.DMS(archive, domain.x0, 0.5, **options)
    return domain, algorithm


def test_metrics_hold_a_row_for_each_seed_and_logged_iteration(dms):
    result = gloam.run(evaluate, dms, seeds=[2, 7], iterations=25, log_every=10, progress=False)
    metrics = result.metrics
    assert sorted(metrics.columns) == sorted(COLUMNS)
    assert metrics[["iteration", "seed"]].to_numpy().tolist() == [
        [10, 2],
        [10, 7],
        [20, 2],
        [20, 7],
        [25, 2],
        [25, 7],
    ]
    assert (metrics["evaluations"] == metrics["iteration"] * BATCH).all()
    assert metrics["coverage"].between(0, 1).all()
    last = metrics[metrics["iteration"] == 25]
    for row, elites in zip(last.itertuples(), list(result.elites_by_seed.values()), strict=True):
        objectives = elites.objectives.astype(np.float64)
        assert np.isclose(row.qd_score, objectives.sum(), rtol=1e-5)
        assert np.isclose(row.coverage, len(elites) / 64)
        assert np.isclose(row.best_objective, objectives.max())


def test_optimize_runs_plain_python(dms, tmp_path):
    calls = []

    def black_box(solutions):
        calls.append(type(solutions))
        return evaluate(solutions)

    result = gloam.optimize(black_box, dms, 12, run_dir=tmp_path / "run", progress=False)
    assert calls == [np.ndarray] * 12
    assert result.metrics["iteration"].tolist() == [12]
    assert (tmp_path / "run" / "archive.npz").is_file()


def test_optimize_resumes_to_the_same_bits(dms, tmp_path):
    whole = gloam.optimize(evaluate, dms, 20, run_dir=tmp_path / "a", progress=False)
    gloam.optimize(evaluate, dms, 9, run_dir=tmp_path / "b", progress=False)
    halves = gloam.optimize(evaluate, dms, 20, run_dir=tmp_path / "b", resume=True, progress=False)
    assert_same_bits(whole.elites, halves.elites)


def test_optimize_says_what_an_evaluation_must_return(dms):
    with pytest.raises(ValueError, match=r"evaluate: expected measures, \(objectives, measures\)"):
        gloam.optimize(lambda x: "far", dms, 1, progress=False)
    with pytest.raises(ValueError, match=r"evaluate: .*got 4 values"):
        gloam.optimize(lambda x: (x, x, x, x), dms, 1, progress=False)
    with pytest.raises(ValueError, match=r"measures: expected shape .* got shape \(1,\)"):
        gloam.optimize(lambda x: x.sum(axis=1), dms, 1, progress=False)


def test_measures_alone_maximise_closeness_in_both_drivers():
    items = np.random.default_rng(0).uniform(-1, 1, (30, 4)).astype(np.float32)
    algorithm = gloam.MAPElites(gloam.CVTArchive(items), np.zeros(4), 0.3, batch_size=12)
    host = gloam.optimize(np.tanh, algorithm, 5, progress=False).elites
    fused = gloam.run(jnp.tanh, algorithm, iterations=5, progress=False).elites
    for elites in (host, fused):
        error = np.square(elites.measures - items[elites.cells]).mean(axis=1)
        np.testing.assert_allclose(elites.objectives, 1 - error, atol=1e-6)
    np.testing.assert_array_equal(host.cells, fused.cells)
    with_fields = gloam.CVTArchive(items, fields={"twice": (4,)})
    algorithm = gloam.MAPElites(with_fields, np.zeros(4), 0.3, batch_size=6)
    elites = gloam.optimize(lambda x: (x, {"twice": 2 * x}), algorithm, 3, progress=False).elites
    np.testing.assert_allclose(elites.field("twice"), 2 * elites.measures)


def test_closeness_by_angle_is_the_cosine():
    items = np.array([[1.0, 0.0], [0.0, 2.0]], np.float32)
    algorithm = gloam.MAPElites(
        gloam.CVTArchive(items, metric="cosine"), np.ones(2), 0.1, batch_size=3
    )
    search = gloam.Search(algorithm)
    search.ask()
    search.tell(None, np.array([[3.0, 4.0], [5.0, 0.0], [0.0, 0.0]]))
    assert search.elites().objectives.tolist() == pytest.approx([1.0, 0.8])
    assert search.metrics()["failed"] == 1  # a row of zeros has no direction


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path):
    domain, algorithm = domain_and_algorithm()
    settings = {"seeds": [1, 2], "log_every": 7, "progress": False}
    whole = gloam.run(domain, algorithm, iterations=40, run_dir=tmp_path / "a", **settings)
    gloam.run(domain, algorithm, iterations=17, run_dir=tmp_path / "b", **settings)
    halves = gloam.resume(tmp_path / "b", iterations=40, progress=False)
    for one, other in zip(
        list(whole.elites_by_seed.values()), list(halves.elites_by_seed.values()), strict=True
    ):
        assert_same_bits(one, other)
    # The first part also logged its own last iteration, 17.
    again = halves.metrics[halves.metrics["iteration"] != 17].reset_index(drop=True)
    pd.testing.assert_frame_equal(
        whole.metrics.drop(columns="seconds"), again.drop(columns="seconds")
    )
    assert halves.metrics["seconds"].is_monotonic_increasing


def test_rows_logged_after_the_checkpoint_are_made_again(tmp_path):
    domain, algorithm = domain_and_algorithm()
    folder = gloam.RunFolder(tmp_path / "run")
    gloam.run(domain, algorithm, iterations=10, log_every=5, run_dir=folder.path, progress=False)
    # As after a kill between writing the metrics and writing the checkpoint.
    stray = folder.read_metrics().tail(1).assign(iteration=15, qd_score=-1.0)
    folder.write_metrics(pd.concat([folder.read_metrics(), stray]))
    result = gloam.resume(folder.path, iterations=20, progress=False)
    assert result.metrics["iteration"].tolist() == [5, 10, 15, 20]
    assert (result.metrics["qd_score"] > 0).all()


KILLED = """
import sys
sys.path.insert(0, {here!r})
from test_runs_setup import domain_and_algorithm
import gloam
domain, algorithm = domain_and_algorithm()
gloam.run(domain, algorithm, seeds=[1, 2], iterations=100000, checkpoint_every=20,
          log_every=20, run_dir={out!r}, progress=False)
"""


def start_endless_run(tmp_path):
    setup = "import gloam\n\n\n" + __import__("inspect").getsource(domain_and_algorithm)
    (tmp_path / "test_runs_setup.py").write_text(setup)
    out = tmp_path / "killed"
    code = KILLED.format(here=str(tmp_path), out=str(out))
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not any(out.glob("checkpoint/[0-9]*.npz")):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline, "no checkpoint was written"
        time.sleep(0.05)
    return process, out


def test_ctrl_c_leaves_a_folder_that_resumes(tmp_path):
    process, out = start_endless_run(tmp_path)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert f"continue with: gloam resume {out}" in errors
    reached = int(gloam.RunFolder(out).read_checkpoint_iteration())
    result = gloam.resume(out, iterations=reached + 5, progress=False)
    assert result.metrics["iteration"].max() == reached + 5


def test_a_folder_with_a_run_is_not_overwritten(tmp_path):
    domain, algorithm = domain_and_algorithm()
    gloam.run(domain, algorithm, iterations=3, run_dir=tmp_path, progress=False)
    with pytest.raises(ValueError, match=r"already holds a run.*resume=True"):
        gloam.run(domain, algorithm, iterations=3, run_dir=tmp_path, progress=False)


def test_another_algorithm_cannot_resume_a_run(tmp_path):
    domain, algorithm = domain_and_algorithm()
    gloam.run(domain, algorithm, iterations=3, run_dir=tmp_path, progress=False)
    options = {"num_emitters": 3, "batch_size": 6, "num_init_points": 30}
    other = gloam.DMS(algorithm.archive, domain.x0, 0.7, **options)
    with pytest.raises(ValueError, match=r"sigma0 is 0\.5 in the file and 0\.7 now"):
        gloam.run(domain, other, iterations=5, run_dir=tmp_path, resume=True, progress=False)


def test_a_run_of_the_users_own_function_is_resumed_by_handing_it_over(dms, tmp_path):
    gloam.run(evaluate, dms, iterations=3, run_dir=tmp_path, progress=False)
    with pytest.raises(ValueError, match="Pass the object itself"):
        gloam.resume(tmp_path, progress=False)
    result = gloam.run(evaluate, dms, iterations=5, run_dir=tmp_path, resume=True, progress=False)
    assert result.metrics["iteration"].max() == 5


def test_the_folder_holds_what_it_should(tmp_path):
    domain, algorithm = domain_and_algorithm()
    result = gloam.run(
        domain,
        algorithm,
        seeds=[4, 5],
        iterations=6,
        run_dir=tmp_path,
        snapshots=[2, 6],
        progress=False,
    )
    names = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*"))
    assert names == [
        "archive-4.npz",
        "archive-5.npz",
        "checkpoint/0000006.npz",
        "config.json",
        "config.npz",
        "metrics.csv",
        "snapshots/0000002.npz",
        "snapshots/0000006.npz",
    ]
    folder = gloam.RunFolder(tmp_path)
    assert_same_bits(folder.read_archive(5), list(result.elites_by_seed.values())[1])
    assert json.loads((tmp_path / "config.json").read_text())["seeds"] == [4, 5]
    assert len(folder.read_snapshots()[2]["points"]) == BATCH + 10


def test_no_file_needs_a_pickle(tmp_path):
    domain, algorithm = domain_and_algorithm()
    gloam.run(domain, algorithm, iterations=3, run_dir=tmp_path, snapshots=[3], progress=False)
    for path in tmp_path.rglob("*.npz"):
        with np.load(path, allow_pickle=False) as file:
            for name in file.files:
                assert file[name].dtype != object


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_bytes(path, b"old")

    def full_disk(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("domain", "message"),
    [
        (lambda x: (x.sum(axis=1), x[:, :3]), r"measures: expected shape \(30, 2\)"),
        (lambda x: (x, x[:, :2]), r"objectives: expected shape \(30,\)"),
        (lambda x: (np.asarray(x), x), "domain: expected a function that JAX can trace"),
        ("sphere", "domain: expected a function"),
    ],
)
def test_a_wrong_domain_is_refused_before_any_work(dms, domain, message):
    with pytest.raises(ValueError, match=message):
        gloam.run(domain, dms, iterations=1, progress=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seeds": 0}, "seeds: expected a whole number >= 1"),
        ({"seeds": [1, 1]}, "seeds: expected different seeds"),
        ({"seeds": [-1]}, "seeds: expected a whole number >= 0"),
        ({"iterations": 0}, "iterations: expected a whole number >= 1"),
        ({"log_every": 0}, "log_every: expected"),
        ({"checkpoint_seconds": 0.0}, "checkpoint_seconds: expected"),
        ({"snapshots": [0]}, "snapshots: expected"),
    ],
)
def test_wrong_settings_are_refused(dms, arguments, message):
    with pytest.raises(ValueError, match=message):
        gloam.run(evaluate, dms, **({"iterations": 1, "progress": False} | arguments))


def test_a_run_whose_domain_holds_arrays_can_be_resumed(tmp_path):
    images = np.random.default_rng(0).random((12, 16), dtype=np.float32)
    domain = gloam.domains.Triangles(images, num_triangles=3, canvas=(4, 4))
    algorithm = gloam.MAPElites(domain.archive(), domain.x0, 0.2, batch_size=6)
    whole = gloam.run(domain, algorithm, iterations=12, run_dir=tmp_path / "a", progress=False)
    gloam.run(domain, algorithm, iterations=5, run_dir=tmp_path / "b", progress=False)
    halves = gloam.resume(tmp_path / "b", iterations=12, progress=False)
    assert_same_bits(whole.elites, halves.elites)


def test_a_dataset_is_kept_in_the_run_folder(tmp_path):
    random = np.random.default_rng(0)
    data = gloam.datasets.from_array(random.random((9, 2, 2)), labels=list("abcabcabc"))
    algorithm = gloam.MAPElites(data.archive(), np.zeros(4), 0.2, batch_size=6)
    gloam.optimize(np.tanh, algorithm, 2, run_dir=tmp_path, dataset=data, progress=False)
    kept = gloam.RunFolder(tmp_path).read_dataset()
    np.testing.assert_array_equal(kept.items, data.items)
    assert (kept.shape, kept.labels, kept.names) == (data.shape, data.labels, data.names)
    assert kept.bounds == data.bounds
    with pytest.raises(ValueError, match="dataset: expected 9 items, one for each cell, got 8"):
        gloam.optimize(np.tanh, algorithm, 2, dataset=data.subsample(8), progress=False)
