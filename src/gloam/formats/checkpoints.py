"""Checkpoints of a run, and the conversion of states and elites to named arrays and back.

The last few states of the search are kept, each in a file that is named by the number of finished
iterations. If the newest file is damaged, the one before it is read, with a warning.
"""

import contextlib
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from gloam._tools import checks
from gloam._tools.draws import GENERATOR
from gloam._tools.warn import warn
from gloam._version import __version__
from gloam.archives import Archive, Elites
from gloam.archives.store import empty_store
from gloam.errors import DamagedFileError
from gloam.formats.arrays import Prefix, raw_array, read_arrays, write_arrays
from gloam.formats.documents import check_is_no_folder, content_of
from gloam.formats.ownership import CHECKPOINT
from gloam.spaces import Form

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
        """The checkpoint files, newest first; some may be damaged, or folders."""
        if not self.folder.is_dir():
            return []
        files = [file for file in self.folder.iterdir() if CHECKPOINT.fullmatch(file.name)]
        return sorted(filter(Path.exists, files), key=_iteration_of, reverse=True)

    def write(self, checkpoint: Checkpoint, *, run: str, keep: int) -> None:
        """Write a checkpoint, and then remove all but the last ``keep``.

        Checkpoints of later iterations are removed as well: the search continued from an earlier
        one, so they were damaged.
        """
        about = {"run": run, "written_by": _versions()} | checkpoint._asdict()
        arrays = state_arrays(about.pop("state"))
        path = self.folder / f"{checkpoint.iteration:07d}.npz"
        check_is_no_folder(path)
        write_arrays(path, arrays, kind="checkpoint", about=about)
        written = [file for file in self.files() if file.is_file()]
        kept = [file for file in written if _iteration_of(file) <= checkpoint.iteration][:keep]
        for file in set(written) - set(kept):
            # A file that cannot be removed because someone reads it does no harm.
            with contextlib.suppress(OSError):
                file.unlink()

    def read(self, like: Any, *, run: str, prefix: Prefix = "") -> Checkpoint:
        """Read the newest valid checkpoint, its state of the structure of ``like``.

        Args:
            like: A state, or its shapes; ``None`` for parts that are not read.
            run: Identity of the run.
            prefix: Read only arrays whose names begin with it, or with one of several.
        """

        def read(path: Path) -> Checkpoint:
            arrays, about = _read(path, run, prefix)
            try:
                state = state_from(like, arrays)
            except ValueError as error:
                raise _misfit(path, error, about.get("written_by")) from None
            if int(state.iteration) != about["iteration"]:
                raise ValueError("its state is of another iteration")
            return Checkpoint(state, about["iteration"], about["seconds"], about["num_rows"])

        return self._newest(read)

    def read_arrays(self, prefix: Prefix, *, run: str) -> tuple[dict[str, np.ndarray], int]:
        """Read the arrays of the newest valid checkpoint whose names begin with ``prefix``.

        Returns:
            The arrays, and the number of finished iterations.
        """

        def read(path: Path) -> tuple[dict[str, np.ndarray], int]:
            arrays, about = _read(path, run, prefix)
            return arrays, about["iteration"]

        return self._newest(read)

    def _newest(self, read: Callable[[Path], _T]) -> _T:
        """Return the result of ``read`` for the newest readable file."""
        tried: dict[Path, DamagedFileError] = {}
        while path := next((file for file in self.files() if file not in tried), None):
            try:
                with content_of(path, _FIX):
                    content = read(path)
            except DamagedFileError as error:
                tried[path] = error
                continue
            # A file that is gone was not damaged: the run goes on, and removed it.
            _warn([error for file, error in tried.items() if file.exists()], path)
            return content
        missing = DamagedFileError(self.folder, "it has no checkpoint", _FIX)
        raise next(iter(tried.values()), missing)


def _versions() -> dict[str, Any]:
    """What the arrays of a state may depend on besides the settings of the run."""
    x64 = "on" if jax.config.read("jax_enable_x64") else "off"
    return {"gloam": __version__, "JAX": jax.__version__, "jax_enable_x64": x64}


def _misfit(path: Path, error: ValueError, written_by: Any) -> DamagedFileError:
    """Explain why a checkpoint with valid arrays does not fit, by what has changed."""
    now = _versions()
    before = written_by if isinstance(written_by, dict) else {}
    changes = [
        f"{name} was {str(before[name])[:40]} and is {now[name]}"
        for name in now
        if name in before and before[name] != now[name]
    ]
    if not changes:
        return DamagedFileError(path, f"{error}, although its settings are those of the run", _FIX)
    problem = f"{error}; {', '.join(changes)}"
    return DamagedFileError(path, problem, "Resume the run with what it was written with.")


