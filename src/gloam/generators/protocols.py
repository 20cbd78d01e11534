"""What latent searches need of models: images from latents, and embeddings of images and texts."""

from abc import abstractmethod
from collections.abc import Sequence

import equinox as eqx
from jaxtyping import Array, Float


class Generator(eqx.Module):
    """A model that makes images from latents, in two stages that JAX can trace.

    `map` makes the latents that are searched (w) from normal numbers (z), `images` makes images
    from them. A model with one stage has an identity as `map`.
    """

    @property
    @abstractmethod
    def z_dim(self) -> int:
        """Number of random numbers that `map` takes."""

    @property
    @abstractmethod
    def w_dim(self) -> int:
        """Number of numbers in a latent."""

    @property
    @abstractmethod
    def num_ws(self) -> int:
        """Number of layers that use a latent; 1 where there are no layers."""

    @property
    @abstractmethod
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""

    @property
    @abstractmethod
    def w_avg(self) -> Float[Array, " w"]:
        """Mean latent, to which truncation moves."""

    @abstractmethod
    def map(self, z: Float[Array, "n z"], truncation: float | Array = 1.0) -> Float[Array, "n w"]:
        """Latents of normal numbers, moved towards `w_avg` by a ``truncation`` below 1."""

    @abstractmethod
    def images(self, w: Float[Array, "n w"]) -> Float[Array, "n channels height width"]:
        """Images of latents, with values in [-1, 1]."""


class Embedder(eqx.Module):
    """A model that embeds images, in operations that JAX can trace, and texts, on the host.

    Both kinds of embeddings lie in one space, and have length one.
    """

    @property
    @abstractmethod
    def embedding_dim(self) -> int:
        """Number of numbers in an embedding."""

    @abstractmethod
    def embed_images(self, images: Float[Array, "n 3 height width"]) -> Float[Array, "n embedding"]:
        """Embeddings, of length one, of images with values in [-1, 1].

        Or of bytes ``(n, height, width[, 3])``, as datasets hold them, if the model is to embed a
        dataset's pictures.
        """

    @abstractmethod
    def embed_texts(self, texts: Sequence[str]) -> Float[Array, "n embedding"]:
        """Embeddings, of length one, of texts."""
