"""Checkpoints of a run, and the conversion of states and elites to named arrays and back.

The last few states of the search are kept, each in a file that is named by the number of finished
iterations. If the newest file is damaged, the one before it is read, with a warning.
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

from gloam import checks
from gloam.archives import Archive, Elites
from gloam.archives.store import empty_store
from gloam.draws import GENERATOR
from gloam.formats.arrays import raw_array, read_arrays, write_arrays
from gloam.formats.documents import DamagedFileError, content_of
from gloam.formats.ownership import CHECKPOINT

_FIX = "Restore it from a copy, or start the run again in another folder."
_T = TypeVar("_T")


class Checkpoint(NamedTuple):
    """A state of the search, and what belongs to it."""

    state: Any
    iteration: int
    """Number of finished iterations."""
    seconds: float
    """Time that the run had taken."""
    num_rows: int
    """Number of rows of metrics up to this iteration."""


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

        Checkpoints of later iterations are removed as well: the search continued from an earlier
        one, so they were damaged.
        """
        about = {"run": run} | checkpoint._asdict()
        arrays = state_arrays(about.pop("state"))
        path = self.folder / f"{checkpoint.iteration:07d}.npz"
        write_arrays(path, arrays, kind="checkpoint", about=about)
        written = self.files()
        kept = [file for file in written if _iteration_of(file) <= checkpoint.iteration][:keep]
        for file in set(written) - set(kept):
            # A file that cannot be removed because someone reads it does no harm.
            with contextlib.suppress(OSError):
                file.unlink()

    def read(self, like: Any, *, run: str) -> Checkpoint:
        """Read the newest valid checkpoint, its state of the structure of ``like``."""

        def read(path: Path) -> Checkpoint:
            arrays, about = _read(path, run)
            state = state_from(like, arrays)
            if int(state.iteration) != about["iteration"]:
                raise ValueError("its state is of another iteration")
            return Checkpoint(state, about["iteration"], about["seconds"], about["num_rows"])

        return self._newest(read)

    def read_arrays(self, prefix: str | None, *, run: str) -> tuple[dict[str, np.ndarray], int]:
        """Read a part of the newest valid checkpoint.

        Args:
            prefix: What the names of the arrays begin with; ``None`` reads no arrays.
            run: Identity of the run.

        Returns:
            The arrays, under names without the prefix, and the number of finished iterations.
        """

        def read(path: Path) -> tuple[dict[str, np.ndarray], int]:
            arrays, about = _read(path, run, prefix)
            cut = len(prefix or "")
            return {name[cut:]: array for name, array in arrays.items()}, about["iteration"]

        return self._newest(read)

    def _newest(self, read: Callable[[Path], _T]) -> _T:
        """What ``read`` returns for the newest file that it can read."""
        tried: dict[Path, DamagedFileError] = {}
        while path := next((file for file in self.files() if file not in tried), None):
            try:
                with content_of(path, _FIX):
                    found = read(path)
            except DamagedFileError as error:
                tried[path] = error
                continue
            # A file that is gone was not damaged: the run goes on, and removed it.
            _warn([error for file, error in tried.items() if file.is_file()], path)
            return found
        missing = DamagedFileError(self.folder, "it has no checkpoint", _FIX)
        raise next(iter(tried.values()), missing)


def _iteration_of(path: Path) -> int:
    return int(path.stem)


