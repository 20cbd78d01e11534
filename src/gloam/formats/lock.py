"""A lock on a folder that ends with the process that holds it."""

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO

from gloam.formats.errors import DamagedFileError, LockedError

NAME = ".gloam.lock"


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
    flags = os.O_RDWR if sys.platform == "win32" else os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(folder / NAME, flags)
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
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
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


if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: IO[bytes]) -> bool:
        # A byte far behind the content, which others may read.
        file.seek(1 << 20)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(file: IO[bytes]) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
