"""Where the files of the paper's latent space illumination come from, and under which licences.

Latent space illumination from files: its models, its landscapes, its start, its domain.

How long latent space illumination takes on this machine, from a few images and iterations.
"""

import dataclasses
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gloam import checks
from gloam.algorithms import DMS
from gloam.datasets import Dataset, from_folder
from gloam.domains import LatentIllumination
from gloam.domains.latent_illumination import PAPER_PROMPT, image_embedding
from gloam.experiments.presets import SETTINGS
from gloam.files import cache_folder
from gloam.formats import DamagedFileError, RunFolder
from gloam.formats.arrays import read_arrays, write_arrays
from gloam.formats.documents import content_digest
from gloam.formats.objects import encode
from gloam.generators import CLIP, Embedder, Generator, StyleGAN3
from gloam.runs.fused_driver import FusedDriver


class Source(NamedTuple):
    """An official release."""

    title: str
    files: str
    """Which files, and what to do with them."""
    place: str
    """Where they are released."""
    licence: str


SOURCES = {
    "stylegan": Source(
        "StyleGAN3, faces of 256 x 256 pixels (NVIDIA)",
        "stylegan3-t-ffhqu-256x256.pkl, then: gloam lsi convert "
        "stylegan3-t-ffhqu-256x256.pkl stylegan3.safetensors",
        "https://catalog.ngc.nvidia.com/orgs/nvidia/teams/research/models/stylegan3",
        "NVIDIA Source Code License for StyleGAN3: non-commercial use only. The training images "
        "(FFHQ) have licences of their own.",
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
"""Releases by the name of the option."""


NUM_LANDSCAPES = 10_000
"""Number of landscapes of the paper."""
NUM_STARTS = 512
"""Number of latents that the paper chooses the start from."""
IMAGES_AT_ONCE = 12
"""Images that are generated at once, of all seeds together."""
# As LHQ-256 has them; in run folders, where galleries need no more; and to see if a file is whole.
_SIZE, _SHOWN, _CHECKED = 256, 128, 32


@dataclasses.dataclass(frozen=True)
class LsiFiles:
    """Where the models and the landscapes are.

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


def read_generator(path: str | os.PathLike, half: str | None = None) -> StyleGAN3:
    """A StyleGAN3 that can be searched: of colour images, and without class labels.

    Args:
        path: The safetensors file.
        half: Precision of the layers of high resolution; see `StyleGAN3`.
    """
    file = checks.existing_file("stylegan", path, "Run: gloam lsi check.")
    checks.expect(
        file.suffix != ".pkl",
        "stylegan",
        "a safetensors file",
        f"the pickle '{path}'",
        f"Convert it: gloam lsi convert {path} {file.with_suffix('.safetensors')}",
    )
    generator = StyleGAN3.load(file, half=half)
    settings = generator.settings
    checks.expect(
        settings.img_channels == 3 and settings.c_dim == 0,
        "stylegan",
        "a network of colour images without class labels",
        f"{settings.img_channels} channels and {settings.c_dim} labels in '{path}'",
    )
    return generator


def read_embedder(folder: str | os.PathLike, half: str | None = None) -> CLIP:
    """A CLIP from a folder in Hugging Face's layout.

    Args:
        folder: See `CLIP.load`.
        half: Precision of products; see `CLIP`.
    """
    place = Path(folder)
    needs_conversion = (place / "pytorch_model.bin").is_file() and not (
        place / "model.safetensors"
    ).exists()
    checks.expect(
        not needs_conversion,
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
    """Pictures with their embeddings as items; they are kept at 128 x 128 pixels to be shown.

    Grey pictures become colour pictures with three equal channels. A file that cannot be read is
    an error: the cells of the archive would be others than those asked for.

    Args:
        folder: Folder of pictures. Embeddings are kept beside them; see `Dataset.embedded`.
        embedder: Embeds them.
        max_items: Number of pictures, drawn at random from a larger folder.
        progress: Whether to show bars.
    """
    from PIL import Image  # lazily, as where pictures are read

    embed: Any = image_embedding(embedder)
    # Kept embeddings are found by this name: those of another precision are others.
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
    factor = _SIZE // _SHOWN
    small = np.stack([np.asarray(Image.fromarray(image).reduce(factor)) for image in data.images])
    return dataclasses.replace(data, images=small)


def check_landscapes(
    folder: str | os.PathLike, max_items: int = NUM_LANDSCAPES, *, progress: bool = False
) -> Dataset:
    """Read the same pictures as `read_landscapes`, small and without embeddings.

    Raises:
        ValueError: There are fewer than two different pictures, or one that cannot be read.
    """
    size = (_CHECKED, _CHECKED)
    return from_folder(
        folder, size, "RGB", max_items=max_items, skip_broken=False, progress=progress
    )


def check_files(files: LsiFiles, *, progress: bool = False) -> None:
    """Read everything once, so that damaged files are reported before a study begins.

    Raises:
        ValueError: A file is missing, damaged or of another kind.
    """
    read_generator(files.stylegan)
    read_embedder(files.clip)
    check_landscapes(files.landscapes, progress=progress)


def stored_start(folder: RunFolder) -> Float[np.ndarray, " sol"] | None:
    """Where the run in a folder started, or ``None`` if there is none."""
    return np.asarray(folder.read_part("algorithm").emitter.x0) if folder.holds_run else None


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
    """The paper's domain. Its start is chosen once and kept in the cache folder.

    Args:
        generator, embedder: The models.
        data: Embeddings, from `read_landscapes`.
        prompt: What images should show.
        x0: Where searches start, if that is known: see `stored_start`.
        num_starts: Number of images to choose ``x0`` from.
        num_seeds: Number of seeds that run at once; each generates fewer images at once.
        progress: Whether to show a bar while ``x0`` is chosen.
    """
    options: dict[str, Any] = {"chunk": max(1, IMAGES_AT_ONCE // num_seeds), "progress": progress}
    if x0 is not None:
        return LatentIllumination(generator, embedder, prompt, data, x0=x0, **options)
    chosen_by = [encode(part, {}) for part in (generator, embedder, prompt, num_starts)]
    path = cache_folder() / "lsi-starts" / f"{content_digest(chosen_by)[:32]}.npz"
    x0 = _read_start(path)
    if x0 is not None:
        return LatentIllumination(generator, embedder, prompt, data, x0=x0, **options)
    domain = LatentIllumination(generator, embedder, prompt, data, num_starts=num_starts, **options)
    try:
        write_arrays(path, {"x0": np.asarray(domain.x0)}, kind="lsi start")
    except OSError as error:  # a full disk must not cost the start as well
        warnings.warn(f"the start could not be kept in '{path}': {error}", stacklevel=2)
    return domain


@contextmanager
def low_objectives_expected() -> Iterator[None]:
    """No warning of objectives below ``f_min`` while the block runs.

    In the paper's setting the start lies beyond the norm that is free of penalty. Its objective is
    far below zero, and the search has to find its way back.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="objectives: expected values at or above")
        yield


def _read_start(path: Path) -> np.ndarray | None:
    if not path.is_file():
        return None
    try:
        return read_arrays(path, kind="lsi start", fix="Delete it.")[0].get("x0")
    except DamagedFileError:  # it is chosen and written anew
        return None


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
