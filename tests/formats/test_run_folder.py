"""Run folders: other data is refused, and files of other programs are safe."""

import os
import shutil

import numpy as np
import pytest

import gloam
from gloam.cli import main
from gloam.formats.ownership import NAME

from ..helpers import assert_same_bits, refused
from .conftest import PIXELS, parabola, quick_search, small_problem


def contents(path):
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def resumed(path, *, iterations=6, run=gloam.run, problem=None, **options):
    data, domain, algorithm = problem or small_problem()
    options = {"dataset": data, "progress": False} | options
    return run(domain, algorithm, iterations, run_dir=path, resume=True, **options)


def test_a_run_writes_the_documented_files(finished_run):
    names = {str(path.relative_to(finished_run)) for path in contents(finished_run)}
    assert names == {
        "archive.npz",
        "checkpoint/0000004.npz",
        "config.json",
        "config.npz",
        "dataset.npz",
        "metrics.csv",
        "snapshots/0000002.npz",
        "snapshots/0000004.npz",
    }


@pytest.mark.parametrize(
    ("other", "place"),
    [
        ({"pixels": 1 - PIXELS}, r"algorithm\.archive\.centroids"),
        ({"x0": np.full(16, 0.5)}, r"algorithm\.emitter\.x0"),
        ({"alpha": 0.2}, r"algorithm\.discount\.alpha is 0\.1 in the file and 0\.2 now"),
        ({"restart": gloam.emitters.RestartEvery(9)}, r"emitter\.restart is BasicRestart"),
    ],
)
def test_other_data_or_settings_are_refused_and_no_file_changes(finished_run, other, place):
    before = contents(finished_run)
    with pytest.raises(ValueError, match=place):
        resumed(finished_run, problem=small_problem(**other))
    assert contents(finished_run) == before


