"""Which files of a run folder are gloam's own.

A lock on a folder that ends with the process that holds it.
"""

import contextlib
import importlib
import os
import re
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from gloam import files
from gloam.formats.documents import DamagedFileError, LockedError

SNAPSHOT = re.compile(r"\d{7,10}\.npz")
ARCHIVE = re.compile(r"archive(-\d+)?\.npz")
# Development versions wrote one checkpoint, state.npz. It is read, and not written any more.
CHECKPOINT = re.compile(r"\d{7,10}\.npz|state\.npz")
# What gloam writes into a run folder, by folder. Nothing else is ever removed or replaced there.
_NAMES = {
    "": r"config\.(json|npz)|metrics\.(parquet|log)|dataset\.npz|(gallery|report)\.html"
    rf"|matches\.(csv|parquet)|failures\.parquet|{ARCHIVE.pattern}",
    "checkpoint": CHECKPOINT.pattern,
    "snapshots": SNAPSHOT.pattern,
    "figures": r"(curves|archive|pairwise|discount|gallery)\.(png|pdf)",
}
FOLDERS = tuple(filter(None, _NAMES))
"""Folders that gloam makes inside a run folder."""


def own_files(run_folder: Path, *, partial: bool = False) -> list[Path]:
    """Files with the names that gloam gives, or what a killed process began of them.

    Links to other folders are not followed.
    """
    found = []
    for name, pattern in _NAMES.items():
        folder = run_folder / name
        if folder.is_dir() and not (name and folder.is_symlink()):
            wanted = re.compile(files.partial_name(f"({pattern})") if partial else pattern)
            found += [file for file in folder.iterdir() if wanted.fullmatch(file.name)]
    return [file for file in found if file.is_symlink() or file.is_file()]


NAME = ".gloam.lock"
# The first is unknown to Windows, the second to all others.
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from writing to ``folder`` while the block runs.

    The operating system gives the lock back when a process ends, however it ends. The file is
    removed afterwards; whoever waited with the removed file open looks again.

    Raises:
        LockedError: Another process, or another run of this process, has the lock.
        OSError: The folder cannot be written to.
    """
    path = folder / NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = _opened(path)
    except OSError as error:
        error.add_note("A run needs a folder that it can write to: choose another one.")
        raise
    try:
        began = datetime.now().isoformat(sep=" ", timespec="seconds")
        with contextlib.suppress(OSError):  # a full disk; the lock itself takes no room
            file.seek(0)
            file.truncate()
            file.write(f"process {os.getpid()} on {socket.gethostname()}, since {began}".encode())
            file.flush()
        yield
    finally:
        # Removed before it is unlocked: afterwards it could be another process's lock.
        with contextlib.suppress(OSError):
            path.unlink()
        with contextlib.suppress(OSError):
            file.close()


def holder(folder: Path) -> str | None:
    """Who writes to ``folder`` now, as the lock says it, or ``None``. Nothing is written.

    If nobody has the lock, this function has it for a moment: do not ask again before the file
    has changed.
    """
    # For reading, because the folder may be somebody else's; a pipe of that name does not block.
    # Windows locks only what may be written to.
    access = os.O_RDWR if _fcntl is None else os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(folder / NAME, access | _FLAGS)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if _try_lock(file):
            return None
        file.seek(0)
        return file.read(200).decode(errors="replace") or "another process"


def _opened(path: Path) -> IO[bytes]:
    """The lock file, opened and locked."""
    while True:
        try:
            # A link in a folder of a stranger could lead to a file of the user's.
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o644)
        except OSError as error:
            if not path.is_symlink():
                raise
            fix = "Remove it."
            raise DamagedFileError(path, "it is a link instead of a lock file", fix) from error
        file = os.fdopen(descriptor, "r+b")
        if not _try_lock(file):
            file.seek(0)
            holder = file.read(200).decode(errors="replace") or "another process"
            file.close()
            raise LockedError(path.parent, holder)
        try:
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except FileNotFoundError:
            pass
        file.close()


def _module(name: str) -> Any:
    """A module that only some operating systems have, or ``None``."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


_fcntl, _msvcrt = _module("fcntl"), _module("msvcrt")


def _try_lock(file: IO[bytes]) -> bool:
    """Lock an open file, by what the operating system has: POSIX, Windows, or neither."""
    if _fcntl is not None:
        try:
            _fcntl.flock(file, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    elif _msvcrt is not None:
        # A byte far behind the content, which others may read.
        file.seek(1 << 20)
        try:
            _msvcrt.locking(file.fileno(), _msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
    else:
        warnings.warn(
            "this platform cannot lock files: make sure that no other process writes to the same "
            "run folder",
            stacklevel=2,
        )
    return True
