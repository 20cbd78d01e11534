"""The interface of models that embed images and texts."""

from abc import abstractmethod
from collections.abc import Sequence

import equinox as eqx
from jaxtyping import Array, Float


class Embedder(eqx.Module):
    """A model that embeds images and texts in one space, as vectors of length one.

    JAX can trace the embedding of images. Texts are embedded on the host.
    """

    @property
    @abstractmethod
    def embedding_dim(self) -> int:
        """Dimension of an embedding."""

    @abstractmethod
    def embed_images(self, images: Float[Array, "n 3 height width"]) -> Float[Array, "n embedding"]:
        """Embed images with values in [-1, 1].

        To embed the pictures of a dataset, a model must also accept bytes of shape
        ``(n, height, width[, 3])``.
        """

    @abstractmethod
    def embed_texts(self, texts: Sequence[str]) -> Float[Array, "n embedding"]:
        """Embed texts."""
