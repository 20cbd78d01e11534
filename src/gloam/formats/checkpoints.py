"""The state of a search as arrays by their place in the tree, and back.

The checkpoints of a run folder: the last few states of the search, each in a file of its own.

A file is named by the number of iterations finished. When the newest file is damaged, the one
before it is read instead, with a warning that names the damaged file.

The snapshots of a run folder: discount and elites of the first seed at chosen iterations.
"""

import contextlib
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from gloam.draws import GENERATOR
from gloam.formats.arrays import read_arrays, write_arrays
from gloam.formats.documents import DamagedFileError
from gloam.formats.ownership import CHECKPOINT, SNAPSHOT


def state_arrays(state: Any) -> dict[str, np.ndarray]:
    """The arrays of a state by their place in it. Random keys are stored as their raw words.

    >>> list(state_arrays({"a": jnp.zeros(2), "b": [jnp.ones(1)]}))
    ["['a']", "['b'][0]"]
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {jax.tree_util.keystr(path): _raw(leaf) for path, leaf in leaves}


def state_from(like: Any, arrays: dict[str, np.ndarray]) -> Any:
    """A state of the structure of ``like`` (arrays or shapes) from `state_arrays`.

    Raises:
        ValueError: The arrays are of another structure.
    """
    expected, structure = jax.tree_util.tree_flatten_with_path(like)
    places = [jax.tree_util.keystr(path) for path, _ in expected]
    if set(places) != set(arrays):
        missing, more = sorted(set(places) - set(arrays)), sorted(set(arrays) - set(places))
        raise ValueError(
            f"it was written for another algorithm: missing are {missing[:3]}, unknown {more[:3]}"
        )
    leaves = [
        _leaf(place, shape, arrays[place])
        for place, (_, shape) in zip(places, expected, strict=True)
    ]
    return jax.tree.unflatten(structure, leaves)


def _leaf(place: str, like: Any, array: np.ndarray) -> jax.Array:
    is_key = jnp.issubdtype(like.dtype, jax.dtypes.prng_key)
    raw = jax.eval_shape(jax.random.key_data, like) if is_key else like
    if array.shape != raw.shape or array.dtype != raw.dtype:
        raise ValueError(
            f"its array {place} is {array.dtype}{list(array.shape)} instead of "
            f"{raw.dtype}{list(raw.shape)}: it was written for another algorithm"
        )
    leaf = jnp.asarray(array)
    return jax.random.wrap_key_data(leaf, impl=GENERATOR) if is_key else leaf


def _raw(leaf: Any) -> np.ndarray:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)


_FIX = "Restore it from a copy, or start the run again in another folder."
_T = TypeVar("_T")


class Checkpoint(NamedTuple):
    """A state of the search, and what belongs to it."""

    state: Any
    iteration: int
    """Iterations finished."""
    seconds: float
    """Time that the run had taken."""
    num_rows: int | None
    """Number of rows of metrics up to this iteration; ``None`` if the file does not say it."""


class Checkpoints:
    """The checkpoint files of one run folder.

    Args:
        folder: The folder ``checkpoint`` of a run folder; it need not exist.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def files(self) -> list[Path]:
        """The checkpoint files, newest first; some may be damaged."""
        if not self.folder.is_dir():
            return []
        found = [file for file in self.folder.iterdir() if CHECKPOINT.fullmatch(file.name)]
        return sorted(filter(Path.is_file, found), key=_iteration_of, reverse=True)

    def write(self, checkpoint: Checkpoint, *, run: str, keep: int) -> None:
        """Write a checkpoint, and then remove all but the last ``keep``.

        Checkpoints of later iterations are removed, too. The search continued from an earlier one,
        so they were damaged.
        """
        about = {
            "run": run,
            "iteration": checkpoint.iteration,
            "seconds": checkpoint.seconds,
            "num_rows": checkpoint.num_rows,
        }
        path = self.folder / f"{checkpoint.iteration:07d}.npz"
        write_arrays(path, state_arrays(checkpoint.state), kind="checkpoint", about=about)
        written = self.files()
        kept = [file for file in written if _iteration_of(file) <= checkpoint.iteration][:keep]
        for file in set(written) - set(kept):
            # A file that cannot be removed, because someone reads it, does no harm.
            with contextlib.suppress(OSError):
                file.unlink()

    def read(self, like: Any, *, run: str) -> Checkpoint:
        """The newest checkpoint that is whole, its state of the structure of ``like``."""

        def read(path: Path) -> Checkpoint:
            arrays, about = _read(path, run)
            return _checkpoint(state_from(like, arrays), about)

        return self._newest(read)

    def read_arrays(self, prefix: str, *, run: str) -> tuple[dict[str, np.ndarray], int]:
        """Arrays of the newest whole checkpoint whose names begin with ``prefix``; its iteration.

        The names of the result do not have the prefix.
        """

        def read(path: Path) -> tuple[dict[str, np.ndarray], int]:
            arrays, about = _read(path, run, prefix)
            return {name.removeprefix(prefix): arrays[name] for name in arrays}, about["iteration"]

        return self._newest(read)

    def read_iteration(self, *, run: str) -> int:
        """Iterations finished at the newest checkpoint; its arrays are not read."""
        return self.read_arrays("no array", run=run)[1]

    def _newest(self, read: Callable[[Path], _T]) -> _T:
        """What ``read`` makes of the newest file that it can read."""
        tried: dict[Path, DamagedFileError] = {}
        while True:
            path = next((file for file in self.files() if file not in tried), None)
            if path is None:
                break
            try:
                found = read(path)
            except DamagedFileError as error:
                tried[path] = error
            except ValueError as error:
                tried[path] = DamagedFileError(path, str(error), _FIX)
            else:
                # A file that is gone was not damaged: the run goes on, and removed it.
                _warn([error for file, error in tried.items() if file.is_file()], path)
                return found
        missing = DamagedFileError(self.folder, "it has no checkpoint", _FIX)
        raise next(iter(tried.values()), missing)


