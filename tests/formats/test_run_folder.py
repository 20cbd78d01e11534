"""Run folders: other data is refused, other programs' files are safe, one process at a time."""

import errno
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import gloam
from gloam import files
from gloam.cli import main
from gloam.formats.ownership import NAME, locked

from .conftest import small_run

ITEMS = np.random.default_rng(0).uniform(-1, 1, (40, 2)).astype(np.float32)


def algorithm(items=ITEMS, x0=0.0, **options):
    archive = gloam.CVTArchive(items, -1.0, 1.0)
    start = np.full(20, x0)
    settings = {"num_emitters": 2, "batch_size": 4, "num_init_points": 9, "num_empty_points": 3}
    network = gloam.discounts.MLP(2, (4,))
    return gloam.DMS.paper(archive, start, 0.3, network=network, **(settings | options))


def evaluate(solutions):
    return 1 - np.square(solutions).mean(axis=1), solutions[:, :2]


def with_lock(folder, block):
    """Another process that holds the lock of a folder; it does not wait for an import of JAX."""
    package = Path(gloam.__file__).parent
    code = f"""
import sys, types
for name, path in (("gloam", {str(package)!r}), ("gloam.formats", {str(package / "formats")!r})):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
import os, signal
from pathlib import Path
from gloam.formats.ownership import locked
with locked(Path({str(folder)!r})):
    {block}
"""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def contents(path):
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


@pytest.fixture(scope="module")
def begun_run(tmp_path_factory):
    run = tmp_path_factory.mktemp("begun") / "run"
    data = gloam.datasets.from_array(ITEMS)
    gloam.optimize(evaluate, algorithm(), 3, run_dir=run, dataset=data, progress=False)
    return run


@pytest.mark.parametrize(
    ("other", "place"),
    [
        ({"items": ITEMS + 0.01}, r"algorithm\.archive\.centroids"),
        ({"x0": 0.5}, r"algorithm\.emitter\.x0"),
        ({"alpha": 0.2}, r"algorithm\.discount\.alpha is 0\.1 in the file and 0\.2 now"),
        ({"restart": gloam.emitters.RestartEvery(9)}, r"emitter\.restart is BasicRestart"),
    ],
)
def test_other_data_or_settings_are_refused_and_no_file_changes(begun_run, other, place):
    before = contents(begun_run)
    again = {"run_dir": begun_run, "resume": True, "progress": False}
    with pytest.raises(ValueError, match=place):
        gloam.optimize(evaluate, algorithm(**other), 6, **again)
    assert contents(begun_run) == before


def test_another_seed_driver_or_dataset_is_refused(begun_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(begun_run, run)
    data = gloam.datasets.from_array(ITEMS)
    again = {"run_dir": run, "resume": True, "progress": False}
    before = contents(run)
    with pytest.raises(ValueError, match="seeds is"):
        gloam.optimize(evaluate, algorithm(), 6, seeds=[1], **again)
    with pytest.raises(ValueError, match="driver is 'ask-tell' in the file and 'fused' now"):
        gloam.run(lambda x: (x[:, 0], x[:, :2]), algorithm(), seeds=[0], iterations=6, **again)
    other = gloam.datasets.from_array(ITEMS, labels=["a"] * len(ITEMS))
    with pytest.raises(ValueError, match="dataset has other items, labels or names"):
        gloam.optimize(evaluate, algorithm(), 6, dataset=other, **again)
    assert contents(run) == before
    gloam.optimize(evaluate, algorithm(), 6, dataset=data, **again)
    assert gloam.RunFolder(run).read_dataset().names == data.names


def test_an_ask_tell_run_of_a_known_domain_is_resumed_by_its_folder(tmp_path):
    whole = small_run(tmp_path / "a", iterations=6, driver="ask-tell")
    small_run(tmp_path / "b", iterations=3, driver="ask-tell")
    halves = gloam.resume(tmp_path / "b", iterations=6, progress=False)
    np.testing.assert_array_equal(whole.elites.store.solutions, halves.elites.store.solutions)


@pytest.mark.parametrize(
    "name", ["config.json", "metrics.parquet", "archive.npz", "figures/curves.png"]
)
def test_files_of_another_program_are_neither_replaced_nor_deleted(tmp_path, name):
    path = tmp_path / "theirs" / name
    path.parent.mkdir(parents=True)
    path.write_text('{"precious": true}')
    other = tmp_path / "theirs" / "thesis.tex"
    other.write_text("mine")
    with pytest.raises(ValueError, match="files of other programs"):
        gloam.optimize(evaluate, algorithm(), 2, run_dir=tmp_path / "theirs", progress=False)
    with pytest.raises(SystemExit) as stop:
        main(["demo", "--out", str(tmp_path / "theirs"), "--iterations", "2"])
    assert stop.value.code == 2
    assert path.read_text() == '{"precious": true}'
    assert other.read_text() == "mine"


def test_a_replaced_run_leaves_what_gloam_did_not_write(tmp_path):
    run = tmp_path / "run"
    small_run(run)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "curves.png").write_text("mine")
    (run / "figures").symlink_to(elsewhere)
    kept = [run / "notes.txt", run / "snapshots" / "mine.npz", run / "archive-final.npz"]
    for path in kept:
        path.write_text("mine")
    gloam.RunFolder(run).delete_run()
    left = sorted(str(path.relative_to(run)) for path in run.rglob("*"))
    assert left == ["archive-final.npz", "figures", "notes.txt", "snapshots", "snapshots/mine.npz"]
    assert (elsewhere / "curves.png").read_text() == "mine"
    small_run(tmp_path / "whole")
    gloam.RunFolder(tmp_path / "whole").delete_run()
    assert not (tmp_path / "whole").exists()
    gloam.RunFolder(tmp_path / "never").delete_run()
    assert not (tmp_path / "never").exists()