def _read(
    path: Path, run: str, prefix: str | None = ""
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    arrays, about = read_arrays(path, kind="checkpoint", fix=_FIX, run=run, prefix=prefix)
    seconds = about.get("seconds")
    if not (isinstance(seconds, float) and math.isfinite(seconds)):
        raise ValueError("it does not state how long the run took")
    for name in ("iteration", "num_rows"):
        checks.integer(name, about.get(name), minimum=0)
    if _iteration_of(path) != about["iteration"]:
        raise ValueError(f"it is the checkpoint of iteration {about['iteration']}")
    return arrays, about


def _warn(errors: list[DamagedFileError], used: Path) -> None:
    for error in errors:
        warnings.warn(
            f"checkpoint: '{error.path}' cannot be used: {error.problem}. The checkpoint before it "
            f"is used instead, '{used}'.",
            stacklevel=5,
        )


def state_arrays(state: Any) -> dict[str, np.ndarray]:
    """Return the arrays of a state by their place in the tree; random keys as their raw words.

    >>> list(state_arrays({"a": jnp.zeros(2), "b": [jnp.ones(1)]}))
    ["['a']", "['b'][0]"]
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {jax.tree_util.keystr(path): raw_array(leaf) for path, leaf in leaves}


def state_from(like: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Return a state of the structure of ``like`` (arrays or shapes) from `state_arrays`.

    Raises:
        ValueError: The arrays are of another structure.
    """
    expected, structure = jax.tree_util.tree_flatten_with_path(like)
    places = [jax.tree_util.keystr(path) for path, _ in expected]
    if set(places) != set(arrays):
        missing, unknown = sorted(set(places) - set(arrays)), sorted(set(arrays) - set(places))
        raise ValueError(
            f"it was written for another algorithm: it lacks the arrays {missing[:3]} and has "
            f"the unknown arrays {unknown[:3]}"
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


def elite_arrays(elites: Elites) -> dict[str, np.ndarray]:
    """Return the elites of an archive as arrays, one row for each occupied cell."""
    arrays = {
        "cell": elites.cells,
        "solution": elites.solutions,
        "objective": elites.objectives,
        "measures": elites.flat_measures,
    }
    return arrays | {f"field_{name}": elites.field(name) for name in elites.store.fields}


def stored_elite_arrays(store: dict[str, np.ndarray], place: int) -> dict[str, np.ndarray]:
    """Return the `elite_arrays` of one seed from the store of all seeds.

    Args:
        store: The store, as `state_arrays` names its arrays.
        place: Index of the seed among the seeds of the run.

    Raises:
        ValueError: The arrays are not those of a store, or there are fewer seeds.
    """
    names = {".solutions": "solution", ".objectives": "objective", ".measures": "measures"}
    names |= {name: f"field_{name[9:-2]}" for name in store if name.startswith(".fields['")}
    if set(names) != set(store) or any(len(array) <= place for array in store.values()):
        raise ValueError(f"it does not have the elites of {place + 1} seeds")
    occupied = np.isfinite(store[".objectives"][place])
    rows = {new: store[old][place][occupied] for old, new in names.items()}
    return {"cell": np.flatnonzero(occupied)} | rows


def elites_from(archive: Archive, arrays: dict[str, np.ndarray]) -> Elites:
    """Return the elites of ``archive`` from `elite_arrays`.

    Raises:
        ValueError: The arrays do not fit the archive or one another.
    """
    cells = _checked_elites(archive, arrays)

    def spread(values: np.ndarray, empty: float = 0.0) -> Any:
        whole = np.full((archive.num_cells, *values.shape[1:]), empty, values.dtype)
        whole[cells] = values
        return whole

    solutions, objectives = spread(arrays["solution"]), spread(arrays["objective"], -np.inf)
    fields = {name: spread(arrays[f"field_{name}"]) for name in archive.fields}
    parts = solutions, objectives, spread(arrays["measures"]), fields
    sizes = archive.num_cells, solutions.shape[1], archive.measure_dim
    # A store that is built by its constructor has its arrays on the device.
    like = jax.eval_shape(lambda: empty_store(*sizes, archive.fields))
    return Elites(archive, jax.tree.unflatten(jax.tree.structure(like), jax.tree.leaves(parts)))


def _checked_elites(archive: Archive, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """Check the arrays of elites, and return their cells."""
    names = {"cell", "solution", "objective", "measures"}
    names |= {f"field_{name}" for name in archive.fields}
    if set(arrays) != names:
        raise ValueError(f"it has the arrays {sorted(arrays)} instead of {sorted(names)}")
    cells, solutions = arrays["cell"], arrays["solution"]
    if cells.dtype.kind != "i" or cells.ndim != 1 or (np.diff(cells) <= 0).any():
        raise ValueError("its cells are not distinct integers in ascending order")
    if len(cells) and not (cells[0] >= 0 and cells[-1] < archive.num_cells):
        raise ValueError(f"it has cells outside of the archive's {archive.num_cells}")
    float32 = np.dtype(np.float32)
    specs = {
        "solution": (solutions.shape[1:2] or (1,), float32),
        "objective": ((), float32),
        "measures": ((archive.measure_dim,), float32),
    }
    specs |= {f"field_{name}": (spec.shape, spec.dtype) for name, spec in archive.fields.items()}
    for name, (shape, dtype) in specs.items():
        array, wanted = arrays[name], (len(cells), *shape)
        if array.shape != wanted or array.dtype != dtype:
            found = f"{array.dtype}{list(array.shape)}"
            raise ValueError(f"its array '{name}' is {found} instead of {dtype}{list(wanted)}")
    if not np.isfinite(arrays["objective"]).all():
        raise ValueError("it has objectives that are not finite")
    numbers_per_cell = sum(math.prod(shape) for shape, _ in specs.values()) + 1
    checks.fits_memory("archive", 4 * archive.num_cells * numbers_per_cell)
    return cells
