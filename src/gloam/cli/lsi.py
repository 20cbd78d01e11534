"""`gloam lsi check`: what latent space illumination needs, what is there, how long it takes.

`gloam lsi convert`: official StyleGAN3 weights as safetensors.

`gloam lsi run`: search faces for landscapes, with the paper's settings.

`gloam lsi`: latent space illumination with StyleGAN3 and CLIP, the paper's largest domain.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import equinox as eqx
import jax
import numpy as np
import tyro

from gloam import checks
from gloam.cli.outputs import print_matches, print_metrics
from gloam.datasets import Dataset, Matches
from gloam.devices import default_device
from gloam.domains.latent_illumination import PAPER_PROMPT
from gloam.experiments import paper_algorithm
from gloam.experiments.lsi import (
    NUM_LANDSCAPES,
    NUM_STARTS,
    SOURCES,
    check_landscapes,
    low_objectives_expected,
    lsi_domain,
    measure_times,
    read_embedder,
    read_generator,
    read_landscapes,
    stored_start,
)
from gloam.formats import RunFolder
from gloam.generators import CLIP, StyleGAN3, convert
from gloam.runs import Interrupted, run

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


@dataclasses.dataclass(frozen=True)
class LsiConvert:
    """Convert an official StyleGAN3 pickle to safetensors, without executing what it contains.

    A pickle can run any program when it is loaded. This command reads the data in it with its own
    reader, and refuses files with anything else than the parts of an official network.

    Example: gloam lsi convert stylegan3-t-ffhqu-256x256.pkl stylegan3.safetensors
    """

    pickle: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="NETWORK.pkl")]
    """Network pickle of NVIDIA's StyleGAN3, as downloaded."""
    safetensors: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT.safetensors")]
    """File to write. It must not exist."""

    def __call__(self) -> None:
        """Convert the file."""
        is_new = not self.safetensors.exists() and not self.safetensors.is_symlink()
        checks.expect(is_new, "safetensors", "a new file", f"'{self.safetensors}', which exists")
        convert(self.pickle, self.safetensors)
        print(f"{self.safetensors}: {described_generator(read_generator(self.safetensors))}")


@dataclasses.dataclass(frozen=True)
class LsiRun:
    """Search a face generator for the face that fits each landscape, with the paper's settings.

    The search runs in one compiled program and ends with a gallery: figures/gallery.png and
    gallery.html in the run folder. To continue an interrupted run, or to draw the gallery again,
    repeat the command. `gloam lsi check` estimates the time.

    Example: gloam lsi run dms --stylegan stylegan3.safetensors --clip clip/
    --landscapes lhq_256/ --half bfloat16 --out runs/hikers
    """

    algorithm: Annotated[
        Literal["dms", "cma-mae", "map-elites-line", "map-elites"], tyro.conf.Positional
    ]
    """Algorithm of the paper's LSI column."""
    stylegan: Path
    """StyleGAN3 network: a safetensors file that `gloam lsi convert` wrote."""
    clip: Path
    """Folder with CLIP: config.json, model.safetensors and the tokenizer's files."""
    landscapes: Path
    """Folder with the landscapes. Grey pictures are used as colour pictures."""
    out: Path
    """Run folder for metrics, archives, checkpoints and the gallery."""
    prompt: str = PAPER_PROMPT
    """Text that the faces should match."""
    half: Literal["float16", "bfloat16"] | None = None
    """Half precision for StyleGAN3's layers of high resolution and for CLIP. Default: float32."""
    items: int = NUM_LANDSCAPES
    """Number of landscapes to use, drawn at random from a larger folder."""
    starts: int = NUM_STARTS
    """Number of random faces to choose the start from. The choice is made once and kept."""
    iterations: int = 10_000
    """Number of iterations; the paper runs 10,000."""
    seeds: int = 1
    """Number of seeds; the paper runs 5."""
    seed: int = 0
    """First seed; the others follow it."""
    log_every: int = 50
    """Number of iterations between two rows of metrics."""
    checkpoint_seconds: float = 60.0
    """Number of seconds between two checkpoints; more if they would take over 3% of the time."""
    checkpoint_every: int | None = None
    """Number of iterations between two checkpoints, in addition to --checkpoint-seconds."""
    quiet: bool = False
    """Show no progress bars."""

    def __call__(self) -> None:
        """Run the search and write the gallery."""
        folder = RunFolder(self.out)
        if not folder.holds_run:
            folder.check_free()
        generator = read_generator(self.stylegan, self.half)
        embedder = read_embedder(self.clip, self.half)
        x0 = stored_start(folder)
        checks.expect(
            x0 is None or x0.size == generator.w_dim,
            "out",
            "a run of this command, or none",
            f"another run in '{self.out}'",
            "Choose another folder.",
        )
        data = read_landscapes(self.landscapes, embedder, self.items, progress=not self.quiet)
        print(data)
        domain = lsi_domain(
            generator,
            embedder,
            data,
            self.prompt,
            x0=x0,
            num_starts=self.starts,
            num_seeds=self.seeds,
            progress=not self.quiet,
        )
        try:
            with low_objectives_expected():
                result = run(
                    domain,
                    paper_algorithm(self.algorithm, domain),
                    self.iterations,
                    seeds=range(self.seed, self.seed + self.seeds),
                    run_dir=self.out,
                    resume=True,
                    log_every=self.log_every,
                    checkpoint_every=self.checkpoint_every,
                    checkpoint_seconds=self.checkpoint_seconds,
                    dataset=data,
                    progress=not self.quiet,
                )
        except Interrupted as stopped:
            advice = "continue with the same command"
            raise Interrupted(
                stopped.run_dir, stopped.iteration, advice, signal=stopped.signal
            ) from None
        print_metrics(result)
        print_matches(Matches(result.elites, data))
        from gloam.gallery import gallery_run  # matplotlib takes a second to import

        for path in gallery_run(self.out, domain=domain, title=self.prompt):
            print(path)


LsiAction = (
    Annotated[LsiConvert, tyro.conf.subcommand("convert")]
    | Annotated[LsiCheck, tyro.conf.subcommand("check")]
    | Annotated[LsiRun, tyro.conf.subcommand("run")]
)


@dataclasses.dataclass(frozen=True)
class Lsi:
    """Find a face for every landscape, by latent space illumination (LSI) with StyleGAN3 and CLIP.

    The weights and pictures are not part of gloam. `gloam lsi check` says where they come from.
    `gloam lsi convert` turns the official StyleGAN3 file into one that is safe to load.
    `gloam lsi run` searches and ends with a gallery.
    """

    action: LsiAction
    """What to do."""

    def __call__(self) -> None:
        """Do it."""
        try:
            self.action()
        except ImportError as error:  # it names the extra to install
            raise ValueError(str(error)) from error