def _iteration_of(path: Path) -> int:
    return int(path.stem)


def _read(
    path: Path, run: str, prefix: Prefix = ""
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
        text = (
            f"checkpoint: '{error.path}' cannot be used: {error.problem}. The checkpoint before it "
            f"is used instead, '{used}'."
        )
        warn(checks.printable(text))


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
    named_leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    leaves = {jax.tree_util.keystr(path): leaf for path, leaf in named_leaves}
    keys = {n for n, leaf in leaves.items() if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)}
    raw = {name: jax.eval_shape(jax.random.key_data, leaves[name]) for name in keys}
    _check(arrays, leaves | raw)
    state = {name: jnp.asarray(arrays[name]) for name in leaves}
    state |= {name: jax.random.wrap_key_data(state[name], impl=GENERATOR) for name in keys}
    return jax.tree.unflatten(structure, list(state.values()))


def _check(arrays: dict[str, np.ndarray], specs: Mapping[str, Any]) -> None:
    """Check that arrays have the names, shapes and dtypes of ``specs``."""
    if set(specs) != set(arrays):
        missing, unknown = sorted(set(specs) - set(arrays)), sorted(set(arrays) - set(specs))
        raise ValueError(
            f"it has other arrays than the algorithm: it lacks {missing[:3]} and has the "
            f"unknown arrays {unknown[:3]}"
        )
    for name, spec in specs.items():
        array = arrays[name]
        if array.shape != spec.shape or array.dtype != spec.dtype:
            raise ValueError(
                f"its array '{name}' is {array.dtype}{list(array.shape)} instead of "
                f"{spec.dtype}{list(spec.shape)}"
            )


def elite_arrays(store: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the occupied cells and their elites, from the arrays of a store by ``.name``."""
    occupied = np.isfinite(store[".objectives"])
    rows = {name.removeprefix("."): array[occupied] for name, array in store.items()}
    return {"cells": np.flatnonzero(occupied)} | rows


def store_of_seed(store: dict[str, np.ndarray], index: int) -> dict[str, np.ndarray]:
    """Return the arrays of the seed at ``index`` from a store of several seeds.

    Raises:
        ValueError: The arrays are not those of a store, or there are fewer seeds.
    """
    sizes = {array.shape[:2] for array in store.values()}
    is_store = ".objectives" in store and len(sizes) == 1 and len(min(sizes)) == 2
    if not is_store or min(sizes)[0] <= index:
        raise ValueError(f"it does not have the elites of {index + 1} seeds")
    return {name: array[index] for name, array in store.items()}


def elites_from(
    archive: Archive, arrays: dict[str, np.ndarray], reference: float, form: Form | None = None
) -> Elites:
    """Return the elites of ``archive`` from `elite_arrays`, and the reference of their QD score.

    Raises:
        ValueError: The arrays do not fit the archive or one another.
    """
    cells, solutions = arrays.get("cells"), arrays.get("solutions")
    if cells is None or cells.dtype.kind != "i" or cells.ndim != 1 or (np.diff(cells) <= 0).any():
        raise ValueError("its cells are not distinct integers in ascending order")
    if len(cells) and not (cells[0] >= 0 and cells[-1] < archive.num_cells):
        raise ValueError(f"it has cells outside of the archive's {archive.num_cells}")
    solution_dim = 0 if solutions is None or solutions.ndim != 2 else solutions.shape[1]
    sizes = archive.num_cells, solution_dim, archive.measure_dim
    like = jax.eval_shape(lambda: empty_store(*sizes, archive.fields))
    named_specs, structure = jax.tree_util.tree_flatten_with_path(like)
    specs = {jax.tree_util.keystr(path).removeprefix("."): spec for path, spec in named_specs}
    rows = {name: spec.update(shape=(len(cells), *spec.shape[1:])) for name, spec in specs.items()}
    _check(arrays, {"cells": cells} | rows)
    if not np.isfinite(arrays["objectives"]).all():
        raise ValueError("it has objectives that are not finite")
    needed = sum(math.prod(spec.shape) * spec.dtype.itemsize for spec in specs.values())
    checks.fits_memory("archive", needed)
    # NumPy arrays, because the whole archive may not fit on the device.
    leaves = []
    for name, spec in specs.items():
        leaf = np.full(spec.shape, -np.inf if name == "objectives" else 0, spec.dtype)
        leaf[cells] = arrays[name]
        leaves.append(leaf)
    if form is not None and form.size != solution_dim and len(cells):
        raise ValueError(f"it has solutions of {solution_dim} numbers instead of {form.size}")
    return Elites(archive, jax.tree.unflatten(structure, leaves), reference=reference, form=form)
