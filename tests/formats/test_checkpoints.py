"""Damaged checkpoints are replaced by the one before, and a killed run goes on."""

import builtins
import os
import re
import resource
import shutil
import warnings
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
import pytest

import gloam
from gloam.formats.arrays import read_arrays, write_arrays
from gloam.formats.checkpoints import elites_from
from gloam.formats.config import describe
from gloam.runs.loop import _restore

from .conftest import damaged

SEED = 5


class Store(NamedTuple):
    solutions: Any
    objectives: Any
    measures: Any


class State(NamedTuple):
    iteration: Any
    store: Store
    reference: Any


def state_at(iteration, num_cells=20):
    rng = np.random.default_rng(iteration)
    store = Store(
        rng.random((1, num_cells, 3), dtype=np.float32),
        rng.random((1, num_cells), dtype=np.float32),
        rng.random((1, num_cells, 2), dtype=np.float32),
    )
    return State(np.asarray(iteration, np.int32), store, np.float32([-iteration]))


def row_at(iteration):
    value = float(np.random.default_rng(iteration).random())
    return {"seed": SEED, "iteration": iteration, "qd_score": value, "loss": np.nan}


def rows_to(iteration):
    return pd.DataFrame([row_at(at) for at in range(1, iteration + 1)])


def new_folder(path, seeds=(SEED,)):
    folder = gloam.RunFolder(path)
    parts = {"driver": "fused", "seeds": list(seeds), "dataset": None, "plan": {}}
    folder.write_config(*describe(None, None, **parts))
    return folder


def write_until(folder, last, *, first=1, keep=2):
    """A row for each iteration and a checkpoint at every second."""
    for at in range(first, last + 1):
        folder.append_metrics([row_at(at)])
        if at % 2 == 0:
            folder.append_metrics([], sync=True)
            folder.write_checkpoint(state_at(at), seconds=float(at), num_rows=at, keep=keep)


def checkpoint_names(folder):
    return sorted(path.name for path in (folder.path / "checkpoint").iterdir())


