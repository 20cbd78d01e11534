"""Embeddings of items by a user's function, computed in batches and cached on disk."""

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Shaped

from gloam._tools import checks, files
from gloam._tools.progress import work_bar
from gloam._tools.warn import warn
from gloam.datasets.rows import blocks, evenly_spaced

# Number of cached vectors that are computed again, and the difference allowed, relative to the
# largest: rounding depends on the size of a batch.
_PROBES, _TOLERANCE = 4, 0.01


def embed_all(
    embed: Callable[[np.ndarray], Any],
    inputs: Shaped[np.ndarray, "n *item"],
    *,
    batch: int,
    cache: bool | str | os.PathLike,
    source: Path | None,
    progress: bool,
) -> Float32[np.ndarray, "n d"]:
    """Return the embeddings of all ``inputs``; for the arguments see `Dataset.embedded`."""
    checks.expect(callable(embed), "embed", "a function of a batch", repr(embed))
    batch = checks.integer("batch", batch, minimum=1)
    name = function_name(embed)
    folder = _folder(cache, source)  # refused before the work begins
    path = None if folder is None else folder / _file_name(name, inputs)
    cached = None if path is None else _cached(path, embed, inputs)
    if cached is not None:
        return cached
    vectors = np.empty((0, 0), np.float32)
    with work_bar(f"embedding by {name}", len(inputs), show=progress) as advance:
        for start in range(0, len(inputs), batch):
            part = _embedded(embed, inputs[start : start + batch], start)
            if start == 0:
                vectors = np.empty((len(inputs), part.shape[1]), np.float32)
            checks.expect(
                part.shape[1] == vectors.shape[1],
                "embed",
                f"{vectors.shape[1]} numbers for each item, as in the first batch",
                f"{part.shape[1]} from item {start} on",
            )
            vectors[start : start + batch] = part
            advance(len(part))
    if path is not None:
        try:
            files.write_array(path, vectors)
        except OSError as error:  # a full disk must not discard the vectors
            warn(f"embeddings could not be cached in '{path}': {error}")
    return vectors


def function_name(embed: Any) -> str:
    """Return the module and qualified name of a function, or of the class of a callable object."""
    inner = getattr(embed, "func", embed)  # unwraps functools.partial
    named = inner if hasattr(inner, "__qualname__") else type(inner)
    return f"{getattr(named, '__module__', '')}.{named.__qualname__}".lstrip(".")


def _embedded(embed: Callable[[np.ndarray], Any], batch: np.ndarray, start: int) -> np.ndarray:
    """Return the validated embeddings of one batch, which starts at item ``start``."""
    result = embed(np.array(batch))  # a copy, because the function may modify it
    fix = "Return a NumPy array with one row of numbers for each item of the batch."
    try:
        with np.errstate(over="ignore"):
            vectors = np.asarray(result, np.float32)
    except (TypeError, ValueError, RuntimeError) as error:  # RuntimeError: PyTorch
        got = f"{type(result).__name__} ({error})"
        raise ValueError(f"embed: expected an array of numbers, got {got}. {fix}") from None
    fits = vectors.ndim == 2 and len(vectors) == len(batch) and vectors.shape[1] > 0
    expected = f"shape ({len(batch)}, d) for a batch of shape {batch.shape}"
    checks.expect(fits, "embed", expected, f"shape {vectors.shape}", fix)
    is_finite = np.isfinite(vectors).all(axis=1)
    got = f"NaN or infinity for item {start + int(is_finite.argmin())}"
    checks.expect(bool(is_finite.all()), "embed", "finite numbers", got)
    return vectors


def _folder(cache: bool | str | os.PathLike, source: Path | None) -> Path | None:
    """Return the cache folder, or ``None`` without a cache."""
    if not isinstance(cache, bool):
        folder = Path(cache)
        checks.expect(_can_write(folder), "cache", "a writable folder", f"'{cache}'")
        return folder
    if not cache or source is None:
        return None
    beside = (source if source.is_dir() else source.parent) / ".gloam"
    return beside if _can_write(beside) else files.cache_folder() / "embeddings"


def _can_write(folder: Path) -> bool:
    """Create ``folder`` if it is missing, and return whether files can be created in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError):  # a name that no folder can have
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def _file_name(name: str, inputs: np.ndarray) -> str:
    content = hashlib.sha256(f"{name} {inputs.dtype} {inputs.shape}".encode())
    for block in blocks(inputs):
        content.update(np.ascontiguousarray(inputs[block]).data)
    readable = re.sub(r"[^\w.]+", "-", name)[-60:].strip("-.")
    return f"{readable}-{content.hexdigest()[:32]}.npy"


def _cached(path: Path, embed: Callable[[np.ndarray], Any], inputs: np.ndarray) -> Any:
    """Return the cached vectors if ``embed`` still returns the same for a few of them."""
    if not path.is_file():
        return None
    try:
        vectors = files.read_array(path)
    except ValueError:  # damaged, or not a cache: computed and written again
        return None
    is_ours = vectors.ndim == 2 and len(vectors) == len(inputs) and vectors.dtype == np.float32
    if not is_ours or not np.isfinite(vectors).all():
        return None
    probes = evenly_spaced(len(inputs), _PROBES)
    now, then = _embedded(embed, inputs[probes], 0), vectors[probes]
    same = now.shape == then.shape and np.abs(now - then).max() <= _TOLERANCE * np.abs(then).max()
    return vectors if same else None
