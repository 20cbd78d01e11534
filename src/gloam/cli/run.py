"""`gloam run`, `gloam resume` and `gloam demo`, and the options that all searches share."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import tyro

import gloam
from gloam.cli.choices import AlgorithmChoice, build_algorithm
from gloam.cli.look import Plot
from gloam.progress import print_line

if TYPE_CHECKING:
    from gloam.datasets import Matches


@dataclasses.dataclass(frozen=True)
class SavingOptions:
    """How often metrics and checkpoints are written to the run folder."""

    log_every: int = 50
    """Number of iterations between two rows of metrics."""
    checkpoint_seconds: float = 60.0
    """Number of seconds between two checkpoints; more if they would take over 3% of the time."""
    checkpoint_every: int | None = None
    """Number of iterations between two checkpoints, in addition to --checkpoint-seconds."""
    keep_checkpoints: int = 2
    """Number of checkpoints to keep. If the newest is damaged, the one before it is used."""


@dataclasses.dataclass(frozen=True)
class FollowOptions:
    """Early stopping, and output while the search runs."""

    stop_coverage: float | None = None
    """Stop when this share of the cells (0 to 1) is filled, in every seed."""
    stop_score: float | None = None
    """Stop when the QD score has reached this value, in every seed."""
    stop_plateau: int | None = None
    """Stop when the QD score has not grown for this number of iterations, in any seed."""
    csv: Path | None = None
    """CSV file to which the rows of metrics are written as well."""
    quiet: bool = False
    """Show no progress bars."""

    def arguments(self) -> dict[str, Any]:
        """Return the options as arguments of `gloam.run`, `gloam.optimize` and `gloam.resume`."""
        callbacks = []
        if self.stop_coverage is not None:
            callbacks.append(gloam.callbacks.StopAt("coverage", self.stop_coverage))
        if self.stop_score is not None:
            callbacks.append(gloam.callbacks.StopAt("qd_score", self.stop_score))
        if self.stop_plateau is not None:
            callbacks.append(gloam.callbacks.StopOnPlateau("qd_score", self.stop_plateau))
        if self.csv is not None:
            callbacks.append(gloam.callbacks.CsvLogger(self.csv))
        return {"callbacks": callbacks, "progress": not self.quiet}


@dataclasses.dataclass(frozen=True)
class Run:
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
    start_from: Path | None = None
    """Run folder whose elites the search starts from."""
    reevaluate: bool = False
    """Evaluate the solutions of --start-from again."""
    snapshots: tuple[int, ...] = ()
    """Iterations at which `gloam plot` shows the archive and the discount. Default: the last."""
    saving: SavingOptions = dataclasses.field(default_factory=SavingOptions)
    follow: FollowOptions = dataclasses.field(default_factory=FollowOptions)

    @property
    def continuation(self) -> str:
        """How to continue this run, for messages."""
        return f"`gloam resume {self.out}`"

    def __call__(self) -> None:
        """Run the search."""
        gloam.RunFolder(self.out).check_new()
        chosen = self.algorithm.domain
        domain, data = chosen.build(), chosen.dataset()
        iterations = chosen.iterations if self.iterations is None else self.iterations
        result = gloam.run(
            domain,
            build_algorithm(self.algorithm, domain),
            iterations,
            seeds=range(self.seed, self.seed + self.seeds),
            run_dir=self.out,
            snapshots=self.snapshots or (iterations,),
            dataset=data,
            start_from=self.start_from,
            reevaluate=self.reevaluate,
            **dataclasses.asdict(self.saving),
            **self.follow.arguments(),
        )
        print_metrics(result)
        print_line(f"To draw figures: gloam plot {self.out}")
        if data is not None:
            show_matches(gloam.datasets.Matches(result.elites, data), self.out)


@dataclasses.dataclass(frozen=True)
class Resume:
    """Continue a run that was interrupted, with the same result as without the interruption.

    Example: gloam resume runs/x --iterations 20000
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder."""
    iterations: int | None = None
    """New total number of iterations, to extend the run."""
    follow: FollowOptions = dataclasses.field(default_factory=FollowOptions)

    def __call__(self) -> None:
        """Resume the run."""
        try:
            result = gloam.resume(self.run, iterations=self.iterations, **self.follow.arguments())
        except gloam.ForeignError as error:
            raise ValueError(
                f"The run in '{self.run}' uses your own function or classes, which the run folder "
                "does not contain. If `gloam fill` started it, continue it with: gloam fill ... "
                f"--out {self.run} --resume. If `gloam lsi run` started it, repeat that command. "
                "If your own program started it, continue it there."
            ) from error
        print_metrics(result)
        if gloam.RunFolder(self.run).read_config().dataset is not None:
            print_line(f"To show solutions beside their items: gloam gallery {self.run}")


@dataclasses.dataclass(frozen=True)
class Demo:
    """Approximate 1,797 handwritten digits by triangles, in about two minutes.

    Discount Model Search on triangle arrangement: every digit of scikit-learn's dataset is a cell
    of the archive. The result is a gallery. With --domain lp, the search runs on the paper's 2D
    sphere instead, and the result is a figure of the discount function.
    """

    domain: Literal["triangles", "lp"] = "triangles"
    """Domain of the search."""
    out: Path = Path("runs/demo")
    """Run folder. The same demo in it is continued or shown again; another run in it is refused."""
    iterations: int | None = None
    """Number of iterations. Default: 9,000 on triangles, 4,000 on lp."""
    seed: int = 1
    """Seed of the search."""

    continuation: ClassVar[str] = "the same command"
    """How to continue a run, for messages."""

    def __call__(self) -> None:
        """Run the search and draw its figures."""
        if self.domain == "triangles":
            self._digits()
        else:
            self._sphere()

    def _digits(self) -> None:
        data = gloam.datasets.digits()
        domain = gloam.domains.Triangles(data.items, num_triangles=20, canvas=(8, 8), name="digits")
        algorithm = gloam.DMS(domain.archive(), domain.x0, 0.2, batch_size=12)
        iterations = 9000 if self.iterations is None else self.iterations
        result = self._run(domain, algorithm, iterations, dataset=data)
        show_matches(gloam.datasets.Matches(result.elites, data), self.out)

    def _sphere(self) -> None:
        domain = gloam.domains.LinearProjection(measure_dim=2)
        algorithm = gloam.experiments.preset_algorithm("dms", domain)
        iterations = 4000 if self.iterations is None else self.iterations
        stops = sorted({n for n in (20, 200, 1000) if n < iterations} | {iterations})
        print_metrics(self._run(domain, algorithm, iterations, snapshots=stops))
        Plot(self.out)()

    def _run(self, domain: Any, algorithm: Any, iterations: int, **options: Any) -> "gloam.Result":
        # A run with other settings cannot be resumed, so none is ever replaced.
        where = {"seeds": [self.seed], "run_dir": self.out, "resume": True}
        return gloam.run(domain, algorithm, iterations, **where, **options)


def print_metrics(result: "gloam.Result") -> None:
    """Print the last metrics of every seed, and the run folder."""
    from gloam.archives.qd_score import tables_with_one_reference

    metrics = result.metrics
    last: Any = metrics[metrics["iteration"] == metrics["iteration"].max()]
    (last,), f_min = tables_with_one_reference([last])
    print_line(f"{'seed':>6} {'QD score':>12} {'coverage':>9} {'best':>9} {'restarts':>9}")
    for row in last.itertuples():
        print_line(
            f"{row.seed:>6} {row.qd_score:>12,.2f} {row.coverage:>9.2%} "
            f"{row.best_objective:>9.4f} {row.restarts:>9}"
        )
    if f_min != 0:
        print_line(f"QD scores are counted from {f_min:g}")
    if result.stopped:
        print_line(f"Stopped early: {result.stopped}")
    print_line(f"Run folder: {result.run_dir}")


def show_matches(matches: "Matches", run_dir: Path, *, domain: Any = None, title: str = "") -> None:
    """Print how well the elites match the items, also by label, and write the gallery."""
    from gloam.archives.qd_score import reference_note
    from gloam.gallery import gallery_run  # matplotlib takes a second to import

    elites, data = matches.elites, matches.dataset
    print_line(
        f"{len(elites):,} of {len(data):,} items have an elite ({matches.coverage():.1%}), "
        f"QD score {elites.qd_score:,.2f}{reference_note(elites.f_min)}, "
        f"best {elites.best_objective:.4f}"
    )
    if len(elites):
        missed = int((~matches.reached).sum())
        print_line(
            f"Explained variance of all items: {matches.explained:.1%}; not reached: {missed:,} "
            "(no solution found is nearer to them than the mean of all items is)"
        )
    if data.labels is not None and 1 < len(set(data.labels)) <= 30:
        rows: Any = matches.coverage_by_label().itertuples()
        print_line(f"{'label':>12} {'filled':>6}    {'items':<6} {'coverage':>8} {'explained':>9}")
        for row in rows:
            print_line(
                f"{row.label:>12} {row.filled:>6} of {row.items:<6} {row.coverage:>8.1%} "
                f"{row.explained:>9.1%}"
            )
    for path in gallery_run(run_dir, matches=matches, domain=domain, title=title):
        print_line(path)
    print_line(f"To look at the pairs, open {run_dir / 'gallery.html'} in a browser.")
