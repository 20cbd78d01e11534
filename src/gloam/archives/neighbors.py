"""Exact nearest centroids on the device."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def _lanes(cells: int) -> int:
    # On the CPU the reduction costs more than the product, so the block of scores must stay in
    # cache; an accelerator wants one large block. 16,384 keeps memory bounded for any archive.
    return min(cells, 512 if jax.default_backend() == "cpu" else 16_384)


def most_similar(
    points: Float[Array, "batch meas"],
    centroids: Float[Array, "cells meas"],
    origin: Float[Array, " meas"],
    offsets: Float[Array, " cells"],
) -> Int[Array, " batch"]:
    """Index of the centroid with the largest ``(p - o).(c - o) - offset``; ties to the lowest.

    With offsets ``|c - o|^2 / 2`` this is the nearest centroid, whatever the origin ``o``: the
    centroids' mean keeps numbers small, so that float32 loses fewer bits. With zero offsets and
    unit vectors it is the most similar by cosine.

    ``argmax`` over 10,000 columns is far slower on a CPU than the product that fills them. So the
    centroids pass in blocks of equal width, each lane of the block keeps its running best, and
    one reduction over the lanes ends it.
    """
    cells, batch = centroids.shape[0], points.shape[0]
    lanes = _lanes(cells)
    blocks = -(-cells // lanes)
    # Centroids on rows and points on columns: the selects below run along the longer axis.
    columns = (points - origin).T

    def look(block: Int[Array, ""], best: tuple[Array, Array]) -> tuple[Array, Array]:
        # The last block ends at the last centroid and may overlap the one before it.
        start = jnp.minimum(block * lanes, cells - lanes)
        some = jax.lax.dynamic_slice_in_dim(centroids, start, lanes) - origin
        offset = jax.lax.dynamic_slice_in_dim(offsets, start, lanes)
        score = some @ columns - offset[:, None]
        value, where = best
        better = score > value
        return jnp.where(better, score, value), jnp.where(better, start, where)

    first = (jnp.full((lanes, batch), -jnp.inf), jnp.zeros((lanes, batch), jnp.int32))
    value, where = jax.lax.fori_loop(0, blocks, look, first)
    index = where + jnp.arange(lanes, dtype=jnp.int32)[:, None]
    top = jnp.max(value, axis=0)
    return jnp.min(jnp.where(value == top, index, cells - 1), axis=0)
