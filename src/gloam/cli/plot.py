"""`gloam plot`: figures of a run."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro


@dataclasses.dataclass(frozen=True)
class Plot:
    """Draw the metrics, the archive and the discount function of a run."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder."""
    pdf: bool = False
    """Also write PDF files."""

    def __call__(self) -> None:
        """Draw the figures."""
        from gloam.plots import plot_run  # matplotlib takes a second to import

        for path in plot_run(self.run, pdf=self.pdf):
            print(path)
