"""Names of gloam's files in a run folder, and the lock of the process that writes to it."""

import contextlib
import errno
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO

from filelock import lock_descriptor

from gloam._tools import files
from gloam._tools.warn import warn
from gloam.errors import DamagedFileError, LockedError
from gloam.formats.documents import check_is_no_folder

CHECKPOINT = SNAPSHOT = re.compile(r"\d{7,10}\.npz")
ARCHIVE = re.compile(r"archive(-\d+)?\.npz")
# Names of the files that gloam writes, by folder. Nothing else is ever removed or replaced.
_NAMES = {
    "": r"config\.(json|npz)|metrics\.csv|dataset\.npz|(gallery|report)\.html"
    rf"|matches\.(csv|parquet)|failures\.parquet|corrected\.npz|{ARCHIVE.pattern}",
    "checkpoint": CHECKPOINT.pattern,
    "snapshots": SNAPSHOT.pattern,
    "figures": r"(curves|archive|pairwise|discount|gallery)\.(png|pdf)",
}
FOLDERS = tuple(filter(None, _NAMES))
"""Folders that gloam makes inside a run folder."""
NAME = ".gloam.lock"
"""Name of the lock file."""
# Windows does not know the first flag, and other systems do not know the second.
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
# Windows locks the first byte of a file against reading.
_DESCRIPTION_START = 1


def own_files(run_folder: Path, *, partial: bool = False) -> list[Path]:
    """Return the files of a run folder whose names are those of gloam's files.

    Links to other folders are not followed.

    Args:
        run_folder: The folder.
        partial: Return the partial files that killed processes left behind instead.
    """
    named = _named(run_folder, partial=partial)
    return [file for file in named if file.is_symlink() or file.is_file()]


def check_places(run_folder: Path, *, checkpoints: bool) -> None:
    """Check that no folder has the name of one of gloam's files, and no file that of a folder.

    Args:
        run_folder: The folder.
        checkpoints: Also check the names of checkpoints. A run that is resumed skips a folder, as
            it skips a damaged checkpoint.

    Raises:
        DamagedFileError: A folder or file is in the place of another.
    """
    for path in _named(run_folder):
        if checkpoints or path.parent.name != "checkpoint":
            check_is_no_folder(path)
    for path in map(run_folder.__truediv__, FOLDERS):
        if path.exists() and not path.is_dir():
            raise DamagedFileError(path, "it is a file instead of a folder", "Move it away.")


def _named(run_folder: Path, *, partial: bool = False) -> list[Path]:
    """Return files and folders under the names of gloam's files."""
    paths = []
    for name, pattern in _NAMES.items():
        folder = run_folder / name
        if folder.is_dir() and not (name and folder.is_symlink()):
            names = re.compile(files.partial_name(f"({pattern})") if partial else pattern)
            paths += [path for path in folder.iterdir() if names.fullmatch(path.name)]
    return paths


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from writing to ``folder`` while the block runs.

    The operating system releases the lock when the process ends, however it ends. The file is
    removed afterwards; a process that has the removed file open tries again with a new one.

    Raises:
        LockedError: Another process, or another run of this process, holds the lock.
        OSError: The folder cannot be written to.
    """
    path = folder / NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = _open_locked(path)
    except OSError as error:
        error.add_note("A run needs a folder that it can write to: choose another one.")
        raise
    try:
        began = datetime.now().isoformat(sep=" ", timespec="seconds")
        with contextlib.suppress(OSError):  # on a full disk the lock still holds
            file.seek(_DESCRIPTION_START)
            file.write(f"process {os.getpid()} on {socket.gethostname()}, since {began}".encode())
            file.truncate()
        yield
    finally:
        # Removed before it is unlocked: afterwards it could be the lock of another process.
        with contextlib.suppress(OSError):
            path.unlink()
        with contextlib.suppress(OSError):
            file.close()


def holder(folder: Path) -> str | None:
    """Return a description of the process that writes to ``folder``, or ``None``.

    Nothing is written. If the lock is free, it is taken for a moment, so a caller that polls should
    wait until the file changes.
    """
    # Opened for reading, because the folder may belong to someone else, and without blocking on a
    # pipe of that name.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _FLAGS
    try:
        descriptor = os.open(folder / NAME, flags)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        return None if _try_lock(file) else _description(file)


def _open_locked(path: Path) -> IO[bytes]:
    while True:
        try:
            # A link in a stranger's folder could lead to a file of the user.
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o644)
        except OSError as error:
            if not path.is_symlink():
                raise
            problem = "it is a link instead of a lock file"
            raise DamagedFileError(path, problem, "Remove it.") from error
        file = os.fdopen(descriptor, "r+b", buffering=0)
        if not _try_lock(file):
            with file:
                raise LockedError(path.parent, _description(file))
        # The process that held the lock may have removed the file in the meantime.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return file
        file.close()


def _description(file: IO[bytes]) -> str:
    file.seek(_DESCRIPTION_START)
    return file.read(200).decode(errors="replace") or "another process"


def _try_lock(file: IO[bytes]) -> bool:
    """Lock an open file, if the operating system can; false if it is locked already."""
    try:
        return lock_descriptor(file.fileno(), blocking=False)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
    warn(
        "this platform cannot lock files: make sure that no other process writes to the same run "
        "folder",
    )
    return True
