"""Runs from beginning to end: folders, checkpoints, resumption, and what is refused."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import gloam
from gloam._tools.files import write_bytes
from gloam.errors import Interrupted
from gloam.plots.run_figures import domain_name
from tests.helpers import assert_same_bits
from tests.problems import ARM, BATCH, evaluate, small

ALGORITHM = small("map-elites-line")  # compiles fast; test_kills.py has the default
ROOT = Path(__file__).parents[2]
RUN = {"seeds": [4, 5], "progress": False}


def test_optimize_runs_plain_python(tmp_path):
    calls = []

    def black_box(solutions):
        calls.append(type(solutions))
        return evaluate(solutions)

    result = gloam.optimize(black_box, ALGORITHM, 12, run_dir=tmp_path / "run", progress=False)
    assert calls == [np.ndarray] * 12
    assert result.metrics["iteration"].tolist() == [12]
    assert (tmp_path / "run" / "archive.npz").is_file()


def test_optimize_resumes_to_the_same_bits(tmp_path):
    options = {"run_dir": tmp_path, "progress": False}
    whole = gloam.optimize(evaluate, ALGORITHM, 20, progress=False)
    gloam.optimize(evaluate, ALGORITHM, 9, **options)
    halves = gloam.optimize(evaluate, ALGORITHM, 20, resume=True, **options)
    assert_same_bits(whole.elites, halves.elites)


def test_a_run_has_the_name_that_it_is_given_and_the_time_of_its_start(tmp_path):
    options = {"run_dir": tmp_path, "progress": False}
    before = time.time()
    gloam.optimize(evaluate, ALGORITHM, 2, name="reaching arm", **options)
    folder = gloam.RunFolder(tmp_path)
    assert domain_name(folder.read_config()) == "reaching arm"
    started = folder.read_config().plan["started"]
    assert before <= started <= time.time()
    starts = []

    class Recorder(gloam.callbacks.Callback):
        def start(self, run):
            starts.append(run.title)

    gloam.optimize(evaluate, ALGORITHM, 3, resume=True, callbacks=[Recorder()], **options)
    assert folder.read_config().plan["name"] == "reaching arm"
    gloam.optimize(
        evaluate, ALGORITHM, 4, name="arm", resume=True, callbacks=[Recorder()], **options
    )
    assert folder.read_config().plan["name"] == "arm"
    assert folder.read_config().plan["started"] == started
    assert starts[1].endswith(" arm")


@pytest.mark.parametrize("name", ["", " ", "two\nlines", "x" * 121, 3])
def test_a_name_is_one_line_of_text(name):
    with pytest.raises(ValueError, match=r"^name: .* 1 to 120 "):
        gloam.optimize(evaluate, ALGORITHM, 2, name=name, progress=False)


def test_the_name_of_a_run_is_kept_by_resume(tmp_path):
    gloam.run(ARM, ALGORITHM, 2, name="mine", run_dir=tmp_path, **RUN)
    gloam.resume(tmp_path, iterations=3, progress=False)
    assert domain_name(gloam.RunFolder(tmp_path).read_config()) == "mine"


def test_optimize_says_what_an_evaluation_must_return():
    with pytest.raises(ValueError, match=r"^evaluate:.*\(objectives, measures\)"):
        gloam.optimize(lambda x: "far", ALGORITHM, 1, progress=False)
    with pytest.raises(ValueError, match=r"evaluate: .*got 4 values"):
        gloam.optimize(lambda x: (x, x, x, x), ALGORITHM, 1, progress=False)
    with pytest.raises(ValueError, match=r"^measures:.*shape \(30,\)"):
        gloam.optimize(lambda x: x.sum(axis=1), ALGORITHM, 1, progress=False)


@pytest.mark.slow
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


class Interrupts(gloam.callbacks.Callback):
    """Presses Ctrl-C at an iteration."""

    def log(self, rows):
        if rows[0]["iteration"] == 4:
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_leaves_a_folder_that_resumes(tmp_path):
    with pytest.raises(Interrupted, match="continue with the same call and resume=True"):
        gloam.run(ARM, ALGORITHM, 9, log_every=2, run_dir=tmp_path, callbacks=[Interrupts()], **RUN)
    assert gloam.RunFolder(tmp_path).read_checkpoint_iteration() == 4
    resumed = gloam.resume(tmp_path, iterations=9, progress=False)
    whole = gloam.run(ARM, ALGORITHM, 9, **RUN)
    for seed in RUN["seeds"]:
        assert_same_bits(resumed.elites_by_seed[seed], whole.elites_by_seed[seed])


ENDLESS = """
import sys
import gloam
from tests.problems import ARM, small
gloam.run(ARM, small("map-elites-line"), 10**7, seeds=[4, 5], run_dir=sys.argv[1], progress=False,
          checkpoint_every=20, log_every=20)
