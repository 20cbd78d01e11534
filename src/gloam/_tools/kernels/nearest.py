"""Nearest centroids for few measures in one kernel.

A matrix product followed by ``argmax`` writes and reads all scores once, which takes longer than
computing them if there are few measures. Here no score leaves the registers.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jaxtyping import Array, Float, Int

# Points and centroids in a block, parts that centroids are divided into, and warps: the fastest of
# those tried on an H200 (research/performance.md).
_POINTS, _CENTROIDS, _PARTS, _WARPS = 16, 64, 4, 4
_NOWHERE = 2**31 - 1


def most_similar(
    rows: Float[Array, "cells meas+1"],
    points: Float[Array, "batch meas"],
    *,
    interpret: bool = False,
) -> Int[Array, " batch"]:
    """Return the row ``(c, b)`` with the largest ``p.c + b`` for each point; ties to the lowest.

    >>> rows = jnp.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.5]])
    >>> most_similar(rows, jnp.array([[2.0, 1.0], [2.0, 1.9]]), interpret=True).tolist()
    [0, 1]
    """
    cells, batch = rows.shape[0], points.shape[0]
    loops = -(-cells // (_CENTROIDS * _PARTS))
    missing = loops * _CENTROIDS * _PARTS - cells
    columns = jnp.pad(rows.T, ((0, 0), (0, missing)), constant_values=-jnp.inf)
    columns = columns.at[:-1, cells:].set(0.0)  # so that the score of padding is minus infinity
    points = jnp.pad(points.T, ((0, 0), (0, -batch % _POINTS)))
    shape = (_PARTS, points.shape[1])
    best, place = pl.pallas_call(
        partial(_search, loops=loops),
        [jax.ShapeDtypeStruct(shape, jnp.float32), jax.ShapeDtypeStruct(shape, jnp.int32)],
        grid=(points.shape[1] // _POINTS, _PARTS),
        compiler_params=plgpu.CompilerParams(num_warps=_WARPS, num_stages=2),
        interpret=interpret,
        name="nearest",
    )(columns, points)
    winner = best == jnp.max(best, axis=0)
    return jnp.min(jnp.where(winner, place, _NOWHERE), axis=0)[:batch]


def _search(columns, points, best_out, place_out, *, loops: int) -> None:
    """Compare a block of points with one part of the centroids."""
    part = pl.program_id(1)
    mine = pl.ds(pl.program_id(0) * _POINTS, _POINTS)
    numbers = points.shape[0]
    coordinates = [points[number, mine] for number in range(numbers)]

    def look(loop, carry):
        best, when = carry
        rows = pl.ds((part * loops + loop) * _CENTROIDS, _CENTROIDS)
        score = jnp.broadcast_to(columns[numbers, rows][None, :], best.shape)
        for number, coordinate in enumerate(coordinates):
            score += coordinate[:, None] * columns[number, rows][None, :]
        better = score > best
        return jnp.where(better, score, best), jnp.where(better, loop, when)

    shape = (_POINTS, _CENTROIDS)
    nothing = jnp.full(shape, -jnp.inf), jnp.zeros(shape, jnp.int32)
    best, when = jax.lax.fori_loop(0, loops, look, nothing)
    place = (part * loops + when) * _CENTROIDS + jnp.arange(_CENTROIDS)[None, :]
    most = jnp.max(best, axis=1)
    best_out[part, mine] = most
    place_out[part, mine] = jnp.min(jnp.where(best == most[:, None], place, _NOWHERE), axis=1)
