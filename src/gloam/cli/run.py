"""`gloam run`: search with one algorithm on one domain."""

import dataclasses
from pathlib import Path

from gloam.cli.choices import AlgorithmChoice, build_algorithm
from gloam.cli.following import FollowOptions
from gloam.cli.gallery import Gallery
from gloam.cli.matches_table import print_matches
from gloam.cli.metrics_table import print_metrics
from gloam.datasets import Matches
from gloam.drivers import run
from gloam.formats import RunFolder


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
