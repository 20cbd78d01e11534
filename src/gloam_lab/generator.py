"""The interface of image generators, and files of weights."""

import os
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from jaxtyping import Array, Float

from gloam._tools import checks, files


class Generator(eqx.Module):
    """A model that turns latents into images, in two stages that JAX can trace.

    `map` turns standard normal vectors (z) into the latents that are searched (w), and `images`
    turns these into images. If a model has only one stage, its `map` is the identity.
    """

    @property
    @abstractmethod
    def z_dim(self) -> int:
        """Dimension of the normal vectors that `map` takes."""

    @property
    @abstractmethod
    def w_dim(self) -> int:
        """Dimension of a latent."""

    @property
    @abstractmethod
    def num_ws(self) -> int:
        """Number of layers that take a latent; 1 if the model does not distinguish layers."""

    @property
    @abstractmethod
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""

    @property
    @abstractmethod
    def w_avg(self) -> Float[Array, " w"]:
        """Mean latent, the center of truncation."""

    @abstractmethod
    def map(self, z: Float[Array, "n z"], truncation: float | Array = 1.0) -> Float[Array, "n w"]:
        """Map normal vectors to latents; a ``truncation`` below 1 moves them towards `w_avg`."""

    @abstractmethod
    def images(self, w: Float[Array, "n w"]) -> Float[Array, "n channels height width"]:
        """Return the images of latents, with values in [-1, 1]."""


def read_tensors(
    name: str, path: str | os.PathLike
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Read a safetensors file.

    Args:
        name: What the file is for, used in error messages.
        path: The file. It need not be trusted: the package `safetensors` validates it.

    Returns:
        The arrays by name, floats of every precision as float32, and the metadata.

    Raises:
        ValueError: The file is damaged or not a safetensors file.
    """
    path = checks.existing_file(name, path)
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            arrays = {key: _as_float32(file.get_tensor(key)) for key in file.keys()}  # noqa: SIM118
            return arrays, file.metadata() or {}
    except Exception as error:  # the package raises errors of several types
        raise ValueError(
            f"{name}: expected a safetensors file, got '{path}' ({error}). It may be truncated or "
            "have another format: download or convert it again."
        ) from None


def on_device(array: Any) -> Array:
    """Return a copy of an array on the device.

    Unlike `jnp.asarray`, it compiles no program, of which a network would need one for each shape.
    """
    return jax.device_put(np.array(array))


def _as_float32(array: np.ndarray) -> np.ndarray:
    is_float = jnp.issubdtype(array.dtype, jnp.floating)
    return array.astype(np.float32, copy=False) if is_float else array


def write_tensors(
    path: str | os.PathLike, arrays: Mapping[str, Any], metadata: Mapping[str, str]
) -> None:
    """Write a safetensors file atomically."""
    # The package writes the memory of an array as it is, whatever its strides.
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    files.write_bytes(Path(path), safetensors.numpy.save(contiguous, dict(metadata) or None))


def check_shapes(
    name: str, expected: Mapping[str, tuple[int, ...]], arrays: Mapping[str, np.ndarray], fix: str
) -> None:
    """Check that all expected arrays are present and finite, and have the expected shapes."""
    missing = [key for key in expected if key not in arrays]
    shown = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
    got = f"a file without {len(missing)} of them ({shown})"
    checks.expect(not missing, name, f"{len(expected)} tensors", got, fix)
    for key, shape in expected.items():
        got = arrays[key].shape
        checks.expect(got == shape, f"{name}: {key}", f"shape {shape}", f"shape {got}", fix)
        finite = bool(np.isfinite(arrays[key]).all())
        checks.expect(finite, f"{name}: {key}", "finite numbers", "NaN or infinity", fix)
