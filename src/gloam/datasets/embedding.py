"""Items to vectors by a function of the user's, batch by batch, kept for the next time."""

import hashlib
import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Shaped

from gloam import checks, files
from gloam.datasets import rows as limits
from gloam.datasets.rows import blocks
from gloam.files import cache_folder
from gloam.progress import work_bar

_PROBES = 4
_TOLERANCE = 0.01


def embed_all(
    embed: Callable[[np.ndarray], Any],
    inputs: Shaped[np.ndarray, "n *item"],
    *,
    batch: int,
    cache: bool | str | os.PathLike,
    source: Path | None,
    progress: bool,
) -> Float32[np.ndarray, "n d"]:
    """``embed`` of all ``inputs``; arguments as in `Dataset.embedded`."""
    checks.expect(callable(embed), "embed", "a function of a batch", repr(embed))
    batch = checks.integer("batch", batch, minimum=1)
    name = function_name(embed)
    folder = _folder(cache, source)  # found before the work, that its result may surely be kept
    path = None if folder is None else folder / _file_name(name, inputs)
    found = None if path is None else _found(path, embed, inputs)
    if found is not None:
        return found
    vectors = np.empty((0, 0), np.float32)
    with work_bar(f"embedding by {name}", len(inputs), show=progress) as advance:
        for start in range(0, len(inputs), batch):
            some = _embedded(embed, inputs[start : start + batch], start)
            if start == 0:
                vectors = np.empty((len(inputs), some.shape[1]), np.float32)
            checks.expect(
                some.shape[1] == vectors.shape[1],
                "embed",
                f"{vectors.shape[1]} numbers for each item, as in the first batch",
                f"{some.shape[1]} from item {start} on",
            )
            vectors[start : start + batch] = some
            advance(len(some))
    if path is not None:
        try:
            files.write_arrays(path, {"vectors": vectors, "embed": np.array(name)})
        except OSError as error:  # a full disk must not cost the vectors as well
            warnings.warn(f"embeddings could not be kept in '{path}': {error}", stacklevel=3)
    return vectors


def function_name(embed: Any) -> str:
    """Module and qualified name of a function; of an object that can be called, its class's."""
    inner = getattr(embed, "func", embed)  # what a functools.partial calls
    named = inner if hasattr(inner, "__qualname__") else type(inner)
    return f"{getattr(named, '__module__', '')}.{named.__qualname__}".lstrip(".")


def _embedded(embed: Callable[[np.ndarray], Any], some: np.ndarray, start: int) -> np.ndarray:
    result = embed(np.array(some))  # a copy, which the function may change
    fix = "Return a NumPy array with one row of numbers for each item of the batch."
    try:
        with np.errstate(over="ignore"):
            vectors = np.asarray(result, np.float32)
    except (TypeError, ValueError, RuntimeError) as error:  # PyTorch refuses by RuntimeError
        got = f"{type(result).__name__} ({error})"
        raise ValueError(f"embed: expected an array of numbers, got {got}. {fix}") from None
    fits = vectors.ndim == 2 and len(vectors) == len(some) and vectors.shape[1] > 0
    checks.expect(
        fits,
        "embed",
        f"shape ({len(some)}, d) for a batch of shape {some.shape}",
        f"shape {vectors.shape}",
        fix,
    )
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    checks.expect(
        len(bad) == 0,
        "embed",
        "finite numbers",
        f"NaN or infinity for item {start + (bad[0] if len(bad) else 0)}",
    )
    return vectors


def _folder(cache: bool | str | os.PathLike, source: Path | None) -> Path | None:
    """Where vectors are kept, if they are."""
    if not isinstance(cache, bool):
        folder = Path(cache)
        checks.expect(_can_write(folder), "cache", "a folder that can be written to", f"'{cache}'")
        return folder
    if not cache or source is None:
        return None
    beside = (source if source.is_dir() else source.parent) / ".gloam"
    # Data may lie where only others can write.
    return beside if _can_write(beside) else cache_folder() / "embeddings"


def _can_write(folder: Path) -> bool:
    """Whether files can be created in ``folder``, which is created where it is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def _file_name(name: str, inputs: np.ndarray) -> str:
    content = hashlib.sha256(f"{name} {inputs.dtype} {inputs.shape}".encode())
    for block in blocks(inputs):
        content.update(np.ascontiguousarray(inputs[block]).data)
    readable = re.sub(r"[^\w.]+", "-", name)[-60:].strip("-.")
    return f"{readable}-{content.hexdigest()[:32]}.npz"


def _found(path: Path, embed: Callable[[np.ndarray], Any], inputs: np.ndarray) -> Any:
    """Vectors from an earlier time, if a few of them are what ``embed`` still returns."""
    if not path.is_file():
        return None
    try:
        with files.open_regular(path) as file:
            vectors = limits.ZippedArrays(file).read("vectors")
    except Exception:  # not one of ours, or damaged in any way: computed and written anew
        return None
    is_ours = vectors.ndim == 2 and len(vectors) == len(inputs) and vectors.dtype == np.float32
    if not is_ours or not np.isfinite(vectors).all():
        return None
    probes = np.unique(np.linspace(0, len(inputs) - 1, _PROBES).astype(int))
    now = _embedded(embed, inputs[probes], 0)
    then = vectors[probes]
    # Rounding depends on the size of a batch, so "the same" allows for some of it.
    same = now.shape == then.shape and np.abs(now - then).max() <= _TOLERANCE * np.abs(then).max()
    return vectors if same else None
