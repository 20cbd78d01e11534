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
# Number of random cells of which the one tried least is drawn.
_CANDIDATES = 64
# Number of groups of which the nearest rows are compared.
_GROUPS = 320


def draw_targets(
    archive: Archive,
    store: Store,
    counts: Int[Array, " cells"],
    x0: Float[Array, " sol"],
    number: int,
    *,
    num_near: int = 1,
    near_elites: bool = False,
    tried: Int[Array, " counts"] | None = None,
    key: PRNGKeyArray,
) -> Targets:
    """Draw targets: empty cells, or any cells while none is empty.

    Args:
        archive: The archive.
        store: Its elites.
        counts: Running counts of the occupied cells.
        x0: Solution that stands in for missing elites.
        number: Number of targets.
        num_near: Number of elites for each target, the nearest first.
        near_elites: Whether targets are the empty cells nearest to random elites, instead of
            random empty cells.
        tried: How often cells were targets: cell ``i`` as often as ``tried[i % len(tried)]`` says.
            Each target is the one tried least of several random empty cells.
        key: Random key.
    """
    key_cells, key_elites = jax.random.split(key)
    num_cells, most = archive.num_cells, max(1, min(_MOST_CELLS, _MOST_DISTANCES // number))
    # Wanted are the empty cells, or all while none is empty.
    has_empty, all_counts = counts[-1] < num_cells, jnp.arange(1, num_cells + 1)
    wanted_counts = jnp.where(has_empty, all_counts - counts, all_counts)

    def center(cells: Int[Array, " n"]) -> Float[Array, "n meas"]:
        return archive.centers_of(cells) / archive.units

    def measures_of(elites: Int[Array, " n"] | None) -> Float[Array, "n meas"]:
        rows = store.measures if elites is None else store.measures[elites]
        return archive.discount_space(rows) / archive.units

    # Searched are all cells, or a sample of the elites and one of the wanted cells.
    is_sampled = num_cells > most
    elites, is_any = random_cells(counts, number + is_sampled * most, key=key_elites)
    searched, are_elites = None, store.occupied
    if is_sampled:
        searched, are_elites = elites[number:], jnp.broadcast_to(is_any, most)
    if near_elites:
        candidates, are_wanted = jnp.arange(num_cells), ~(store.occupied & has_empty)
        if is_sampled:
            candidates, _ = random_cells(wanted_counts, most, key=key_cells)
            are_wanted = jnp.ones(most, bool)
        starts = measures_of(elites[:number])
        near_cells, _ = nearest(starts, center(candidates), are_wanted, 1)
        cells = candidates[near_cells[:, 0]]
    elif tried is not None:
        candidates, _ = random_cells(wanted_counts, number * _CANDIDATES, key=key_cells)
        candidates = candidates.reshape(number, _CANDIDATES)
        least = jnp.argmin(tried[candidates % len(tried)], axis=1)
        cells = candidates[jnp.arange(number), least]
    else:
        cells, _ = random_cells(wanted_counts, number, key=key_cells)
    measures, centers = measures_of(searched), center(cells)
    places, are_near = nearest(centers, measures, are_elites, num_near)
    near = places if searched is None else searched[places]
    return Targets(
        cells=cells,
        are_empty=~store.occupied[cells],
        centers=centers,
        solutions=jnp.where(are_near[..., None], store.solutions[near], x0),
        measures=measures[places],
        are_elites=are_near,
    )


def nearest(
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