def assert_is(found, iteration):
    assert found.iteration == iteration
    for one, other in zip(found.state.store, state_at(iteration).store, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_last_checkpoints_are_kept(tmp_path, keep):
    folder = new_folder(tmp_path / "run")
    write_until(folder, 10, keep=keep)
    wanted = [f"{at:07d}.npz" for at in (2, 4, 6, 8, 10)]
    assert checkpoint_names(folder) == wanted[-keep:]
    assert_is(folder.read_checkpoint(state_at(0)), 10)


def test_a_checkpoint_damaged_anywhere_costs_one_interval_and_never_gives_other_data(tmp_path):
    folder = new_folder(tmp_path / "run")
    write_until(folder, 6)
    newest = folder.path / "checkpoint" / "0000006.npz"
    whole, rng = newest.read_bytes(), np.random.default_rng(0)
    used = []
    for _ in range(50):
        newest.write_bytes(damaged(whole, rng))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found = folder.read_checkpoint(state_at(0))
        used.append(found.iteration)
        assert_is(found, 4 if told else 6)
        if told:
            assert "0000006.npz' cannot be used" in str(told[0].message)
            assert "0000004.npz'" in str(told[0].message)
    # A few bytes of a zip file have no meaning.
    assert used.count(4) >= 40


def foreign_files(folder, tmp_path):
    other = new_folder(tmp_path / "other", seeds=(7,))
    write_until(other, 6)
    stored = folder.path / "checkpoint" / "0000004.npz"
    arrays, about = read_arrays(stored, kind="checkpoint", fix="")
    write_arrays(tmp_path / "kind.npz", arrays, kind="search", about=about | {"iteration": 6})
    fewer = {name: array for name, array in arrays.items() if "measures" not in name}
    write_arrays(tmp_path / "part.npz", fewer, kind="checkpoint", about=about | {"iteration": 6})
    (tmp_path / "empty.npz").write_bytes(b"")
    (tmp_path / "text.npz").write_text("not an archive")
    np.savez(tmp_path / "numpy.npz", iteration=6)
    return {
        "it belongs to another run": tmp_path / "other" / "checkpoint" / "0000006.npz",
        "it is the checkpoint of iteration 4": stored,
        "kind 'search', not 'checkpoint'": tmp_path / "kind.npz",
        "it lacks ['.store.measures'] and has the unknown arrays [], although its": tmp_path
        / "part.npz",
        "not a file of arrays": tmp_path / "text.npz",
        "not a file of arrays (BadZipFile)": tmp_path / "empty.npz",
        "not written by gloam": tmp_path / "numpy.npz",
    }


def test_a_foreign_newest_file_is_named_and_the_one_before_it_used(tmp_path):
    folder = new_folder(tmp_path / "run")
    write_until(folder, 6)
    newest = folder.path / "checkpoint" / "0000006.npz"
    for reason, source in foreign_files(folder, tmp_path).items():
        shutil.copy(source, newest)
        with pytest.warns(UserWarning, match=re.escape(reason)) as told:
            assert_is(folder.read_checkpoint(state_at(0)), 4)
        assert len(told) == 1


def test_without_a_whole_checkpoint_the_newest_is_named(tmp_path):
    folder = new_folder(tmp_path / "run")
    write_until(folder, 6)
    for path in (folder.path / "checkpoint").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(gloam.errors.DamagedFileError, match=r"0000006\.npz' cannot be used"):
        folder.read_checkpoint(state_at(0))


def test_a_damaged_checkpoint_is_replaced_by_the_next(tmp_path):
    folder = new_folder(tmp_path / "run")
    write_until(folder, 6)
    (folder.path / "checkpoint" / "0000006.npz").write_bytes(b"torn")
    folder.write_checkpoint(state_at(5), seconds=5.0)
    assert checkpoint_names(folder) == ["0000004.npz", "0000005.npz"]


class Driver:
    """What restoring a run needs of a driver."""

    found: Any = None

    def start(self, start=None):
        self.found = state_at(0)

    def restore(self, read):
        self.found = read(state_at(0))

    def read_failures(self, folder):
        """Nothing failed."""


def resumed(folder):
    """Continue a run as a driver does; the iteration that it goes on from."""
    driver = Driver()
    with folder.locked():
        _, num_rows = _restore(driver, folder, folder.read_config())
    iteration = int(driver.found.iteration)
    for one, other in zip(driver.found.store, state_at(iteration).store, strict=True):
        np.testing.assert_array_equal(one, other)
    assert num_rows == len(folder.read_metrics())
    return iteration


class KilledError(BaseException):
    """Stands for the end of the process."""


class Process:
    """A process that is killed at its n-th change of a file; from then on it changes nothing."""

    NAMES = ("open", "write", "fsync", "replace", "unlink", "ftruncate")

    def __init__(self, at):
        self.at, self.changes = at, 0

    def patch(self, monkeypatch):
        for name in self.NAMES:
            monkeypatch.setattr(os, name, self._until_killed(name, getattr(os, name)))
        opened = builtins.open

        def open_file(path, mode="r", *rest, **more):
            return (self._until_killed("open", opened) if "x" in mode else opened)(
                path, mode, *rest, **more
            )

        monkeypatch.setattr(builtins, "open", open_file)

    def _until_killed(self, name, real):
        def change(*arguments, **more):
            if self.changes >= self.at:
                raise KilledError
            self.changes += 1
            if self.changes < self.at:
                return real(*arguments, **more)
            if name == "write":  # half of it
                real(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
            raise KilledError

        return change


def files_of(folder):
    return sorted(str(path.relative_to(folder.path)) for path in folder.path.rglob("*"))


def finish(folder, first):
    """The rest of a run, as the loop of the drivers writes it."""
    write_until(folder, 4, first=first)
    if first > 4:
        folder.write_checkpoint(state_at(4), seconds=4.0, num_rows=4)


def test_a_process_killed_at_any_change_of_a_file_leaves_a_folder_that_goes_on(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # nobody pulls the plug here
    expected = new_folder(tmp_path / "whole")
    finish(expected, 1)
    at, is_killed, reached = 0, True, set()
    while is_killed:
        at += 1
        folder = new_folder(tmp_path / f"run-{at}")
        with pytest.MonkeyPatch.context() as patch:
            Process(at).patch(patch)
            try:
                finish(folder, 1)
                is_killed = False
            except KilledError:
                pass
        done = resumed(folder)  # without a warning, which would be an error
        reached.add(done)
        if done:
            pd.testing.assert_frame_equal(folder.read_metrics(), rows_to(done))
        finish(folder, done + 1)
        pd.testing.assert_frame_equal(folder.read_metrics(), rows_to(4))
        assert_is(folder.read_checkpoint(state_at(0)), 4)
        assert files_of(folder) == files_of(expected)
    assert at > 20
    assert reached == {0, 2, 4}


def test_a_run_killed_while_it_began_can_begin(tmp_path):
    folder = new_folder(tmp_path / "run")
    (folder.path / "config.json").unlink()
    folder.check_new()
    np.savez(folder.path / "config.npz", mine=1)
    with pytest.raises(ValueError, match="files of other programs"):
        folder.check_new()


def test_damaged_rows_of_metrics_do_not_block_a_resume(tmp_path):
    folder = new_folder(tmp_path / "run")
    write_until(folder, 6)
    path = folder.path / "metrics.csv"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], b"damaged\n", *lines[4:]]))
    lost = r"1 of the 6 rows up to iteration 6 are lost \('.*metrics\.csv': 1 of its lines cannot"
    with pytest.warns(UserWarning, match=lost):
        assert resumed(folder) == 6
    kept = rows_to(6)[lambda table: table["iteration"] != 3].reset_index(drop=True)
    pd.testing.assert_frame_equal(folder.read_metrics(), kept)
    path.unlink()
    with pytest.warns(UserWarning, match=r"6 of the 6 rows .* are lost \(.*it has fewer rows"):
        assert resumed(folder) == 6


