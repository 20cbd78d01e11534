"""The elites of a run folder: in files of their own when a run has ended, before in a checkpoint.

Elites are a part of the state. A second copy at every checkpoint would double its cost.
"""

from pathlib import Path

import numpy as np

from gloam import checks
from gloam.archives import Archive, Elites
from gloam.formats.arrays import read_arrays, write_arrays
from gloam.formats.checkpoints import Checkpoints
from gloam.formats.config import RunConfig
from gloam.formats.contents import elite_arrays, elite_arrays_of_store, elites_from
from gloam.formats.errors import DamagedFileError, ForeignError
from gloam.formats.own_files import ARCHIVE

_COPY = "Restore it from a copy, or start the run again in another folder."
_DELETE = "Delete it to read the elites of the last checkpoint instead, or restore a copy."


class ArchiveFiles:
    """The archives in one run folder. They are as old as its newest checkpoint.

    Args:
        folder: The run folder.
        checkpoints: Its checkpoints.
    """

    def __init__(self, folder: Path, checkpoints: Checkpoints):
        self.folder = folder
        self._checkpoints = checkpoints

    def remove(self) -> None:
        """Remove the archives, before they would be older than a checkpoint."""
        for file in self.folder.glob("archive*.npz"):
            if ARCHIVE.fullmatch(file.name):
                file.unlink()

    def write(self, elites: Elites, *, seed: int, config: RunConfig) -> None:
        """Write the elites of one seed, as they are at the newest checkpoint."""
        about = {"seed": seed, "run": config.identity}
        path = self._path(seed, config)
        write_arrays(path, elite_arrays(elites), kind="archive", about=about)

    def read(self, archive: Archive, *, seed: int, config: RunConfig) -> Elites:
        """The elites of one seed at the newest checkpoint.

        Raises:
            DamagedFileError: The file is damaged, of another run or of another seed.
        """
        path, fix = self._path(seed, config), _DELETE
        if path.is_file():
            arrays = self._read_file(path, seed, config)
        else:  # the run goes on, or was stopped
            wait = "Wait for a checkpoint."
            found = bool(self._checkpoints.files())
            checks.expect(found, "archive", "an existing file", f"'{path}'", wait)
            path, fix = self._checkpoints.folder, _COPY
            store, _ = self._checkpoints.read_arrays(".store", run=config.identity)
            arrays = self._of_seed(store, seed, config)
        try:
            return elites_from(archive, arrays)
        except ForeignError:
            raise
        except ValueError as error:
            raise DamagedFileError(path, str(error), fix) from None

    def _path(self, seed: int, config: RunConfig) -> Path:
        alone = len(config.seeds) == 1
        return self.folder / ("archive.npz" if alone else f"archive-{seed}.npz")

    def _read_file(self, path: Path, seed: int, config: RunConfig) -> dict[str, np.ndarray]:
        arrays, about = read_arrays(path, kind="archive", fix=_DELETE)
        if about.get("run") != config.identity:
            raise DamagedFileError(path, "it belongs to another run", _DELETE)
        if about.get("seed") != seed:
            raise DamagedFileError(path, "it is the archive of another seed", _DELETE)
        return arrays

    def _of_seed(
        self, store: dict[str, np.ndarray], seed: int, config: RunConfig
    ) -> dict[str, np.ndarray]:
        try:
            return elite_arrays_of_store(store, config.seeds.index(seed))
        except ValueError as error:
            raise DamagedFileError(self._checkpoints.folder, str(error), _COPY) from None
