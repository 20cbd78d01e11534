"""`gloam demo` and `gloam resume`."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import tyro

import gloam
from gloam._tools.progress import print_line
from gloam.cli.look import Plot
from gloam.cli.options import FollowOptions, print_metrics, show_matches

if TYPE_CHECKING:
    from gloam.runs import Result


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
        except gloam.errors.ForeignError as error:
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
        algorithm = gloam.DMS(domain.archive(), domain.x0, 0.5)
        iterations = 4000 if self.iterations is None else self.iterations
        stops = sorted({n for n in (20, 200, 1000) if n < iterations} | {iterations})
        print_metrics(self._run(domain, algorithm, iterations, snapshots=stops))
        Plot(self.out)()

    def _run(self, domain: Any, algorithm: Any, iterations: int, **options: Any) -> "Result":
        # A run with other settings cannot be resumed, so none is ever replaced.
        where = {"seeds": [self.seed], "run_dir": self.out, "resume": True}
        return gloam.run(domain, algorithm, iterations, **where, **options)