def _iteration_of(path: Path) -> int:
    return -1 if path.stem == "state" else int(path.stem)


def _read(path: Path, run: str, prefix: str = "") -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays of a checkpoint of this run and what belongs to them, checked."""
    arrays, about = read_arrays(path, kind="checkpoint", fix=_FIX, prefix=prefix)
    if about.get("run") != run:
        raise ValueError("it belongs to another run")
    iteration = about.get("iteration")
    if type(iteration) is not int or iteration < 0:
        raise ValueError("it does not say how many iterations were finished")
    if _iteration_of(path) not in (-1, iteration):
        raise ValueError(f"it is the checkpoint of iteration {iteration}")
    return arrays, about


def _checkpoint(state: Any, about: dict[str, Any]) -> Checkpoint:
    seconds, num_rows = about.get("seconds"), about.get("num_rows")
    if not (isinstance(seconds, float) and math.isfinite(seconds)):
        raise ValueError("it does not say how long the run took")
    if num_rows is not None and (type(num_rows) is not int or num_rows < 0):
        raise ValueError("it does not say how many rows of metrics belong to it")
    if int(state.iteration) != about["iteration"]:
        raise ValueError("it does not agree with itself on the iteration")
    return Checkpoint(state, about["iteration"], seconds, num_rows)


def _warn(errors: list[DamagedFileError], used: Path) -> None:
    for error in errors:
        warnings.warn(
            f"checkpoint: '{error.path}' cannot be used: {error.problem}. The checkpoint before it "
            f"is used instead, '{used}'.",
            stacklevel=5,
        )


_DELETE = "Delete it, or restore it from a copy."


class Snapshots:
    """The snapshots in one run folder.

    Args:
        folder: The folder ``snapshots`` of a run folder; it need not exist.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def iterations(self) -> list[int]:
        """Iterations that have a file, ascending; some may be damaged."""
        names = (file.name for file in self.folder.glob("*.npz"))
        return sorted(int(Path(name).stem) for name in names if SNAPSHOT.fullmatch(name))

    def path(self, iteration: int) -> Path:
        """The file of an iteration."""
        return self.folder / f"{iteration:07d}.npz"

    def write(self, iteration: int, arrays: dict[str, np.ndarray], *, run: str) -> None:
        """Write the arrays of an iteration."""
        write_arrays(self.path(iteration), arrays, kind="snapshot", about={"run": run})

    def read(self, iteration: int, *, run: str) -> dict[str, np.ndarray]:
        """The arrays of an iteration.

        Raises:
            DamagedFileError: The file is damaged, or belongs to another run.
        """
        arrays, about = read_arrays(self.path(iteration), kind="snapshot", fix=_DELETE)
        if about.get("run") != run:
            raise DamagedFileError(self.path(iteration), "it belongs to another run", _DELETE)
        return arrays
