"""Exact nearest centroids on the device.

A point's nearest centroid has the largest score ``(p - o).(c - o) - |c - o|^2 / 2``, for any origin
``o``; the centroids' mean keeps numbers small, so that float32 loses fewer bits. All scores are one
matrix product. On a CPU, finding each column's largest score costs more than the product
(``argmax`` eight times as much), so it is done in two steps that never carry an index: first the
largest score of every *lane* of about 40 centroids, by ``maximum`` over blocks that stay in cache,
then the best centroid of the best lane. A GPU uses the plain ``argmax`` of the product, or, for few
measures, a kernel that stores no scores.

Scores in float32 have rounding errors that grow with the square of a centroid's distance from the
origin. If centroids are so far from it and so close to one another that scores cannot tell
neighbors apart (as in distant clusters), squared differences are compared instead, which is
several times slower.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gloam._tools import kernels
from gloam._tools.devices import runs_on_cpu
from gloam._tools.kernels.products import similarities

_CACHED = 1024  # rows of a product that stay in a CPU's cache, for some hundred points
_FEW = 16  # numbers in a row, up to which a matrix product is slower than sums written out
_BLOCK = 2**16  # centroids whose scores a GPU stores at once
# Sample of `scores_collide`: its size, its least size, and the numbers that it is compared with.
_SAMPLE, _LEAST_SAMPLE, _SAMPLED_NUMBERS = 128, 16, 2 * 10**9
_WIDE_ROWS = 8192  # centroids in float64 at once
_ROUNDINGS = 16.0  # rounding errors of a score, below which neighbors are often confused
_FEW_COLLISIONS = 0.01  # share of centroids that may collide, such as near duplicates


class Lanes(eqx.Module):
    """Centroids in the order of the search: a lane holds ``height`` consecutive rows.

    Consecutive rows in one lane, and lanes in order, make ties go to the lowest row.
    """

    rows: Float[Array, "height lanes meas+1"]
    """Shifted centroids with their negative offsets as a last column; the last row is repeated."""
    origin: Float[Array, " meas"]
    centroids: int = eqx.field(static=True)
    by_differences: bool = eqx.field(static=True)
    """Whether points are compared with centroids by differences instead of scores."""


def lanes(
    centroids: Float[Array | np.ndarray, "cells meas"],
    origin: Float[Array | np.ndarray, " meas"],
    *,
    cosine: bool = False,
    by_differences: bool = False,
) -> Lanes:
    """Lay out centroids for `most_similar`.

    NumPy arrays are laid out by NumPy, without compiling a program.

    Args:
        centroids: One row for each cell; unit vectors for cosine.
        origin: Any point; the centroids' mean is best. Zero for cosine similarity.
        cosine: Whether the most similar direction is searched instead of the nearest centroid.
        by_differences: Whether scores cannot tell the centroids apart, see `scores_collide`.
    """
    xp = np if isinstance(centroids, np.ndarray) else jnp
    cells = centroids.shape[0]
    if by_differences:  # the centroids themselves: a shift would round them
        rows = jnp.asarray(centroids, jnp.float32)[None]
        return Lanes(rows, jnp.zeros(rows.shape[2], jnp.float32), cells, True)
    height = _height(cells, centroids.shape[1])
    shifted = centroids - origin
    wide = np.float64 if xp is np else np.float32
    squares = xp.square(shifted.astype(wide)).sum(axis=1, keepdims=True)
    offsets = 0.0 * squares if cosine else 0.5 * squares
    rows = xp.concatenate([shifted, -offsets], axis=1, dtype=np.float32)
    rows = xp.concatenate([rows, xp.repeat(rows[-1:], -cells % height, axis=0)])
    rows = rows.reshape(-1, height, rows.shape[1]).swapaxes(0, 1)
    return Lanes(jnp.asarray(rows), jnp.asarray(origin, jnp.float32), cells, False)


def most_similar(lanes: Lanes, points: Float[Array, "batch meas"]) -> Int[Array, " batch"]:
    """Return the centroid with the largest score for each point; ties go to the lowest."""
    if lanes.by_differences:
        return _by_blocks(lanes.rows[0], points, _CACHED, _negative_squares)
    height, _, numbers = lanes.rows.shape
    kernel = kernels.load("nearest") if height == 1 and numbers <= _FEW else None
    if kernel is not None:
        rows, shifted = lanes.rows[0], points - lanes.origin
        if isinstance(points, jax.core.Tracer):  # compiling the program would fail, not tracing
            return kernel.most_similar(rows, shifted)
        return kernels.with_fallback(
            lambda: kernel.most_similar(rows, shifted), lambda: most_similar(lanes, points)
        )
    ones = jnp.ones((points.shape[0], 1), jnp.float32)
    shifted = jnp.concatenate([points - lanes.origin, ones], axis=1)
    if height == 1 and not runs_on_cpu():
        return _by_blocks(lanes.rows[0], shifted, _BLOCK, similarities)
    lane = _best_lane(lanes.rows, shifted)
    if height == 1:
        return lane
    scores = jnp.einsum("hbm,bm->bh", lanes.rows[:, lane], shifted)
    row = jnp.argmax(scores, axis=1).astype(jnp.int32)
    return jnp.minimum(height * lane + row, lanes.centroids - 1)


def _best_lane(
    rows: Float[Array, "height lanes meas+1"], shifted: Float[Array, "batch meas+1"]
) -> Int[Array, " batch"]:
    """Return the lane that holds the largest score; the lowest of equal ones."""
    height, width, numbers = rows.shape
    few = numbers <= _FEW
    slices = min(height, 2 if few else max(1, _CACHED // width))
    columns = shifted.T

    def highest(block: Int[Array, ""], best: Float[Array, "lanes batch"]) -> Array:
        # The last block may overlap the one before it, which changes no maximum.
        block_rows = jax.lax.dynamic_slice_in_dim(rows, block * slices, slices)
        if few:  # sums written out become one loop with the maximum: no score is ever stored
            # The last number of a row is its offset, and that of a point is one.
            scores = [
                sum((row[:, n, None] * columns[n] for n in range(numbers - 1)), row[:, -1:])
                for row in block_rows
            ]
        else:
            scores = (block_rows.reshape(slices * width, -1) @ columns).reshape(slices, width, -1)
        for score in scores:
            best = jnp.maximum(best, score)
        return best

    lowest = jnp.full((width, shifted.shape[0]), -jnp.inf, jnp.float32)
    best = jax.lax.fori_loop(0, -(-height // slices), highest, lowest)
    number = jnp.arange(width, dtype=jnp.int32)[:, None]
    return jnp.min(jnp.where(best == jnp.max(best, axis=0), number, width - 1), axis=0)


def _by_blocks(
    rows: Float[Array, "cells numbers"],
    points: Float[Array, "batch numbers"],
    block: int,
    scores_of: Callable[[Array, Array], Array],
) -> Int[Array, " batch"]:
    """Return the row with the largest score, computed in blocks to bound the memory."""
    cells = rows.shape[0]
    block = min(cells, block)

    def highest(number: Int[Array, ""], best: tuple[Array, Array]) -> tuple[Array, Array]:
        # The last block may overlap the one before it: what was found there is not better.
        start = jnp.minimum(number * block, cells - block)
        scores = scores_of(points, jax.lax.dynamic_slice_in_dim(rows, start, block))
        score, row = jnp.max(scores, axis=1), jnp.argmax(scores, axis=1).astype(jnp.int32)
        better = score > best[0]
        return jnp.where(better, score, best[0]), jnp.where(better, start + row, best[1])

    size = points.shape[:1]
    nothing = jnp.full(size, -jnp.inf, jnp.float32), jnp.zeros(size, jnp.int32)
    return jax.lax.fori_loop(0, -(-cells // block), highest, nothing)[1]


def _negative_squares(
    points: Float[Array, "batch meas"], centroids: Float[Array, "cells meas"]
) -> Float[Array, "batch cells"]:
    return -jnp.sum(jnp.square(points[:, None] - centroids[None]), axis=2)


def scores_collide(
    centroids: Float[np.ndarray, "cells meas"], origin: Float[np.ndarray, " meas"]
) -> bool:
    """Return whether float32 scores confuse neighboring centroids, judged by a sample.

    The rounding error of a score is about ``2^-23 r^2`` for a centroid at distance ``r`` from the
    origin. Scores of neighbors at distance ``g`` differ by up to ``g^2``. Equal centroids do not
    count: their cell is the lowest row either way.

    >>> clusters = np.concatenate([np.linspace(-500, -499.9, 50), np.linspace(499.9, 500, 50)])
    >>> scores_collide(clusters[:, None], np.zeros(1))
    True
    >>> scores_collide(np.linspace(-500, 500, 100)[:, None], np.zeros(1))
    False
    """
    cells, measures = centroids.shape
    size = min(cells, max(_LEAST_SAMPLE, min(_SAMPLE, _SAMPLED_NUMBERS // (cells * measures))))
    rows = np.linspace(0, cells - 1, size).astype(int)
    radii = np.square(centroids[rows].astype(np.float64) - origin).sum(axis=1)
    collide = squared_gaps(centroids, rows, origin) < _ROUNDINGS * np.finfo(np.float32).eps * radii
    return bool(collide.mean() > _FEW_COLLISIONS)


def squared_gaps(
    centroids: Float[np.ndarray, "cells meas"],
    rows: Int[np.ndarray, " n"],
    origin: Float[np.ndarray, " meas"],
) -> Float[np.ndarray, " n"]:
    """Return the squared distances of some centroids to their nearest different centroids.

    They are computed in float64; infinity if there is no different centroid.
    """
    sample = centroids[rows].astype(np.float64) - origin
    radii = np.square(sample).sum(axis=1)
    gaps = np.full(len(rows), np.inf)
    for start in range(0, len(centroids), _WIDE_ROWS):
        block = centroids[start : start + _WIDE_ROWS].astype(np.float64) - origin
        squared = radii[:, None] - 2 * sample @ block.T + np.square(block).sum(axis=1)
        # The centroid itself, and what float64 cannot tell from it.
        squared[squared <= 1e-14 * radii[:, None]] = np.inf
        gaps = np.minimum(gaps, squared.min(axis=1))
    return gaps


def _height(cells: int, measures: int) -> int:
    """Return the number of centroids in a lane.

    The cost of the first step grows with the number of lanes, that of the second with the numbers
    in a lane. With few centroids, and on a GPU, one centroid per lane is best.
    """
    if cells <= 2048 or not runs_on_cpu():
        return 1
    few = min(40, max(8, 2048 // measures))
    return max(few, -(-cells // 16_384))
