"""Small files for latent space illumination: random ones, and the recorded ones where they are."""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from gloam.generators import StyleGAN3, StyleGAN3Settings, convert
from gloam.generators.clip import END, START
from gloam.generators.models import write_tensors
from tests.generators.reference import trained
from tests.generators.test_clip import characters, write_folder

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


def recorded_files(data: Path, folder: Path) -> Files:
    """The recorded generator, from its official pickle, the recorded CLIP, and the landscapes."""
    convert(data / "stylegan3" / "tiny32_t_nosrc.pkl", folder / "network.safetensors")
    clip = folder / "clip"
    clip.mkdir()
    config = json.loads((data / "clip" / "tiny_clip_config.json").read_text())
    (clip / "config.json").write_text(json.dumps(config["hf"]))
    tensors = dict(np.load(data / "clip" / "tiny_clip_hf_state.npz"))
    write_tensors(clip / "model.safetensors", tensors, {})
    # The model knows 512 tokens, two fewer than all bytes, inside and at the end of words, with
    # start and end. The last byte is left out.
    names = list(characters().values())[:-1]
    vocabulary = {name: i for i, name in enumerate(names + [f"{name}</w>" for name in names])}
    vocabulary |= {START: config["bos"], END: config["eos"]}
    (clip / "vocab.json").write_text(json.dumps(vocabulary))
    (clip / "merges.txt").write_text("#version: 0.2\n")
    return Files(folder / "network.safetensors", clip, data / "images" / "landscapes")
