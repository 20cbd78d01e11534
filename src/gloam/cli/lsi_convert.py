"""`gloam lsi convert`: official StyleGAN3 weights as safetensors."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from gloam import checks
from gloam.cli.lsi_check import described_generator
from gloam.experiments.lsi import read_generator
from gloam.generators import convert


@dataclasses.dataclass(frozen=True)
class LsiConvert:
    """Convert an official StyleGAN3 pickle to safetensors, without executing what it contains.

    A pickle can run any program when it is loaded. This command reads the data in it with its own
    reader, and refuses files with anything else than the parts of an official network.

    Example: gloam lsi convert stylegan3-t-ffhqu-256x256.pkl stylegan3.safetensors
    """

    pickle: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="NETWORK.pkl")]
    """Network pickle of NVIDIA's StyleGAN3, as downloaded."""
    safetensors: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT.safetensors")]
    """File to write. It must not exist."""

    def __call__(self) -> None:
        """Convert the file."""
        is_new = not self.safetensors.exists() and not self.safetensors.is_symlink()
        checks.expect(is_new, "safetensors", "a new file", f"'{self.safetensors}', which exists")
        convert(self.pickle, self.safetensors)
        print(f"{self.safetensors}: {described_generator(read_generator(self.safetensors))}")
