"""MobileStyleGAN, a face generator, read from its OpenVINO graphs."""

import os

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from openvino_ir import Graph

from gloam._tools import checks
from gloam_lab import Generator
from gloam_lab.generator import read_tensors, write_tensors

_FIX = "Convert the package's files again: python convert.py."
_FULL, _HALF = 1024, 512
# The last layer returns the Haar transform of the image; its first three channels are the low band.
_IMAGE, _LOW_BAND = ("img", 0), ("Slice_764/Split", 0)
_NUM_SAMPLES, _BATCH_SIZE = 10_000, 1_000


class MobileStyleGAN(Generator):
    """Generates faces from latents with the networks of the package ``random-face``.

    The noise inputs of StyleGAN are constants in these graphs, so that images are deterministic.

    Args:
        mapping: Network from normal vectors to latents.
        synthesis: Network from latents to images of 1024 x 1024.
        mean: Mean latent.
        resolution: Height and width of the images: 1024, or less by averaging pixels.
        half: Whether the synthesis network computes in float16, twice as fast on a GPU.
    """

    mapping: Graph
    synthesis: Graph
    mean: Float[Array, " w"]
    resolution: int = eqx.field(static=True)

    def __init__(
        self,
        mapping: Graph,
        synthesis: Graph,
        mean: Array,
        resolution: int = 256,
        *,
        half: bool = False,
    ):
        fits = resolution in [_FULL >> halvings for halvings in range(8)]
        checks.expect(fits, "resolution", "1024 or 1024 divided by 2, 4, ..., 128", resolution)
        if half:
            synthesis = jax.tree.map(lambda array: array.astype(jnp.float16), synthesis)
        self.mapping, self.synthesis, self.mean = mapping, synthesis, jnp.asarray(mean)
        self.resolution = resolution

    @staticmethod
    def load(
        path: str | os.PathLike, resolution: int = 256, *, half: bool = False
    ) -> "MobileStyleGAN":
        """Read a file written by `save`, with the other arguments of the class."""
        arrays, texts = read_tensors("faces", path)
        for name in ("mapping", "synthesis"):
            checks.expect(name in texts, "faces", f"a graph '{name}'", sorted(texts), _FIX)
        checks.expect("mean" in arrays, "faces", "the mean latent", "none", _FIX)
        mapping, synthesis = (
            Graph(texts[name].encode(), _part(arrays, name)) for name in ("mapping", "synthesis")
        )
        return MobileStyleGAN(mapping, synthesis, arrays["mean"], resolution, half=half)

    @property
    def z_dim(self) -> int:
        """Dimension of the normal vectors that `map` takes."""
        return self.mean.shape[0]

    @property
    def w_dim(self) -> int:
        """Dimension of a latent."""
        return self.mean.shape[0]

    @property
    def num_ws(self) -> int:
        """Number of layers that take a latent, as the input of a matrix product."""
        start = {layer.id for layer in self.synthesis.layers if layer.kind == "Parameter"}
        users = (layer for layer in self.synthesis.layers if layer.kind == "MatMul")
        return sum(layer.inputs[0][0] in start for layer in users)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        return (3, self.resolution, self.resolution)

    @property
    def w_avg(self) -> Float[Array, " w"]:
        """Mean latent, the centre of truncation."""
        return self.mean

    def map(self, z: Float[Array, "n z"], truncation: float | Array = 1.0) -> Float[Array, "n w"]:
        """Map normal vectors to latents; a ``truncation`` below 1 moves them towards `w_avg`."""
        (w,) = self.mapping({"var": z}, (("style", 0),))
        return self.mean + truncation * (w - self.mean)

    def images(self, w: Float[Array, "n w"]) -> Float[Array, "n channels height width"]:
        """Return the images of latents, with values in [-1, 1]."""
        if self.resolution == _FULL:
            return jnp.clip(self._output(w, _IMAGE), -1, 1)
        # The low band is twice the mean over squares of 2 x 2 pixels.
        size, side = self.resolution, _HALF // self.resolution
        squares = (0.5 * self._output(w, _LOW_BAND)).reshape(-1, 3, size, side, size, side)
        return jnp.clip(squares.mean(axis=(3, 5)), -1, 1)

    def _output(self, w: Array, output: tuple[str, int]) -> Array:
        dtype = next(iter(self.synthesis.constants.values())).dtype
        (found,) = self.synthesis({"style": w.astype(dtype)}, (output,))
        return found.astype(jnp.float32)


def save(
    path: str | os.PathLike,
    mapping_xml: bytes,
    mapping: Graph,
    synthesis_xml: bytes,
    synthesis: Graph,
) -> None:
    """Write both graphs and the mean latent, with weights in float16."""
    rounded = {
        f"{name}/{key}": np.asarray(array, np.float16)
        for name, graph in (("mapping", mapping), ("synthesis", synthesis))
        for key, array in graph.constants.items()
    }
    integers = {
        f"{name}/{key}": np.array(values, np.int64).reshape(shape)
        for name, graph in (("mapping", mapping), ("synthesis", synthesis))
        for key, shape, values in graph.integers
    }
    texts = {"mapping": mapping_xml.decode(), "synthesis": synthesis_xml.decode()}
    used = Graph(mapping_xml, _part(rounded | integers, "mapping"))
    write_tensors(path, rounded | integers | {"mean": _mean(used)}, texts)


def _part(arrays: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    start = f"{name}/"
    return {
        key.removeprefix(start): array for key, array in arrays.items() if key.startswith(start)
    }


def _mean(mapping: Graph) -> np.ndarray:
    total = np.zeros(())
    for key in jax.random.split(jax.random.key(0), _NUM_SAMPLES // _BATCH_SIZE):
        (shape,) = [layer for layer in mapping.layers if layer.kind == "Parameter"]
        size = int(dict(shape.attributes)["shape"].split(",")[1])
        z = jax.random.normal(key, (_BATCH_SIZE, size))
        (w,) = mapping({"var": z}, (("style", 0),))
        total = total + np.asarray(w, np.float64).sum(axis=0)
    return (total / _NUM_SAMPLES).astype(np.float32)
