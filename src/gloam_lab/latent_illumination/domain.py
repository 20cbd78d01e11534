"""Latent space illumination (LSI): find a generated image for every image of a dataset."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from gloam._tools import checks
from gloam._tools.compiler import compile_lowered, compiler_options, keep_compiled_programs
from gloam._tools.progress import work_bar
from gloam.archives import Archive, CVTArchive
from gloam.datasets import Dataset
from gloam.domains.domain import Domain, starting_solution
from gloam_lab.generator import Generator
from gloam_lab.latent_illumination.embedder import Embedder

PAPER_PROMPT = "A photo of the face of a hiker."
# Settings of the paper's released experiment.
_PENALTY = 0.2
_FREE_SHARE = 0.35
_NUM_SAMPLES = 10_000
_START_TRUNCATION = 0.7


class LatentIllumination(Domain):
    """Search a generator's latents for images of a prompt that match the items of a dataset.

    A solution is a normalized latent ``q = (w - w_avg) / w_std``, with ``w_std`` estimated from
    10,000 random latents. The measures are the embedding of its image, of length one. A cell is
    the embedding of an item of the dataset; the nearest one by angle counts. The objective is
    ``(f_prompt + f_centroid) / 2`` with

        f_prompt = 1 - 0.5 (2 arcsin(|a - b| / 2)^2 + 0.2 max(0, |q| - q0)^2)
        f_centroid = (1 + cos(a, c)) / 2

    for the embeddings ``a`` of the image, ``b`` of the prompt and ``c`` of the item. ``|q|`` is the
    norm of the latent repeated for all layers of the generator, and ``q0`` is 0.35 times the mean
    norm of the 10,000 samples.

    Args:
        generator: Generator of images, for example `gloam_lab.latent_illumination.StyleGAN3`.
        embedder: Embedder of these images, for example `gloam_lab.latent_illumination.CLIP`.
        prompt: A text or its embedding. Without a prompt (``None``), the objective is
            ``f_centroid`` minus the same penalty.
        dataset: Pictures, which are embedded with the embedder, or embeddings, as a dataset (see
            `embedded`; pass it to `gloam.run` as ``dataset``, too) or as an array.
        x0: Starting solution. By default the best of ``num_starts`` random truncated latents.
        num_starts: Number of latents to choose ``x0`` from.
        chunk: Largest number of images generated at a time, or differentiated at a time. Smaller
            chunks need less memory.
        seed: Seed of the random latents.
        name: Short name of the problem, used in tables and file names.
        progress: Whether to show a progress bar while ``x0`` is chosen.
    """

    generator: Generator
    embedder: Embedder
    prompt: Float[Array, " meas"] | None
    landscape: CVTArchive
    scale: Float[Array, " sol"]
    """Standard deviation of w in each dimension."""
    free_norm: Float[Array, ""]
    """Norm of a repeated latent without penalty (q0)."""
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
        self.scale, self.free_norm = _scale_and_norm(generator, key=key_samples)
        if x0 is not None:
            self.start = starting_solution(x0, generator.w_dim)
        else:
            self.start = jnp.zeros(generator.w_dim)
            self.start = _best_start(self, num_starts, key=key_starts, progress=progress)

    @staticmethod
    def embedded(dataset: Dataset, embedder: Embedder, **options: Any) -> Dataset:
        """Return a dataset whose items are the embeddings of its pictures, of length one.

        Args:
            dataset: Items that are pictures or have them.
            embedder: Embedder of the pictures.
            options: Passed to `Dataset.embedded`: batch, cache, progress.
        """
        expected, got = "items that are pictures or have them", f"items of shape {dataset.shape}"
        fix = f"Or pass embeddings of {embedder.embedding_dim} numbers."
        checks.expect(dataset.has_images, "dataset", expected, got, fix)
        return dataset.embedded(image_embedding(embedder), **options).normalized()

    @property
    def name(self) -> str:
        """The given name; ``lsi`` by default."""
        return self.label

    @property
    def x0(self) -> Float[Array, " sol"]:
        """The given starting solution; by default the best of some random latents."""
        return self.start

    def archive(self) -> Archive:
        """Return an archive with a cell for every item of the dataset, by angle."""
        return self.landscape

    def __call__(
        self, solutions: Float[Array, "batch sol"]
    ) -> tuple[Float[Array, " batch"], Float[Array, "batch meas"]]:
        """Return the objectives and measures of normalized latents."""
        embeddings = self.embeddings(solutions)
        cells = self.landscape.index_of(embeddings)
        closeness = (1 + self.landscape.closeness(embeddings, cells)) / 2
        # At 0, the norm has no gradient, but the gradient of the penalty is 0.
        squares = jnp.maximum(jnp.sum(jnp.square(solutions), axis=1), jnp.finfo(jnp.float32).tiny)
        norms = math.sqrt(self.generator.num_ws) * jnp.sqrt(squares)
        penalty = _PENALTY * jnp.square(jnp.maximum(0.0, norms - self.free_norm))
        if self.prompt is None:
            return closeness - penalty / 4, embeddings
        distance = spherical_distance(embeddings, self.prompt)
        return (1 - (distance + penalty) / 2 + closeness) / 2, embeddings

    def embeddings(self, solutions: Float[Array, "batch sol"]) -> Float[Array, "batch meas"]:
        """Return the embeddings of the images of normalized latents."""
        self._check(solutions)
        count = solutions.shape[0]
        num_chunks = -(-count // self.chunk)
        if num_chunks <= 1:
            return _embedded(solutions, self)
        # Chunks of equal size; the last is padded with zeros, whose results are dropped.
        padded = jnp.pad(solutions, ((0, -count % num_chunks), (0, 0)))
        chunks = padded.reshape(num_chunks, -1, padded.shape[1])
        results = jax.lax.map(lambda rows: _embedded(rows, self), chunks)
        return results.reshape(-1, results.shape[2])[:count]

    def render(
        self, solutions: Float[Array, "batch sol"], size: int | tuple[int, int] | None = None
    ) -> Float[Array, "batch height width channels"]:
        """Return the images of normalized latents, with values from 0 to 1 and channels last.

        Args:
            solutions: ``(batch, sol)``.
            size: Height and width of an image, or one number for both; by default the generator's.
        """
        self._check(solutions)
        count, size = len(solutions), (size, size) if isinstance(size, int) else size
        # One program for every number of images: compiling takes longer than rendering.
        padded = jnp.pad(jnp.asarray(solutions), ((0, -count % self.chunk), (0, 0)))
        images = [
            _rendered(self, padded[start : start + self.chunk], size)
            for start in range(0, len(padded), self.chunk)
        ]
        return jnp.concatenate(images)[:count]

    def _check(self, solutions: Array) -> None:
        shape, size = jnp.shape(solutions), self.generator.w_dim
        fits = len(shape) == 2 and shape[1] == size
        checks.expect(fits, "solutions", f"rows of {size} numbers", f"shape {shape}")

    def _images(self, solutions: Array) -> Array:
        return self.generator.images(self.generator.w_avg + self.scale * solutions)

    def _embed(self, solutions: Array) -> Array:
        return self.embedder.embed_images(self._images(solutions))


@eqx.filter_custom_vjp
def _embedded(solutions: Float[Array, "n sol"], domain: LatentIllumination) -> Array:
    """Return the embeddings of a chunk, with gradients that need the memory of one chunk only."""
    return domain._embed(solutions)


@_embedded.def_fwd
def _forward(perturbed: Any, solutions: Array, domain: LatentIllumination) -> tuple[Array, None]:
    # Activations are not stored: the backward pass computes those of its chunk again.
    return domain._embed(solutions), None


@_embedded.def_bwd
def _backward(
    residuals: None, weights: Array, perturbed: Any, solutions: Array, domain: LatentIllumination
) -> Array:
    # Small weights would underflow in a generator of half precision.
    largest = jnp.max(jnp.abs(weights), axis=1, keepdims=True)
    scale = jnp.where(largest > 0, largest, 1.0)
    _, pull = jax.vjp(domain._embed, solutions)
    return scale * pull(weights / scale)[0]


def spherical_distance(rows: Float[Array, "n d"], target: Float[Array, " d"]) -> Float[Array, " n"]:
    """Return ``2 arcsin(|a - b| / 2)^2``: half the squared angle between vectors of length one.

    Example:
        >>> right = spherical_distance(jnp.array([[1.0, 0.0]]), jnp.array([0.0, 1.0]))
        >>> bool(jnp.isclose(right[0], 0.5 * (jnp.pi / 2) ** 2))
        True
    """
    half_chord = jnp.linalg.norm(rows - target, axis=1) / 2
    # Rounding may make the chord of opposite vectors longer than the diameter.
    return 2 * jnp.square(jnp.arcsin(jnp.minimum(half_chord, 1.0)))


def image_embedding(embedder: Embedder) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function for datasets that embeds batches of byte images."""
    keep_compiled_programs()
    compiled = eqx.filter_jit(embedder.embed_images)

    def embed(images: np.ndarray) -> np.ndarray:
        return np.asarray(compiled(jnp.asarray(images)))

    return embed


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
    vector = checks.finite_array("prompt", prompt, ndim=1, fix="Pass a text or its embedding.")
    size, norm = embedder.embedding_dim, float(np.linalg.norm(vector))
    fits = vector.size == size and norm > 0
    checks.expect(fits, "prompt", f"an embedding of {size} numbers", vector.size)
    return jnp.asarray(vector / norm)


