"""Runs of days: few checkpoints, little memory, full disks, and clocks that are set back."""

import errno
import os
import time

import numpy as np
import pytest

import gloam
from gloam._tools import files
from gloam._tools.progress import Silent
from gloam.formats.config import describe
from gloam.runs import loop
from gloam.runs.loop import MetricRows
from tests.helpers import assert_same_bits

pytestmark = pytest.mark.slow  # searches of its own are compiled


def evaluate(solutions):
    return 1 / (1 + np.square(solutions).sum(axis=1)), solutions


def algorithm():
    archive = gloam.GridArchive((4, 4), -1, 1)
    return gloam.MAPElites(archive, np.zeros(2), 0.3, batch_size=4)


def optimize(iterations, function=evaluate, **options):
    options = {"progress": False, "log_every": 1} | options
    return gloam.optimize(function, algorithm(), iterations, **options)


class Clock:
    """Stands for the module `time`: a clock that only what is tested moves."""

    now = 0.0

    def perf_counter(self):
        return self.now

    def time(self):
        return self.now


@pytest.mark.parametrize(("cost", "at_most"), [(0.1, 40), (20.0, 3)])
def test_checkpoints_take_a_few_percent_of_the_time_however_long_one_takes(
    tmp_path, monkeypatch, cost, at_most
):
    clock, written = Clock(), []
    monkeypatch.setattr(loop, "time", clock)
    usual = gloam.RunFolder.write_checkpoint

    def write(*arguments, **options):
        clock.now += cost
        written.append(clock.now)
        return usual(*arguments, **options)

    def evaluated(solutions):
        clock.now += 5.0
        return evaluate(solutions)

    monkeypatch.setattr(gloam.RunFolder, "write_checkpoint", write)
    monkeypatch.setattr(files, "_sync_folder", lambda folder: None)
    result = optimize(220, evaluated, run_dir=tmp_path, checkpoint_seconds=30.0, log_every=50)
    assert result.metrics["seconds"].max() >= 1100
    assert 2 <= len(written) <= at_most
    assert min(np.diff(written[:-1])) >= 30.0
    # The first comes early, and the last at the end; those between are as rare as they are long.
    assert cost * (len(written) - 2) <= 0.05 * clock.now


def test_a_clock_that_is_set_back_does_no_harm(tmp_path, monkeypatch):
    hours = iter(range(10**6, 0, -1))
    monkeypatch.setattr(time, "time", lambda: 3600.0 * next(hours))
    result = optimize(5, run_dir=tmp_path, checkpoint_seconds=1e-9)
    seconds = result.metrics["seconds"]
    assert seconds.is_monotonic_increasing
    assert 0 < seconds.max() < 600


def rows_of(iterations):
    return [{"seed": 0, "iteration": at, "loss": 1.5 * at} for at in iterations]


def test_rows_do_not_pile_up_in_memory(tmp_path, monkeypatch):
    folder = gloam.RunFolder(tmp_path)
    parts = {"driver": "fused", "seeds": [0], "dataset": None, "plan": {}}
    folder.write_config(*describe(None, None, **parts))
    monkeypatch.setattr("gloam.runs.loop.time", Clock())  # no row is late
    kept, in_memory = MetricRows(folder), MetricRows(None)
    for at in range(1, 3501):
        kept.add(rows_of([at]))
        in_memory.add(rows_of([at]))
    assert len(folder.read_metrics()) >= 2500
    kept.save()
    assert len(folder.read_metrics()) == kept.num_rows == 3500
    assert kept.table().equals(in_memory.table())
    assert folder.read_metrics().equals(in_memory.table())


def full(*arguments):
    raise OSError(errno.ENOSPC, "No space left on device")


def read_only(*arguments):
    raise OSError(errno.EROFS, "Read-only file system")


@pytest.mark.filterwarnings("ignore:The run in .* began with other code")
@pytest.mark.parametrize(
    ("call", "failure", "file"),
    [("write", full, "metrics.csv"), ("replace", full, "0000006.npz"), ("fsync", read_only, "")],
)
def test_a_disk_that_cannot_be_written_any_more_stops_a_run_that_resumes(
    tmp_path, monkeypatch, call, failure, file
):
    calls = []

    def fails_later(solutions):
        calls.append(1)
        if len(calls) == 6:
            monkeypatch.setattr(os, call, failure)
        return evaluate(solutions)

    with pytest.raises(OSError, match=rf"{file}'") as raised:
        optimize(8, fails_later, run_dir=tmp_path, checkpoint_every=2)
    monkeypatch.undo()
    (note,) = raised.value.__notes__
    assert "its newest checkpoint is of iteration 4. Make room" in note
    resumed = optimize(8, run_dir=tmp_path, checkpoint_every=2, resume=True)
    whole = optimize(8)
    assert_same_bits(resumed.elites, whole.elites)
    columns = [name for name in whole.metrics.columns if name != "seconds"]
    assert resumed.metrics[columns].equals(whole.metrics[columns])
    assert not [path for path in tmp_path.rglob("*") if "partial" in path.name]