def test_a_begun_run_is_not_started_over(tmp_path):
    run = tmp_path / "run"

    def fails(solutions):
        raise RuntimeError("simulator crashed")

    with (
        pytest.warns(UserWarning, match="got none among the 8 solutions"),
        pytest.raises(gloam.EvaluationError, match="simulator crashed"),
    ):
        gloam.optimize(fails, algorithm(), 4, run_dir=run, progress=False)
    with pytest.raises(gloam.RunExistsError, match=r"already holds a run.*resume=True"):
        gloam.optimize(evaluate, algorithm(), 4, run_dir=run, progress=False)
    for file in (run / "checkpoint").iterdir():
        file.unlink()  # as after a kill before the first checkpoint
    with pytest.raises(gloam.RunExistsError):
        gloam.optimize(evaluate, algorithm(), 4, run_dir=run, progress=False)
    resumed = gloam.optimize(evaluate, algorithm(), 4, run_dir=run, resume=True, progress=False)
    whole = gloam.optimize(evaluate, algorithm(), 4, progress=False)
    np.testing.assert_array_equal(resumed.elites.store.solutions, whole.elites.store.solutions)


def test_the_second_process_is_told_who_holds_the_folder(tmp_path):
    run = tmp_path / "run"
    with locked(run):
        with pytest.raises(gloam.LockedError, match=rf"process {os.getpid()} on .*, since"):
            gloam.optimize(evaluate, algorithm(), 2, run_dir=run, progress=False)
        assert "LockedError" in with_lock(run, "pass").stderr
    assert not (run / NAME).exists()
    gloam.optimize(evaluate, algorithm(), 2, run_dir=run, progress=False)


def test_two_runs_at_once_in_one_process_are_refused(tmp_path):
    inside, go_on = threading.Event(), threading.Event()

    def waits(solutions):
        inside.set()
        assert go_on.wait(60)
        return evaluate(solutions)

    def first():
        gloam.optimize(waits, algorithm(), 2, run_dir=tmp_path, progress=False)

    thread = threading.Thread(target=first)
    thread.start()
    assert inside.wait(60)
    with pytest.raises(gloam.LockedError):
        gloam.optimize(evaluate, algorithm(), 2, run_dir=tmp_path, resume=True, progress=False)
    go_on.set()
    thread.join()
    assert gloam.RunFolder(tmp_path).read_checkpoint_iteration() == 2


def test_a_dead_process_keeps_no_lock(tmp_path):
    with_lock(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)")
    assert (tmp_path / NAME).exists()
    with locked(tmp_path):
        pass
    assert not (tmp_path / NAME).exists()


def test_what_a_killed_process_left_behind_is_cleared_away(tmp_path):
    small_run(tmp_path)
    stale = [
        tmp_path / ".metrics.parquet.4242.gloam-partial",
        tmp_path / "checkpoint" / ".0000004.npz.4242.gloam-partial",
        tmp_path / "snapshots" / ".0000002.npz.4242.gloam-partial",
    ]
    kept = [tmp_path / ".notes.4242.gloam-partial", tmp_path / ".metrics.parquet.swp"]
    for path in stale + kept:
        path.write_bytes(b"half")
    gloam.resume(tmp_path, iterations=6, progress=False)
    assert not any(path.exists() for path in stale)
    assert all(path.exists() for path in kept)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_an_error_of_writing_names_the_file_and_leaves_the_old_one(tmp_path, monkeypatch, call):
    path = tmp_path / "state.npz"
    files.write_bytes(path, b"old")

    def full_disk(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full_disk)
    with pytest.raises(OSError, match="No space left on device") as raised:
        files.write_bytes(path, b"new")
    assert raised.value.filename == str(path)
    assert raised.value.errno == errno.ENOSPC
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["state.npz"]


def test_files_are_written_where_folders_cannot_be_synced(tmp_path, monkeypatch):
    def not_on_windows(*arguments):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(files.os, "name", "nt")
    monkeypatch.setattr(files.os, "open", not_on_windows)
    files.write_bytes(tmp_path / "file", b"new")
    monkeypatch.undo()
    assert (tmp_path / "file").read_bytes() == b"new"


def test_links_in_a_strangers_folder_are_not_followed(tmp_path):
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    run = tmp_path / "run"
    small_run(run)
    (run / NAME).symlink_to(mine)
    with pytest.raises(gloam.DamagedFileError, match="link instead of a lock file"):
        gloam.resume(run, iterations=6, progress=False)
    (run / NAME).unlink()
    (run / f".config.json.{os.getpid()}.gloam-partial").symlink_to(mine)
    (run / f".metrics.parquet.{os.getpid()}.gloam-partial").symlink_to(mine)
    gloam.resume(run, iterations=6, progress=False)
    (tmp_path / "elsewhere").mkdir()
    (run / "checkpoint").rename(tmp_path / "elsewhere" / "checkpoint")
    (run / "checkpoint").symlink_to(tmp_path / "elsewhere" / "checkpoint")
    with pytest.raises(ValueError, match="'checkpoint' as a folder of its own, got a link"):
        gloam.resume(run, iterations=8, progress=False)
    assert mine.read_text() == "mine"


def test_a_partial_file_that_is_a_link_is_not_written_through(tmp_path):
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    (tmp_path / f".state.npz.{os.getpid()}.gloam-partial").symlink_to(mine)
    files.write_bytes(tmp_path / "state.npz", b"new")
    assert (tmp_path / "state.npz").read_bytes() == b"new"
    assert mine.read_text() == "mine"
