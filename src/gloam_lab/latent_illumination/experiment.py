"""Latent space illumination (LSI) from files: official sources, readers, its domain and its cost.

The paper's LSI needs StyleGAN3, CLIP and landscapes, which are not part of gloam.
"""

import dataclasses
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gloam._tools import checks
from gloam._tools.files import cache_folder
from gloam._tools.warn import warn
from gloam.algorithms import DMS
from gloam.datasets import Dataset, from_folder
from gloam.errors import DamagedFileError
from gloam.formats import RunFolder
from gloam.formats.arrays import read_arrays, write_arrays
from gloam.formats.documents import content_digest
from gloam.formats.objects import encode
from gloam.runs.fused_driver import FusedDriver
from gloam_lab import Generator
from gloam_lab.latent_illumination import CLIP, Embedder, LatentIllumination, StyleGAN3
from gloam_lab.latent_illumination.domain import PAPER_PROMPT, image_embedding
from gloam_lab.presets import PAPER_SETTINGS

NUM_LANDSCAPES = 10_000
"""Number of landscapes in the paper."""
NUM_STARTS = 512
"""Number of random latents from which the paper chooses the start."""
IMAGES_AT_ONCE = 12
"""Number of images that are generated at once, over all seeds."""
# Pixels of LHQ-256, of the copies in run folders, and of the copies that only test readability.
_SIZE, _STORED_SIZE, _CHECKED_SIZE = 256, 128, 32
# Times are measured with a full batch of images if it is expected to take no longer than this.
_MAX_BATCH_SECONDS = 10.0
_TIMED_ITERATIONS, _TIMED_REPEATS = 5, 3


class Source(NamedTuple):
    """An official release."""

    title: str
    files: str
    """Files of the release, and how to prepare them."""
    address: str
    """Web address."""
    licence: str


SOURCES = {
    "stylegan": Source(
        "StyleGAN3, faces of 256 x 256 pixels (NVIDIA)",
        "stylegan3-t-ffhqu-256x256.pkl, then: gloam lsi convert "
        "stylegan3-t-ffhqu-256x256.pkl stylegan3.safetensors",
        "https://catalog.ngc.nvidia.com/orgs/nvidia/teams/research/models/stylegan3",
        "NVIDIA Source Code License for StyleGAN3: non-commercial use only. The training images "
        "(FFHQ) have licenses of their own.",
    ),
    "clip": Source(
        "CLIP ViT-B/32 (OpenAI), in Hugging Face's layout",
        "a folder with config.json, model.safetensors, and tokenizer.json or vocab.json with "
        "merges.txt",
        "https://huggingface.co/openai/clip-vit-base-patch32",
        "MIT (https://github.com/openai/CLIP).",
    ),
    "landscapes": Source(
        "LHQ-256, 90,000 landscapes (Skorokhodov et al., 2021)",
        "a folder of pictures, from LHQ256 unpacked; the paper uses 10,000 of them",
        "https://github.com/universome/alis",
        "CC BY 2.0 for the dataset; metadata.json names the licence of each photograph.",
    ),
}
"""Official releases by the name of the command-line option."""


@dataclasses.dataclass(frozen=True)
class LsiFiles:
    """Paths of the models and the landscapes.

    Args:
        stylegan: StyleGAN3 as safetensors, from `gloam lsi convert`.
        clip: Folder of a CLIP in Hugging Face's layout.
        landscapes: Folder of pictures.
    """

    stylegan: str
    clip: str
    landscapes: str

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            checks.instance(field.name, getattr(self, field.name), str)


def check_files(files: LsiFiles, *, progress: bool = False) -> None:
    """Read all files once, so that damage is reported before a study begins.

    Raises:
        ValueError: A file is missing, damaged or of another kind.
    """
    read_generator(files.stylegan)
    read_embedder(files.clip)
    check_landscapes(files.landscapes, progress=progress)


