"""`gloam resume`: continue a run."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from gloam.cli.following import FollowOptions
from gloam.cli.metrics_table import print_metrics
from gloam.drivers import resume
from gloam.formats import ForeignError, RunFolder


@dataclasses.dataclass(frozen=True)
class Resume(FollowOptions):
    """Continue a run that was interrupted, with the same result as without the interruption."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder."""
    iterations: int | None = None
    """New total number of iterations, to extend the run."""
    quiet: bool = False
    """Show no progress bar."""

    def __call__(self) -> None:
        """Resume the run."""
        try:
            result = resume(
                self.run,
                iterations=self.iterations,
                progress=not self.quiet,
                callbacks=self.callbacks(),
            )
        except ForeignError as error:
            raise ValueError(
                f"The run in '{self.run}' uses your own function or classes, which the run folder "
                "does not contain. If `gloam fill` started it, continue it with: gloam fill ... "
                f"--out {self.run} --resume. If `gloam lsi run` started it, repeat that command. "
                "If your own program started it, continue it there."
            ) from error
        print_metrics(result)
        if RunFolder(self.run).read_config().dataset is not None:
            print(f"To show solutions beside their items: gloam gallery {self.run}")
