"""`gloam lsi check`: what latent space illumination needs, what is there, how long it takes."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import equinox as eqx
import jax
import numpy as np

from gloam.datasets import Dataset
from gloam.devices import default_device
from gloam.experiments.lsi import (
    NUM_LANDSCAPES,
    NUM_STARTS,
    check_landscapes,
    read_embedder,
    read_generator,
)
from gloam.experiments.lsi_sources import SOURCES
from gloam.experiments.lsi_timing import measure_times
from gloam.generators import CLIP, StyleGAN3

_ITERATIONS = 10_000
_STEPS = ((86_400, "days"), (3600, "hours"), (60, "minutes"), (1, "seconds"))


@dataclasses.dataclass(frozen=True)
class LsiCheck:
    """Check the files of latent space illumination, and estimate the time on this machine.

    For each file the command says whether it is there and readable, where the paper's comes from,
    and its licence. The exit code is 0 if all files are there and readable.

    Example: gloam lsi check --stylegan stylegan3.safetensors --clip clip/ --landscapes lhq_256/
    """

    stylegan: Path | None = None
    """StyleGAN3 network: a safetensors file that `gloam lsi convert` wrote."""
    clip: Path | None = None
    """Folder with CLIP: config.json, model.safetensors and the tokenizer's files."""
    landscapes: Path | None = None
    """Folder with the landscapes."""
    items: int = NUM_LANDSCAPES
    """Number of landscapes to use, drawn at random from a larger folder."""
    half: Literal["float16", "bfloat16"] | None = None
    """Half precision for StyleGAN3's layers of high resolution and for CLIP. Default: float32."""
    time: bool = True
    """Measure the time of a few images and iterations, if all files are there."""

    def __call__(self) -> None:
        """Check all files, then measure."""
        readers: dict[str, tuple[Callable[[Path], Any], Callable[[Any], str]]] = {
            "stylegan": (lambda path: read_generator(path, self.half), described_generator),
            "clip": (lambda path: read_embedder(path, self.half), _described_embedder),
            "landscapes": (self._read_landscapes, _described_landscapes),
        }
        found = {name: self._checked(name, *both) for name, both in readers.items()}
        missing = [f"--{name}" for name, part in found.items() if part is None]
        if missing:
            raise ValueError(
                f"lsi check: expected 3 readable files and folders, got {3 - len(missing)}. "
                f"Missing or not readable: {', '.join(missing)}."
            )
        print("All files are there and readable.")
        if self.time:
            _print_times(found["stylegan"], found["clip"], len(found["landscapes"]))

    def _read_landscapes(self, folder: Path) -> Dataset:
        return check_landscapes(folder, self.items, progress=True)

    def _checked(
        self, name: str, read: Callable[[Path], Any], describe: Callable[[Any], str]
    ) -> Any:
        """Print what is there of one part; ``None`` if it cannot be used."""
        path, source = getattr(self, name), SOURCES[name]
        part, told = None, f"not given: --{name}"
        if path is not None:
            try:
                part = read(path)
                told = f"ok: {path}, {describe(part)}"
            except (ValueError, OSError, ImportError) as error:
                told = f"not readable: {error}"
        print(f"{source.title}\n  {told}")
        print(f"  the paper's: {source.files}\n  from: {source.place}")
        print(f"  licence: {source.licence}\n")
        return part


def described_generator(generator: StyleGAN3) -> str:
    """A StyleGAN3 in few words."""
    settings, (_, height, width) = generator.settings, generator.image_shape
    kind = "R" if settings.use_radial_filters else "T"
    return (
        f"configuration {kind}, images of {width} x {height} pixels, {generator.num_ws} style "
        f"layers, latents of {generator.w_dim} numbers, {_millions(generator.tensors())} numbers "
        "in all"
    )


def _described_embedder(embedder: CLIP) -> str:
    size, patch = embedder.image_size, embedder.vision.patches.shape[-1]
    return (
        f"images of {size} x {size} pixels in patches of {patch}, embeddings of "
        f"{embedder.embedding_dim} numbers, {_millions(embedder)} numbers in all"
    )


def _described_landscapes(data: Dataset) -> str:
    pictures = data.items.reshape(len(data), -1, 3)
    grey = int((np.ptp(pictures, axis=2).max(axis=1) == 0).sum())
    parts = [f"{len(data):,} different pictures"]
    parts += [f"{grey:,} of them grey (used as colour pictures)"] if grey else []
    parts += [f"{data.merged:,} duplicates"] if data.merged else []
    return ", ".join(parts)


def _millions(model: Any) -> str:
    leaves = jax.tree.leaves(eqx.filter(model, eqx.is_array))
    return f"{sum(leaf.size for leaf in leaves) / 1e6:.2f} million"


def _print_times(generator: StyleGAN3, embedder: CLIP, num_landscapes: int) -> None:
    times = measure_times(generator, embedder, num_landscapes)
    whole = times.run(_ITERATIONS, num_landscapes)
    device, precision = default_device().device_kind, generator.half or "float32"
    print(f"Time on this machine ({device}, {precision}), without compilation:")
    rows = {
        "one image and its embedding": times.image,
        f"one iteration of DMS ({times.batch_size} images)": times.iteration,
        f"choice of the start ({NUM_STARTS} images, once)": times.start,
        f"embeddings of {num_landscapes:,} landscapes (once)": num_landscapes * times.embedding,
        f"a run of {_ITERATIONS:,} iterations, one seed": whole,
    }
    for what, seconds in rows.items():
        print(f"  {what}: {duration(seconds)}")


def duration(seconds: float) -> str:
    """Seconds in the unit that people would use.

    >>> duration(0.0042), duration(90), duration(4000), duration(1e6)
    ('0.0042 seconds', '1.5 minutes', '1.1 hours', '12 days')
    """
    size, unit = next((step for step in _STEPS if seconds >= step[0]), _STEPS[-1])
    return f"{seconds / size:.2g} {unit}"
