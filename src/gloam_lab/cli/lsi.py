"""`gloam lsi`: latent space illumination with StyleGAN3 and CLIP, the paper's largest domain."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import tyro

import gloam
from gloam._tools import checks
from gloam._tools.progress import print_line, print_lines
from gloam.cli.options import FollowOptions, SavingOptions, print_metrics, show_matches

if TYPE_CHECKING:
    from gloam.datasets import Dataset
    from gloam_lab.latent_illumination import CLIP, StyleGAN3

_ITERATIONS = 10_000
"""Number of iterations in the paper."""
_UNITS = ((86_400, "days"), (3600, "hours"), (60, "minutes"), (1, "seconds"))


@dataclasses.dataclass(frozen=True)
class LsiCheck:
    """Check the files of latent space illumination, and estimate the time on this machine.

    For each file the command says whether it is readable, where to get the paper's, and its
    license. The exit code is 0 if all files are readable.

    Example: gloam lsi check --stylegan stylegan3.safetensors --clip clip/ --landscapes lhq_256/
    """

    stylegan: Path | None = None
    """StyleGAN3 network: a safetensors file that `gloam lsi convert` wrote."""
    clip: Path | None = None
    """Folder with CLIP: config.json, model.safetensors and the tokenizer's files."""
    landscapes: Path | None = None
    """Folder with the landscapes."""
    items: int = 10_000
    """Number of landscapes to use, drawn at random from a larger folder."""
    half: Literal["float16", "bfloat16"] | None = None
    """Half precision for StyleGAN3's layers of high resolution and for CLIP. Default: float32."""
    time: bool = True
    """Measure the time of a few images and iterations, if all files are there."""

    def __call__(self) -> None:
        """Check all files, then measure."""
        from gloam_lab.latent_illumination.experiment import SOURCES

        contents = {name: self._checked(name) for name in SOURCES}
        missing = [f"--{name}" for name, content in contents.items() if content is None]
        if missing:
            raise ValueError(
                f"lsi check: expected 3 readable files and folders, got {3 - len(missing)}. "
                f"Missing or not readable: {', '.join(missing)}."
            )
        print_line("All files are readable.")
        if self.time:
            _print_times(contents["stylegan"], contents["clip"], len(contents["landscapes"]))

    def _checked(self, name: str) -> Any:
        """Print the state of a file or folder and its source; return its content if readable."""
        from gloam_lab.latent_illumination.experiment import SOURCES

        path, source = getattr(self, name), SOURCES[name]
        content, state = None, f"not given: --{name}"
        if path is not None:
            try:
                content = self._read(name, path)
                state = f"ok: {path}, {_description(content)}"
            except (ValueError, OSError, ImportError) as error:
                state = f"not readable: {error}"
        print_lines(
            f"{source.title}\n  {state}\n  the paper's: {source.files}\n  from: {source.address}\n"
            f"  license: {source.licence}\n"
        )
        return content

    def _read(self, name: str, path: Path) -> "StyleGAN3 | CLIP | Dataset":
        from gloam_lab.latent_illumination import experiment as lsi

        if name == "stylegan":
            return lsi.read_generator(path, self.half)
        if name == "clip":
            return lsi.read_embedder(path, self.half)
        return lsi.check_landscapes(path, self.items, progress=True)


def _description(content: "StyleGAN3 | CLIP | Dataset") -> str:
    """Return the properties of a model or of the landscapes."""
    import equinox as eqx
    import jax

    from gloam.datasets import Dataset
    from gloam_lab.latent_illumination import CLIP, StyleGAN3

    if isinstance(content, Dataset):
        pictures = content.items.reshape(len(content), -1, 3)
        gray = int((np.ptp(pictures, axis=2).max(axis=1) == 0).sum())
        counts = [f"{len(content):,} different pictures"]
        counts += [f"{gray:,} of them gray (used as color pictures)"] if gray else []
        counts += [f"{content.merged:,} duplicates"] if content.merged else []
        return ", ".join(counts)
    is_generator = isinstance(content, StyleGAN3)
    model = content.tensors() if is_generator else eqx.filter(content, eqx.is_array)
    leaves = jax.tree.leaves(model)
    size = f"{sum(leaf.size for leaf in leaves) / 1e6:.2f} million numbers"
    if isinstance(content, CLIP):
        side, patch = content.image_size, content.vision.patches.shape[-1]
        return (
            f"images of {side} x {side} pixels in patches of {patch}, "
            f"embeddings of {content.embedding_dim} numbers, {size}"
        )
    kind, (_, height, width) = "TR"[content.settings.use_radial_filters], content.image_shape
    return (
        f"configuration {kind}, images of {width} x {height} pixels, {content.num_ws} style "
        f"layers, latents of {content.w_dim} numbers, {size}"
    )


def _print_times(generator: "StyleGAN3", embedder: "CLIP", num_landscapes: int) -> None:
    from gloam._tools.devices import default_device
    from gloam_lab.latent_illumination import experiment as lsi

    times = lsi.measure_times(generator, embedder, num_landscapes)
    device, precision = default_device().device_kind, generator.half or "float32"
    print_line(f"Time on this machine ({device}, {precision}), without compilation:")
    rows = {
        "one image and its embedding": times.image,
        f"one iteration of DMS ({times.batch_size} images)": times.iteration,
        f"choice of the start ({lsi.NUM_STARTS} images, once)": times.start,
        f"embeddings of {num_landscapes:,} landscapes (once)": num_landscapes * times.embedding,
        f"a run of {_ITERATIONS:,} iterations, one seed": times.run(_ITERATIONS, num_landscapes),
    }
    for what, seconds in rows.items():
        print_line(f"  {what}: {duration(seconds)}")


