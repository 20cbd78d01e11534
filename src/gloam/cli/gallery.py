"""`gloam gallery`: the matches of a run with its dataset."""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclasses.dataclass(frozen=True)
class Gallery:
    """Show pairs of solution and item of a run, as an image, an HTML page and a table.

    A dataset without images gets the page and the table only.
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder of a run with a dataset."""
    by: Literal["objective", "distance", "label", "item"] = "objective"
    """Order of the pairs in the image. The page can be sorted."""
    count: int = 60
    """Number of pairs in the image."""

    def __call__(self) -> None:
        """Draw the gallery and write the files."""
        from gloam.gallery import gallery_run  # matplotlib takes a second to import

        for path in gallery_run(self.run, by=self.by, count=self.count):
            print(path)
