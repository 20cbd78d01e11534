"""A run that is looked at: its archive, elites, dataset and pictures, read once and kept."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from gloam.archives import Archive, CVTArchive, Elites, GridArchive
from gloam.datasets import Dataset
from gloam.explorer.run_states import newest_checkpoint
from gloam.formats import DamagedFileError, ForeignError, RunFolder, objects
from gloam.formats.arrays import read_arrays
from gloam.formats.config import RunConfig
from gloam.formats.metrics_tail import stamp
from gloam.gallery.pictures import Pictures, elite_pictures, has_pictures

_FIX = "Restore it from a copy."
# Elites of so many seeds stay in memory.
_MAX_SEEDS = 3


class EliteRows(NamedTuple):
    """The elites of one seed, a row for each, in the order of their cells."""

    version: str
    """Changes when the elites do."""
    iteration: int | None
    elites: Elites
    cells: Int[np.ndarray, " n"]
    solutions: Float[np.ndarray, "n sol"]
    objectives: Float[np.ndarray, " n"]
    measures: Float[np.ndarray, "n meas"]

    def row_of(self, cell: int) -> int | None:
        """The row of a cell, or ``None`` where it is empty."""
        row = int(np.searchsorted(self.cells, cell))
        return row if row < len(self.cells) and self.cells[row] == cell else None


class OpenedRun:
    """Reads the parts of one run folder when they are asked for.

    All methods raise ``DamagedFileError``, ``ForeignError`` or ``ValueError`` where the folder does
    not hold what is asked for.

    Args:
        path: The run folder.
    """

    def __init__(self, path: Path):
        self.folder = RunFolder(path)
        self._kept: dict[Any, tuple[Any, Any]] = {}
        self._locks: dict[Any, threading.RLock] = {}
        self._lock = threading.Lock()

    def kept(self, name: Any, version: Any, make: Any) -> Any:
        """What ``make`` returns, made once for a version; the last version is kept."""
        with self._lock:
            own = self._locks.setdefault(name, threading.RLock())
        with own:  # others can be made meanwhile
            known = self._kept.get(name)
            if known is None or known[0] != version:
                known = (version, make())
                self._kept[name] = known
            return known[1]

    @property
    def config(self) -> RunConfig:
        """The configuration."""
        return self.kept("config", self._config_stamp, self.folder.read_config)

    @property
    def archive(self) -> Archive:
        """The archive. An algorithm with parts of the user's own has one that can be built."""
        return self.kept("archive", self.config.identity, self._read_archive)

    @property
    def dataset(self) -> Dataset | None:
        """The items that the cells are, or ``None``."""
        if self.config.dataset is None:
            return None
        version = stamp(self.folder.path / "dataset.npz")
        return self.kept("dataset", version, self.folder.read_dataset)

    @property
    def domain(self) -> Any:
        """What was searched, or ``None`` where only the user's program can build it."""

        def read() -> Any:
            try:
                return self.folder.read_part("domain")
            except (ForeignError, DamagedFileError):
                return None

        return self.kept("domain", self.config.identity, read)

    def elites(self, seed: int) -> EliteRows:
        """The elites of a seed, as of the newest checkpoint."""
        version = self.version(seed)

        def read() -> EliteRows:
            others = [name for name in list(self._kept) if name[:1] == ("elites",)]
            for name in others[: max(0, len(others) + 1 - _MAX_SEEDS)]:
                self._kept.pop(name, None)
            found = self.folder.read_archive(seed, archive=self.archive)
            occupied = found.occupied
            parts = found.store.solutions, found.store.objectives, found.store.measures
            rows = [np.asarray(part)[occupied] for part in parts]
            reached = newest_checkpoint(self.folder.path)
            return EliteRows(version, reached, found, np.flatnonzero(occupied), *rows)

        return self.kept(("elites", seed), version, read)

    def version(self, seed: int) -> str:
        """A text that changes when the elites of a seed do."""
        return f"{seed}-{elites_version(self.folder.path, self.config.seeds)}"

    def pictures(self, rows: EliteRows) -> Pictures | None:
        """What the elites look like, or ``None`` where nothing can show them."""
        dataset = self.dataset
        if dataset is None or not has_pictures(rows.elites, dataset, self.domain):
            return None
        return elite_pictures(rows.elites, dataset, self.domain)

    @property
    def centers(self) -> Float[np.ndarray, "cells meas"]:
        """The centres of all cells."""

        def read() -> np.ndarray:
            cells = jnp.arange(self.archive.num_cells, dtype=jnp.int32)
            return np.asarray(self.archive.centers_of(cells))

        return self.kept("centers", self.config.identity, read)

    @property
    def is_plane_grid(self) -> bool:
        """Whether the archive is a grid of two measures, which a heatmap shows."""
        return isinstance(self.archive, GridArchive) and self.archive.measure_dim == 2

    @property
    def metric(self) -> str:
        """The metric of distances between measures."""
        return self.archive.metric if isinstance(self.archive, CVTArchive) else "euclidean"

    @property
    def _config_stamp(self) -> Any:
        return stamp(self.folder.path / "config.json")

    def _read_archive(self) -> Archive:
        config = self.config
        path = self.folder.path / "config.npz"
        arrays, about = read_arrays(path, kind="config", fix=_FIX)
        if about.get("run") != config.identity:
            raise DamagedFileError(path, "it belongs to another run", _FIX)
        content = config.algorithm
        arguments = content.get("arguments") if isinstance(content, dict) else None
        part = arguments.get("archive") if isinstance(arguments, dict) else None
        if part is None:  # an algorithm of the user's own class
            raise ForeignError(str(content.get("foreign")) if isinstance(content, dict) else "?")
        try:
            archive = objects.decode(part, arrays)
        except ForeignError:
            raise
        except (TypeError, ValueError, OverflowError) as error:
            raise DamagedFileError(self.folder.path / "config.json", str(error), _FIX) from None
        if not isinstance(archive, Archive):
            raise DamagedFileError(self.folder.path / "config.json", "it has no archive", _FIX)
        return archive


def elites_version(folder: Path, seeds: Sequence[int]) -> str:
    """A text that changes when the elites of a run do; files are not read."""
    last = "archive.npz" if len(seeds) == 1 else f"archive-{seeds[-1]}.npz"
    found = stamp(folder / last)
    return f"{newest_checkpoint(folder)}-{found[2] if found else 0}"
