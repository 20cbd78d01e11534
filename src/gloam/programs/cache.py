"""The cache of compiled programs on disk, from which later processes start."""

import os
import stat
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

from gloam.files import cache_folder

_CONFIG: Any = jax.config  # its options are not declared
_MOST_BYTES = 2 * 2**30


def keep_compiled_programs() -> None:
    """Keep compiled programs in the user's cache folder, unless JAX already keeps them elsewhere.

    The folder is used only if nobody else can write to it, because programs are run as they are
    read. The least recently used programs are removed when it has 2 GiB. Processes may share it.
    ``JAX_ENABLE_COMPILATION_CACHE=false`` turns it off.
    """
    if _CONFIG.jax_compilation_cache_dir or not _CONFIG.jax_enable_compilation_cache:
        return
    folder = cache_folder() / "programs"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_private = _is_private(folder) and _is_private(folder.parent)
    except OSError:
        return
    if is_private:
        _CONFIG.update("jax_compilation_cache_dir", str(folder))
        _CONFIG.update("jax_compilation_cache_max_size", _MOST_BYTES)
        # JAX looks for the folder only once, when it compiles its first program.
        compilation_cache.reset_cache()


def _is_private(folder: Path) -> bool:
    """Whether this user owns a folder and is the only one who can write to it."""
    found = folder.stat()
    owner = os.getuid() if hasattr(os, "getuid") else found.st_uid
    return found.st_uid == owner and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
