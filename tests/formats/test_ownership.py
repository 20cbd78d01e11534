"""The lock on a run folder: one process at a time, on every platform."""

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import gloam
from gloam.errors import LockedError
from gloam.formats import ownership
from gloam.formats.ownership import NAME, locked

from .conftest import quick_search


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


def test_the_second_process_is_told_who_holds_the_folder(tmp_path):
    run = tmp_path / "run"
    with locked(run):
        with pytest.raises(LockedError, match=rf"process {os.getpid()} on .*, since"):
            quick_search(run)
        assert "LockedError" in with_lock(run, "pass").stderr
    assert not (run / NAME).exists()
    quick_search(run)


def test_two_runs_at_once_in_one_process_are_refused(tmp_path):
    inside, go_on = threading.Event(), threading.Event()

    def waits(solutions):
        inside.set()
        assert go_on.wait(60)
        return np.square(solutions).sum(axis=1), solutions

    thread = threading.Thread(target=quick_search, args=(tmp_path, waits))
    thread.start()
    assert inside.wait(60)
    with pytest.raises(LockedError):
        quick_search(tmp_path, resume=True)
    go_on.set()
    thread.join()
    assert gloam.RunFolder(tmp_path).read_checkpoint_iteration() == 2


def test_a_dead_process_keeps_no_lock(tmp_path):
    with_lock(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)")
    assert (tmp_path / NAME).exists()
    with locked(tmp_path):
        pass
    assert not (tmp_path / NAME).exists()


class FakeWindows:
    """`msvcrt.locking`, with one lock for each file."""

    LK_NBLCK = 2

    def __init__(self):
        self.held: set[int] = set()

    def locking(self, descriptor: int, mode: int, size: int) -> None:
        assert (mode, size) == (self.LK_NBLCK, 1)
        # The byte that is locked is behind the content, which others may read.
        assert os.lseek(descriptor, 0, os.SEEK_CUR) > 1000
        number = os.fstat(descriptor).st_ino
        if number in self.held:
            raise OSError(errno.EACCES, "Permission denied")
        self.held.add(number)


def test_windows_locks_by_its_own_means(tmp_path, monkeypatch):
    monkeypatch.setattr(ownership, "_fcntl", None)
    monkeypatch.setattr(ownership, "_msvcrt", FakeWindows())
    with locked(tmp_path):
        with (
            pytest.raises(LockedError, match=f"process {os.getpid()}"),
            locked(tmp_path),
        ):
            pass
        assert (tmp_path / NAME).is_file()


def test_a_platform_without_locks_says_so_and_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(ownership, "_fcntl", None)
    monkeypatch.setattr(ownership, "_msvcrt", None)
    with pytest.warns(UserWarning, match="cannot lock files"), locked(tmp_path):
        assert (tmp_path / NAME).is_file()
    assert not (tmp_path / NAME).exists()
