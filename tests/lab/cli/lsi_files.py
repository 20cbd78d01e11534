"""Small files for latent space illumination: random ones, and the recorded ones where they are."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from gloam_lab.latent_illumination import StyleGAN3, StyleGAN3Settings
from tests.lab.latent_illumination.reference import trained
from tests.lab.latent_illumination.test_clip import write_folder

SETTINGS = StyleGAN3Settings(
    img_resolution=16, z_dim=4, w_dim=6, channel_base=32, channel_max=4, num_layers=3
)


class Files(NamedTuple):
    stylegan: Path
    clip: Path
    landscapes: Path

    @property
    def options(self):
        return [
            "--stylegan",
            str(self.stylegan),
            "--clip",
            str(self.clip),
            "--landscapes",
            str(self.landscapes),
        ]


def random_files(folder: Path) -> Files:
    """A random generator, a random CLIP and pictures of noise over a gradient."""
    StyleGAN3(SETTINGS, trained(SETTINGS)).save(folder / "network.safetensors")
    write_folder(folder / "clip")
    landscapes = folder / "landscapes"
    landscapes.mkdir()
    random = np.random.default_rng(0)
    for number in range(8):
        pixels = random.integers(0, 160, (12, 18, 3)) + np.linspace(0, 95, 12)[:, None, None]
        Image.fromarray(pixels.astype(np.uint8)).save(landscapes / f"{number:07d}.png")
    return Files(folder / "network.safetensors", folder / "clip", landscapes)