def _archive(embedder: Embedder, dataset: Any) -> CVTArchive:
    fix = f"Pass a dataset of pictures, or embeddings of {embedder.embedding_dim} numbers."
    checks.expect(dataset is not None, "dataset", "a dataset or an array", "None", fix)
    if not isinstance(dataset, Dataset):
        dataset = Dataset(checks.finite_array("dataset", dataset, ndim=2, fix=fix))
    if dataset.shape != (embedder.embedding_dim,):
        dataset = LatentIllumination.embedded(dataset, embedder, progress=False)
    fits = dataset.shape == (embedder.embedding_dim,)
    checks.expect(fits, "dataset", "embeddings of the embedder", f"shape {dataset.shape}", fix)
    return dataset.archive("cosine", index="exact", f_min=0.0)


def _scale_and_norm(
    generator: Generator, *, key: PRNGKeyArray
) -> tuple[Float[Array, " sol"], Float[Array, ""]]:
    """Estimate the standard deviation of w in each dimension, and the norm without penalty."""

    def measured(generator: Generator, key: PRNGKeyArray) -> tuple[Array, Array]:
        w = generator.map(jax.random.normal(key, (_NUM_SAMPLES, generator.z_dim)))
        scale = jnp.std(w, axis=0, ddof=1)
        norms = jnp.linalg.norm((w - generator.w_avg) / scale, axis=1)
        return scale, _FREE_SHARE * math.sqrt(generator.num_ws) * jnp.mean(norms)

    scale, free_norm = _compiled(measured, generator, key)(generator, key)
    varies = bool(jnp.all(jnp.isfinite(scale) & (scale > 0)))
    expected, got = "latents that vary in every dimension", "a standard deviation of zero or NaN"
    checks.expect(varies, "generator", expected, got, "Check the generator's weights.")
    return scale, free_norm


