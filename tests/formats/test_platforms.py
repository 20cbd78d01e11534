"""Files and locks on platforms that lack what POSIX has: folder sync, `fcntl`, special flags."""

import errno
import os
from types import SimpleNamespace

import pytest

from gloam import files
from gloam.formats import LockedError
from gloam.formats import ownership as lock


@pytest.fixture
def synced_folders(monkeypatch):
    """Folders that are synced, and what to raise when one is."""
    seen = SimpleNamespace(count=0, error=None)
    real = os.fsync

    def fsync(descriptor):
        if os.path.isdir(f"/dev/fd/{descriptor}"):
            seen.count += 1
            if seen.error:
                raise OSError(seen.error, os.strerror(seen.error))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return seen


def test_the_folder_of_a_new_file_is_synced(tmp_path, synced_folders):
    files.write_json(tmp_path / "a.json", {"a": 1})
    assert synced_folders.count == 1


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_without_folder_sync_keeps_the_file(tmp_path, synced_folders, code):
    synced_folders.error = code
    files.write_json(tmp_path / "a.json", {"a": 1})
    files.append(tmp_path / "a.log", b"line\n", sync=True)
    assert synced_folders.count == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "a.log"]


def test_a_broken_disk_is_still_an_error(tmp_path, synced_folders):
    synced_folders.error = errno.EIO
    with pytest.raises(OSError, match=r"a\.json"):
        files.write_json(tmp_path / "a.json", {"a": 1})


def test_a_folder_that_cannot_be_opened_is_not_synced(tmp_path, monkeypatch):
    real = os.open

    def refusing(path, flags, *mode, **more):
        if os.path.isdir(path):  # as Windows answers
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, flags, *mode, **more)

    monkeypatch.setattr(os, "open", refusing)
    files.write_json(tmp_path / "a.json", {"a": 1})
    assert (tmp_path / "a.json").is_file()


def test_flags_that_a_platform_lacks_are_left_out(tmp_path, monkeypatch, synced_folders):
    monkeypatch.delattr(os, "O_DIRECTORY", raising=False)
    monkeypatch.delattr(os, "O_NOFOLLOW", raising=False)
    files.write_json(tmp_path / "a.json", {"a": 1})
    files.append(tmp_path / "a.log", b"line\n", sync=False)
    assert (tmp_path / "a.log").read_bytes() == b"line\n"
    assert synced_folders.count == 1


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
    monkeypatch.setattr(lock, "_fcntl", None)
    monkeypatch.setattr(lock, "_msvcrt", FakeWindows())
    with lock.locked(tmp_path):
        with pytest.raises(LockedError, match=f"process {os.getpid()}"), lock.locked(tmp_path):
            pass
        assert (tmp_path / lock.NAME).is_file()


def test_a_platform_without_locks_says_so_and_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "_fcntl", None)
    monkeypatch.setattr(lock, "_msvcrt", None)
    with pytest.warns(UserWarning, match="cannot lock files"), lock.locked(tmp_path):
        assert (tmp_path / lock.NAME).is_file()
    assert not (tmp_path / lock.NAME).exists()
