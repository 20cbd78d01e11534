"""Where files are kept that can be made again."""

import os
from pathlib import Path


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
