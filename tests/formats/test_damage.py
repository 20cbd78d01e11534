"""Damaged files: the error names the file, or the run goes on to the same bits."""

import shutil

import numpy as np
import pandas as pd
import pytest

import gloam
from gloam.formats.arrays import read_arrays
from gloam.formats.errors import DamagedFileError

from .conftest import small_run

FIX = "Restore it from a copy."
FILES = (
    "config.json",
    "config.npz",
    "metrics.parquet",
    "archive.npz",
    "dataset.npz",
    "checkpoint/state.npz",
    "snapshots/0000002.npz",
)


def damaged(content: bytes, rng) -> bytes:
    place = int(rng.integers(len(content)))
    if rng.random() < 0.3:
        return content[:place]
    changed = bytearray(content)
    changed[place] ^= int(rng.integers(1, 256))
    return bytes(changed)


def everything_in(path):
    """All numbers that a run folder holds, as the readers give them."""
    folder = gloam.RunFolder(path)
    elites = folder.read_archive()
    return [
        folder.read_metrics().drop(columns="seconds").to_numpy(),
        elites.solutions,
        elites.objectives,
        elites.measures,
        folder.read_dataset().items,
        *(array for shot in folder.read_snapshots().values() for array in shot.values()),
        np.asarray(folder.read_config().seeds),
        *read_arrays(path / "checkpoint" / "state.npz", kind="checkpoint", fix=FIX)[0].values(),
        np.asarray(folder.read_checkpoint_iteration()),
    ]


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_named_or_changes_nothing(finished_run, tmp_path, name):
    expected = everything_in(finished_run)
    shutil.copytree(finished_run, tmp_path / "run")
    path = tmp_path / "run" / name
    whole = path.read_bytes()
    rng = np.random.default_rng(sum(name.encode()))
    refused = 0
    for _ in range(100):
        path.write_bytes(damaged(whole, rng))
        found, error = outcome_of(everything_in, tmp_path / "run")
        if error is None:
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_array_equal(one, other)
        else:
            refused += 1
            assert str(path) in error
            assert error.endswith(FIX) or "Delete it" in error or "start the run again" in error
    assert refused > 50


def outcome_of(call, *arguments):
    """What a call returns, or the message of its error."""
    try:
        return call(*arguments), None
    except ValueError as error:
        return None, str(error)


def continued(path):
    return gloam.resume(path, iterations=8, progress=False)


def test_resuming_with_a_damaged_file_is_refused_or_gives_the_same_bits(finished_run, tmp_path):
    whole = small_run(tmp_path / "whole", iterations=8)
    rng = np.random.default_rng(7)
    outcomes = []
    for number in range(30):
        name = FILES[number % len(FILES)]
        target = tmp_path / f"run-{number}"
        shutil.copytree(finished_run, target)
        path = target / name
        path.write_bytes(damaged(path.read_bytes(), rng))
        before = {file: file.read_bytes() for file in target.rglob("*") if file.is_file()}
        resumed, error = outcome_of(continued, target)
        if error is not None:
            assert str(target) in error
            after = {file: file.read_bytes() for file in target.rglob("*") if file.is_file()}
            assert after == before
            outcomes.append("refused")
            continue
        for leaf in ("solutions", "objectives", "measures"):
            one = getattr(resumed.elites.store, leaf)
            np.testing.assert_array_equal(one, getattr(whole.elites.store, leaf))
        rows = resumed.metrics["iteration"] > 4
        pd.testing.assert_frame_equal(
            resumed.metrics[rows].drop(columns="seconds").reset_index(drop=True),
            whole.metrics[whole.metrics["iteration"] > 4]
            .drop(columns="seconds")
            .reset_index(drop=True),
        )
        outcomes.append("same bits")
    assert set(outcomes) == {"refused", "same bits"}


@pytest.mark.parametrize("name", ["archive.npz", "checkpoint/state.npz", "metrics.parquet"])
def test_files_of_another_run_are_refused(finished_run, tmp_path, name):
    small_run(tmp_path / "other", seeds=(1,))
    shutil.copytree(finished_run, tmp_path / "run")
    shutil.copy(tmp_path / "other" / name, tmp_path / "run" / name)
    with pytest.raises(DamagedFileError, match="belongs to another run"):
        everything_in(tmp_path / "run")


def test_a_file_of_another_kind_is_refused(finished_run, tmp_path):
    shutil.copytree(finished_run, tmp_path / "run")
    shutil.copy(finished_run / "archive.npz", tmp_path / "run" / "checkpoint" / "state.npz")
    with pytest.raises(DamagedFileError, match="kind 'archive', not 'checkpoint'"):
        gloam.resume(tmp_path / "run", iterations=8, progress=False)


@pytest.mark.parametrize("name", ["config.json", "archive.npz"])
def test_a_newer_format_is_named(finished_run, tmp_path, name, monkeypatch):
    from gloam.formats import arrays, documents

    shutil.copytree(finished_run, tmp_path / "run")
    folder = gloam.RunFolder(tmp_path / "run")
    elites, config = folder.read_archive(), folder.read_config()
    monkeypatch.setattr(arrays, "FORMAT", 2)
    monkeypatch.setattr(documents, "FORMAT", 2)
    if name == "config.json":
        folder.write_plan(config)
    else:
        stored, about = (
            {"cell": elites.cells},
            {"run": config.identity, "seed": 0},
        )
        arrays.write_arrays(folder.path / name, stored, kind="archive", about=about)
    monkeypatch.undo()
    with pytest.raises(DamagedFileError, match=r"format 2, and this version .* reads format 1"):
        folder.read_archive()
