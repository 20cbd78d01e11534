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


def test_a_platform_without_locks_says_so_and_goes_on(tmp_path, monkeypatch):
    def missing(descriptor, *, blocking):
        raise OSError(errno.ENOSYS, "no locks")

    monkeypatch.setattr(ownership, "lock_descriptor", missing)
    with pytest.warns(UserWarning, match="cannot lock files"), locked(tmp_path):
        assert (tmp_path / NAME).is_file()
    assert not (tmp_path / NAME).exists()


def test_gloam_can_be_imported_without_the_modules_of_a_platform():
    code = """
import sys
sys.modules["fcntl"] = sys.modules["msvcrt"] = None
import gloam, gloam.formats
gloam.run, gloam.formats.RunFolder
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
