"""Elites and datasets as arrays, and back, with their shapes checked."""

import math
from typing import Any

import jax
import numpy as np

from gloam import checks
from gloam.archives import Archive, Elites
from gloam.archives.store import empty_store
from gloam.datasets import Dataset

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
        store: As `gloam.formats.states.state_arrays` names the arrays of a store.
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
