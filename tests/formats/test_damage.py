"""Damaged files: the error names the file, or the run goes on to the same bits."""

import shutil
import warnings

import numpy as np
import pandas as pd
import pytest

import gloam
from gloam.formats import arrays, documents
from gloam.formats.arrays import read_arrays
from gloam.formats.documents import FORMAT, DamagedFileError

from ..helpers import assert_same_bits
from .conftest import damaged, small_run

FIX = "Restore it from a copy."


def elites_in(folder):
    elites = folder.read_archive()
    return [elites.solutions, elites.objectives, elites.measures]


def snapshots_in(folder):
    return [array for shot in folder.read_snapshots().values() for array in shot.values()]


def state_in(folder):
    """All arrays of the state, and the elites and the iteration as readers of a running run do."""
    path = folder.path / "checkpoint" / "0000004.npz"
    (folder.path / "archive.npz").unlink(missing_ok=True)
    state, _ = read_arrays(path, kind="checkpoint", fix=FIX)
    return [*state.values(), *elites_in(folder), folder.read_checkpoint_iteration()]


# What gives the numbers of each file.
READERS = {
    "config.json": lambda folder: [np.asarray(folder.read_config().seeds), *elites_in(folder)],
    "config.npz": lambda folder: [np.asarray(folder.read_part("algorithm").archive.centroids)],
    "archive.npz": elites_in,
    "dataset.npz": lambda folder: [folder.read_dataset().items],
    "checkpoint/0000004.npz": state_in,
    "snapshots/0000002.npz": snapshots_in,
}


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_named_or_changes_nothing(finished_run, tmp_path, name):
    shutil.copytree(finished_run, tmp_path / "run")
    folder = gloam.RunFolder(tmp_path / "run")
    path = folder.path / name
    expected, whole = READERS[name](folder), path.read_bytes()
    rng = np.random.default_rng(sum(name.encode()))
    refused = 0
    for _ in range(40):
        path.write_bytes(damaged(whole, rng))
        found, error = outcome_of(READERS[name], folder)
        if error is None:
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_array_equal(one, other)
        else:
            refused += 1
            assert str(path) in error
            assert any(fix in error for fix in (FIX, "Delete it", "start the run again", "Resume"))
    assert refused > 20


def outcome_of(call, *arguments):
    """What a call returns, or the message of its error."""
    try:
        return call(*arguments), None
    except ValueError as error:
        return None, str(error)


def continued(path):
    """A resumed run, and the messages of its warnings."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        result = gloam.resume(path, iterations=8, progress=False)
    return result, [str(one.message) for one in told]


def test_resuming_with_a_damaged_file_is_refused_or_gives_the_same_bits(finished_run, tmp_path):
    whole = small_run(tmp_path / "whole", iterations=8)
    rng = np.random.default_rng(7)
    outcomes = []
    for number, name in enumerate([*READERS, "metrics.csv"] * 2):
        target = tmp_path / f"run-{number}"
        shutil.copytree(finished_run, target)
        path = target / name
        path.write_bytes(damaged(path.read_bytes(), rng))
        before = {file: file.read_bytes() for file in target.rglob("*") if file.is_file()}
        found, error = outcome_of(continued, target)
        if error is not None:
            assert str(target) in error
            after = {file: file.read_bytes() for file in target.rglob("*") if file.is_file()}
            assert after == before
            outcomes.append("refused")
            continue
        resumed, told = found
        assert all(name == "metrics.csv" and str(path) in message for message in told)
        assert_same_bits(resumed.elites, whole.elites)
        rows = resumed.metrics["iteration"] > 4
        pd.testing.assert_frame_equal(
            resumed.metrics[rows].drop(columns="seconds").reset_index(drop=True),
            whole.metrics[whole.metrics["iteration"] > 4]
            .drop(columns="seconds")
            .reset_index(drop=True),
        )
        outcomes.append("rows lost" if told else "same bits")
    assert set(outcomes) == {"refused", "rows lost", "same bits"}


@pytest.fixture(scope="module")
def other_run(tmp_path_factory):
    path = tmp_path_factory.mktemp("damage") / "other"
    small_run(path, seeds=(1,))
    return path


@pytest.mark.parametrize("name", ["archive.npz", "checkpoint/0000004.npz", "snapshots/0000002.npz"])
def test_files_of_another_run_are_refused(finished_run, other_run, tmp_path, name):
    shutil.copytree(finished_run, tmp_path / "run")
    shutil.copy(other_run / name, tmp_path / "run" / name)
    with pytest.raises(DamagedFileError, match="belongs to another run"):
        READERS[name](gloam.RunFolder(tmp_path / "run"))


def test_a_snapshot_of_another_iteration_is_refused(finished_run, tmp_path):
    shutil.copytree(finished_run, tmp_path / "run")
    snapshots = tmp_path / "run" / "snapshots"
    shutil.copy(snapshots / "0000002.npz", snapshots / "0000004.npz")
    with pytest.raises(DamagedFileError, match=r"0000004\.npz.*another iteration"):
        gloam.RunFolder(tmp_path / "run").read_snapshot(4)


def test_a_file_of_another_kind_is_refused(finished_run, tmp_path):
    shutil.copytree(finished_run, tmp_path / "run")
    shutil.copy(finished_run / "archive.npz", tmp_path / "run" / "checkpoint" / "0000004.npz")
    with pytest.raises(DamagedFileError, match="kind 'archive', not 'checkpoint'"):
        gloam.resume(tmp_path / "run", iterations=8, progress=False)


@pytest.mark.parametrize(("number", "age"), [(FORMAT + 1, "a newer"), (1, "an older")])
@pytest.mark.parametrize("name", ["config.json", "archive.npz"])
def test_another_format_is_named(finished_run, tmp_path, name, number, age, monkeypatch):
    shutil.copytree(finished_run, tmp_path / "run")
    folder = gloam.RunFolder(tmp_path / "run")
    config, elites = folder.read_config(), folder.read_archive()
    if name == "config.json":
        monkeypatch.setattr(documents, "FORMAT", number)
        folder.write_plan(config)
    else:
        monkeypatch.setattr(arrays, "FORMAT", number)
        folder.write_archive(elites, seed=0)
    monkeypatch.undo()
    message = rf"{name}.* format {number}, and this version .* reads format {FORMAT}; {age} version"
    with pytest.raises(DamagedFileError, match=message):
        READERS[name](folder)