def test_another_seed_driver_or_dataset_is_refused(finished_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(finished_run, run)
    before = contents(run)
    with pytest.raises(ValueError, match="seeds is"):
        resumed(run, seeds=[1])
    with pytest.raises(ValueError, match=r"driver.*'fused'.*'ask-tell'"):
        resumed(run, run=gloam.optimize)
    other = gloam.datasets.from_array(PIXELS, labels=["a"] * len(PIXELS))
    with pytest.raises(ValueError, match="dataset"):
        resumed(run, dataset=other)
    assert contents(run) == before
    resumed(run)
    assert gloam.RunFolder(run).read_dataset().names == small_problem()[0].names


def test_an_ask_tell_run_of_a_known_domain_is_resumed_by_its_folder(tmp_path):
    domain = gloam.domains.Arm(3)
    archive = gloam.GridArchive((4, 4), -3, 3)
    algorithm = gloam.MAPElites(archive, domain.x0, 0.3, batch_size=4)
    whole = gloam.optimize(domain, algorithm, 6, progress=False)
    gloam.optimize(domain, algorithm, 3, run_dir=tmp_path, progress=False)
    assert_same_bits(gloam.resume(tmp_path, iterations=6, progress=False).elites, whole.elites)


@pytest.mark.parametrize(
    "name", ["config.json", "metrics.csv", "archive.npz", "figures/curves.png"]
)
def test_files_of_another_program_are_neither_replaced_nor_deleted(tmp_path, name):
    path = tmp_path / "theirs" / name
    path.parent.mkdir(parents=True)
    path.write_text('{"precious": true}')
    other = tmp_path / "theirs" / "thesis.tex"
    other.write_text("mine")
    with pytest.raises(ValueError, match="files of other programs"):
        quick_search(tmp_path / "theirs")
    with pytest.raises(SystemExit) as stop:
        main(["demo", "--out", str(tmp_path / "theirs"), "--iterations", "2"])
    assert stop.value.code == 2
    assert path.read_text() == '{"precious": true}'
    assert other.read_text() == "mine"


def test_a_run_in_the_folder_is_not_started_over(tmp_path):
    run = tmp_path / "run"

    def fails(solutions):
        raise RuntimeError("simulator crashed")

    with pytest.raises(gloam.errors.EvaluationError, match="simulator crashed"):
        quick_search(run, fails, 4)
    with pytest.raises(gloam.errors.RunExistsError, match=r"already holds a run.*resume=True"):
        quick_search(run, parabola, 4)
    for file in (run / "checkpoint").iterdir():
        file.unlink()  # as after a kill before the first checkpoint
    with pytest.raises(gloam.errors.RunExistsError):
        quick_search(run, parabola, 4)
    resumed = quick_search(run, parabola, 4, resume=True)
    assert_same_bits(resumed.elites, quick_search(None, parabola, 4).elites)


def test_a_finished_run_without_its_checkpoints_is_not_started_over(finished_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(finished_run, run)
    shutil.rmtree(run / "checkpoint")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(gloam.errors.DamagedFileError, match="start_from") as raised:
        gloam.resume(run, iterations=6, progress=False)
    assert raised.value.path == run / "checkpoint"
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_partial_files_of_a_killed_process_are_removed(finished_run, tmp_path):
    shutil.copytree(finished_run, tmp_path, dirs_exist_ok=True)
    stale = [
        tmp_path / ".metrics.csv.4242.gloam-partial",
        tmp_path / "checkpoint" / ".0000004.npz.4242.gloam-partial",
        tmp_path / "snapshots" / ".0000002.npz.4242.gloam-partial",
    ]
    kept = [tmp_path / ".notes.4242.gloam-partial", tmp_path / ".metrics.csv.swp"]
    for path in stale + kept:
        path.write_bytes(b"half")
    gloam.resume(tmp_path, iterations=6, progress=False)
    assert not any(path.exists() for path in stale)
    assert all(path.exists() for path in kept)


def test_links_in_a_strangers_folder_are_not_followed(finished_run, tmp_path):
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    run = tmp_path / "run"
    shutil.copytree(finished_run, run)
    (run / NAME).symlink_to(mine)
    with pytest.raises(gloam.errors.DamagedFileError, match="link"):
        gloam.resume(run, iterations=6, progress=False)
    (run / NAME).unlink()
    (run / f".config.json.{os.getpid()}.gloam-partial").symlink_to(mine)
    (run / f".metrics.csv.{os.getpid()}.gloam-partial").symlink_to(mine)
    gloam.resume(run, iterations=6, progress=False)
    rows = gloam.RunFolder(run).read_metrics().to_dict("records")
    (run / "metrics.csv").rename(tmp_path / "rows.csv")
    (run / "metrics.csv").symlink_to(tmp_path / "rows.csv")
    with pytest.raises(OSError, match=r"metrics\.csv"):
        gloam.RunFolder(run).append_metrics(rows)
    (tmp_path / "elsewhere").mkdir()
    (run / "checkpoint").rename(tmp_path / "elsewhere" / "checkpoint")
    (run / "checkpoint").symlink_to(tmp_path / "elsewhere" / "checkpoint")
    with pytest.raises(ValueError, match=r"checkpoint.* link"):
        gloam.resume(run, iterations=8, progress=False)
    assert mine.read_text() == "mine"


def test_seeds_have_64_bits(tmp_path):
    quick_search(tmp_path, seeds=[2**64 - 1, 0])
    folder = gloam.RunFolder(tmp_path)
    assert folder.read_config().seeds == (2**64 - 1, 0)
    assert folder.read_metrics()["seed"].tolist() == [2**64 - 1, 0]
    assert len(folder.read_archive(2**64 - 1)) > 0


def test_a_snapshot_that_does_not_exist_is_answered_by_those_that_do(finished_run):
    folder = gloam.RunFolder(finished_run)
    for odd in ("x", None, 2.0, -1):
        with pytest.raises(ValueError, match=r"^iteration:.*>= 0"):
            folder.read_snapshot(odd)
    with pytest.raises(ValueError, match=r"^iteration:.*3\. .*: 2, 4"):
        folder.read_snapshot(3)


@pytest.mark.parametrize("path", ["", None, 5])
def test_a_run_folder_has_a_path(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with refused("run folder: expected a path"):
        gloam.RunFolder(path)
    if path is not None:
        with refused("run_dir: expected a path"):
            resumed(path)
    assert not list(tmp_path.iterdir())


def test_an_archive_of_another_type_is_refused(finished_run):
    with pytest.raises(ValueError, match=r"^archive:.*list"):
        gloam.RunFolder(finished_run).read_archive(archive=[1])
