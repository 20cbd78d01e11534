"""Where the files of the paper's latent space illumination come from, and under which licences."""

from typing import NamedTuple


class Source(NamedTuple):
    """An official release."""

    title: str
    files: str
    """Which files, and what to do with them."""
    place: str
    """Where they are released."""
    licence: str


SOURCES = {
    "stylegan": Source(
        "StyleGAN3, faces of 256 x 256 pixels (NVIDIA)",
        "stylegan3-t-ffhqu-256x256.pkl, then: gloam lsi convert "
        "stylegan3-t-ffhqu-256x256.pkl stylegan3.safetensors",
        "https://catalog.ngc.nvidia.com/orgs/nvidia/teams/research/models/stylegan3",
        "NVIDIA Source Code License for StyleGAN3: non-commercial use only. The training images "
        "(FFHQ) have licences of their own.",
    ),
    "clip": Source(
        "CLIP ViT-B/32 (OpenAI), in Hugging Face's layout",
        "a folder with config.json, model.safetensors, and tokenizer.json or vocab.json with "
        "merges.txt",
        "https://huggingface.co/openai/clip-vit-base-patch32",
        "MIT (https://github.com/openai/CLIP).",
    ),
    "landscapes": Source(
        "LHQ-256, 90,000 landscapes (Skorokhodov et al., 2021)",
        "a folder of pictures, from LHQ256 unpacked; the paper uses 10,000 of them",
        "https://github.com/universome/alis",
        "CC BY 2.0 for the dataset; metadata.json names the licence of each photograph.",
    ),
}
"""Releases by the name of the option."""
