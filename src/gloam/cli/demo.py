"""`gloam demo`: a search with figures, in about two minutes."""

import dataclasses
from pathlib import Path
from typing import Literal

from gloam.algorithms import DMS
from gloam.cli.look import Gallery, Plot
from gloam.cli.outputs import print_matches, print_metrics
from gloam.datasets import Matches, digits
from gloam.domains import LinearProjection, Triangles
from gloam.experiments import paper_algorithm
from gloam.formats import RunFolder
from gloam.runs import run


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
    """Run folder. An earlier run in it is replaced."""
    iterations: int | None = None
    """Number of iterations. Default: 9,000 on triangles, 4,000 on lp."""
    seed: int = 1
    """Seed of the search."""

    def __call__(self) -> None:
        """Run the search and draw its figures."""
        RunFolder(self.out).delete_run()
        if self.domain == "lp":
            self._sphere()
        else:
            self._digits()

    def _digits(self) -> None:
        data = digits()
        domain = Triangles(data.items, num_triangles=20, canvas=(8, 8), name="digits")
        algorithm = DMS(domain.archive(), domain.x0, 0.2, batch_size=12)
        result = run(
            domain,
            algorithm,
            seeds=[self.seed],
            iterations=self.iterations or 9000,
            run_dir=self.out,
            dataset=data,
        )
        print_matches(Matches(result.elites, data))
        Gallery(self.out)()

    def _sphere(self) -> None:
        domain = LinearProjection(measure_dim=2)
        iterations = self.iterations or 4000
        stops = sorted({n for n in (20, 200, 1000) if n < iterations} | {iterations})
        result = run(
            domain,
            paper_algorithm("dms-default", domain),
            seeds=[self.seed],
            iterations=iterations,
            run_dir=self.out,
            snapshots=stops,
        )
        print_metrics(result)
        Plot(self.out)()
