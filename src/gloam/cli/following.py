"""Options by which a run is stopped early or logged, for the commands that search."""

import dataclasses
from pathlib import Path

from gloam.callbacks import Callback, CsvLogger, StopAt, StopOnPlateau


@dataclasses.dataclass(frozen=True, kw_only=True)
class FollowOptions:
    """Options for callbacks. A command inherits them, so that they are its own."""

    stop_coverage: float | None = None
    """Stop when this share of the cells (0 to 1) is filled, in every seed."""
    stop_score: float | None = None
    """Stop when the QD score has reached this value, in every seed."""
    stop_plateau: int | None = None
    """Stop when the QD score of no seed has grown for this number of iterations."""
    csv: Path | None = None
    """CSV file to which the rows of metrics are written as well."""

    def callbacks(self) -> list[Callback]:
        """The callbacks of the options that were given."""
        found: list[Callback] = []
        if self.stop_coverage is not None:
            found.append(StopAt("coverage", self.stop_coverage))
        if self.stop_score is not None:
            found.append(StopAt("qd_score", self.stop_score))
        if self.stop_plateau is not None:
            found.append(StopOnPlateau("qd_score", self.stop_plateau))
        if self.csv is not None:
            found.append(CsvLogger(self.csv))
        return found
