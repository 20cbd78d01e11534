"""Targets: cells to aim at, each with the elites whose measures are nearest to its center."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from gloam.archives.archive import Archive
from gloam.archives.store import random_cells
from gloam.records import Store, Targets

# Number of cells among which the nearest ones are sought. Of larger archives, it is as many random
# ones, so that a target costs the same in an archive of a million cells.
_SEARCHED_CELLS = 16_384


def draw_targets(
    archive: Archive,
    store: Store,
    x0: Float[Array, " sol"],
    number: int,
    *,
    num_near: int = 1,
    key: PRNGKeyArray,
) -> Targets:
    """Draw targets: random empty cells, or random cells while no cell is empty.

    Args:
        archive: The archive.
        store: Its elites.
        x0: Solution that stands in for missing elites.
        number: Number of targets.
        num_near: Number of elites for each target.
        key: Random key.
    """
    key_targets, key_elites = jax.random.split(key)
    is_empty = ~store.occupied
    wanted = is_empty | ~jnp.any(is_empty)
    cells, _ = random_cells(wanted, number, key=key_targets)
    elites, are_elites = _searched(store.occupied, key=key_elites)
    measures = archive.discount_space(_rows(store.measures, elites))
    measures, centers = measures / archive.units, archive.centers_of(cells) / archive.units
    # By products, from the middle of the targets so that float32 loses few digits.
    middle = jnp.mean(centers, axis=0)
    steps, ends = measures - middle, centers - middle
    squared = jnp.sum(jnp.square(steps), axis=1) - 2.0 * ends @ steps.T
    squared = jnp.where(are_elites, squared, jnp.inf)
    if num_near == 1:
        places = jnp.argmin(squared, axis=1, keepdims=True)
    else:
        places = jax.lax.top_k(-squared, min(num_near, squared.shape[1]))[1]
    are_near_elites = jnp.take_along_axis(squared, places, axis=1) < jnp.inf
    near = places if elites is None else elites[places]
    return Targets(
        cells=cells,
        are_empty=is_empty[cells],
        centers=centers,
        solutions=jnp.where(are_near_elites[..., None], store.solutions[near], x0),
        measures=measures[places],
        are_elites=are_near_elites,
    )


def _searched(
    mask: Bool[Array, " cells"], *, key: PRNGKeyArray
) -> tuple[Int[Array, " n"] | None, Bool[Array, " n"]]:
    """Return the cells to search, ``None`` for all, and which of them belong to the mask."""
    if mask.shape[0] <= _SEARCHED_CELLS:
        return None, mask
    cells, is_any = random_cells(mask, _SEARCHED_CELLS, key=key)
    return cells, jnp.broadcast_to(is_any, cells.shape)


def _rows(table: Array, cells: Int[Array, " n"] | None) -> Array:
    return table if cells is None else table[cells]
