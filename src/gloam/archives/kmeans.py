"""Centroids for a CVT archive, by k-means over uniform samples of a box."""

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gloam._tools import checks, files, kernels
from gloam._tools.devices import sums_by_group
from gloam.archives.nearest_centroids import lanes, most_similar

_BLOCK = 2048


@checks.names_arguments
def kmeans_centroids(
    num_cells: int,
    lower: checks.Bounds,
    upper: checks.Bounds,
    measure_dim: int,
    *,
    seed: int = 0,
    num_samples: int | None = None,
    num_iterations: int = 10,
    cache: str | os.PathLike | None = None,
) -> np.ndarray:
    """Return centroids that divide a box into ``num_cells`` cells of about equal volume.

    Lloyd's algorithm over uniform samples. The result depends on the arguments alone, so runs with
    the same seed share their cells.

    Args:
        num_cells: Number of centroids.
        lower, upper: Bounds of the box; a scalar applies to every dimension.
        measure_dim: Number of measures.
        seed: Seed of the samples.
        num_samples: Number of samples; 10 for each cell by default.
        num_iterations: Number of iterations of Lloyd's algorithm.
        cache: Path of a ``.npy`` file, which is read if it exists and written otherwise.

    Returns:
        ``(num_cells, measure_dim)`` float32 array.

    Example:
        >>> kmeans_centroids(4, 0, 1, 2, seed=1).shape
        (4, 2)
    """
    num_cells = checks.integer("num_cells", num_cells, minimum=1)
    measure_dim = checks.integer("measure_dim", measure_dim, minimum=1)
    seed = checks.seed("seed", seed)
    num_iterations = checks.integer("num_iterations", num_iterations, minimum=0)
    total = 10 * num_cells if num_samples is None else num_samples
    total = checks.integer("num_samples", total, minimum=num_cells)
    # The samples are in memory once in float64 and twice in float32.
    fix = "Use fewer cells, samples or measures."
    samples = f"{total:,} samples of {measure_dim:,} measures"
    checks.fits_memory("num_samples", 16 * total * measure_dim, samples, fix)
    low, high = checks.bounds(lower, upper, measure_dim)
    if cache is not None and checks.path("cache", cache).is_file():
        cached = checks.finite_array("cache", files.read_array(cache, "cache"), ndim=2)
        checks.expect(
            cached.shape == (num_cells, measure_dim),
            "cache",
            f"shape {(num_cells, measure_dim)}",
            f"shape {cached.shape} in '{cache}'",
            "Delete the file.",
        )
        return cached
    # NumPy's generator, because its stream is the same on every backend.
    points = np.random.default_rng(seed).uniform(low, high, (total, measure_dim))
    # From the middle of the box, so that sums and squares of float32 numbers lose fewer digits.
    middle = 0.5 * (low.astype(np.float64) + high)
    moved = _lloyd(jnp.asarray(points - middle, jnp.float32), num_cells, num_iterations)
    result = (np.asarray(moved, np.float64) + middle).astype(np.float32)
    if cache is not None:
        files.write_array(Path(cache), result)
    return result


def _lloyd(
    points: Float[Array, "n meas"], cells: int, iterations: int
) -> Float[Array, "cells meas"]:
    """Move each centroid to the mean of its points, ``iterations`` times."""
    # Blocks bound the memory; the last one is padded with points of zero weight.
    padding = -points.shape[0] % _BLOCK
    weight = jnp.pad(jnp.ones(points.shape[0], jnp.float32), (0, padding))
    filled = jnp.pad(points, ((0, padding), (0, 0)))
    centroids = points[:cells]
    for _ in range(iterations):
        centroids = _improved(centroids, filled, weight)
    return centroids


@kernels.jit
def _improved(
    centroids: Float[Array, "cells meas"],
    points: Float[Array, "n meas"],
    weight: Float[Array, " n"],
) -> Float[Array, "cells meas"]:
    search = lanes(centroids, jnp.mean(centroids, axis=0))
    blocks = points.reshape(-1, _BLOCK, points.shape[1])
    owner = jax.lax.map(lambda block: most_similar(search, block), blocks).reshape(-1)
    count = jnp.zeros(centroids.shape[0], jnp.float32).at[owner].add(weight)
    total = sums_by_group(points * weight[:, None], owner, centroids.shape[0])
    # A centroid that owns no point stays where it is.
    return jnp.where(count[:, None] > 0, total / jnp.maximum(count, 1.0)[:, None], centroids)
