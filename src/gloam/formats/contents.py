"""Elites and datasets as arrays, and back, with their shapes checked.

The elites of a run folder: in files of their own when a run has ended, before in a checkpoint.

Elites are a part of the state. A second copy at every checkpoint would double its cost.
"""

import math
from pathlib import Path
from typing import Any

import jax
import numpy as np

from gloam import checks
from gloam.archives import Archive, Elites
from gloam.archives.store import empty_store
from gloam.datasets import Dataset
from gloam.formats.arrays import read_arrays, write_arrays
from gloam.formats.checkpoints import Checkpoints
from gloam.formats.config import RunConfig
from gloam.formats.documents import DamagedFileError, ForeignError
from gloam.formats.ownership import ARCHIVE

_ELITE_ARRAYS = ("cell", "solution", "objective", "measures")
_DATASET_ARRAYS = ("items", "names", "shape")
_OPTIONAL = ("labels", "images", "bounds")


def elite_arrays(elites: Elites) -> dict[str, np.ndarray]:
    """The elites of an archive: one row for each occupied cell."""
    arrays = {
        "cell": elites.cells,
        "solution": elites.solutions,
        "objective": elites.objectives,
        "measures": elites.flat_measures,
    }
    return arrays | {f"field_{name}": elites.field(name) for name in elites.store.fields}


def elites_from(archive: Archive, arrays: dict[str, np.ndarray]) -> Elites:
    """The elites of ``archive`` from `elite_arrays`.

    Raises:
        ValueError: The arrays do not fit the archive or one another.
    """
    names = {*_ELITE_ARRAYS, *(f"field_{name}" for name in archive.fields)}
    if set(arrays) != names:
        raise ValueError(f"it has the arrays {sorted(arrays)} instead of {sorted(names)}")
    cells = arrays["cell"]
    count = len(cells) if cells.ndim == 1 else -1
    if cells.dtype.kind != "i" or count < 0 or (np.diff(cells) <= 0).any():
        raise ValueError("its cells are not a list of different cells, in order")
    if count and not (cells[0] >= 0 and cells[-1] < archive.num_cells):
        raise ValueError(f"it has cells outside of the archive's {archive.num_cells}")
    solutions = arrays["solution"]
    shapes = {
        "solution": (count, *solutions.shape[1:2]),
        "objective": (count,),
        "measures": (count, archive.measure_dim),
    }
    shapes |= {f"field_{name}": (count, *spec.shape) for name, spec in archive.fields.items()}
    for name, shape in shapes.items():
        wanted = np.float32 if name in shapes and not name.startswith("field_") else None
        if arrays[name].shape != shape or wanted not in (None, arrays[name].dtype.type):
            found = f"{arrays[name].dtype}{list(arrays[name].shape)}"
            raise ValueError(f"its array '{name}' is {found} instead of shape {list(shape)}")
    if not np.isfinite(arrays["objective"]).all():
        raise ValueError("it has objectives that are not finite")
    rows = sum(math.prod(shape[1:]) for shape in shapes.values()) + 1
    checks.fits_memory("archive", 4 * archive.num_cells * rows)

    def spread(values: np.ndarray, empty: float = 0.0) -> Any:
        whole = np.full((archive.num_cells, *values.shape[1:]), empty, values.dtype)
        whole[cells] = values
        return whole

    fields = {name: spread(arrays[f"field_{name}"]) for name in archive.fields}
    objectives = spread(arrays["objective"], -np.inf)
    parts = spread(solutions), objectives, spread(arrays["measures"]), fields
    sizes = archive.num_cells, solutions.shape[1], archive.measure_dim
    # Not by the constructor of a store, whose arrays are on the device.
    like = jax.eval_shape(lambda: empty_store(*sizes, archive.fields))
    return Elites(archive, jax.tree.unflatten(jax.tree.structure(like), jax.tree.leaves(parts)))


def elite_arrays_of_store(store: dict[str, np.ndarray], place: int) -> dict[str, np.ndarray]:
    """`elite_arrays` of one seed, from the store in the state of all seeds.

    Args:
        store: As `gloam.formats.checkpoints.state_arrays` names the arrays of a store.
        place: Place of the seed among the seeds of the run.

    Raises:
        ValueError: The arrays are not those of a store, or of fewer seeds.
    """
    names = {".solutions": "solution", ".objectives": "objective", ".measures": "measures"}
    names |= {name: f"field_{name[9:-2]}" for name in store if name.startswith(".fields['")}
    if set(names) != set(store) or any(len(array) <= place for array in store.values()):
        raise ValueError(f"it does not have the elites of {place + 1} seeds")
    occupied = np.isfinite(store[".objectives"][place])
    rows = {new: store[old][place][occupied] for old, new in names.items()}
    return {"cell": np.flatnonzero(occupied)} | rows


def dataset_arrays(dataset: Dataset) -> dict[str, np.ndarray]:
    """The items of a dataset with what shows them."""
    arrays = {
        "items": dataset.items,
        "names": np.asarray(dataset.names, np.str_),
        "shape": np.asarray(dataset.shape, np.int64),
    }
    optional = {"labels": dataset.labels, "images": dataset.images, "bounds": dataset.bounds}
    return arrays | {name: np.asarray(part) for name, part in optional.items() if part is not None}


def dataset_from(arrays: dict[str, np.ndarray]) -> Dataset:
    """The dataset of `dataset_arrays`.

    Raises:
        ValueError: The arrays are not those of a dataset.
    """
    known = {*_DATASET_ARRAYS, *_OPTIONAL}
    if not (set(_DATASET_ARRAYS) <= set(arrays) <= known):
        raise ValueError(f"it has the arrays {sorted(arrays)}")
    for name, kind, ndim in (("names", "U", 1), ("labels", "U", 1), ("shape", "i", 1)):
        if name in arrays and (arrays[name].dtype.kind != kind or arrays[name].ndim != ndim):
            raise ValueError(f"its array '{name}' has the wrong type")
    bounds = arrays.get("bounds")
    if bounds is not None and (bounds.shape != (2,) or bounds.dtype.kind not in "if"):
        raise ValueError("its bounds are not two numbers")
    return Dataset(
        arrays["items"],
        tuple(arrays["shape"].tolist()),
        arrays["labels"].tolist() if "labels" in arrays else None,
        arrays["names"].tolist(),
        arrays.get("images"),
        None if bounds is None else (float(bounds[0]), float(bounds[1])),
    )


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