"""


@pytest.mark.slow
def test_ctrl_c_stops_a_process_and_leaves_a_folder_that_resumes(tmp_path):
    out = tmp_path / "run"
    command = [sys.executable, "-c", ENDLESS, str(out)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not any(out.glob("checkpoint/[0-9]*.npz")):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline, "no checkpoint was written"
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert f"continue with the same call and resume=True (run_dir='{out}')" in errors
    reached = gloam.RunFolder(out).read_checkpoint_iteration()
    result = gloam.resume(out, iterations=reached + 5, progress=False)
    assert result.metrics["iteration"].max() == reached + 5


def test_a_folder_with_a_run_is_not_overwritten(tmp_path):
    gloam.run(ARM, ALGORITHM, 3, run_dir=tmp_path, **RUN)
    with pytest.raises(ValueError, match=r"already holds a run.*resume=True"):
        gloam.run(ARM, ALGORITHM, 3, run_dir=tmp_path, **RUN)


def test_another_algorithm_cannot_resume_a_run(tmp_path):
    gloam.run(ARM, ALGORITHM, 3, run_dir=tmp_path, **RUN)
    other = gloam.MAPElitesLine(ALGORITHM.archive, ARM.x0, 0.7, 0.2, batch_size=BATCH)
    with pytest.raises(ValueError, match=r"sigma0 is 0\.3 in the file and 0\.7 now"):
        gloam.run(ARM, other, 5, run_dir=tmp_path, resume=True, **RUN)


def test_a_run_of_the_users_own_function_is_resumed_by_handing_it_over(tmp_path):
    gloam.run(evaluate, ALGORITHM, 3, run_dir=tmp_path, **RUN)
    with pytest.raises(ValueError, match="Pass the object itself"):
        gloam.resume(tmp_path, progress=False)
    result = gloam.run(evaluate, ALGORITHM, 5, run_dir=tmp_path, resume=True, **RUN)
    assert result.metrics["iteration"].max() == 5


def test_the_folder_holds_what_it_should_and_no_pickle(tmp_path):
    result = gloam.run(ARM, ALGORITHM, 6, run_dir=tmp_path, snapshots=[2, 6], **RUN)
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
    assert_same_bits(folder.read_archive(5), result.elites_by_seed[5])
    assert json.loads((tmp_path / "config.json").read_text())["seeds"] == [4, 5]
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
def test_a_wrong_domain_is_refused_before_any_work(domain, message):
    with pytest.raises(ValueError, match=message):
        gloam.run(domain, ALGORITHM, iterations=1, progress=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seeds": 0}, "seeds: expected a whole number >= 1"),
        ({"seeds": [1, 1]}, "seeds: expected different seeds"),
        ({"seeds": [-1]}, "seeds: expected a whole number >= 0"),
        ({"seeds": range(10**20)}, "seeds: expected at most"),
        ({"iterations": 0}, "iterations: expected a whole number >= 1"),
        ({"log_every": 0}, "log_every: expected"),
        ({"checkpoint_seconds": 0.0}, "checkpoint_seconds: expected"),
        ({"snapshots": [0]}, "snapshots: expected"),
        ({"dataset": np.zeros((4, 2))}, "dataset: expected Dataset, got ndarray"),
        ({"progress": None}, "progress: expected bool or Display, got NoneType"),
        ({"progress": "yes"}, "progress: expected bool or Display, got str"),
        ({"run_dir": ""}, "run_dir: expected a path, got ''"),
        ({"run_dir": 5}, "run_dir: expected a path, got 5"),
    ],
)
def test_wrong_settings_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        gloam.run(evaluate, ALGORITHM, **({"iterations": 1, "progress": False} | arguments))


@pytest.mark.parametrize("name", ["per_solution", "asynchronous"])
def test_a_switch_that_is_no_truth_value_is_refused(name):
    with pytest.raises(ValueError, match=f"^{name}: expected bool"):
        gloam.optimize(evaluate, ALGORITHM, 1, progress=False, **{name: np.zeros(3)})


@pytest.mark.slow
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
    with pytest.raises(ValueError, match=r"^dataset:.*9.*8"):
        gloam.optimize(np.tanh, algorithm, 2, dataset=data.subsample(8), progress=False)


def test_asynchronous_is_a_bool_or_its_settings():
    with pytest.raises(ValueError, match=r"^asynchronous:.*str"):
        gloam.optimize(evaluate, ALGORITHM, 1, asynchronous="yes", progress=False)