def _best_start(
    domain: LatentIllumination, num_starts: int, *, key: PRNGKeyArray, progress: bool
) -> Float[Array, " sol"]:
    """Return the truncated random latent whose image is closest to the prompt.

    Without a prompt, it is the latent with the best objective.
    """

    def latents(domain: LatentIllumination, key: PRNGKeyArray) -> Array:
        z = jax.random.normal(key, (num_starts, domain.generator.z_dim))
        w = domain.generator.map(z, _START_TRUNCATION)
        rows = (w - domain.generator.w_avg) / domain.scale
        return jnp.pad(rows, ((0, -num_starts % domain.chunk), (0, 0)))

    def scores(domain: LatentIllumination, rows: Array) -> Array:
        objectives, embeddings = domain(rows)
        if domain.prompt is not None:
            objectives = -spherical_distance(embeddings, domain.prompt)
        return jnp.where(jnp.isfinite(objectives), objectives, -jnp.inf)

    rows = np.asarray(_compiled(latents, domain, key)(domain, key))
    # Chunks have the size that they have in the search: on a GPU, XLA measures which convolutions
    # are fastest, once for each size.
    chunks = [jax.device_put(chunk) for chunk in rows.reshape(-1, domain.chunk, rows.shape[1])]
    score = _compiled(scores, domain, chunks[0])
    scored = []
    with work_bar("choosing the start", len(chunks), show=progress) as advance:
        for chunk in chunks:
            scored.append(np.asarray(score(domain, chunk)))
            advance(1)
    return jnp.asarray(rows[np.argmax(np.concatenate(scored)[:num_starts])])


def _compiled(function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """Compile a function of models for some arguments, or read the program from the disk."""
    keep_compiled_programs()
    arrays, static = eqx.partition(arguments, eqx.is_array)
    program = jax.jit(lambda arrays: function(*eqx.combine(arrays, static)))
    run = compile_lowered(program.lower(arrays), compiler_options())
    return lambda *arguments: run(eqx.filter(arguments, eqx.is_array))
