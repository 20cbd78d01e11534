"""Targets: cells to aim at, each with the elites whose measures are nearest to its center."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from gloam.archives.archive import Archive
from gloam.archives.store import random_cells
from gloam.records import Store, Targets

# Largest number of cells among which the nearest ones are sought, and of distances in a draw. Of
# larger archives, it is as many random cells: a draw costs the same in an archive of a million.
_MOST_CELLS, _MOST_DISTANCES = 2**14, 2**17
# Number of groups of which the nearest rows are compared.
_GROUPS = 320


def draw_targets(
    archive: Archive,
    store: Store,
    x0: Float[Array, " sol"],
    number: int,
    *,
    num_near: int = 1,
    near_elites: bool = False,
    key: PRNGKeyArray,
) -> Targets:
    """Draw targets: empty cells, or any cells while none is empty.

    Args:
        archive: The archive.
        store: Its elites.
        x0: Solution that stands in for missing elites.
        number: Number of targets.
        num_near: Number of elites for each target, the nearest first.
        near_elites: Whether targets are the empty cells nearest to random elites, instead of
            random empty cells.
        key: Random key.
    """
    key_targets, key_cells, key_elites = jax.random.split(key, 3)
    most = max(1, min(_MOST_CELLS, _MOST_DISTANCES // number))
    is_empty = ~store.occupied
    wanted = is_empty | ~jnp.any(is_empty)

    def center(cells: Int[Array, " n"]) -> Float[Array, "n meas"]:
        return archive.centers_of(cells) / archive.units

    def measures_of(elites: Int[Array, " n"] | None) -> Float[Array, "n meas"]:
        rows = store.measures if elites is None else store.measures[elites]
        return archive.discount_space(rows) / archive.units

    if near_elites:
        starts, _ = random_cells(store.occupied, number, key=key_targets)
        searched, is_wanted = _searched(wanted, most, key=key_cells)
        every = jnp.arange(archive.num_cells) if searched is None else searched
        cells = every[_nearest(measures_of(starts), center(every), is_wanted, 1)[0][:, 0]]
    else:
        cells, _ = random_cells(wanted, number, key=key_targets)
    searched, are_elites = _searched(store.occupied, most, key=key_elites)
    measures, centers = measures_of(searched), center(cells)
    places, are_near = _nearest(centers, measures, are_elites, num_near)
    near = places if searched is None else searched[places]
    return Targets(
        cells=cells,
        are_empty=is_empty[cells],
        centers=centers,
        solutions=jnp.where(are_near[..., None], store.solutions[near], x0),
        measures=measures[places],
        are_elites=are_near,
    )


def _searched(
    mask: Bool[Array, " cells"], most: int, *, key: PRNGKeyArray
) -> tuple[Int[Array, " n"] | None, Bool[Array, " n"]]:
    """Return the cells to search, ``None`` for all, and which of them belong to the mask."""
    if mask.shape[0] <= most:
        return None, mask
    cells, is_any = random_cells(mask, most, key=key)
    return cells, jnp.broadcast_to(is_any, cells.shape)


def _nearest(
    points: Float[Array, "m meas"],
    rows: Float[Array, "n meas"],
    is_row: Bool[Array, " n"],
    number: int,
) -> tuple[Int[Array, "m number"], Bool[Array, "m number"]]:
    """Return the places of the rows nearest to each point, and whether there are so many.

    Of many rows, it is the nearest of every group for several hundred groups, and then the nearest
    of these: a few of the nearest are missed, which saves a CPU most of the sorting.
    """
    # By products, from the middle of the points so that float32 loses few digits.
    middle = jnp.mean(points, axis=0)
    steps, ends = rows - middle, points - middle
    squared = jnp.sum(jnp.square(steps), axis=1) - 2.0 * ends @ steps.T
    squared = jnp.where(is_row, squared, jnp.inf)
    if number == 1:
        places = jnp.argmin(squared, axis=1, keepdims=True)
    else:
        groups = min(squared.shape[1], _GROUPS)
        rest = -squared.shape[1] % groups
        table = jnp.pad(squared, ((0, 0), (0, rest)), constant_values=jnp.inf)
        table = table.reshape(len(points), -1, groups)  # neighbors in a grid are in different ones
        best = jnp.argmin(table, axis=1)
        values = jnp.min(table, axis=1)
        group = jax.lax.top_k(-values, min(number, groups))[1]
        places = jnp.take_along_axis(best, group, axis=1) * groups + group
        places = jnp.minimum(places, squared.shape[1] - 1)
    return places, jnp.take_along_axis(squared, places, axis=1) < jnp.inf
