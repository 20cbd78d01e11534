"""An embedding that makes faces and landscapes comparable, by colour, light and texture."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from efficientnet import EfficientNet
from jaxtyping import Array, Float, UInt8

from gloam._tools import checks
from gloam_lab.latent_illumination import Embedder

# The activations after the second and the fifth block describe colours and textures. Later ones
# distinguish faces from mountains, and are of no use to match them.
_LAYERS = (2, 5)
NUM_BLOCKS = max(_LAYERS)
_SIZE, _GRID = 128, 2
_BATCH_SIZE = 16
_NUM_AXES = 16


class MatchedEmbedder(Embedder):
    """Early activations of an image network, with faces and items matched by their moments.

    Activations are averaged over each quarter of an image. Faces and landscapes are far apart in
    that space. So each set is centred at its own mean, and faces are scaled along the principal
    axes of the items to the same variance. Then a face that is darker or greener than most faces is
    close to a landscape that is darker or greener than most landscapes. A constant is appended
    before vectors are scaled to length one, so that not only the direction from the mean counts but
    also the distance.

    Images of floats are taken for generated faces, and bytes for items of the dataset.

    Args:
        network: The image network.
        pictures: Pictures of the dataset, as bytes.
        faces: Random faces in [-1, 1].
        num_axes: Number of principal axes.
    """

    network: EfficientNet
    face_mean: Float[Array, " feature"]
    item_mean: Float[Array, " feature"]
    face_axes: Float[Array, "feature axes"]
    item_axes: Float[Array, "feature axes"]

    def __init__(
        self,
        network: EfficientNet,
        pictures: UInt8[np.ndarray, "n height width 3"],
        faces: Float[np.ndarray, "m 3 size size"],
        num_axes: int = _NUM_AXES,
    ):
        self.network = network
        items, made = (_all_features(network, images) for images in (pictures, faces))
        self.item_mean, self.face_mean = (jnp.asarray(rows.mean(axis=0)) for rows in (items, made))
        centered = items - items.mean(axis=0)
        # Both layers have the same weight, whatever the scale of their activations.
        layer_scales = _layer_scales(network, centered)
        _, _, axes = np.linalg.svd(centered * layer_scales, full_matrices=False)
        axes = layer_scales[:, None] * axes[: checks.integer("num_axes", num_axes, minimum=1)].T
        spread, face_spread = (
            ((rows - rows.mean(axis=0)) @ axes).std(axis=0) for rows in (items, made)
        )
        # The root mean square distance of items from the origin becomes 1, like the constant.
        axes = axes / np.sqrt(np.square(spread).sum())
        self.item_axes = jnp.asarray(axes, jnp.float32)
        self.face_axes = jnp.asarray(axes * (spread / face_spread), jnp.float32)

    @property
    def embedding_dim(self) -> int:
        """Dimension of an embedding: the axes and the constant."""
        return self.item_axes.shape[1] + 1

    def embed_images(
        self,
        images: Float[Array, "n 3 height width"] | UInt8[Array, "n height width 3"],
    ) -> Float[Array, "n embedding"]:
        """Embed faces in [-1, 1], or items as bytes, as vectors of length one."""
        is_face = jnp.issubdtype(images.dtype, jnp.floating)
        mean, axes = (
            (self.face_mean, self.face_axes) if is_face else (self.item_mean, self.item_axes)
        )
        rows = (features(self.network, images) - mean) @ axes
        rows = jnp.concatenate([rows, jnp.ones((rows.shape[0], 1))], axis=1)
        return rows / jnp.linalg.norm(rows, axis=1, keepdims=True)

    def embed_texts(self, texts: Sequence[str]) -> Float[Array, "n embedding"]:
        """Raise an error: the network cannot embed texts."""
        raise NotImplementedError(
            "embed_texts: expected a model of texts, got an image network. "
            "Leave the prompt out: LatentIllumination(..., prompt=None, ...)."
        )


def features(
    network: EfficientNet,
    images: Float[Array, "n 3 height width"] | UInt8[Array, "n height width 3"],
) -> Float[Array, "n feature"]:
    """Return the activations of the chosen layers, averaged over each part of a grid."""
    shape, floats = jnp.shape(images), jnp.issubdtype(images.dtype, jnp.floating)
    fits = len(shape) == 4 and shape[1 if floats else 3] == 3
    expected = "floats (n, 3, height, width) in [-1, 1] or bytes (n, height, width, 3)"
    fits &= floats or images.dtype == jnp.uint8
    checks.expect(fits, "images", expected, f"{images.dtype} {shape}")
    if floats:
        pixels = 0.5 * (images + 1)
    else:
        pixels = jnp.moveaxis(jnp.asarray(images), 3, 1).astype(jnp.float32) / 255
    pixels = jax.image.resize(pixels, (shape[0], 3, _SIZE, _SIZE), "linear", antialias=True)
    found = network(pixels)
    return jnp.concatenate([_pooled(found[layer]) for layer in _LAYERS], axis=1)


def _pooled(activations: Array) -> Array:
    count, channels, height, width = activations.shape
    sides = (_GRID, height // _GRID, _GRID, width // _GRID)
    return activations.reshape(count, channels, *sides).mean(axis=(3, 5)).reshape(count, -1)


def _layer_scales(network: EfficientNet, centered: np.ndarray) -> np.ndarray:
    """Return for each feature the reciprocal of the spread of its layer."""
    shape = jax.ShapeDtypeStruct((1, 3, _SIZE, _SIZE), jnp.float32)
    activations = jax.eval_shape(network, shape)
    sizes = [activations[layer].shape[1] * _GRID**2 for layer in _LAYERS]
    parts = np.split(centered, np.cumsum(sizes)[:-1], axis=1)
    spreads = [np.sqrt(np.square(part).sum(axis=1).mean()) for part in parts]
    return np.repeat(1 / np.array(spreads), sizes)


def _all_features(network: EfficientNet, images: np.ndarray) -> np.ndarray:
    """Return the features of many images, computed in padded batches of one size."""
    compiled = eqx.filter_jit(features)
    found = []
    for start in range(0, len(images), _BATCH_SIZE):
        batch = images[start : start + _BATCH_SIZE]
        filled = np.resize(batch, (_BATCH_SIZE, *batch.shape[1:]))
        found.append(np.asarray(compiled(network, filled))[: len(batch)])
    return np.concatenate(found)
