"""`gloam lsi run`: search faces for landscapes, with the paper's settings."""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import tyro

from gloam import checks
from gloam.cli.matches_table import print_matches
from gloam.cli.metrics_table import print_metrics
from gloam.datasets import Matches
from gloam.domains.latent_illumination import PAPER_PROMPT
from gloam.drivers import Interrupted, run
from gloam.experiments import paper_algorithm
from gloam.experiments.lsi import (
    NUM_LANDSCAPES,
    NUM_STARTS,
    low_objectives_expected,
    lsi_domain,
    read_embedder,
    read_generator,
    read_landscapes,
    stored_start,
)
from gloam.formats import RunFolder


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
