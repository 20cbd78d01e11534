"""Options by which a run is stopped early or logged, for the commands that search.

`gloam run`: search with one algorithm on one domain.

`gloam resume`: continue a run.
"""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from gloam.callbacks import Callback, CsvLogger, StopAt, StopOnPlateau
from gloam.cli.choices import AlgorithmChoice, build_algorithm
from gloam.cli.look import Gallery
from gloam.cli.outputs import print_matches, print_metrics
from gloam.datasets import Matches
from gloam.formats import ForeignError, RunFolder
from gloam.runs import resume, run


@dataclasses.dataclass(frozen=True, kw_only=True)
class FollowOptions:
    """Options for callbacks. A command inherits them, so that they are its own."""

    stop_coverage: float | None = None
    """Stop when this share of the cells (0 to 1) is filled, in every seed."""
    stop_score: float | None = None
    """Stop when the QD score has reached this value, in every seed."""
    stop_plateau: int | None = None
    """Stop when the QD score of no seed has grown for this number of iterations."""
    csv: Path | None = None
    """CSV file to which the rows of metrics are written as well."""

    def callbacks(self) -> list[Callback]:
        """The callbacks of the options that were given."""
        found: list[Callback] = []
        if self.stop_coverage is not None:
            found.append(StopAt("coverage", self.stop_coverage))
        if self.stop_score is not None:
            found.append(StopAt("qd_score", self.stop_score))
        if self.stop_plateau is not None:
            found.append(StopOnPlateau("qd_score", self.stop_plateau))
        if self.csv is not None:
            found.append(CsvLogger(self.csv))
        return found


@dataclasses.dataclass(frozen=True)
class Run(FollowOptions):
    """Search with one algorithm on one domain, with all seeds at once.

    Examples: gloam run dms lp --measures 10 --iterations 10000 --seeds 3 --out runs/x,
    gloam run dms latent-digits --out runs/digits
    """

    algorithm: AlgorithmChoice
    out: Path
    """Run folder for metrics, archives, checkpoints and figures."""
    iterations: int | None = None
    """Number of iterations. Default: 10,000, as in the paper; 3,000 on latent-digits."""
    seeds: int = 1
    """Number of seeds."""
    seed: int = 0
    """First seed; the others follow it."""
    log_every: int = 50
    """Number of iterations between two rows of metrics."""
    checkpoint_seconds: float = 60.0
    """Number of seconds between two checkpoints; more if they would take over 3% of the time."""
    checkpoint_every: int | None = None
    """Number of iterations between two checkpoints, in addition to --checkpoint-seconds."""
    keep_checkpoints: int = 2
    """Number of checkpoints to keep. If the newest is damaged, the one before it is used."""
    snapshots: tuple[int, ...] = ()
    """Iterations at which `gloam plot` shows the archive and the discount. Default: the last."""
    quiet: bool = False
    """Show no progress bar."""

    @property
    def continuation(self) -> str:
        """How this run is continued."""
        return f"`gloam resume {self.out}`"

    def __call__(self) -> None:
        """Run the search."""
        RunFolder(self.out).check_new()
        chosen = self.algorithm.domain
        domain, data = chosen.build(), chosen.dataset()
        iterations = chosen.iterations if self.iterations is None else self.iterations
        result = run(
            domain,
            build_algorithm(self.algorithm, domain),
            seeds=range(self.seed, self.seed + self.seeds),
            iterations=iterations,
            run_dir=self.out,
            log_every=self.log_every,
            checkpoint_seconds=self.checkpoint_seconds,
            checkpoint_every=self.checkpoint_every,
            keep_checkpoints=self.keep_checkpoints,
            snapshots=self.snapshots or (iterations,),
            dataset=data,
            progress=not self.quiet,
            callbacks=self.callbacks(),
        )
        print_metrics(result)
        print(f"To draw figures: gloam plot {self.out}")
        if data is not None:
            print_matches(Matches(result.elites, data))
            Gallery(self.out)()


@dataclasses.dataclass(frozen=True)
class Resume(FollowOptions):
    """Continue a run that was interrupted, with the same result as without the interruption."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder."""
    iterations: int | None = None
    """New total number of iterations, to extend the run."""
    quiet: bool = False
    """Show no progress bar."""

    def __call__(self) -> None:
        """Resume the run."""
        try:
            result = resume(
                self.run,
                iterations=self.iterations,
                progress=not self.quiet,
                callbacks=self.callbacks(),
            )
        except ForeignError as error:
            raise ValueError(
                f"The run in '{self.run}' uses your own function or classes, which the run folder "
                "does not contain. If `gloam fill` started it, continue it with: gloam fill ... "
                f"--out {self.run} --resume. If `gloam lsi run` started it, repeat that command. "
                "If your own program started it, continue it there."
            ) from error
        print_metrics(result)
        if RunFolder(self.run).read_config().dataset is not None:
            print(f"To show solutions beside their items: gloam gallery {self.run}")
