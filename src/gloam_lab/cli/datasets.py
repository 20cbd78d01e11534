"""`gloam datasets`: downloads of the datasets of the paper's study."""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import tyro

import gloam_lab
from gloam._tools.progress import print_line


@dataclasses.dataclass(frozen=True)
class Datasets:
    """Download a public dataset.

    Example: gloam datasets fetch mnist
    """

    verb: Annotated[Literal["fetch"], tyro.conf.Positional]
    """Action: fetch downloads the dataset."""
    name: Annotated[Literal["mnist", "fashion-mnist"], tyro.conf.Positional]
    """Name of the dataset."""
    folder: Path | None = None
    """Folder for the files. Default: gloam's cache folder."""

    def __call__(self) -> None:
        """Download the dataset and print the paths of its files."""
        for path in gloam_lab.fetch(self.name, self.folder).values():
            print_line(path)
