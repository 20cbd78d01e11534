"""Atomic writes on all platforms, and the cache folder."""

import errno
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gloam._tools import files
from gloam.datasets import embedding
from gloam.domains import LinearProjection, linear_projection


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_write_names_the_file_and_leaves_the_old_one(tmp_path, monkeypatch, call):
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


def test_a_partial_file_that_is_a_link_is_not_written_through(tmp_path):
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    (tmp_path / f".state.npz.{os.getpid()}.gloam-partial").symlink_to(mine)
    files.write_bytes(tmp_path / "state.npz", b"new")
    assert (tmp_path / "state.npz").read_bytes() == b"new"
    assert mine.read_text() == "mine"


@pytest.fixture
def synced_folders(monkeypatch):
    """Counts the folders that are synced, and raises an error if one is set."""
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


def test_the_folder_is_synced_with_the_file(tmp_path, synced_folders):
    files.write_json(tmp_path / "a.json", {"a": 1})
    assert synced_folders.count == 1
    files.append(tmp_path / "a.csv", b"line\n", sync=False)
    assert synced_folders.count == 1
    files.append(tmp_path / "a.csv", b"line\n", sync=True)
    assert synced_folders.count == 2


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_without_folder_sync_keeps_the_file(tmp_path, synced_folders, code):
    synced_folders.error = code
    files.write_json(tmp_path / "a.json", {"a": 1})
    files.append(tmp_path / "a.csv", b"line\n", sync=True)
    assert synced_folders.count == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "a.json"]


def test_a_broken_disk_is_still_an_error(tmp_path, synced_folders):
    synced_folders.error = errno.EIO
    with pytest.raises(OSError, match=r"a\.json"):
        files.write_json(tmp_path / "a.json", {"a": 1})


@pytest.mark.parametrize("name", ["posix", "nt"])
def test_a_folder_that_cannot_be_opened_is_not_synced(tmp_path, monkeypatch, name):
    real = os.open

    def refusing(path, flags, *mode, **more):
        if os.path.isdir(path):
            assert name != "nt"  # not even tried
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, flags, *mode, **more)

    path = tmp_path / "a.json"
    monkeypatch.setattr(os, "open", refusing)
    monkeypatch.setattr(os, "name", name)
    files.write_json(path, {"a": 1})
    monkeypatch.undo()
    assert path.is_file()


def test_flags_that_a_platform_lacks_are_left_out(tmp_path, monkeypatch, synced_folders):
    monkeypatch.delattr(os, "O_DIRECTORY", raising=False)
    monkeypatch.delattr(os, "O_NOFOLLOW", raising=False)
    files.write_json(tmp_path / "a.json", {"a": 1})
    files.append(tmp_path / "a.csv", b"line\n", sync=False)
    assert (tmp_path / "a.csv").read_bytes() == b"line\n"
    assert synced_folders.count == 1


def only(monkeypatch, **variables):
    for name in ("GLOAM_CACHE", "XDG_CACHE_HOME", "HOME", "JAX_COMPILATION_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="folders of Linux")
@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"GLOAM_CACHE": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/a"),
        ({"GLOAM_CACHE": "", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/b/gloam"),
        ({"XDG_CACHE_HOME": "", "HOME": "/c"}, "/c/.cache/gloam"),
    ],
)
def test_the_cache_folder_is_where_the_environment_says(variables, folder, monkeypatch):
    only(monkeypatch, **variables)
    assert files.cache_folder() == Path(folder)


def test_a_relative_cache_folder_is_refused(monkeypatch):
    only(monkeypatch, GLOAM_CACHE="off")
    with pytest.raises(ValueError, match=r"absolute.*'off'"):
        files.cache_folder()


def centroids(folder, monkeypatch):
    asked = []

    def remember(cells, lower, upper, dimensions, *, cache):
        asked.append(cache)
        return np.eye(dimensions, dtype=np.float32)

    monkeypatch.setattr(linear_projection, "kmeans_centroids", remember)
    LinearProjection(10).archive()
    return asked[0]


def embeddings(folder, monkeypatch):
    monkeypatch.setattr(embedding, "_can_write", lambda folder: False)
    return embedding._folder(True, folder / "data.npy")


@pytest.mark.parametrize("user", [centroids, embeddings])
def test_cached_files_are_in_the_cache_folder(user, tmp_path, monkeypatch):
    only(monkeypatch, GLOAM_CACHE=str(tmp_path / "cache"), HOME=str(tmp_path / "home"))
    assert user(tmp_path, monkeypatch).is_relative_to(tmp_path / "cache")


def test_a_path_without_the_name_of_a_file_is_refused():
    for path in ("", "x\0y"):
        with pytest.raises(ValueError, match=r"^path:.*name of a file"):
            files.write_bytes(Path(path), b"")
