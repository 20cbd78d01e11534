"""The store of elites on the device: adding a batch, and random draws."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from gloam._tools.devices import place_of_ranks
from gloam._tools.draws import uniforms
from gloam.archives.archive import Archive
from gloam.records import Added, Batch, Store


def empty_store(
    num_cells: int, solution_dim: int, measure_dim: int, fields: dict[str, jax.ShapeDtypeStruct]
) -> Store:
    """Return a store without elites."""
    return Store(
        jnp.zeros((num_cells, solution_dim), jnp.float32),
        jnp.full((num_cells,), -jnp.inf, jnp.float32),
        jnp.zeros((num_cells, measure_dim), jnp.float32),
        {name: jnp.zeros((num_cells, *spec.shape), spec.dtype) for name, spec in fields.items()},
    )


def filled_store(
    archive: Archive,
    solutions: ArrayLike,
    objectives: ArrayLike,
    measures: ArrayLike,
    cells: ArrayLike,
    fields: dict[str, Any],
    valid: ArrayLike | None = None,
) -> Store:
    """Return a store with the best row of each cell; by default all rows are valid.

    Rows that the archive does not count at their distance are left out.
    """
    measures, cells = jnp.asarray(measures), jnp.asarray(cells)
    is_valid = jnp.ones(np.shape(objectives), bool) if valid is None else jnp.asarray(valid)
    excess = archive.excess(measures, cells)
    batch = Batch(
        jnp.asarray(solutions),
        jnp.asarray(objectives),
        measures,
        cells,
        is_valid if excess is None else is_valid & (excess <= 0),
        jax.tree.map(jnp.asarray, fields),
    )
    sizes = batch.solutions.shape[1], archive.measure_dim
    store = empty_store(archive.num_cells, *sizes, archive.fields)
    return add(store, batch)[0] if len(batch.cells) else store


# Outside of a compiled program it is one program instead of thirty, and inside nothing changes.
@partial(jax.jit, inline=True)
def add(store: Store, batch: Batch) -> tuple[Store, Added]:
    """Keep in every cell the best of its elite and the solutions of the batch that landed in it.

    A solution replaces an elite only if it is strictly better; ties in the batch go to the lowest
    index. For distinct objectives the result does not depend on the order of the batch.

    Returns:
        The new store, and for each solution whether it beat its cell as it was before the batch.
    """
    cells = store.objectives.shape[0]
    size = batch.objectives.shape[0]
    before = store.objectives[batch.cells]
    accepted = batch.valid & (batch.objectives > before)

    # Sort rows by cell, then by objective, best first, then by index: a row wins if it is the first
    # of its cell. Sorting costs O(batch log batch), independent of the number of cells.
    contender = jnp.where(accepted, batch.cells, cells)
    cell, _, row = jax.lax.sort(
        (contender, -batch.objectives, jnp.arange(size, dtype=jnp.int32)), num_keys=3
    )
    is_first = jnp.concatenate([jnp.ones(1, bool), cell[1:] != cell[:-1]])
    # Rows that do not win have a target past the last cell, which the scatter drops.
    target = jnp.where(is_first, cell, cells)

    def write(old: Array, new: Array) -> Array:
        return old.at[target].set(new[row].astype(old.dtype), mode="drop")

    store = Store(
        write(store.solutions, batch.solutions),
        write(store.objectives, batch.objectives),
        write(store.measures, batch.measures),
        {name: write(old, batch.fields[name]) for name, old in store.fields.items()},
    )
    filled = jnp.zeros(size, bool).at[row].set(is_first & (cell < cells)) & (before == -jnp.inf)
    return store, Added(accepted, filled, num_unique_cells(batch, cells), before)


def num_unique_cells(batch: Batch, num_cells: int) -> Int[Array, ""]:
    """Return the number of different cells that the valid solutions landed in."""
    landed = jnp.sort(jnp.where(batch.valid, batch.cells, num_cells))
    is_new = jnp.concatenate([jnp.ones(1, bool), landed[1:] != landed[:-1]]) & (landed < num_cells)
    return jnp.sum(is_new, dtype=jnp.int32)


def running_counts(mask: Bool[Array, " cells"]) -> Int[Array, " cells"]:
    """Return for each cell how many cells of a mask there are up to it, for `random_cells`."""
    return jnp.cumsum(mask, dtype=jnp.int32)


def random_cells(
    counts: Int[Array, " cells"], count: int, *, key: PRNGKeyArray
) -> tuple[Int[Array, " count"], Bool[Array, ""]]:
    """Draw ``count`` cells of a mask with the running counts, uniformly with replacement.

    Of a larger draw with the same key, the first cells are the same.

    Returns:
        Indices of cells, and whether there is any such cell.
    """
    number = counts[-1]
    # Uniform numbers in float32 have 24 bits: enough for a fair draw from millions of elites.
    rank = jnp.floor(uniforms(key, count) * number.astype(jnp.float32)).astype(jnp.int32)
    # The cell of the r-th elite is the first whose running count exceeds r.
    cell = place_of_ranks(counts, jnp.minimum(rank, number - 1))
    return jnp.minimum(cell, counts.shape[0] - 1), number > 0


def random_elites(
    store: Store, count: int, fallback: Float[Array, " sol"], *, key: PRNGKeyArray
) -> Float[Array, "count sol"]:
    """Draw ``count`` elites uniformly with replacement; ``fallback`` if there are none."""
    if count == 0:
        return jnp.zeros((0, fallback.shape[0]), fallback.dtype)
    cells, is_elite = random_cells(running_counts(store.occupied), count, key=key)
    return jnp.where(is_elite, store.solutions[cells], fallback)


def random_empty_cells(
    store: Store, count: int, *, key: PRNGKeyArray
) -> tuple[Int[Array, " count"], Bool[Array, " count"]]:
    """Draw ``count`` different empty cells uniformly, or all of them if fewer are left.

    Returns:
        Indices of cells, and a mask that is false for indices that are not empty cells.
    """
    cells = store.objectives.shape[0]
    count = min(count, cells)
    if count == 0:
        return jnp.zeros((0,), jnp.int32), jnp.zeros((0,), bool)
    # The cells with the largest of independent uniform numbers are a draw without replacement;
    # occupied cells get -1, which is below all of them.
    ticket = jnp.where(store.occupied, -1.0, uniforms(key, cells))
    value, index = jax.lax.top_k(ticket, count)
    return index.astype(jnp.int32), value >= 0.0
