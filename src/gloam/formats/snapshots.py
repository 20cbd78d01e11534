"""The snapshots of a run folder: discount and elites of the first seed at chosen iterations."""

from pathlib import Path

import numpy as np

from gloam.formats.arrays import read_arrays, write_arrays
from gloam.formats.errors import DamagedFileError
from gloam.formats.own_files import SNAPSHOT

_FIX = "Delete it, or restore it from a copy."


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
        arrays, about = read_arrays(self.path(iteration), kind="snapshot", fix=_FIX)
        if about.get("run") != run:
            raise DamagedFileError(self.path(iteration), "it belongs to another run", _FIX)
        return arrays
