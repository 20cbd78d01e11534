"""Where made files are kept, and how they are written: whole or not at all. No pickles."""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np


def cache_folder() -> Path:
    """Where files are kept that can be made again: ``GLOAM_CACHE``, or the user's cache folder."""
    given = os.environ.get("GLOAM_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(home) / "gloam"


def can_write(folder: Path) -> bool:
    """Whether files can be made in ``folder``, which is made if need be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays as an uncompressed ``.npz``; a crash leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # Into the file at once: a buffer would be a second copy of what may be gigabytes.
        with open(aside, "wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
