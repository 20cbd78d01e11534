"""`gloam report`: a run or a study as one HTML file, and the tables and figures of a study."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from gloam.experiments.report import write_report


@dataclasses.dataclass(frozen=True)
class Report:
    """Write a report of a run or of a study.

    The report is one HTML file with the views of `gloam explore`. It opens from a disk, loads
    nothing and is smaller than 10 MB. For a study, the folder report/ also gets the comparison with
    the paper, statistics (Markdown, CSV, LaTeX) and figures.
    """

    run_or_study: Annotated[Path, tyro.conf.Positional]
    """Run folder or study folder."""
    figures: bool = True
    """Draw the figures of a study."""
    pdf: bool = True
    """Also write the figures of a study as PDF files."""
    out: Path | None = None
    """HTML file. Default: report.html in a run folder, report/report.html in a study folder."""

    def __call__(self) -> None:
        """Write the report and print the paths of its files."""
        from gloam.explorer.html_report import write_html

        written = []
        if (self.run_or_study / "study.json").is_file():
            written = write_report(self.run_or_study, figures=self.figures, pdf=self.pdf)
            print(written[0].read_text())
        for path in [*written, write_html(self.run_or_study, self.out)]:
            print(path)
