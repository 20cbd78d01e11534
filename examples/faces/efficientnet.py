"""EfficientNet-Lite0, an image classifier trained on ImageNet, in JAX."""

from collections.abc import Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from ir_operations import shifted_sum
from jaxtyping import Array, Float

from gloam_lab.generator import check_shapes

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_EPSILON = 1e-3
_STEM = 32
_FIX = "Convert the package's file again: python convert.py."


class Block(NamedTuple):
    """An inverted bottleneck: expand the channels, convolve each one, project back."""

    kernel: int
    stride: int
    widening: int
    inputs: int
    outputs: int


# Number of blocks, kernel, stride of the first block, widening, outputs.
_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


def all_blocks() -> list[Block]:
    """Return the blocks of the whole network in order."""
    found, inputs = [], _STEM
    for repeats, kernel, stride, widening, outputs in _STAGES:
        for place in range(repeats):
            found.append(Block(kernel, stride if place == 0 else 1, widening, inputs, outputs))
            inputs = outputs
    return found


class EfficientNet(eqx.Module):
    """EfficientNet-Lite0 without its classifier.

    Args:
        tensors: Kernels ``<layer>.weight`` and biases ``<layer>.bias``, as `folded` returns them.
        num_blocks: Number of blocks to compute. The head is computed only after all 16.
    """

    tensors: dict[str, Array]
    num_blocks: int = eqx.field(static=True)

    def __init__(self, tensors: Mapping[str, np.ndarray], num_blocks: int = 16):
        self.num_blocks = num_blocks
        shapes = tensor_shapes(num_blocks)
        check_shapes("EfficientNet", shapes, tensors, _FIX)
        self.tensors = {name: jnp.asarray(tensors[name], jnp.float32) for name in shapes}

    def __call__(self, images: Float[Array, "n 3 height width"]) -> list[Array]:
        """Return the activations of the stem, the blocks and the head, for images in [0, 1]."""
        mean, std = (jnp.array(values)[:, None, None] for values in (MEAN, STD))
        x = self._layer("stem", (images - mean) / std, stride=2)
        found = [x]
        for place, block in enumerate(all_blocks()[: self.num_blocks]):
            before, name = x, f"blocks.{place}"
            if block.widening > 1:
                x = self._layer(f"{name}.expand", x)
            x = self._layer(f"{name}.depthwise", x, stride=block.stride)
            x = self._layer(f"{name}.project", x, activated=False)
            if block.stride == 1 and block.inputs == block.outputs:
                x = x + before
            found.append(x)
        return [*found, self._layer("head", x)] if "head.weight" in self.tensors else found

    def _layer(self, name: str, x: Array, *, stride: int = 1, activated: bool = True) -> Array:
        """Apply a convolution with TensorFlow's padding ("SAME"), and a ReLU6."""
        kernels = self.tensors[f"{name}.weight"]
        size = kernels.shape[2]
        pads = [_pads(side, size, stride) for side in x.shape[2:]]
        if size == 1:
            x = jnp.einsum("nchw,oc->nohw", x, kernels[:, :, 0, 0])
        elif kernels.shape[1] == 1:
            x = shifted_sum(x, kernels[:, 0], pads, stride)
        else:
            x = jax.lax.conv_general_dilated(x, kernels, (stride, stride), pads)
        x = x + self.tensors[f"{name}.bias"][:, None, None]
        return jnp.clip(x, 0, 6) if activated else x


def _pads(side: int, kernel: int, stride: int) -> tuple[int, int]:
    total = max((-(-side // stride) - 1) * stride + kernel - side, 0)
    return total // 2, total - total // 2


def tensor_shapes(num_blocks: int = 16) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor of the first blocks by name."""
    kernels: dict[str, tuple[int, int, int]] = {"stem": (_STEM, 3, 3)}
    if num_blocks == len(all_blocks()):
        kernels["head"] = (1280, 320, 1)
    for place, block in enumerate(all_blocks()[:num_blocks]):
        wide = block.inputs * block.widening
        if block.widening > 1:
            kernels[f"blocks.{place}.expand"] = (wide, block.inputs, 1)
        kernels[f"blocks.{place}.depthwise"] = (wide, 1, block.kernel)
        kernels[f"blocks.{place}.project"] = (block.outputs, wide, 1)
    shapes: dict[str, tuple[int, ...]] = {}
    for name, (outputs, inputs, size) in kernels.items():
        shapes[f"{name}.weight"] = (outputs, inputs, size, size)
        shapes[f"{name}.bias"] = (outputs,)
    return shapes


def folded(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Convert the tensors of the PyTorch model to those of `EfficientNet`.

    Batch normalisation with fixed statistics is folded into the convolution before it.
    """
    layers = {"stem": ("_conv_stem", "_bn0"), "head": ("_conv_head", "_bn1")}
    for place, block in enumerate(all_blocks()):
        names = [("depthwise", "_depthwise_conv", "_bn1"), ("project", "_project_conv", "_bn2")]
        if block.widening > 1:
            names.append(("expand", "_expand_conv", "_bn0"))
        for ours, convolution, norm in names:
            theirs = f"_blocks.{place}"
            layers[f"blocks.{place}.{ours}"] = (f"{theirs}.{convolution}", f"{theirs}.{norm}")
    tensors = {}
    for name, (convolution, norm) in layers.items():
        variance = state[f"{norm}.running_var"].astype(np.float64)
        scale = state[f"{norm}.weight"] / np.sqrt(variance + _EPSILON)
        bias = state[f"{norm}.bias"] - state[f"{norm}.running_mean"] * scale
        weight = state[f"{convolution}.weight"] * scale[:, None, None, None]
        tensors[f"{name}.weight"] = weight.astype(np.float32)
        tensors[f"{name}.bias"] = bias.astype(np.float32)
    return tensors
