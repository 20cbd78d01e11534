"""A small generator of grayscale images: dense layers, then convolutions that double the size."""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gloam._tools import checks
from gloam._tools.registry import register
from gloam_lab.generator import Generator, check_shapes, read_tensors, write_tensors

DIGITS_FILE = Path(__file__).with_name("digit_decoder.safetensors")
"""Weights of `Decoder.digits`; the text file next to it documents their origin and license."""
_LAYERS = ("hidden", "maps", "middle", "pixels")
_FIX = "Pass the tensors of another Decoder, or a file written by Decoder.save."
_KERNEL = 3


@register
class Decoder(Generator):
    """A decoder with four layers, small enough for a search on a CPU.

    The dense layers ``hidden`` and ``maps`` turn a latent into feature maps of ``side x side``
    pixels. The convolutions ``middle`` and ``pixels`` double the side: each computes four values
    per pixel and output channel, which are rearranged into two by two pixels. The last layer ends
    in a tanh, the others in a ReLU.

    Args:
        tensors: Weight and bias of each layer by name, such as ``maps.weight``. Dense weights have
            the shape ``(inputs, outputs)``, those of convolutions ``(3, 3, inputs, outputs)``. All
            sizes are inferred from them.

    Example:
        >>> decoder = Decoder.digits()
        >>> decoder.w_dim, decoder.images(jnp.zeros((2, decoder.w_dim))).shape
        (16, (2, 1, 28, 28))
    """

    tensors: dict[str, Array]

    def __init__(self, tensors: Mapping[str, Any]):
        checks.instance("tensors", tensors, Mapping, _FIX)
        arrays = {
            name: checks.real_array(f"tensors: {name}", tensor, "numbers", _FIX)
            for name, tensor in tensors.items()
        }
        check_shapes("tensors", _expected_shapes(arrays), arrays, _FIX)
        unknown = sorted(set(arrays) - set(_names()))
        checks.expect(not unknown, "tensors", f"{', '.join(_names())} alone", unknown, _FIX)
        self.tensors = {name: jnp.asarray(arrays[name], jnp.float32) for name in _names()}

    @staticmethod
    def digits() -> "Decoder":
        """Return the decoder of handwritten digits that ships with gloam, trained on MNIST.

        Its latents have 16 dimensions and a standard normal prior.
        """
        return Decoder.load(DIGITS_FILE)

    @staticmethod
    def load(path: str | os.PathLike) -> "Decoder":
        """Read a safetensors file written by `save`."""
        return Decoder(read_tensors("Decoder", path)[0])

    def save(self, path: str | os.PathLike, metadata: Mapping[str, str] = {}) -> None:
        """Write the tensors to a safetensors file, in float16."""
        halves = {name: np.asarray(value, np.float16) for name, value in self.tensors.items()}
        write_tensors(path, halves, metadata)

    @property
    def z_dim(self) -> int:
        """Dimension of a latent."""
        return self.tensors["hidden.weight"].shape[0]

    @property
    def w_dim(self) -> int:
        """Dimension of a latent."""
        return self.z_dim

    @property
    def num_ws(self) -> int:
        """Always 1: only the first layer takes the latent."""
        return 1

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """One channel, and height and width."""
        side = 4 * _side(self.tensors)
        return 1, side, side

    @property
    def w_avg(self) -> Float[Array, " w"]:
        """Zeros, the mean of the prior."""
        return jnp.zeros(self.w_dim, jnp.float32)

    def map(self, z: Float[Array, "n z"], truncation: float | Array = 1.0) -> Float[Array, "n w"]:
        """Return ``truncation * z``: latents are normal vectors themselves."""
        return truncation * z

    def images(self, w: Float[Array, "n w"]) -> Float[Array, "n 1 height width"]:
        """Return the images of latents, with values in [-1, 1]."""
        return jnp.tanh(logits_of(self.tensors, w) / 2)[:, None]


def logits_of(
    tensors: Mapping[str, Array], w: Float[Array, "n w"]
) -> Float[Array, "n height width"]:
    """Return the logits of pixel brightness, from which `Decoder.images` computes a tanh."""
    hidden = jax.nn.relu(w @ tensors["hidden.weight"] + tensors["hidden.bias"])
    maps = jax.nn.relu(hidden @ tensors["maps.weight"] + tensors["maps.bias"])
    side = _side(tensors)
    maps = maps.reshape(w.shape[0], side, side, -1)
    middle = jax.nn.relu(_doubled(maps, tensors["middle.weight"], tensors["middle.bias"]))
    return _doubled(middle, tensors["pixels.weight"], tensors["pixels.bias"])[..., 0]


def _doubled(
    maps: Float[Array, "n side side inputs"],
    weight: Float[Array, "3 3 inputs outputs"],
    bias: Float[Array, " outputs"],
) -> Float[Array, "n double double channels"]:
    """Convolve, then rearrange the values of each pixel into two by two pixels.

    On CPUs, XLA compiles this to much faster code than a transposed convolution.
    """
    dimensions = ("NHWC", "HWIO", "NHWC")
    doubled = jax.lax.conv_general_dilated(
        maps, weight, (1, 1), "SAME", dimension_numbers=dimensions
    )
    n, rows, columns, outputs = doubled.shape
    doubled = (doubled + bias).reshape(n, rows, columns, 2, 2, outputs // 4)
    return doubled.transpose(0, 1, 3, 2, 4, 5).reshape(n, 2 * rows, 2 * columns, outputs // 4)


def _names() -> list[str]:
    return [f"{layer}.{part}" for layer in _LAYERS for part in ("weight", "bias")]


def _side(tensors: Mapping[str, Any]) -> int:
    """Return the side of the feature maps that the dense layers compute."""
    numbers, channels = tensors["maps.weight"].shape[1], tensors["middle.weight"].shape[2]
    return math.isqrt(numbers // channels)


def _expected_shapes(arrays: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all tensors, inferred from some of them."""
    sources = {"hidden.weight": 2, "maps.weight": 2, "middle.weight": 4}
    for name, ndim in sources.items():
        shape = np.shape(arrays[name]) if name in arrays else None
        fits = shape is not None and len(shape) == ndim and 0 not in shape
        expected = f"a tensor of {ndim} axes"
        checks.expect(fits, f"tensors: {name}", expected, f"shape {shape}", _FIX)
    latent, hidden = arrays["hidden.weight"].shape
    channels, outputs = arrays["middle.weight"].shape[2:]
    numbers = _side(arrays) ** 2 * channels
    doubled = max(1, outputs // 4)
    shapes = {
        "hidden.weight": (latent, hidden),
        "maps.weight": (hidden, numbers),
        "middle.weight": (_KERNEL, _KERNEL, channels, 4 * doubled),
        "pixels.weight": (_KERNEL, _KERNEL, doubled, 4),
    }
    biases = {name.replace("weight", "bias"): shape[-1:] for name, shape in shapes.items()}
    return shapes | biases
