"""`gloam lsi`: latent space illumination with StyleGAN3 and CLIP, the paper's largest domain."""

import dataclasses
from typing import Annotated

import tyro

from gloam.cli.lsi_check import LsiCheck
from gloam.cli.lsi_convert import LsiConvert
from gloam.cli.lsi_run import LsiRun

LsiAction = (
    Annotated[LsiConvert, tyro.conf.subcommand("convert")]
    | Annotated[LsiCheck, tyro.conf.subcommand("check")]
    | Annotated[LsiRun, tyro.conf.subcommand("run")]
)


@dataclasses.dataclass(frozen=True)
class Lsi:
    """Find a face for every landscape, by latent space illumination (LSI) with StyleGAN3 and CLIP.

    The weights and pictures are not part of gloam. `gloam lsi check` says where they come from.
    `gloam lsi convert` turns the official StyleGAN3 file into one that is safe to load.
    `gloam lsi run` searches and ends with a gallery.
    """

    action: LsiAction
    """What to do."""

    def __call__(self) -> None:
        """Do it."""
        try:
            self.action()
        except ImportError as error:  # it names the extra to install
            raise ValueError(str(error)) from error
