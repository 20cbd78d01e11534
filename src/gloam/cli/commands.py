"""The commands: demo, run, resume, plot."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from gloam.algorithms import DMS
from gloam.cli.choices import AlgorithmChoice, build_algorithm
from gloam.cli.fill import Gallery, tell_matches
from gloam.datasets import Matches, digits
from gloam.domains import LinearProjection, Triangles
from gloam.drivers import Result, resume, run
from gloam.emitters import RestartEvery
from gloam.experiments import paper_algorithm
from gloam.formats import ForeignError, RunFolder


@dataclasses.dataclass(frozen=True)
class Run:
    """Search with one algorithm on one domain, all trials at once, into a run folder.

    Example: gloam run dms lp --measures 10 --iterations 10000 --seeds 3 --out runs/x
    """

    algorithm: AlgorithmChoice
    out: Path
    """The run folder: metrics, archives, checkpoints, figures."""
    iterations: int = 10_000
    """Iterations in all; the paper runs 10,000."""
    seeds: int = 1
    """Number of trials."""
    seed: int = 0
    """Seed of the first trial; the others count up from it."""
    log_every: int = 50
    """Iterations between two rows of metrics."""
    checkpoint_seconds: float = 60.0
    """Longest time between two checkpoints."""
    checkpoint_every: int | None = None
    """Iterations between two checkpoints, besides those by time."""
    snapshots: tuple[int, ...] = ()
    """Iterations whose archive and discount `gloam plot` will show; the last by default."""
    quiet: bool = False
    """No progress bar."""

    @property
    def continuation(self) -> str:
        """How this run is continued."""
        return f"`gloam resume {self.out}`"

    def __call__(self) -> None:
        """Run it."""
        RunFolder(self.out).check_new()
        domain = self.algorithm.domain.build()
        result = run(
            domain,
            build_algorithm(self.algorithm, domain),
            seeds=range(self.seed, self.seed + self.seeds),
            iterations=self.iterations,
            run_dir=self.out,
            log_every=self.log_every,
            checkpoint_seconds=self.checkpoint_seconds,
            checkpoint_every=self.checkpoint_every,
            snapshots=self.snapshots or (self.iterations,),
            progress=not self.quiet,
        )
        _tell(result)
        print(f"look at it:  gloam plot {self.out}")


@dataclasses.dataclass(frozen=True)
class Resume:
    """Continue a run that was interrupted or killed; it ends as if it had never stopped."""

    run: Annotated[Path, tyro.conf.Positional]
    """The run folder."""
    iterations: int | None = None
    """A new total, to make the run longer."""
    quiet: bool = False
    """No progress bar."""

    def __call__(self) -> None:
        """Resume it."""
        try:
            result = resume(self.run, iterations=self.iterations, progress=not self.quiet)
        except ForeignError as error:
            raise ValueError(
                f"'{self.run}': this run evaluates your own function, or has parts of your own, "
                "which only your code can give. Continue it with the command that began it: "
                f"gloam fill ... --out {self.run} --resume. A run that your own program began is "
                "continued by that program."
            ) from error
        _tell(result)


@dataclasses.dataclass(frozen=True)
class Plot:
    """Draw a run: curves, the archive, and the discount function beside it."""

    run: Annotated[Path, tyro.conf.Positional]
    """The run folder."""
    pdf: bool = False
    """Also write PDF."""

    def __call__(self) -> None:
        """Draw it."""
        from gloam.plots import plot_run  # matplotlib takes a second to import

        for path in plot_run(self.run, pdf=self.pdf):
            print(path)


@dataclasses.dataclass(frozen=True)
class Demo:
    """Paint 1,797 handwritten digits with triangles, in about two minutes, and look at them.

    Discount Model Search on the triangle arrangement: every digit of scikit-learn's dataset is a
    cell to fill. With --domain lp, the 2D sphere of the paper instead, and pictures of its discount
    function.
    """

    domain: Literal["triangles", "lp"] = "triangles"
    """What to search on."""
    out: Path = Path("runs/demo")
    """The run folder; a run that is there already is replaced."""
    iterations: int | None = None
    """Iterations: by default 9,000 on triangles and 4,000 on lp; the paper runs 10,000."""
    seed: int = 1
    """The same seed gives the same pictures."""

    def __call__(self) -> None:
        """Run it and draw it."""
        RunFolder(self.out).delete_run()
        if self.domain == "lp":
            self._sphere()
        else:
            self._digits()

    def _digits(self) -> None:
        data = digits()
        domain = Triangles(data.items, num_triangles=20, canvas=(8, 8), name="digits")
        algorithm = DMS(
            domain.archive(), domain.x0, 0.2, num_emitters=5, alpha=0.1, restart=RestartEvery(50)
        )
        result = run(
            domain,
            algorithm,
            seeds=[self.seed],
            iterations=self.iterations or 9000,
            run_dir=self.out,
            dataset=data,
        )
        tell_matches(Matches(result.elites, data))
        print("look at them:")
        Gallery(self.out)()

    def _sphere(self) -> None:
        domain = LinearProjection(measure_dim=2)
        iterations = self.iterations or 4000
        stops = sorted({n for n in (20, 200, 1000) if n < iterations} | {iterations})
        result = run(
            domain,
            paper_algorithm("dms", domain),
            seeds=[self.seed],
            iterations=iterations,
            run_dir=self.out,
            snapshots=stops,
        )
        _tell(result)
        print("pictures:")
        Plot(self.out)()


def _tell(result: Result) -> None:
    metrics = result.metrics
    last: Any = metrics[metrics["iteration"] == metrics["iteration"].max()]
    print(f"{'seed':>6} {'QD score':>12} {'coverage':>9} {'best':>9} {'restarts':>9}")
    for row in last.itertuples():
        print(
            f"{row.seed:>6} {row.qd_score:>12,.2f} {row.coverage:>9.2%} "
            f"{row.best_objective:>9.4f} {row.restarts:>9}"
        )
    print(f"run folder:  {result.run_dir}")