def read_generator(path: str | os.PathLike, half: str | None = None) -> StyleGAN3:
    """Read a StyleGAN3 for unconditional color images.

    Args:
        path: The safetensors file.
        half: Precision of the layers of high resolution; see `StyleGAN3`.
    """
    file = checks.existing_file("stylegan", path, "Run: gloam lsi check.")
    fix = f"Convert it: gloam lsi convert {path} {file.with_suffix('.safetensors')}"
    is_pickle, got = file.suffix == ".pkl", f"the pickle '{path}'"
    checks.expect(not is_pickle, "stylegan", "a safetensors file", got, fix)
    generator = StyleGAN3.load(file, half=half)
    settings = generator.settings
    checks.expect(
        settings.img_channels == 3 and settings.c_dim == 0,
        "stylegan",
        "a network of color images without class labels",
        f"{settings.img_channels} channels and {settings.c_dim} labels in '{path}'",
    )
    return generator


def read_embedder(folder: str | os.PathLike, half: str | None = None) -> CLIP:
    """Read a CLIP from a folder in Hugging Face's layout.

    Args:
        folder: See `CLIP.load`.
        half: Precision of products; see `CLIP`.
    """
    has_pytorch = (Path(folder) / "pytorch_model.bin").is_file()
    checks.expect(
        not has_pytorch or (Path(folder) / "model.safetensors").exists(),
        "clip",
        "model.safetensors",
        f"pytorch_model.bin only, in '{folder}'",
        "Convert it with the package transformers: "
        "CLIPModel.from_pretrained(folder).save_pretrained(folder).",
    )
    return CLIP.load(folder, half=half)


def read_landscapes(
    folder: str | os.PathLike,
    embedder: CLIP,
    max_items: int = NUM_LANDSCAPES,
    *,
    progress: bool = False,
) -> Dataset:
    """Read pictures, with their embeddings as items and copies of 128 x 128 pixels for galleries.

    Gray pictures become color pictures with three equal channels. An unreadable file is an error,
    because the archive would have other cells than requested.

    Args:
        folder: Folder of pictures. Embeddings are stored beside them; see `Dataset.embedded`.
        embedder: Computes the embeddings.
        max_items: Number of pictures, drawn at random from a larger folder.
        progress: Whether to show progress bars.
    """
    from PIL import Image  # lazily, as in the datasets

    embed: Any = image_embedding(embedder)
    # Stored embeddings are found by this name, and depend on the precision.
    embed.__qualname__ += f".{embedder.vision.transformer.settings.half or 'float32'}"
    data = from_folder(
        folder,
        (_SIZE, _SIZE),
        "RGB",
        embed=embed,
        max_items=max_items,
        skip_broken=False,
        progress=progress,
    ).normalized()
    assert data.images is not None
    factor = _SIZE // _STORED_SIZE
    small = np.stack([np.asarray(Image.fromarray(image).reduce(factor)) for image in data.images])
    return dataclasses.replace(data, images=small)


def check_landscapes(
    folder: str | os.PathLike, max_items: int = NUM_LANDSCAPES, *, progress: bool = False
) -> Dataset:
    """Read the pictures of `read_landscapes`, small and without embeddings.

    Raises:
        ValueError: There are fewer than two different pictures, or one that cannot be read.
    """
    size = (_CHECKED_SIZE, _CHECKED_SIZE)
    return from_folder(
        folder, size, "RGB", max_items=max_items, skip_broken=False, progress=progress
    )