def test_a_folder_that_cannot_be_written_is_refused_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(OSError, match="Read-only file system") as raised:
        optimize(2, run_dir=tmp_path)
    assert "choose another one" in raised.value.__notes__[0]


def test_a_run_falls_back_to_the_checkpoint_before_a_damaged_one(tmp_path):
    optimize(6, run_dir=tmp_path, checkpoint_every=2)
    newest = tmp_path / "checkpoint" / "0000006.npz"
    newest.write_bytes(newest.read_bytes()[:-100])
    with pytest.warns(UserWarning, match=r"0000006\.npz' cannot be used.*0000004\.npz"):
        resumed = optimize(9, run_dir=tmp_path, checkpoint_every=2, resume=True)
    whole = optimize(9)
    assert_same_bits(resumed.elites, whole.elites)
    columns = [name for name in whole.metrics.columns if name != "seconds"]
    assert resumed.metrics[columns].equals(whole.metrics[columns])
    names = sorted(path.name for path in newest.parent.iterdir())
    assert names == ["0000008.npz", "0000009.npz"]


class Ends:
    """Raises an exception in one of its calls."""

    def __init__(self, error, at):
        self.error, self.at, self.calls = error, at, 0

    def __call__(self, *arguments):
        self.calls += 1
        if self.calls == self.at:
            raise self.error
        return evaluate(*arguments)


@pytest.mark.filterwarnings("ignore:The run in .* began with other code")
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
@pytest.mark.parametrize("seeds", [[7], [7, 3]])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_evaluation_that_exits_leaves_a_run_that_resumes(tmp_path, asynchronous, seeds, error):
    options = {"run_dir": tmp_path, "asynchronous": asynchronous, "seeds": seeds}
    # In the fifth iteration, in the batch of the last seed.
    at = (4 if asynchronous else 1) * 5 * len(seeds)
    with pytest.raises(type(error)) as raised:
        optimize(8, Ends(error, at), **options)
    assert raised.value is error
    assert gloam.RunFolder(tmp_path).read_checkpoint_iteration() == 4
    assert "saved after iteration 4" in error.__notes__.pop()
    resumed, whole = optimize(8, resume=True, **options), optimize(8, **options | {"run_dir": None})
    for seed in seeds:
        assert_same_bits(resumed.elites_by_seed[seed], whole.elites_by_seed[seed])
    columns = ["seed", "iteration", "evaluations", "qd_score", "coverage"]
    assert resumed.metrics[columns].equals(whole.metrics[columns])


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_search_that_was_interrupted_while_it_learned_is_not_saved(
    tmp_path, monkeypatch, asynchronous
):
    """The second of two seeds may not have learned what the first has."""
    options = {"run_dir": tmp_path, "asynchronous": asynchronous, "seeds": [7, 3]}
    kind, name = (gloam.AsyncSearch, "tell") if asynchronous else (gloam.Search, "learn")
    learn, calls = getattr(kind, name), []

    def interrupted(self, *arguments, **more):
        calls.append(1)
        if len(calls) == (24 if asynchronous else 6):
            raise KeyboardInterrupt
        return learn(self, *arguments, **more)

    monkeypatch.setattr(kind, name, interrupted)
    with pytest.raises(KeyboardInterrupt) as raised:
        optimize(6, checkpoint_every=1, **options)
    assert "newest checkpoint is of iteration 2. Resume" in raised.value.__notes__[0]
    monkeypatch.undo()
    resumed, whole = optimize(6, resume=True, **options), optimize(6, **options | {"run_dir": None})
    for seed in (7, 3):
        assert_same_bits(resumed.elites_by_seed[seed], whole.elites_by_seed[seed])


class Breaks(Silent):
    """A display that breaks at the third iteration."""

    def update(self, iteration, *numbers):
        if iteration == 3:
            raise RuntimeError("no terminal")


def test_a_display_that_breaks_leaves_a_run_that_was_saved(tmp_path):
    with pytest.raises(RuntimeError, match="no terminal"):
        optimize(8, run_dir=tmp_path, progress=Breaks())
    assert gloam.RunFolder(tmp_path).read_checkpoint_iteration() == 3


@pytest.mark.parametrize(("method", "at"), [("write_snapshot", 3), ("write_archive", 8)])
def test_a_file_that_cannot_be_written_leaves_a_run_that_was_saved(
    tmp_path, monkeypatch, method, at
):
    def fails(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "file"))

    monkeypatch.setattr(gloam.RunFolder, method, fails)
    with pytest.raises(OSError, match="No space left") as raised:
        optimize(8, run_dir=tmp_path, snapshots=[3])
    (note,) = raised.value.__notes__
    assert f"saved after iteration {at} in '{tmp_path}'. Make room" in note
    assert gloam.RunFolder(tmp_path).read_checkpoint_iteration() == at
    monkeypatch.undo()
    resumed = optimize(8, run_dir=tmp_path, resume=True)
    assert_same_bits(resumed.elites, optimize(8).elites)
    assert len(resumed.metrics) == 8
