"""A small generator of grey pictures: dense layers, then convolutions that double the size."""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gloam import checks
from gloam.generators.protocols import Generator
from gloam.generators.tensor_files import check_shapes, read_tensors, write_tensors

DIGITS_FILE = Path(__file__).with_name("digit_decoder.safetensors")
"""Weights of `Decoder.digits`; the text file beside it says where they come from."""
_LAYERS = ("hidden", "maps", "middle", "pixels")
_FIX = "Give the tensors that Decoder.tensors holds, or a file that Decoder.save wrote."
_KERNEL = 3


class Decoder(Generator):
    """A decoder of a few layers, small enough for a search on a CPU.

    A latent passes a dense layer ``hidden`` and a dense layer ``maps``, whose numbers are channels
    of ``side x side`` pixels. The convolutions ``middle`` and ``pixels`` double the sides, each by
    making four numbers for each channel of its result, which become two by two pixels. Layers but
    the last end in a ReLU. The last ends in a tanh.

    Args:
        tensors: Weight and bias of each layer by name, such as ``maps.weight``. Dense weights are
            ``(inputs, outputs)``, those of convolutions ``(3, 3, inputs, outputs)``. All sizes
            follow from them.

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
        """The decoder of handwritten digits that comes with gloam, trained on MNIST.

        Its latents have 16 numbers with a standard normal prior.
        """
        return Decoder.load(DIGITS_FILE)

    @staticmethod
    def load(path: str | os.PathLike) -> "Decoder":
        """Read a safetensors file that `save` wrote."""
        return Decoder(read_tensors("Decoder", path)[0])

    def save(self, path: str | os.PathLike, metadata: Mapping[str, str] = {}) -> None:
        """Write the tensors to a safetensors file, in float16."""
        halves = {name: np.asarray(value, np.float16) for name, value in self.tensors.items()}
        write_tensors(path, halves, metadata)

    @property
    def z_dim(self) -> int:
        """Number of numbers in a latent."""
        return self.tensors["hidden.weight"].shape[0]

    @property
    def w_dim(self) -> int:
        """Number of numbers in a latent."""
        return self.z_dim

    @property
    def num_ws(self) -> int:
        """One: only the first layer uses the latent."""
        return 1

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """One channel, height and width."""
        side = 4 * _side(self.tensors)
        return 1, side, side

    @property
    def w_avg(self) -> Float[Array, " w"]:
        """Zeros, the mean of the prior."""
        return jnp.zeros(self.w_dim, jnp.float32)

    def map(self, z: Float[Array, "n z"], truncation: float | Array = 1.0) -> Float[Array, "n w"]:
        """The latents themselves, times ``truncation``."""
        return truncation * z

    def images(self, w: Float[Array, "n w"]) -> Float[Array, "n 1 height width"]:
        """Images of latents, with values in [-1, 1]."""
        return jnp.tanh(logits_of(self.tensors, w) / 2)[:, None]


def logits_of(
    tensors: Mapping[str, Array], w: Float[Array, "n w"]
) -> Float[Array, "n height width"]:
    """Logits of the brightness of pixels, before the tanh of `Decoder.images`."""
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
    """A convolution whose numbers at a pixel are laid out as two by two pixels.

    Compilers for CPUs have fast programs for it, other than for a transposed convolution.
    """
    dimensions = ("NHWC", "HWIO", "NHWC")
    found = jax.lax.conv_general_dilated(maps, weight, (1, 1), "SAME", dimension_numbers=dimensions)
    n, rows, columns, outputs = found.shape
    found = (found + bias).reshape(n, rows, columns, 2, 2, outputs // 4)
    return found.transpose(0, 1, 3, 2, 4, 5).reshape(n, 2 * rows, 2 * columns, outputs // 4)


def _names() -> list[str]:
    return [f"{layer}.{part}" for layer in _LAYERS for part in ("weight", "bias")]


def _side(tensors: Mapping[str, Any]) -> int:
    """Rows and columns of the numbers that the dense layers make."""
    numbers, channels = tensors["maps.weight"].shape[1], tensors["middle.weight"].shape[2]
    return math.isqrt(numbers // channels)


def _expected_shapes(arrays: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    """Shapes of all tensors, from sizes that some of them have."""
    sources = {"hidden.weight": 2, "maps.weight": 2, "middle.weight": 4}
    for name, ndim in sources.items():
        found = np.shape(arrays[name]) if name in arrays else None
        fits = found is not None and len(found) == ndim and 0 not in found
        expected = f"a tensor of {ndim} axes"
        checks.expect(fits, f"tensors: {name}", expected, f"shape {found}", _FIX)
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
