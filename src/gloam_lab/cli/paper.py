"""`gloam paper`, which runs the paper's study, and `gloam bench`, which compares speed."""

import dataclasses
from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import tyro

from gloam._tools import checks
from gloam._tools.files import write_bytes
from gloam._tools.progress import print_line, print_lines
from gloam.cli.look import Report

if TYPE_CHECKING:
    from gloam_lab.latent_illumination.experiment import LsiFiles
    from gloam_lab.speed import SpeedComparison


@dataclasses.dataclass(frozen=True)
class Paper:
    """Run the paper's study: every algorithm on every domain, then write the report.

    After an interruption, repeat the command: finished pairs of algorithm and domain are kept, and
    the others are continued. `gloam paper-report STUDY` writes the report again.

    The domain lsi needs three files. Without them the study runs the other domains, and its report
    says how to check the files.

    Example: gloam paper --domains 2d-lp-flat arm --algorithms dms dms-paper --seeds 5
    """

    out: Path = Path("runs/paper")
    """Study folder."""
    domains: tuple[str, ...] = ()
    """Domains to run, for example 10d-lp-sphere. ta-mnist, ta-fashion-mnist and lsi need files.
    Default: all but ta-mnist and ta-fashion-mnist."""
    algorithms: tuple[str, ...] = ()
    """Algorithms to run. dms is gloam's default, the others have the paper's settings; -pyribs
    selects pyribs' CMA-ES. Default: dms dms-paper cma-mae dds map-elites-line map-elites. Others:
    dms-gradients (gloam's default with gradients), cma-mega, cma-maega."""
    ablation: Literal["alpha", "empty", "restart"] | None = None
    """Ablation of DMS to run instead of the algorithms."""
    seeds: int = 20
    """Number of seeds of every algorithm on every domain."""
    iterations: int = 10_000
    """Number of iterations of every seed."""
    centroids_dir: Path | None = None
    """Folder with lp_10d.npy, lp_20d.npy, lp_50d.npy. Default: computed once and cached."""
    stylegan: Path | None = None
    """Network of the domain lsi: a safetensors file that `gloam lsi convert` wrote."""
    clip: Path | None = None
    """Folder with the CLIP of the domain lsi: config.json, model.safetensors, tokenizer.json."""
    landscapes: Path | None = None
    """Folder with the landscapes of the domain lsi."""
    figures: bool = True
    """Draw the figures of the report."""

    continuation: ClassVar[str] = "the same command"
    """How to continue a study, for messages."""

    def __call__(self) -> None:
        """Run the missing pairs, then write the report."""
        from gloam_lab.latent_illumination.experiment import check_files
        from gloam_lab.presets import STUDY_ALGORITHMS
        from gloam_lab.progress import study_display
        from gloam_lab.published import title
        from gloam_lab.report import draw_figures, drawing_processes, needs_files
        from gloam_lab.study import ABLATIONS, DOMAINS, LSI, Study, compiled_ahead, run_cell

        algorithms = self.algorithms or STUDY_ALGORITHMS
        study = Study(
            self.out,
            self.domains or (*DOMAINS, LSI),
            tuple(ABLATIONS[self.ablation]) if self.ablation else algorithms,
            self.seeds,
            self.iterations,
            str(self.centroids_dir) if self.centroids_dir else None,
            lsi=self._lsi(),
        )
        for domain in study.domains_without_files:
            print_line(needs_files(domain))
        if study.lsi is not None and LSI in study.domains:
            check_files(study.lsi, progress=True)
        study.write()
        left = Counter(cell.domain for cell in study.cells())
        drawn: list[Future[list[Path]]] = []
        # The figures of a domain are drawn while the next one runs.
        with drawing_processes() as pool:
            with study_display("study", left.total()) as display:
                for cell in compiled_ahead(study):
                    name = f"{title(cell.algorithm)} on {title(cell.domain)}"
                    run_cell(study, cell, display.begin_run(name, study.iterations))
                    display.finish_run()
                    left[cell.domain] -= 1
                    if self.figures and not left[cell.domain]:
                        drawn.append(pool.submit(draw_figures, study, [cell.domain]))
            PaperReport(self.out, figures=False)()
            for task in drawn:
                for path in task.result():
                    print_line(path)

    def _lsi(self) -> "LsiFiles | None":
        from gloam_lab.latent_illumination.experiment import LsiFiles

        files = [str(path) for path in (self.stylegan, self.clip, self.landscapes) if path]
        expected = "all of --stylegan, --clip and --landscapes, or none"
        checks.expect(len(files) in (0, 3), "lsi", expected, f"{len(files)} of them")
        return LsiFiles(*files) if files else None


