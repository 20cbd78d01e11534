"""Exact nearest centroids on the device.

A point's nearest centroid has the largest ``(p - o).(c - o) - |c - o|^2 / 2``, whatever the origin
``o``; the centroids' mean keeps numbers small, so that float32 loses fewer bits. All these scores
are one matrix product. On a CPU the search for each column's largest then costs more than the
product (``argmax`` eight times as much), so it is done in two steps that never carry an index
along: the largest score of every *lane* of some 40 centroids, by nothing but ``maximum`` over
blocks that stay in cache, and then the centroids of the best lane once more.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


class Lanes(eqx.Module):
    """Centroids in the order of the search: a lane holds ``height`` consecutive rows.

    Consecutive rows in one lane, and lanes in order, make ties go to the lowest row.
    """

    rows: Float[Array, "height lanes meas+1"]
    """Shifted centroids with their negative offsets as a last column; the last row is repeated."""
    origin: Float[Array, " meas"]
    centroids: int = eqx.field(static=True)


def lanes(
    centroids: Float[Array, "cells meas"],
    origin: Float[Array, " meas"],
    offsets: Float[Array, " cells"],
) -> Lanes:
    """Lay out centroids for `most_similar`.

    Args:
        centroids: One row for each cell.
        origin: Any point; the centroids' mean is best. Zero for cosine similarity.
        offsets: ``|c - o|^2 / 2`` for Euclidean distance. Zero for unit vectors and cosine.
    """
    cells = centroids.shape[0]
    height = _height(cells, centroids.shape[1])
    rows = jnp.concatenate([centroids - origin, -offsets[:, None]], axis=1)
    padding = -cells % height
    rows = jnp.concatenate([rows, jnp.repeat(rows[-1:], padding, axis=0)])
    rows = rows.reshape(-1, height, rows.shape[1]).swapaxes(0, 1)
    return Lanes(rows, origin, cells)


def most_similar(lanes: Lanes, points: Float[Array, "batch meas"]) -> Int[Array, " batch"]:
    """Index of the centroid with the largest score at each point; ties to the lowest."""
    height, width, _ = lanes.rows.shape
    batch = points.shape[0]
    shifted = jnp.concatenate([points - lanes.origin, jnp.ones((batch, 1))], axis=1)
    slices = _slices(height, width)

    def look(block: Int[Array, ""], best: Float[Array, "lanes batch"]) -> Array:
        # The last block may overlap the one before it, which changes no maximum.
        some = jax.lax.dynamic_slice_in_dim(lanes.rows, block * slices, slices)
        scores = some.reshape(slices * width, -1) @ shifted.T
        for number in range(slices):
            best = jnp.maximum(best, scores[number * width : (number + 1) * width])
        return best

    lowest = jnp.full((width, batch), -jnp.inf)
    best = jax.lax.fori_loop(0, -(-height // slices), look, lowest)
    number = jnp.arange(width, dtype=jnp.int32)[:, None]
    lane = jnp.min(jnp.where(best == jnp.max(best, axis=0), number, width - 1), axis=0)

    if height == 1:
        return lane
    scores = jnp.einsum("hbm,bm->bh", lanes.rows[:, lane], shifted)
    row = jnp.argmax(scores, axis=1).astype(jnp.int32)
    return jnp.minimum(height * lane + row, lanes.centroids - 1)


def _height(cells: int, measures: int) -> int:
    """Centroids in a lane.

    The second step looks at this many for every point, and pays for each of their numbers; the
    first pays for every lane. With few centroids a lane of its own for each is best.
    """
    if cells <= 2048:
        return 1
    few = min(40, max(8, 2048 // measures))
    return max(few, -(-cells // 16_384))


def _slices(height: int, width: int) -> int:
    """Slices of all lanes in one block, so that a block is about as large as the device likes."""
    wanted = 1024 if jax.default_backend() == "cpu" else 16_384
    return max(1, min(height, wanted // width))
