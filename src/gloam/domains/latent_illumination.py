"""Random latents of a generator: how far they spread, and which one to start a search from.

Latent space illumination: a generated image for every image of a dataset (LSI in the paper).
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from gloam import checks
from gloam.archives import Archive, CVTArchive
from gloam.datasets import Dataset
from gloam.domains.domain import Domain
from gloam.generators import Embedder, Generator
from gloam.progress import work_bar

# Of the paper's released experiment.
_NUM_SAMPLES = 10_000
_START_BATCH = 16
_START_TRUNCATION = 0.7
_FREE_SHARE = 0.35


def spherical_distance(rows: Float[Array, "n d"], target: Float[Array, " d"]) -> Float[Array, " n"]:
    """``2 arcsin(|a - b| / 2)^2`` of vectors of length one: half the squared angle between them.

    Example:
        >>> right = spherical_distance(jnp.array([[1.0, 0.0]]), jnp.array([0.0, 1.0]))
        >>> bool(jnp.isclose(right[0], 0.5 * (jnp.pi / 2) ** 2))
        True
    """
    half_chord = jnp.linalg.norm(rows - target, axis=1) / 2
    # Rounding may make the chord of opposite vectors longer than the diameter.
    return 2 * jnp.square(jnp.arcsin(jnp.minimum(half_chord, 1.0)))


def statistics(
    generator: Generator, *, key: PRNGKeyArray
) -> tuple[Float[Array, " sol"], Float[Array, ""]]:
    """Standard deviation of w in each dimension, and the norm that costs nothing."""

    @eqx.filter_jit
    def measured(generator: Generator, key: PRNGKeyArray) -> tuple[Array, Array]:
        w = generator.map(jax.random.normal(key, (_NUM_SAMPLES, generator.z_dim)))
        scale = jnp.std(w, axis=0, ddof=1)
        norms = jnp.linalg.norm((w - generator.w_avg) / scale, axis=1)
        return scale, _FREE_SHARE * math.sqrt(generator.num_ws) * jnp.mean(norms)

    scale, free_norm = measured(generator, key)
    usable = bool(jnp.all(jnp.isfinite(scale) & (scale > 0)))
    checks.expect(
        usable,
        "generator",
        "latents that vary in every dimension",
        "a standard deviation of zero or NaN",
        "Check the generator's weights.",
    )
    return scale, free_norm


def best_start(
    domain: "LatentIllumination", num_starts: int, *, key: PRNGKeyArray, progress: bool
) -> Float[Array, " sol"]:
    """The truncated random latent whose image is nearest to the prompt.

    Without a prompt, the one whose objective is best.

    Args:
        domain: What will be searched; its own start does not count.
        num_starts: Number of latents, in batches of up to 16.
        key: Key of the latents.
        progress: Whether to show a bar.
    """

    @eqx.filter_jit
    def best(domain: "LatentIllumination", key: PRNGKeyArray) -> tuple[Array, Array]:
        z = jax.random.normal(key, (min(_START_BATCH, num_starts), domain.generator.z_dim))
        w = domain.generator.map(z, _START_TRUNCATION)
        rows = (w - domain.generator.w_avg) / domain.scale
        objectives, embeddings = domain(rows)
        if domain.prompt is not None:
            objectives = -spherical_distance(embeddings, domain.prompt)
        chosen = jnp.argmax(jnp.where(jnp.isfinite(objectives), objectives, -jnp.inf))
        return rows[chosen], objectives[chosen]

    keys = jax.random.split(key, -(-num_starts // _START_BATCH))
    found = []
    with work_bar("choosing the start", len(keys), show=progress) as advance:
        for key in keys:
            row, objective = best(domain, key)
            found.append((float(objective), row))
            advance(1)
    return max(found, key=lambda pair: pair[0])[1]


PAPER_PROMPT = "A photo of the face of a hiker."
_PENALTY = 0.2  # of the paper's released experiment


class LatentIllumination(Domain):
    """Search a generator's latents for an image of a prompt that fits each item of a dataset.

    A solution is a normalised latent ``q = (w - w_avg) / w_std``, ``w_std`` from 10,000 mapped
    random numbers. The measures are the embedding of its image, of length one. Each cell is the
    embedding of one item of the dataset, the nearest by angle. The objective is
    ``(f_prompt + f_centroid) / 2`` with

        f_prompt = 1 - 0.5 (2 arcsin(|a - b| / 2)^2 + 0.2 max(0, |q| - q0)^2)
        f_centroid = (1 + cos(a, c)) / 2

    of the embeddings ``a`` of the image, ``b`` of the prompt and ``c`` of the item. ``|q|`` is the
    norm of the latent repeated for all layers of the generator, and ``q0`` is 0.35 of the mean
    norm of the 10,000 samples.

    Args:
        generator: Makes images, for instance `gloam.generators.StyleGAN3`.
        embedder: Embeds them, for instance `gloam.generators.CLIP`.
        prompt: A text, or its embedding. ``None`` leaves the prompt out: the objective is then
            ``f_centroid`` minus the same penalty.
        dataset: Its pictures are embedded by the embedder, unless its items are embeddings
            already (`embedded`, which `gloam.run` takes as ``dataset``, too). Or an array of
            embeddings.
        x0: Where searches start. By default the best of ``num_starts`` random truncated latents.
        num_starts: Number of latents to choose ``x0`` from, in batches of up to 16.
        chunk: Number of images that are made at once: fewer need less memory.
        seed: Seed of the samples.
        name: Short name of the problem, as in tables and file names.
        progress: Whether to show a bar while ``x0`` is chosen.
    """

    generator: Generator
    embedder: Embedder
    prompt: Float[Array, " meas"] | None
    landscape: CVTArchive
    scale: Float[Array, " sol"]
    """Standard deviation of w in each dimension."""
    free_norm: Float[Array, ""]
    """Norm of a repeated latent up to which nothing is subtracted (q0)."""
    start: Float[Array, " sol"]
    chunk: int = eqx.field(static=True)
    label: str = eqx.field(static=True)

    def __init__(
        self,
        generator: Generator,
        embedder: Embedder,
        prompt: str | Any | None = PAPER_PROMPT,
        dataset: Dataset | Any = None,
        *,
        x0: Any = None,
        num_starts: int = 512,
        chunk: int = 12,
        seed: int = 0,
        name: str = "lsi",
        progress: bool = False,
    ):
        checks.instance("generator", generator, Generator)
        checks.instance("embedder", embedder, Embedder)
        checks.instance("name", name, str)
        num_starts = checks.integer("num_starts", num_starts, minimum=1)
        seed = checks.integer("seed", seed, minimum=0)
        self.generator, self.embedder, self.label = generator, embedder, name
        self.chunk = checks.integer("chunk", chunk, minimum=1)
        self.prompt = _prompt(embedder, prompt)
        self.landscape = _archive(embedder, dataset)
        key_samples, key_starts = jax.random.split(jax.random.key(seed))
        self.scale, self.free_norm = statistics(generator, key=key_samples)
        if x0 is not None:
            x0 = checks.finite_array("x0", x0, ndim=1)
            checks.expect(
                x0.size == generator.w_dim, "x0", f"{generator.w_dim} numbers", f"{x0.size}"
            )
            self.start = jnp.asarray(x0)
        else:
            self.start = jnp.zeros(generator.w_dim)
            self.start = best_start(self, num_starts, key=key_starts, progress=progress)

    @staticmethod
    def embedded(dataset: Dataset, embedder: Embedder, **options: Any) -> Dataset:
        """A dataset of pictures with their embeddings, of length one, as items.

        Args:
            dataset: Items that are pictures, or have them.
            embedder: Embeds them.
            options: Those of `Dataset.embedded`: batch, cache, progress.
        """
        checks.expect(
            dataset.has_images,
            "dataset",
            "items that are pictures, or have them",
            f"items of shape {dataset.shape}",
            f"Or give embeddings of {embedder.embedding_dim} numbers.",
        )
        return dataset.embedded(image_embedding(embedder), **options).normalized()

    @property
    def name(self) -> str:
        """As given, or ``lsi``."""
        return self.label

    @property
    def x0(self) -> Float[Array, " sol"]:
        """As given, or the best of some random latents."""
        return self.start

    def archive(self) -> Archive:
        """A cell for every item of the dataset, the nearest by angle."""
        return self.landscape

    def __call__(
        self, solutions: Float[Array, "batch sol"]
    ) -> tuple[Float[Array, " batch"], Float[Array, "batch meas"]]:
        """Objectives and measures of normalised latents."""
        embeddings = self.embeddings(solutions)
        cells = self.landscape.index_of(embeddings)
        closeness = (1 + self.landscape.closeness(embeddings, cells)) / 2
        norms = math.sqrt(self.generator.num_ws) * jnp.linalg.norm(solutions, axis=1)
        penalty = _PENALTY * jnp.square(jnp.maximum(0.0, norms - self.free_norm))
        if self.prompt is None:
            return closeness - penalty / 4, embeddings
        distance = spherical_distance(embeddings, self.prompt)
        return (1 - (distance + penalty) / 2 + closeness) / 2, embeddings

    def embeddings(self, solutions: Float[Array, "batch sol"]) -> Float[Array, "batch meas"]:
        """Embeddings of the images of normalised latents, ``chunk`` images at a time."""
        return self._in_chunks(solutions, lambda w: self.embedder.embed_images(self._images(w)))

    def render(
        self, solutions: Float[Array, "batch sol"], size: int | tuple[int, int] | None = None
    ) -> Float[Array, "batch height width channels"]:
        """Images of normalised latents, with values from 0 to 1 and a last axis of colours.

        Args:
            solutions: ``(batch, sol)``.
            size: Height and width of an image, or one number for both; by default the generator's.
        """
        rows = self._checked(jnp.asarray(solutions))
        count, size = rows.shape[0], (size, size) if isinstance(size, int) else size
        # One program for all numbers of images. It is compiled once, which takes longer than the
        # images do.
        filled = jnp.pad(rows, ((0, -count % self.chunk), (0, 0)))
        parts = [
            _rendered(self, filled[start : start + self.chunk], size)
            for start in range(0, len(filled), self.chunk)
        ]
        return jnp.concatenate(parts)[:count]

    def _images(self, solutions: Array) -> Array:
        return self.generator.images(self.generator.w_avg + self.scale * solutions)

    def _checked(self, solutions: Array) -> Array:
        shape, size = jnp.shape(solutions), self.generator.w_dim
        fits = len(shape) == 2 and shape[1] == size
        checks.expect(fits, "solutions", f"rows of {size} numbers", f"shape {shape}")
        return solutions

    def _in_chunks(self, solutions: Array, function: Any) -> Array:
        shape, size = jnp.shape(self._checked(solutions)), self.generator.w_dim
        if shape[0] <= self.chunk:
            return function(solutions)
        # The last chunk is filled up with zeros, whose results are dropped.
        count = -(-shape[0] // self.chunk)
        filled = jnp.pad(solutions, ((0, count * self.chunk - shape[0]), (0, 0)))
        results = jax.lax.map(function, filled.reshape(count, self.chunk, size))
        return results.reshape(-1, *results.shape[2:])[: shape[0]]


def image_embedding(embedder: Embedder) -> Callable[[np.ndarray], np.ndarray]:
    """A function that embeds batches of byte images, for datasets."""

    def embed(images: np.ndarray) -> np.ndarray:
        return np.asarray(_embedded(embedder, jnp.asarray(images)))

    return embed


@eqx.filter_jit
def _embedded(embedder: Embedder, images: Array) -> Array:
    return embedder.embed_images(images)


@eqx.filter_jit
def _rendered(
    domain: LatentIllumination, rows: Array, size: tuple[int, int] | None
) -> Float[Array, "n height width channels"]:
    images = jnp.moveaxis(0.5 * (domain._images(rows) + 1), 1, 3)
    if size is None:
        return images
    shape = (images.shape[0], *size, images.shape[3])
    return jnp.clip(jax.image.resize(images, shape, "linear"), 0.0, 1.0)


def _prompt(embedder: Embedder, prompt: Any) -> Float[Array, " meas"] | None:
    if prompt is None:
        return None
    if isinstance(prompt, str):
        return embedder.embed_texts([prompt])[0]
    vector = checks.finite_array("prompt", prompt, ndim=1, fix="Give a text or its embedding.")
    size, norm = embedder.embedding_dim, float(np.linalg.norm(vector))
    checks.expect(
        vector.size == size and norm > 0, "prompt", f"an embedding of {size} numbers", vector.size
    )
    return jnp.asarray(vector / norm)


def _archive(embedder: Embedder, dataset: Any) -> CVTArchive:
    fix = f"Give a dataset of pictures, or embeddings of {embedder.embedding_dim} numbers."
    checks.expect(dataset is not None, "dataset", "a dataset or an array", "none", fix)
    if not isinstance(dataset, Dataset):
        dataset = Dataset(checks.finite_array("dataset", dataset, ndim=2, fix=fix))
    if dataset.shape != (embedder.embedding_dim,):
        dataset = LatentIllumination.embedded(dataset, embedder, progress=False)
    fits = dataset.shape == (embedder.embedding_dim,)
    checks.expect(fits, "dataset", "embeddings of the embedder", f"shape {dataset.shape}", fix)
    return dataset.archive("cosine", index="exact")