def duration(seconds: float) -> str:
    """Format seconds in a readable unit.

    >>> duration(0.0042), duration(90), duration(4000), duration(1e6)
    ('0.0042 seconds', '1.5 minutes', '1.1 hours', '12 days')
    """
    size, unit = next((pair for pair in _UNITS if seconds >= pair[0]), _UNITS[-1])
    return f"{seconds / size:.2g} {unit}"


@dataclasses.dataclass(frozen=True)
class LsiConvert:
    """Convert an official StyleGAN3 pickle to safetensors, without executing what it contains.

    Loading a pickle can run any program. This command reads the data with its own reader, and
    rejects files that contain anything but the parts of an official network.

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
        from gloam_lab.latent_illumination import convert
        from gloam_lab.latent_illumination.experiment import read_generator

        convert(self.pickle, self.safetensors)
        print_line(f"{self.safetensors}: {_description(read_generator(self.safetensors))}")


@dataclasses.dataclass(frozen=True)
class LsiRun:
    """Search a face generator for the face that fits each landscape, with the paper's settings.

    The search runs in one compiled program and ends with a gallery: figures/gallery.png and
    gallery.html in the run folder. To continue an interrupted run, or to draw the gallery again,
    repeat the command. `gloam lsi check` estimates the time.

    Example: gloam lsi run dms-paper --stylegan stylegan3.safetensors --clip clip/
    --landscapes lhq_256/ --half bfloat16 --out runs/hikers
    """

    algorithm: Annotated[
        Literal["dms-paper", "cma-mae", "map-elites-line", "map-elites", "dms"],
        tyro.conf.Positional,
    ]
    """Algorithm with its settings of the paper, or dms: gloam's default."""
    stylegan: Path
    """StyleGAN3 network: a safetensors file that `gloam lsi convert` wrote."""
    clip: Path
    """Folder with CLIP: config.json, model.safetensors and the tokenizer's files."""
    landscapes: Path
    """Folder with the landscapes. Gray pictures are used as color pictures."""
    out: Path
    """Run folder for metrics, archives, checkpoints and the gallery."""
    prompt: str = "A photo of the face of a hiker."
    """Text that the faces should match."""
    gradients: bool = False
    """With dms: let half of each batch climb by gradients through both models."""
    half: Literal["float16", "bfloat16"] | None = None
    """Half precision for StyleGAN3's layers of high resolution and for CLIP. Default: float32."""
    items: int = 10_000
    """Number of landscapes to use, drawn at random from a larger folder."""
    starts: int = 512
    """Number of random faces from which the start is chosen, once."""
    iterations: int = _ITERATIONS
    """Number of iterations; the paper runs 10,000."""
    seeds: int = 1
    """Number of seeds; the paper runs 5."""
    seed: int = 0
    """First seed; the others follow it."""
    saving: SavingOptions = dataclasses.field(default_factory=SavingOptions)
    follow: FollowOptions = dataclasses.field(default_factory=FollowOptions)

    def __call__(self) -> None:
        """Run the search and write the gallery."""
        from gloam_lab import preset_algorithm
        from gloam_lab.latent_illumination import experiment as lsi

        fits, got = not self.gradients or self.algorithm == "dms", f"with {self.algorithm}"
        fix = "Run: gloam lsi run dms --gradients."
        checks.expect(fits, "gradients", "the algorithm dms", got, fix)
        folder = gloam.RunFolder(self.out)
        if not folder.holds_run:
            folder.check_free()
        generator = lsi.read_generator(self.stylegan, self.half)
        embedder = lsi.read_embedder(self.clip, self.half)
        x0 = lsi.stored_start(folder)
        fits = x0 is None or x0.size == generator.w_dim
        got = f"another run in '{self.out}'"
        checks.expect(fits, "out", "a run of this command, or none", got, "Choose another folder.")
        data = lsi.read_landscapes(
            self.landscapes, embedder, self.items, progress=not self.follow.quiet
        )
        print_line(data)
        domain = lsi.lsi_domain(
            generator,
            embedder,
            data,
            self.prompt,
            x0=x0,
            num_starts=self.starts,
            num_seeds=self.seeds,
            progress=not self.follow.quiet,
        )
        changes = {"gradients": True} if self.gradients else {}
        with lsi.low_objectives_expected():
            result = gloam.run(
                domain,
                preset_algorithm(self.algorithm, domain, **changes),
                self.iterations,
                seeds=range(self.seed, self.seed + self.seeds),
                run_dir=self.out,
                resume=True,
                dataset=data,
                **dataclasses.asdict(self.saving),
                **self.follow.arguments(),
            )
        print_metrics(result)
        matches = gloam.datasets.Matches(result.elites, data)
        show_matches(matches, self.out, domain=domain, title=self.prompt)


@dataclasses.dataclass(frozen=True)
class Lsi:
    """Find a face for every landscape, by latent space illumination (LSI) with StyleGAN3 and CLIP.

    The weights and pictures are not part of gloam. `gloam lsi check` says where to get them. The
    command `gloam lsi convert` turns the official StyleGAN3 file into one that is safe to load, and
    the command `gloam lsi run` searches and ends with a gallery.
    """

    action: (
        Annotated[LsiConvert, tyro.conf.subcommand("convert")]
        | Annotated[LsiCheck, tyro.conf.subcommand("check")]
        | Annotated[LsiRun, tyro.conf.subcommand("run")]
    )
    """Action: convert, check or run."""

    continuation: ClassVar[str] = "the same command"
    """How to continue a run, for messages."""

    def __call__(self) -> None:
        """Run the action."""
        self.action()
