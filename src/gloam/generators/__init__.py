"""Generators of images and embedders of images and texts, in JAX."""

from gloam.generators.clip import CLIP as CLIP
from gloam.generators.decoder import Decoder as Decoder
from gloam.generators.models import Embedder as Embedder
from gloam.generators.models import Generator as Generator
from gloam.generators.official_pickle import convert as convert
from gloam.generators.stylegan3 import StyleGAN3 as StyleGAN3
from gloam.generators.stylegan3_settings import StyleGAN3Settings as StyleGAN3Settings
