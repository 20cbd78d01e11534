"""Commands that look at finished or running searches: plot, gallery, report and explore."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from gloam._tools.checks import printable
from gloam._tools.progress import print_line, print_lines
from gloam.cli import user_code


@dataclasses.dataclass(frozen=True)
class Plot:
    """Draw the metrics, the archive and the discount function of a run.

    Examples: gloam plot runs/x --pdf
              gloam plot runs/x --measures speed height --at weight 0.5
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder."""
    pdf: bool = False
    """Also write PDF files."""
    measures: tuple[str, str] | None = None
    """Two measures of a grid to draw: names, or numbers from 0. Default: the first two."""
    at: dict[str, float] = dataclasses.field(default_factory=dict)
    """Other measures and their values, to draw a slice. Default: the best elite over the others."""
    tails: float | None = None
    """Share of the objectives beyond each end of the colors. Default: 0, or 0.02 for outliers."""

    def __call__(self) -> None:
        """Draw the figures."""
        from gloam.plots import plot_run  # matplotlib takes a second to import

        options = {"measures": self.measures, "at": self.at, "tails": self.tails}
        for path in plot_run(self.run, pdf=self.pdf, **options):
            print_line(path)


@dataclasses.dataclass(frozen=True)
class Compare:
    """Compare runs of several algorithms on one problem: a table, tests and a figure.

    Example: gloam compare runs/dms runs/cma-mae runs/map-elites --out curves.png
    """

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Run folders. Runs of folders with the same name count as one algorithm."""
    f_min: float | None = None
    """Reference of all QD scores. Default: the lowest of the runs' own."""
    out: Path | None = None
    """File for a figure of the curves (.png or .pdf), which is replaced. Default: no figure."""

    def __call__(self) -> None:
        """Print the comparison and draw the figure."""
        from gloam.plots.style import figure_file, save
        from gloam.runs.comparison import compare  # with pandas and matplotlib

        out = None if self.out is None else figure_file(self.out, "out")
        named: dict[str, list[Path]] = {}
        for run in self.folders:
            # Tables hold valid Unicode only, which the name of a folder need not be.
            named.setdefault(printable(run.resolve().name), []).append(run)
        comparison = compare(named, f_min=self.f_min)
        print_lines(comparison.to_markdown())
        if out is not None:
            print_line(save(comparison.figure(), out))


@dataclasses.dataclass(frozen=True)
class Gallery:
    """Show every item of a dataset beside its nearest solution: an image, a page and a table.

    Solutions and items that are no images are drawn as lines, or by a function of yours. With one,
    a run without a dataset gets an image of its elites.

    Examples: gloam gallery runs/fill --by label
              gloam gallery runs/trusses --draw truss.py:picture
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder."""
    by: Literal["explained", "distance", "objective", "label", "item"] = "explained"
    """Order of the pairs in the image. The page can be sorted."""
    count: int = 60
    """Number of pairs in the image."""
    draw: str | None = None
    """Function that draws a solution: my_file.py:NAME or my.module:NAME. Default NAME: draw."""

    def __call__(self) -> None:
        """Draw the gallery and write the files."""
        from gloam.gallery import gallery_run  # matplotlib takes a second to import

        draw = _loaded(self.draw)
        for path in gallery_run(self.run, by=self.by, count=self.count, draw=draw):
            print_line(path)


@dataclasses.dataclass(frozen=True)
class Report:
    """Write a report of a run or of a study.

    The report is one self-contained HTML file of at most 10 MB, with the views of `gloam explore`.
    Tables and figures of a study are written by `gloam paper-report`.

    Example: gloam report runs/x
    """

    run_or_study: Annotated[Path, tyro.conf.Positional]
    """Run folder or study folder."""
    out: Path | None = None
    """HTML file. Default: report.html in a run folder, report/report.html in a study folder."""
    draw: str | None = None
    """Function that draws a solution: my_file.py:NAME or my.module:NAME. Default NAME: draw."""

    def __call__(self) -> None:
        """Write the report and print its path."""
        from gloam.explorer.html_report import write_html

        print_line(write_html(self.run_or_study, self.out, draw=_loaded(self.draw)))


@dataclasses.dataclass(frozen=True)
class Explore:
    """Show runs and studies in the browser, live while they run.

    The explorer only reads the folder. It needs `pip install 'gloam[explorer]'`. To explore runs on
    another machine, forward a port: ssh -L 8400:localhost:8400 MACHINE

    Example: gloam explore runs/ --port 8500
    """

    runs: Annotated[Path, tyro.conf.Positional] = Path("runs")
    """Folder that contains runs and studies, or the folder of one."""
    port: int | None = None
    """Port of the server. Default: the first free port from 8400."""
    host: str = "127.0.0.1"
    """Address to listen on. Anyone who can reach it can read the runs, without a password."""
    browser: bool = True
    """Open the browser."""
    draw: str | None = None
    """Function that draws a solution: my_file.py:NAME or my.module:NAME. Default NAME: draw."""

    def __call__(self) -> None:
        """Serve until Ctrl-C."""
        from gloam.explorer.server import explore

        options: Any = {"port": self.port, "host": self.host, "browser": self.browser}
        explore(self.runs, draw=_loaded(self.draw), **options)


def _loaded(reference: str | None) -> Callable[..., Any] | None:
    """Import the function that draws solutions, if one is named."""
    return None if reference is None else user_code.load(reference, "draw")[1]
