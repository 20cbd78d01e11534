"""`gloam paper` runs the paper's study."""

import dataclasses
from pathlib import Path
from typing import Literal

from gloam import checks
from gloam.cli.look import Report
from gloam.experiments.lsi import LsiFiles, check_files
from gloam.experiments.presets import ALGORITHMS
from gloam.experiments.published import title
from gloam.experiments.report import needs_files
from gloam.experiments.study import DOMAINS, LSI, Study, ablation, run_cell
from gloam.progress import study_display
from gloam.runs import Interrupted


@dataclasses.dataclass(frozen=True)
class Paper:
    """Run the paper's study: every algorithm on every domain, then write the report.

    After an interruption, repeat the command: finished pairs of algorithm and domain are kept, and
    the others are continued. `gloam report STUDY` writes the report again.

    The domain lsi needs three files. Without them the study runs the other domains, and its report
    says how to check the files.

    Example: gloam paper --domains 2d-lp-flat arm --algorithms dms map-elites --seeds 5
    """

    out: Path = Path("runs/paper")
    """Study folder."""
    domains: tuple[str, ...] = (*DOMAINS, LSI)
    """Domains to run, for example 10d-lp-sphere. ta-mnist, ta-fashion-mnist and lsi need files."""
    algorithms: tuple[str, ...] = tuple(ALGORITHMS)
    """Algorithms to run. The suffix -pyribs selects pyribs' variant of CMA-ES."""
    ablation: Literal["alpha", "empty", "restart"] | None = None
    """Ablation of DMS to run instead of the algorithms."""
    seeds: int = 20
    """Number of seeds of every algorithm on every domain."""
    iterations: int = 10_000
    """Number of iterations of every seed."""
    centroids_dir: Path | None = None
    """Folder with lp_10d.npy, lp_20d.npy, lp_50d.npy. Default: centroids are computed once and
    cached."""
    stylegan: Path | None = None
    """Network of the domain lsi: a safetensors file that `gloam lsi convert` wrote."""
    clip: Path | None = None
    """Folder with the CLIP of the domain lsi: config.json, model.safetensors, tokenizer.json."""
    landscapes: Path | None = None
    """Folder with the landscapes of the domain lsi."""
    figures: bool = True
    """Draw the figures of the report."""

    def __call__(self) -> None:
        """Run the missing pairs, then write the report."""
        study = Study(
            self.out,
            tuple(self.domains),
            tuple(ablation(self.ablation)) if self.ablation else tuple(self.algorithms),
            self.seeds,
            self.iterations,
            str(self.centroids_dir) if self.centroids_dir else None,
            lsi=self._lsi(),
        )
        for domain in study.domains_without_files:
            print(needs_files(domain))
        if study.lsi is not None and LSI in study.domains:
            check_files(study.lsi, progress=True)
        study.write()
        cells = list(study.cells())
        with study_display("study", len(cells)) as display:
            for cell in cells:
                name = f"{title(cell.algorithm)} on {title(cell.domain)}"
                try:
                    run_cell(study, cell, display.begin_run(name, study.iterations))
                except Interrupted as stopped:
                    advice = f"in {cell.path}; continue with the same command"
                    raise Interrupted(
                        stopped.run_dir, stopped.iteration, advice, signal=stopped.signal
                    ) from None
                display.finish_run()
        Report(self.out, figures=self.figures)()

    def _lsi(self) -> LsiFiles | None:
        names = ("stylegan", "clip", "landscapes")
        given = [str(getattr(self, name)) for name in names if getattr(self, name) is not None]
        checks.expect(
            len(given) in (0, 3),
            "lsi",
            "all of --stylegan, --clip and --landscapes, or none",
            f"{len(given)} of them",
        )
        return LsiFiles(*given) if given else None
