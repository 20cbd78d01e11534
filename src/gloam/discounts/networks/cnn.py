"""A small convolutional network for measures that are images."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from gloam import checks
from gloam.discounts.networks.weights import first_weights


class CNN(eqx.Module):
    """Convolutions of 3x3 pixels with stride 2, then two linear layers; ReLU between all of them.

    Each convolution halves height and width (rounded up, one pixel of zeros around the image), as
    PyTorch's ``Conv2d(..., 3, stride=2, padding=1)``. Weights and biases start uniform in
    ``+-1/sqrt(fan_in)``, which is PyTorch's default.

    Args:
        shape: Of an image: ``(height, width)``, or ``(height, width, colours)`` with the colours of
            a pixel side by side, as NumPy and Pillow have them.
        channels: Of each convolution.
        hidden: Size of the layer between the convolutions and the output.
        key: Randomness of the weights.

    Example:
        >>> network = CNN((28, 28), key=jax.random.key(0))
        >>> network(jnp.zeros((28, 28))).shape, network(jnp.zeros(28 * 28)).shape
        ((), ())
    """

    weights: list[Float[Array, "..."]]
    biases: list[Float[Array, "..."]]
    shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self,
        shape: Sequence[int],
        *,
        channels: Sequence[int] = (16, 32),
        hidden: int = 64,
        key: PRNGKeyArray | None = None,
    ):
        self.shape = _image_shape(shape)
        checks.expect(
            isinstance(channels, Sequence) and len(channels) > 0,
            "channels",
            "the channels of each convolution",
            repr(channels),
            "For instance (16, 32).",
        )
        depths = [checks.integer("channels", depth, minimum=1) for depth in channels]
        hidden = checks.integer("hidden", hidden, minimum=1)
        height, width, colours = self.shape
        for _ in depths:
            height, width = _half(height), _half(width)
        shapes = [(3, 3, before, after) for before, after in pairwise([colours, *depths])]
        shapes += [(height * width * depths[-1], hidden), (hidden, 1)]
        self.weights, self.biases = first_weights(tuple(shapes), key)

    def __call__(self, measures: Float[Array, "*shape"]) -> Float[Array, ""]:
        """The discount at one (normalised) image, in its shape or as a flat row."""
        height, width, colours = self.shape
        shapes = [self.shape, (prod(self.shape),)] + [(height, width)] * (colours == 1)
        checks.expect(
            measures.shape in shapes,
            "measures",
            f"{prod(self.shape)} numbers, an image of {self.shape}",
            f"shape {measures.shape}",
        )
        x = measures.reshape(self.shape)
        *convolutions, hidden, last = zip(self.weights, self.biases, strict=True)
        for weight, bias in convolutions:
            x = jax.nn.relu(_convolve(x, weight) + bias)
        x = jax.nn.relu(x.reshape(-1) @ hidden[0] + hidden[1])
        return jnp.squeeze(x @ last[0] + last[1], axis=-1)

    def reinitialized(self, *, key: PRNGKeyArray) -> "CNN":
        """The same network with fresh weights."""
        *convolutions, hidden, _ = (weight.shape[-1] for weight in self.weights)
        return CNN(self.shape, channels=convolutions, hidden=hidden, key=key)


def _half(size: int) -> int:
    return -(-size // 2)


def _convolve(
    image: Float[Array, "height width before"], weight: Float[Array, "3 3 before after"]
) -> Float[Array, "rows columns after"]:
    """A 3x3 convolution with stride 2 and padding 1, as one product of matrices.

    `jax.lax.conv_general_dilated` says the same. But with weights for every seed it becomes a
    grouped convolution, and its gradient by the weights a convolution with a huge kernel; a fit on
    the CPU takes 4 to 7 times as long with it, by its layout and the number of seeds.
    """
    height, width, before = image.shape
    rows, columns = _half(height), _half(width)
    # To even sizes: pixels then stand in pairs, and a slice with stride 2 is a reshape.
    padding = ((1, 2 * rows + 1 - height), (1, 2 * columns + 1 - width), (0, 0))
    x = jnp.pad(image, padding).reshape(rows + 1, 2, columns + 1, 2 * before)
    # Three pixels side by side: a pair and the first of the next pair. Then three rows likewise.
    x = jnp.concatenate([x[:, :, :-1], x[:, :, 1:, :before]], axis=-1)
    patches = jnp.concatenate([x[:-1, 0], x[:-1, 1], x[1:, 0]], axis=-1)
    return patches @ weight.reshape(9 * before, -1)


def _image_shape(shape: Sequence[int]) -> tuple[int, ...]:
    fix = "For instance (28, 28) or (64, 64, 3)."
    checks.expect(
        isinstance(shape, Sequence) and len(shape) in (2, 3),
        "shape",
        "(height, width) or (height, width, colours)",
        repr(shape),
        fix,
    )
    sizes = tuple(checks.integer("shape", size, minimum=1, fix=fix) for size in shape)
    return sizes if len(sizes) == 3 else (*sizes, 1)
