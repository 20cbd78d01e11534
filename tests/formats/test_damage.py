"""Damaged files: the error names the file, or the run goes on to the same bits."""

import shutil
import warnings

import numpy as np
import pandas as pd
import pytest

import gloam
from gloam.errors import DamagedFileError
from gloam.formats import arrays, documents
from gloam.formats.arrays import read_arrays
from gloam.formats.documents import FORMAT
from gloam.formats.tables import read_failures, write_failures

from ..helpers import assert_same_bits
from .conftest import damaged, quick_search, small_run

FIX = "Restore it from a copy."


def elites_in(folder):
    elites = folder.read_archive()
    return [elites.solutions, elites.objectives, elites.measures]


def snapshots_in(folder):
    return [
        array for at in folder.snapshot_iterations for array in folder.read_snapshot(at).values()
    ]


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


def metrics_in(folder):
    return [folder.read_metrics().to_numpy()]


LINKED = READERS | {"metrics.csv": metrics_in, "checkpoint": state_in, "snapshots": snapshots_in}


@pytest.mark.parametrize("name", LINKED)
def test_a_link_that_leads_out_of_the_run_folder_is_not_followed(finished_run, tmp_path, name):
    path = tmp_path / "runs" / "run"
    shutil.copytree(finished_run, path)
    (tmp_path / "link").symlink_to(path)
    folder = gloam.RunFolder(path)
    expected = LINKED[name](folder)

    def assert_is_read(folder):
        for one, other in zip(LINKED[name](folder), expected, strict=True):
            np.testing.assert_array_equal(one, other)

    # Links within the folder, and to the folder, are followed.
    assert_is_read(gloam.RunFolder(tmp_path / "link"))
    (path / "figures").mkdir(exist_ok=True)
    shutil.move(path / name, path / "figures" / "moved")
    (path / name).symlink_to(path / "figures" / "moved")
    assert_is_read(folder)
    assert_is_read(gloam.RunFolder(tmp_path / "link"))
    shutil.move(path / "figures" / "moved", tmp_path / "secret")
    (path / name).unlink()
    for target in (tmp_path / "secret", "../../secret"):
        (path / name).symlink_to(target)
        _, error = outcome_of(LINKED[name], folder)
        assert str(path / name) in error
        assert "a link leads from there out of the folder" in error
        (path / name).unlink()


def test_links_to_failures_are_not_followed(tmp_path):
    write_failures(tmp_path / "other", pd.DataFrame(), run="a")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "failures.parquet").symlink_to(tmp_path / "other" / "failures.parquet")
    with pytest.raises(DamagedFileError, match="out of the folder"):
        read_failures(tmp_path / "run", run="a")


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


def as_folder(path):
    """Replace a file by a folder with a file of the user's."""
    path.unlink(missing_ok=True)
    path.mkdir()
    (path / "notes.txt").write_text("mine")


FILES = READERS | {
    "metrics.csv": lambda folder: folder.read_metrics(),
    "failures.parquet": lambda folder: folder.read_failures(),
}


@pytest.mark.parametrize("name", FILES)
def test_a_folder_in_the_place_of_a_file_is_named(finished_run, tmp_path, name):
    shutil.copytree(finished_run, tmp_path / "run")
    path = tmp_path / "run" / name
    as_folder(path)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    for call in (FILES[name], lambda folder: continued(folder.path)):
        with pytest.raises(DamagedFileError, match=path.name) as raised:
            call(gloam.RunFolder(tmp_path / "run"))
        assert raised.value.path == path
        assert any(fix in str(raised.value) for fix in ("Move it", "Delete it", "Restore it"))
    after = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    removed = {tmp_path / "run" / "archive.npz"} if name.startswith("checkpoint") else set()
    assert after == {file: text for file, text in before.items() if file not in removed}


@pytest.mark.parametrize("name", [*FILES, "checkpoint", "snapshots", "figures"])
def test_a_run_does_not_begin_where_its_files_cannot_be_written(tmp_path, name):
    if "/" in name:
        (tmp_path / name).parent.mkdir()
    if "." in name:
        as_folder(tmp_path / name)
    else:
        (tmp_path / name).write_text("mine")
    with pytest.raises(DamagedFileError, match=name) as raised:
        gloam.RunFolder(tmp_path).check_new()
    with pytest.raises(DamagedFileError, match=name):
        small_run(tmp_path)
    assert raised.value.path == tmp_path / name
    assert "Move it" in str(raised.value)
    assert sum(path.is_file() for path in tmp_path.rglob("*")) == 1  # that of the user's


def test_a_checkpoint_that_is_a_folder_is_like_a_damaged_one(tmp_path):
    whole = quick_search(tmp_path / "whole", iterations=8)
    run, options = tmp_path / "run", {"checkpoint_every": 2, "log_every": 1}
    quick_search(run, iterations=4, **options)
    newest = run / "checkpoint" / "0000004.npz"
    as_folder(newest)
    with pytest.warns(UserWarning, match=r"0000004\.npz' cannot be used.*0000002\.npz"):
        assert gloam.RunFolder(run).read_checkpoint_iteration() == 2
    # It is not replaced, because it is not gloam's: the run ends where it has to be.
    with (
        pytest.warns(UserWarning, match=r"0000004\.npz' cannot be used.*0000002\.npz"),
        pytest.raises(DamagedFileError, match=r"0000004\.npz.*Move it away"),
    ):
        quick_search(run, iterations=8, resume=True, **options)
    with pytest.warns(UserWarning, match=r"0000004\.npz' cannot be used"):
        resumed = quick_search(run, iterations=8, resume=True, checkpoint_every=3)
    assert_same_bits(resumed.elites, whole.elites)
    names = sorted(path.name for path in newest.parent.iterdir())
    assert names == ["0000004.npz", "0000006.npz", "0000008.npz"]
    assert (newest / "notes.txt").read_text() == "mine"


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
