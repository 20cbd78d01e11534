"""The checkpoints of a run folder: the last few states of the search, each in a file of its own.

A file is named by the number of iterations finished. When the newest file is damaged, the one
before it is read instead, with a warning that names the damaged file.
"""

import contextlib
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from gloam.formats.arrays import read_arrays, write_arrays
from gloam.formats.errors import DamagedFileError
from gloam.formats.own_files import CHECKPOINT
from gloam.formats.states import state_arrays, state_from

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
