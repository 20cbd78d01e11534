"""The command that runs the paper's study, and the one that reports on it."""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import tyro

from gloam.drivers import Interrupted
from gloam.drivers.progress_bars import StudyBar
from gloam.experiments.presets import ALGORITHMS
from gloam.experiments.published import title
from gloam.experiments.report import write_report
from gloam.experiments.study import DOMAINS, Study, ablation, run_cell


@dataclasses.dataclass(frozen=True)
class Paper:
    """Run the paper's study: algorithms by domains, all trials of a cell as one program.

    Finished cells are kept and interrupted ones continued, so the same command can be given again
    until everything is there. Then it writes the report; `gloam paper report STUDY` writes it anew.

    Example: gloam paper --domains 2d-lp-flat arm --algorithms dms map-elites --trials 5
    """

    out: Path = Path("runs/paper")
    """The study folder."""
    domains: tuple[str, ...] = DOMAINS
    """Domains, as in 10d-lp-sphere."""
    algorithms: tuple[str, ...] = tuple(ALGORITHMS)
    """Algorithms; with -pyribs behind it, on pyribs' variant of CMA-ES."""
    ablation: Literal["alpha", "empty", "restart"] | None = None
    """Run the variants of one of the paper's ablations of DMS instead of the algorithms."""
    trials: int = 20
    """Seeds of every cell."""
    iterations: int = 10_000
    """Iterations of every trial."""
    centroids: Path | None = None
    """Folder with lp_10d.npy, lp_20d.npy, lp_50d.npy; without it gloam makes its own."""
    figures: bool = True
    """Whether the report has figures."""

    def __call__(self) -> None:
        """Run what is missing, then report."""
        study = Study(
            self.out,
            tuple(self.domains),
            tuple(ablation(self.ablation)) if self.ablation else tuple(self.algorithms),
            self.trials,
            self.iterations,
            str(self.centroids) if self.centroids else None,
        )
        study.write()
        cells = list(study.cells())
        with StudyBar("study", len(cells)) as bar:
            for cell in cells:
                name = f"{title(cell.algorithm)} on {title(cell.domain)}"
                try:
                    run_cell(study, cell, bar.begin(name, study.iterations))
                except Interrupted as stopped:
                    advice = f"in {cell.path}; continue with the same command"
                    raise Interrupted(
                        stopped.run_dir, stopped.iteration, advice, signal=stopped.signal
                    ) from None
                bar.finish_run()
        Report(self.out, figures=self.figures)()


@dataclasses.dataclass(frozen=True)
class Report:
    """Write a study's report: tables beside the paper's, statistics, figures."""

    study: Annotated[Path, tyro.conf.Positional]
    """The study folder."""
    figures: bool = True
    """Whether to draw, too."""
    pdf: bool = True
    """Whether figures are also written as PDF."""

    def __call__(self) -> None:
        """Write it and show the table of results."""
        written = write_report(self.study, figures=self.figures, pdf=self.pdf)
        print(written[0].read_text())
        for path in written:
            print(path)
