"""Elites of several archives in one, and elites brought into an archive with other cells."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from gloam import checks
from gloam.archives.archive import Archive
from gloam.archives.cvt_archive import CVTArchive
from gloam.archives.grid_archive import GridArchive
from gloam.archives.store import Store, add, empty_store
from gloam.records import Batch

# Rows whose cells are found at once.
_ROWS = 4096


def same_cells(one: Archive, other: Archive) -> bool:
    """Whether two archives have the same cells under the same numbers."""
    if type(one) is not type(other) or one.num_cells != other.num_cells:
        return False
    arrays = [(one.lower, other.lower), (one.upper, other.upper)]
    if isinstance(one, GridArchive) and isinstance(other, GridArchive):
        if one.shape != other.shape:
            return False
    elif isinstance(one, CVTArchive) and isinstance(other, CVTArchive):
        if one.metric != other.metric:
            return False
        arrays = [(one.centroids, other.centroids)]
    elif one is not other:  # of the user's own class
        every = jnp.arange(one.num_cells, dtype=jnp.int32)
        arrays = [(one.centers_of(every), other.centers_of(every))]
    return all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in arrays)


def cells_of(archive: Archive, measures: Float[np.ndarray, "n meas"]) -> Int[np.ndarray, " n"]:
    """The cell of each row, some rows at a time."""
    blocks = [measures[start : start + _ROWS] for start in range(0, len(measures), _ROWS)]
    found = [np.asarray(archive.index_of(jnp.asarray(block, jnp.float32))) for block in blocks]
    return np.concatenate([np.zeros(0, np.int32), *found])


def with_elites(store: Store, cells: np.ndarray, others: Store, rows: np.ndarray) -> Store:
    """A store after the rows of others were offered to these cells of it."""
    batch = Batch(
        jnp.asarray(others.solutions[rows]),
        jnp.asarray(others.objectives[rows]),
        jnp.asarray(others.measures[rows]),
        jnp.asarray(cells, jnp.int32),
        jnp.ones(len(rows), bool),
        {name: jnp.asarray(others.fields[name][rows]) for name in store.fields},
    )
    return add(store, batch)[0] if len(rows) else store


def merged_store(store: Store, others: Sequence[Store]) -> Store:
    """The best elite of every cell; of equal ones the first."""
    store = jax.tree.map(jnp.asarray, store)
    for other in others:
        rows = np.flatnonzero(np.isfinite(other.objectives))
        store = with_elites(store, rows, other, rows)
    return store


def store_in(archive: Archive, store: Store, measure_dim: int) -> Store:
    """A store of ``archive``'s cells with the elites of another store, by their measures."""
    checks.expect(
        archive.measure_dim == measure_dim,
        "archive",
        f"{measure_dim} measures, as the elites have",
        f"{archive.measure_dim}",
    )
    for name, spec in archive.fields.items():
        there = store.fields.get(name)
        found = "no such field" if there is None else f"shape {there.shape[1:]}"
        fits = there is not None and there.shape[1:] == spec.shape
        checks.expect(fits, f"field '{name}'", f"elites with shape {spec.shape}", found)
    rows = np.flatnonzero(np.isfinite(store.objectives))
    measures = np.asarray(store.measures)[rows]
    fits = np.asarray(archive.accepts(measures))
    rows, measures = rows[fits], measures[fits]
    solution_dim = store.solutions.shape[1]
    empty = empty_store(archive.num_cells, solution_dim, measure_dim, archive.fields)
    return with_elites(empty, cells_of(archive, measures), store, rows)
