"""Runs of days: few checkpoints, little memory, full disks, and clocks that are set back."""

import errno
import os
import time

import numpy as np
import pytest

import gloam
from gloam import files
from gloam.formats.config import describe
from gloam.runs import loop
from gloam.runs.loop import MetricRows
from tests.helpers import assert_same_bits


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