@dataclasses.dataclass(frozen=True)
class PaperReport:
    """Write the report of a study: the comparison with the paper, statistics, and figures.

    They go into the folder report/ of the study, as Markdown, CSV, LaTeX and one HTML file.

    Example: gloam paper-report runs/paper --no-pdf
    """

    study: Annotated[Path, tyro.conf.Positional]
    """Study folder."""
    figures: bool = True
    """Draw the figures."""
    pdf: bool = True
    """Also write the figures as PDF files."""

    def __call__(self) -> None:
        """Write the report and print the paths of its files."""
        from gloam_lab.report import write_report

        written = write_report(self.study, figures=self.figures, pdf=self.pdf)
        print_lines(written[0].read_text(encoding="utf-8"))
        for path in written:
            print_line(path)
        Report(self.study)()


@dataclasses.dataclass(frozen=True)
class Bench:
    """Compare the speed of gloam, pyribs and QDax on the same problems, in one process.

    After a warm-up, which also checks that all libraries do the same work, the libraries are timed
    in turns. Use an otherwise idle machine. Libraries that are not installed are skipped: pip
    install 'gloam[bench]' installs pyribs.

    Example: gloam bench --measures 2 --algorithms dms-paper --repeats 3
    """

    out: Path = Path("runs/bench")
    """Folder for bench.md, bench.csv and bench.png."""
    algorithms: tuple[str, ...] = ("dms-paper", "cma-mae", "map-elites-line")
    """Algorithms to compare."""
    measures: tuple[int, ...] = (2, 10, 50)
    """Numbers of measures of LP (Sphere). 2 uses a grid, others 10,000 centroids."""
    centroids_dir: Path | None = None
    """Folder with lp_10d.npy, lp_50d.npy. Default: computed once and cached."""
    repeats: int = 5
    """Number of timed periods of each library; the medians are compared."""
    seconds: float = 2.0
    """Length of a timed period in seconds."""
    warm_up: int = 200
    """Number of iterations of the warm-up, after which QD scores are compared."""
    seed: int = 0
    """Seed of every search."""

    def __call__(self) -> None:
        """Run the comparison, print it and write it."""
        from gloam.plots.style import save
        from gloam_lab.contenders import Problem
        from gloam_lab.figures import speed_figure
        from gloam_lab.speed import BackgroundLoad, compare_speed, environment

        files = [self.out / f"bench.{suffix}" for suffix in ("md", "csv", "png")]
        _check_own(files)
        checks.number("seconds", self.seconds, above=0.0)  # centroids may take minutes
        problems = [
            Problem(name, k, self.centroids_dir) for name in self.algorithms for k in self.measures
        ]
        expected = "at least one of each"
        checks.expect(len(problems) > 0, "algorithms, measures", expected, "none")
        for problem in problems:
            _ = problem.algorithm  # wrong arguments are reported before anything is timed
        load = BackgroundLoad()
        comparison = compare_speed(
            problems,
            repeats=self.repeats,
            seconds=self.seconds,
            warm_up=self.warm_up,
            seed=self.seed,
            tell=lambda text: print_line(text, flush=True),
        )
        text = _bench_text(comparison, str(load))
        print_lines(f"\n{text}")
        table = comparison.frame().assign(**environment(), others_cpu_share=load.share)
        write_bytes(files[0], text.encode())
        write_bytes(files[1], table.to_csv(index=False).encode())
        save(speed_figure(comparison.frame()), files[2])
        for path in files:
            print_line(path)


def _check_own(files: list[Path]) -> None:
    """Refuse to replace files that an earlier `gloam bench` did not write."""
    header = b"algorithm,measure_dim,contender,"
    table = files[1]
    if table.is_file():
        with open(table, "rb") as file:
            if file.read(len(header)) == header:
                return
    foreign = next((path for path in files if path.exists()), None)
    expected = "a folder without files of other programs"
    fix = "Choose another folder with --out, or move the file away."
    checks.expect(foreign is None, "out", expected, f"'{foreign}'", fix)


def _bench_text(comparison: "SpeedComparison", load: str) -> str:
    """Return the table and its notes as Markdown."""
    import pandas as pd

    from gloam._tools.readable import as_markdown
    from gloam_lab.speed import environment

    rows = comparison.frame()
    table = pd.DataFrame(rows[["algorithm", "measure_dim", "contender"]])
    table = table.rename(columns={"measure_dim": "measures"})
    table["ms/iteration"] = rows["median_ms"].map("{:.2f}".format)
    spread = zip(rows["min_ms"], rows["max_ms"], strict=True)
    table["min - max"] = [f"{low:.2f} - {high:.2f}" for low, high in spread]
    for peer in ("pyribs", "QDax"):
        ratios = rows[f"times_{peer.lower()}"].to_list()
        texts = ["" if pd.isna(ratio) else f"{ratio:.1f}" for ratio in ratios]
        if any(texts):
            table[f"x {peer}"] = texts
    table["QD score"] = rows["qd_score"].map("{:.1f}".format)
    versions = ", ".join(f"{name} {value}" for name, value in environment().items())
    work = ["All libraries did the same work."]
    if comparison.differences:
        work = ["Not the same work:", *(f"- {line}" for line in comparison.differences)]
    return as_markdown(table) + "\n".join(["", versions, *comparison.missing, *work, load, ""])
