"""Latent space illumination: StyleGAN3 and CLIP in JAX, and the search of faces for landscapes."""

from gloam_lab.latent_illumination.clip import CLIP as CLIP
from gloam_lab.latent_illumination.domain import LatentIllumination as LatentIllumination
from gloam_lab.latent_illumination.embedder import Embedder as Embedder
from gloam_lab.latent_illumination.official_pickle import convert as convert
from gloam_lab.latent_illumination.stylegan3 import StyleGAN3 as StyleGAN3
from gloam_lab.latent_illumination.stylegan3_settings import StyleGAN3Settings as StyleGAN3Settings