def lsi_domain(
    generator: StyleGAN3,
    embedder: CLIP,
    data: Dataset,
    prompt: str = PAPER_PROMPT,
    *,
    x0: Any = None,
    num_starts: int = NUM_STARTS,
    num_seeds: int = 1,
    progress: bool = False,
) -> LatentIllumination:
    """Build the paper's domain. Its start is chosen once and cached.

    Args:
        generator, embedder: The models.
        data: Embeddings, from `read_landscapes`.
        prompt: Text that images should match.
        x0: First solution of an earlier run, from `stored_start`.
        num_starts: Number of images from which ``x0`` is chosen.
        num_seeds: Number of seeds that run at once; they share the images at once.
        progress: Whether to show a bar while ``x0`` is chosen.
    """
    chunk = max(1, IMAGES_AT_ONCE // num_seeds)
    models = (generator, embedder, prompt, data)
    build = partial(LatentIllumination, *models, chunk=chunk, progress=progress)
    if x0 is not None:
        return build(x0=x0)
    inputs = [encode(value, {}) for value in (generator, embedder, prompt, num_starts)]
    path = cache_folder() / "lsi-starts" / f"{content_digest(inputs)[:32]}.npz"
    x0 = _cached_start(path)
    if x0 is not None:
        return build(x0=x0)
    domain = build(num_starts=num_starts)
    try:
        write_arrays(path, {"x0": np.asarray(domain.x0)}, kind="lsi start")
    except OSError as error:  # for example, the disk is full: the run can still begin
        warn(f"the start could not be stored in '{path}': {error}")
    return domain


def _cached_start(path: Path) -> np.ndarray | None:
    if not path.is_file():
        return None
    try:
        return read_arrays(path, kind="lsi start", fix="Delete it.")[0].get("x0")
    except DamagedFileError:  # the start is chosen and stored again
        return None


def stored_start(folder: RunFolder) -> Float[np.ndarray, " sol"] | None:
    """Return the start of the run in a folder, or ``None`` if there is no run."""
    return np.asarray(folder.read_part("algorithm").emitter.x0) if folder.holds_run else None


@contextmanager
def low_objectives_expected() -> Iterator[None]:
    """Suppress the warning of objectives below ``f_min`` in the block.

    In the paper's setting the norm of the start is penalized, so that its objective is far below
    zero.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="objectives: expected values at or above")
        yield


class LsiTimes(NamedTuple):
    """Times in seconds, without compilation."""

    image: float
    """One image and its embedding."""
    embedding: float
    """One embedding of a landscape."""
    search: float
    """One iteration of DMS without its images."""
    batch_size: int
    """Number of images per iteration."""

    @property
    def iteration(self) -> float:
        """One iteration with its images."""
        return self.search + self.batch_size * self.image

    @property
    def start(self) -> float:
        """The choice of the start."""
        return NUM_STARTS * self.image

    def run(self, iterations: int, num_landscapes: int) -> float:
        """Return the time of a whole run of one seed."""
        return self.start + num_landscapes * self.embedding + iterations * self.iteration


def measure_times(generator: Generator, embedder: Embedder, num_landscapes: int) -> LsiTimes:
    """Time a few images, embeddings and iterations.

    Args:
        generator, embedder: The models.
        num_landscapes: Number of cells of the archive.
    """
    _, height, width = generator.image_shape
    picture = np.full((1, height, width, 3), 128, np.uint8)
    embed = eqx.filter_jit(lambda embedder, pictures: embedder.embed_images(pictures))
    generate = eqx.filter_jit(lambda models, w: models[1].embed_images(models[0].images(w)))
    embedding = median_seconds(embed, embedder, picture)
    w = jnp.broadcast_to(generator.w_avg, (IMAGES_AT_ONCE, generator.w_dim))
    image = median_seconds(generate, (generator, embedder), w[:1])
    if IMAGES_AT_ONCE * image < _MAX_BATCH_SECONDS:  # a GPU makes several in the time of one
        image = median_seconds(generate, (generator, embedder), w) / IMAGES_AT_ONCE
    driver = _search(generator.w_dim, embedder.embedding_dim, num_landscapes)
    search = median_seconds(lambda: driver.advance(_TIMED_ITERATIONS)) / _TIMED_ITERATIONS
    return LsiTimes(image, embedding, search, driver.batch)


def _search(solution_dim: int, measure_dim: int, num_cells: int) -> FusedDriver:
    """Start DMS with the sizes of the search, but with an evaluation that costs nothing."""
    rng = np.random.default_rng(0)
    items = rng.normal(size=(num_cells, measure_dim)).astype(np.float32)
    archive = Dataset(items).normalized().archive("cosine", index="exact", f_min=0.0)
    projection = jnp.asarray(rng.normal(size=(solution_dim, measure_dim)), jnp.float32)

    def evaluate(solutions: Array) -> tuple[Array, Array]:
        rows = solutions @ projection
        objectives = jnp.exp(-jnp.sum(jnp.square(solutions), axis=1))
        return objectives, rows / jnp.linalg.norm(rows, axis=1, keepdims=True)

    algorithm = DMS.paper(archive, np.zeros(solution_dim), **PAPER_SETTINGS["dms-paper"]["lsi"])
    driver = FusedDriver(evaluate, algorithm, [0])
    driver.start()
    return driver


def median_seconds(function: Callable[..., Any], *arguments: Any) -> float:
    """Return the median time of a call, after a first call that compiles."""
    jax.block_until_ready(function(*arguments))
    times = []
    for _ in range(_TIMED_REPEATS):
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        times.append(time.perf_counter() - start)
    return statistics.median(times)
