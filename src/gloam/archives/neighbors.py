"""Exact nearest centroids on the device.

A point's nearest centroid has the largest ``(p - o).(c - o) - |c - o|^2 / 2``, whatever the origin
``o``; the centroids' mean keeps numbers small, so that float32 loses fewer bits. All these scores
are one matrix product. On a CPU the search for each column's largest then costs more than the
product (``argmax`` eight times as much), so it is done in two steps that never carry an index
along: the largest score of every *lane* of some 40 centroids, by nothing but ``maximum`` over
blocks that stay in cache, and then the centroids of the best lane once more. A GPU takes the plain
``argmax`` of the product, or, for few measures, a kernel that stores no score at all.
"""

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gloam import kernels
from gloam.kernels.products import similarities

_CACHED = 1024  # rows of a product that stay in a CPU's cache, for some hundred points
_FEW = 16  # up to so many numbers in a row, a product of matrices is slower than sums written out
_BLOCK = 2**16  # centroids whose scores a GPU keeps at once


class Lanes(eqx.Module):
    """Centroids in the order of the search: a lane holds ``height`` consecutive rows.

    Consecutive rows in one lane, and lanes in order, make ties go to the lowest row.
    """

    rows: Float[Array, "height lanes meas+1"]
    """Shifted centroids with their negative offsets as a last column; the last row is repeated."""
    origin: Float[Array, " meas"]
    centroids: int = eqx.field(static=True)


def lanes(
    centroids: Float[Array | np.ndarray, "cells meas"],
    origin: Float[Array | np.ndarray, " meas"],
    offsets: Float[Array | np.ndarray, " cells"],
) -> Lanes:
    """Lay out centroids for `most_similar`.

    NumPy arrays are laid out by NumPy: an archive that is built waits for no compiler.

    Args:
        centroids: One row for each cell.
        origin: Any point; the centroids' mean is best. Zero for cosine similarity.
        offsets: ``|c - o|^2 / 2`` for Euclidean distance. Zero for unit vectors and cosine.
    """
    xp = np if isinstance(centroids, np.ndarray) else jnp
    cells = centroids.shape[0]
    height = _height(cells, centroids.shape[1])
    rows = xp.concatenate([centroids - origin, -offsets[:, None]], axis=1, dtype=np.float32)
    rows = xp.concatenate([rows, xp.repeat(rows[-1:], -cells % height, axis=0)])
    rows = rows.reshape(-1, height, rows.shape[1]).swapaxes(0, 1)
    return Lanes(jnp.asarray(rows), jnp.asarray(origin, jnp.float32), cells)


def most_similar(lanes: Lanes, points: Float[Array, "batch meas"]) -> Int[Array, " batch"]:
    """Index of the centroid with the largest score at each point; ties to the lowest."""
    height, _, numbers = lanes.rows.shape
    kernel = kernels.load("nearest") if height == 1 and numbers <= _FEW else None
    if kernel is not None:
        rows, shifted = lanes.rows[0], points - lanes.origin
        if isinstance(points, jax.core.Tracer):  # whoever compiles the program sees a failure
            return kernel.most_similar(rows, shifted)
        return kernels.with_plain_twins(
            lambda: kernel.most_similar(rows, shifted), lambda: most_similar(lanes, points)
        )
    ones = jnp.ones((points.shape[0], 1))
    shifted = jnp.concatenate([points - lanes.origin, ones], axis=1)
    if height == 1 and jax.default_backend() != "cpu":
        return _by_argmax(lanes.rows[0], shifted)
    lane = _best_lane(lanes.rows, shifted)
    if height == 1:
        return lane
    scores = jnp.einsum("hbm,bm->bh", lanes.rows[:, lane], shifted)
    row = jnp.argmax(scores, axis=1).astype(jnp.int32)
    return jnp.minimum(height * lane + row, lanes.centroids - 1)


def _best_lane(
    rows: Float[Array, "height lanes meas+1"], shifted: Float[Array, "batch meas+1"]
) -> Int[Array, " batch"]:
    """The lane that holds the largest score; the lowest of equals."""
    height, width, numbers = rows.shape
    few = numbers <= _FEW
    slices = min(height, 2 if few else max(1, _CACHED // width))
    columns = shifted.T

    def look(block: Int[Array, ""], best: Float[Array, "lanes batch"]) -> Array:
        # The last block may overlap the one before it, which changes no maximum.
        some = jax.lax.dynamic_slice_in_dim(rows, block * slices, slices)
        if few:  # sums written out become one loop with the maximum: no score is ever stored
            # The last number of a row is its offset, and that of a point is one.
            scores = [
                sum((row[:, n, None] * columns[n] for n in range(numbers - 1)), row[:, -1:])
                for row in some
            ]
        else:
            scores = (some.reshape(slices * width, -1) @ columns).reshape(slices, width, -1)
        for score in scores:
            best = jnp.maximum(best, score)
        return best

    lowest = jnp.full((width, shifted.shape[0]), -jnp.inf)
    best = jax.lax.fori_loop(0, -(-height // slices), look, lowest)
    number = jnp.arange(width, dtype=jnp.int32)[:, None]
    return jnp.min(jnp.where(best == jnp.max(best, axis=0), number, width - 1), axis=0)


def _by_argmax(
    rows: Float[Array, "cells meas+1"], shifted: Float[Array, "batch meas+1"]
) -> Int[Array, " batch"]:
    """The plain way, which suits a GPU; in blocks, so that a million's scores need not fit."""
    cells = rows.shape[0]
    block = min(cells, _BLOCK)

    def look(number: Int[Array, ""], best: tuple[Array, Array]) -> tuple[Array, Array]:
        start = jnp.minimum(number * block, cells - block)
        scores = similarities(shifted, jax.lax.dynamic_slice_in_dim(rows, start, block))
        score, place = jnp.max(scores, axis=1), jnp.argmax(scores, axis=1).astype(jnp.int32)
        better = score > best[0]
        return jnp.where(better, score, best[0]), jnp.where(better, start + place, best[1])

    nothing = jnp.full(shifted.shape[:1], -jnp.inf), jnp.zeros(shifted.shape[:1], jnp.int32)
    return jax.lax.fori_loop(0, -(-cells // block), look, nothing)[1]


def _height(cells: int, measures: int) -> int:
    """Centroids in a lane.

    The second step looks at this many for every point, and pays for each of their numbers; the
    first pays for every lane. With few centroids, and on a GPU, a lane of its own for each is best.
    """
    if cells <= 2048 or jax.default_backend() != "cpu":
        return 1
    few = min(40, max(8, 2048 // measures))
    return max(few, -(-cells // 16_384))
