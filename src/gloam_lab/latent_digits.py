"""Latent digits: search the latents of a small generator for an image of every digit."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gloam._tools import checks
from gloam._tools.registry import register
from gloam.archives import Archive, CVTArchive
from gloam.datasets import handwritten_digits
from gloam.domains.domain import Domain, check_pixels, starting_solution
from gloam_lab.decoder import Decoder
from gloam_lab.generator import Generator

_PENALTY = 0.05


# With the weights of its generator, so that a run does not depend on those in the package.
@register(
    values={
        "centroids": lambda domain: domain.images.shaped_centroids,
        "x0": lambda domain: domain.start,
    }
)
class LatentDigits(Domain):
    """Search the latents of a generator for an image similar to each image of a dataset.

    A solution is a latent ``w`` of dimension ``d`` with a standard normal prior. The measures are
    the pixels ``p`` of its image, from 0 to 1. A cell is an image ``c`` of the dataset; the nearest
    one by Euclidean distance counts. The objective is

        1 - |p - c|^2 / s - 0.05 max(0, |w| - sqrt(d))^2

    where ``s`` is the mean of ``|c|^2`` over the dataset: an exact match scores 1, and a black
    image about 0. The last term keeps latents in the region that the generator was trained on:
    ``sqrt(d)`` is the root mean square of ``|w|`` under the prior.

    Args:
        centroids: ``(cells, rows, columns)`` images with values from 0 to 1. By default the 1,000
            digits of `gloam.datasets.handwritten_digits`, which are not in the training data of
            the default generator.
        generator: Generator of grayscale images of the same size. By default
            `gloam_lab.Decoder.digits`.
        x0: Starting solution. By default zeros, the mean of the prior.
        name: Short name of the problem, used in tables and file names.

    Example:
        >>> domain = LatentDigits()
        >>> objectives, measures = domain(domain.x0[None])
        >>> measures.shape, domain.archive().num_cells
        ((1, 784), 1000)
    """

    generator: Generator
    images: CVTArchive
    scale: Float[Array, ""]
    """Mean squared norm of the images."""
    start: Float[Array, " sol"]
    label: str = eqx.field(static=True)

    def __init__(
        self,
        centroids: Any = None,
        generator: Generator | None = None,
        *,
        x0: Any = None,
        name: str = "latent-digits",
    ):
        self.generator = Decoder.digits() if generator is None else generator
        checks.instance("generator", self.generator, Generator)
        checks.instance("name", name, str)
        self.label = name
        images = _images(centroids, self.generator)
        self.images = CVTArchive(images, 0.0, 1.0, index="exact", f_min=0.0)
        squares = np.square(images, dtype=np.float64)
        self.scale = jnp.asarray(squares.sum() / len(images), jnp.float32)
        size = self.generator.w_dim
        self.start = starting_solution(np.zeros(size) if x0 is None else x0, size)

    @property
    def name(self) -> str:
        """The given name; ``latent-digits`` by default."""
        return self.label

    @property
    def x0(self) -> Float[Array, " sol"]:
        """The given starting solution; zeros by default."""
        return self.start

    def archive(self) -> Archive:
        """Return an archive with a cell for every image, by Euclidean distance."""
        return self.images

    def __call__(
        self, solutions: Float[Array, "batch sol"]
    ) -> tuple[Float[Array, " batch"], Float[Array, "batch meas"]]:
        """Return the objectives and measures of latents."""
        measures = self.render(solutions).reshape(jnp.shape(solutions)[0], -1)
        nearest = self.images.centers_of(self.images.index_of(measures))
        error = jnp.sum(jnp.square(measures - nearest), axis=1) / self.scale
        free_norm = math.sqrt(self.generator.w_dim)
        excess = jnp.maximum(0.0, jnp.linalg.norm(solutions, axis=1) - free_norm)
        return 1.0 - error - _PENALTY * jnp.square(excess), measures

    def render(
        self, solutions: Float[Array, "batch sol"], size: int | tuple[int, int] | None = None
    ) -> Float[Array, "batch height width"]:
        """Return the images of latents, with values from 0 to 1.

        Args:
            solutions: The latents.
            size: Rows and columns of an image, or one number for both. By default those of the
                generator; other sizes are interpolated.
        """
        shape, latent = jnp.shape(solutions), self.generator.w_dim
        fits = len(shape) == 2 and shape[1] == latent
        checks.expect(fits, "solutions", f"rows of {latent} numbers", f"shape {shape}")
        images = 0.5 * (self.generator.images(jnp.asarray(solutions, jnp.float32))[:, 0] + 1)
        if size is None:
            return images
        rows, columns = (size, size) if isinstance(size, int) else size
        return jax.image.resize(images, (shape[0], rows, columns), "linear")


def _images(centroids: Any, generator: Generator) -> Float[np.ndarray, "cells rows columns"]:
    """Return the images of the dataset, after checking that the generator fits them."""
    channels, rows, columns = generator.image_shape
    checks.expect(channels == 1, "generator", "grayscale images", f"{channels} channels")
    if centroids is None:
        data = handwritten_digits()
        centroids = data.items.reshape(-1, *data.shape)
    images = checks.finite_array("centroids", centroids, ndim=3, fix="Give an image for each cell.")
    fits = images.shape[1:] == (rows, columns)
    expected = f"images of {rows} x {columns}, like the generator's"
    checks.expect(fits, "centroids", expected, f"shape {images.shape}")
    check_pixels(images)
    checks.expect(bool(images.any()), "centroids", "images that are not all black", "zeros")
    return images