def test_elites_are_read_from_the_checkpoint_until_the_run_has_ended(tmp_path):
    folder = new_folder(tmp_path / "run")
    archive = gloam.GridArchive((4, 5), 0.0, 1.0)
    with pytest.raises(ValueError, match="Wait for a checkpoint"):
        folder.read_archive(archive=archive)
    write_until(folder, 4)
    elites = folder.read_archive(archive=archive)
    np.testing.assert_array_equal(elites.store.solutions, state_at(4).store.solutions[0])
    assert elites.f_min == -4.0
    folder.write_archive(elites, seed=SEED)
    again = folder.read_archive(archive=archive)
    np.testing.assert_array_equal(again.store.measures, elites.store.measures)
    assert again.f_min == -4.0
    write_until(folder, 6, first=5)
    assert not (folder.path / "archive.npz").exists()
    newer = folder.read_archive(archive=archive)
    np.testing.assert_array_equal(newer.store.objectives, state_at(6).store.objectives[0])


GOOD = {
    "cells": np.array([1, 5]),
    "solutions": np.zeros((2, 3), np.float32),
    "objectives": np.ones(2, np.float32),
    "measures": np.zeros((2, 2), np.float32),
    "fields['n']": np.ones((2, 4), np.int32),
}
BAD_ELITES = {
    "cells out of order": ({"cells": GOOD["cells"][::-1]}, "ascending"),
    "a cell that the archive lacks": ({"cells": np.array([1, 20])}, "outside of the archive's 20"),
    "cells that are not integers": ({"cells": np.array([1.0, 5.0])}, "distinct integers"),
    "no axis of solutions": ({"solutions": np.zeros(2, np.float32)}, r"float32\[2\] instead of"),
    "fewer rows": ({"objectives": np.ones(1, np.float32)}, r"float32\[1\] instead of float32\[2\]"),
    "another dtype": ({"measures": np.zeros((2, 2))}, "float64.* instead of float32"),
    "text as a field": ({"fields['n']": np.full((2, 4), "a")}, "instead of int32"),
    "an unknown array": ({"code": np.zeros(2)}, r"unknown arrays \['code'\]"),
    "an infinite objective": ({"objectives": np.float32([1, np.inf])}, "not finite"),
}


@pytest.mark.parametrize(("changes", "problem"), BAD_ELITES.values(), ids=BAD_ELITES)
def test_elites_that_do_not_fit_the_archive_are_refused(changes, problem):
    fields = {"n": jax.ShapeDtypeStruct((4,), np.int32)}
    archive = gloam.GridArchive((4, 5), 0.0, 1.0, fields=fields)
    elites = elites_from(archive, GOOD, -3.0)
    assert elites.cells.tolist() == [1, 5]
    assert elites.field("n").tolist() == [[1] * 4] * 2
    assert elites.qd_score == 2 * (1 + 3)
    with pytest.raises(ValueError, match=problem):
        elites_from(archive, GOOD | changes, 0.0)


def test_a_disk_that_is_full_leaves_what_was_there(tmp_path):
    folder = new_folder(tmp_path / "run")
    write_until(folder, 4)
    before = files_of(folder)
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, usual[1]))
    try:
        with pytest.raises(OSError, match=r"File too large.*0000006\.npz"):
            folder.write_checkpoint(state_at(6, num_cells=2000), seconds=1.0)
        with pytest.raises(OSError, match=r"File too large.*metrics\.csv"):
            folder.append_metrics([row_at(at) for at in range(5, 700)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert files_of(folder) == before
    assert_is(folder.read_checkpoint(state_at(0)), 4)
    pd.testing.assert_frame_equal(folder.read_metrics(), rows_to(4))
