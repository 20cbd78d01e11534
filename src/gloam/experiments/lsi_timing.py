"""How long latent space illumination takes on this machine, from a few images and iterations."""

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gloam.algorithms import DMS
from gloam.datasets import Dataset
from gloam.drivers.fused_driver import FusedDriver
from gloam.experiments.lsi import IMAGES_AT_ONCE, NUM_STARTS
from gloam.experiments.presets import SETTINGS
from gloam.generators import Embedder, Generator

# A whole group of images is timed if it is expected to take no longer than this.
_GROUP_SECONDS = 10.0
_ITERATIONS = 5
_REPEATS = 3
_MIN_CELLS = 2


class LsiTimes(NamedTuple):
    """Seconds, without compilation."""

    image: float
    """One image and its embedding."""
    embedding: float
    """One embedding of a landscape."""
    search: float
    """One iteration of DMS besides its images."""
    batch_size: int
    """Number of images in an iteration."""

    @property
    def iteration(self) -> float:
        """One iteration with its images."""
        return self.search + self.batch_size * self.image

    @property
    def start(self) -> float:
        """The choice of the start."""
        return NUM_STARTS * self.image

    def run(self, iterations: int, num_landscapes: int) -> float:
        """A run of one seed from beginning to end."""
        return self.start + num_landscapes * self.embedding + iterations * self.iteration


def measure_times(generator: Generator, embedder: Embedder, num_landscapes: int) -> LsiTimes:
    """Time a few images, embeddings and iterations.

    Args:
        generator, embedder: The models.
        num_landscapes: Number of cells of the archive.
    """
    _, height, width = generator.image_shape
    picture = np.full((1, height, width, 3), 128, np.uint8)
    embedding = median_seconds(_embeddings, embedder, picture)
    w = jnp.broadcast_to(generator.w_avg, (IMAGES_AT_ONCE, generator.w_dim))
    image = median_seconds(_image_embeddings, generator, embedder, w[:1])
    if IMAGES_AT_ONCE * image < _GROUP_SECONDS:  # a GPU makes several in the time of one
        image = median_seconds(_image_embeddings, generator, embedder, w) / IMAGES_AT_ONCE
    driver = _search(generator.w_dim, embedder.embedding_dim, max(num_landscapes, _MIN_CELLS))
    search = median_seconds(lambda: driver.advance(_ITERATIONS)) / _ITERATIONS
    return LsiTimes(image, embedding, search, driver.batch)


@eqx.filter_jit
def _embeddings(embedder: Embedder, pictures: Array) -> Array:
    return embedder.embed_images(pictures)


@eqx.filter_jit
def _image_embeddings(generator: Generator, embedder: Embedder, w: Array) -> Array:
    return embedder.embed_images(generator.images(w))


def _search(solution_dim: int, measure_dim: int, num_cells: int) -> FusedDriver:
    """DMS with the sizes of the search, on embeddings that cost nothing."""
    rng = np.random.default_rng(0)
    items = rng.normal(size=(num_cells, measure_dim)).astype(np.float32)
    archive = Dataset(items).normalized().archive("cosine", index="exact")
    projection = jnp.asarray(rng.normal(size=(solution_dim, measure_dim)), jnp.float32)

    def evaluate(solutions: Array) -> tuple[Array, Array]:
        rows = solutions @ projection
        objectives = jnp.exp(-jnp.sum(jnp.square(solutions), axis=1))
        return objectives, rows / jnp.linalg.norm(rows, axis=1, keepdims=True)

    algorithm = DMS.paper(archive, np.zeros(solution_dim), **SETTINGS["dms"]["lsi"])
    driver = FusedDriver(evaluate, algorithm, [0])
    driver.start()
    return driver


def median_seconds(function: Callable[..., Any], *arguments: Any) -> float:
    """Median seconds of a call, after one that compiles."""
    jax.block_until_ready(function(*arguments))
    found = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        found.append(time.perf_counter() - began)
    return statistics.median(found)
