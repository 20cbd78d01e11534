"""StyleGAN3, an alias-free image generator (Karras et al., 2021), in JAX."""

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from gloam._tools import checks
from gloam_lab.generator import Generator, check_shapes, read_tensors, write_tensors
from gloam_lab.latent_illumination.stylegan3_layers import (
    FourierInput,
    MappingNetwork,
    SynthesisLayer,
    part_of,
    prefixed,
)
from gloam_lab.latent_illumination.stylegan3_settings import (
    StyleGAN3Settings,
    random_tensors,
    tensor_shapes,
)

METADATA_KEY = "stylegan3_constructor"
_FIX = "Convert the official file again: gloam lsi convert NETWORK.pkl NETWORK.safetensors."


class StyleGAN3(Generator):
    """StyleGAN3, configurations T and R.

    Args:
        settings: Sizes and filters.
        tensors: Every parameter and buffer by its official name, such as
            ``synthesis.L0_36_512.weight``.
        half: ``"float16"`` or ``"bfloat16"``: the precision of those layers that the official
            network computes in float16 on a GPU. By default everything is float32.

    Example:
        >>> import jax
        >>> settings = StyleGAN3Settings(img_resolution=16, channel_base=64, channel_max=8,
        ...                              z_dim=8, w_dim=8, num_layers=4)
        >>> network = StyleGAN3.random(settings, key=jax.random.key(0))
        >>> w = network.map(jnp.ones((2, 8)), truncation=0.7)
        >>> w.shape, jax.jit(lambda w: network.images(w))(w).shape
        ((2, 8), (2, 3, 16, 16))
    """

    settings: StyleGAN3Settings
    mapping: MappingNetwork
    input: FourierInput
    layers: list[SynthesisLayer]
    half: str | None = eqx.field(static=True)

    def __init__(
        self, settings: StyleGAN3Settings, tensors: Mapping[str, Any], half: str | None = None
    ):
        checks.instance("settings", settings, StyleGAN3Settings)
        if half is not None:
            checks.choice("half", half, ("float16", "bfloat16"))
        arrays = {name: np.asarray(tensor) for name, tensor in tensors.items()}
        check_shapes("tensors", tensor_shapes(settings), arrays, _FIX)
        synthesis, table = part_of(arrays, "synthesis"), settings.layers()
        self.settings = settings
        self.mapping = MappingNetwork(settings, part_of(arrays, "mapping"))
        self.input = FourierInput(table[0], part_of(synthesis, "input"))
        self.layers = [SynthesisLayer(layer, part_of(synthesis, layer.name)) for layer in table]
        self.half = half

    @staticmethod
    def load(path: str | os.PathLike, *, half: str | None = None) -> "StyleGAN3":
        """Read a safetensors file written by `gloam_lab.latent_illumination.convert` or `save`."""
        arrays, metadata = read_tensors("StyleGAN3", path)
        expected = f"a file with '{METADATA_KEY}' in its metadata"
        got = f"'{path}' with {sorted(metadata)}"
        checks.expect(METADATA_KEY in metadata, "StyleGAN3", expected, got, _FIX)
        try:
            arguments = dict(json.loads(metadata[METADATA_KEY]))
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"StyleGAN3: expected constructor arguments as JSON in the metadata of '{path}', "
                f"got {checks.short(metadata[METADATA_KEY])} ({error}). {_FIX}"
            ) from None
        return StyleGAN3(StyleGAN3Settings.from_constructor(arguments), arrays, half)

    @staticmethod
    def random(
        settings: StyleGAN3Settings, *, half: str | None = None, key: PRNGKeyArray
    ) -> "StyleGAN3":
        """Return a network with random weights, initialized as before training."""
        return StyleGAN3(settings, random_tensors(settings, key=key), half)

    def save(self, path: str | os.PathLike) -> None:
        """Write all tensors under their official names, with the settings in the metadata."""
        write_tensors(path, self.tensors(), {METADATA_KEY: self.settings.to_json()})

    def tensors(self) -> dict[str, Array]:
        """Return every parameter and buffer by its official name."""
        named = prefixed("mapping", self.mapping) | prefixed("synthesis.input", self.input)
        for layer in self.layers:
            named |= prefixed(f"synthesis.{layer.layer.name}", layer)
        return named

    @property
    def z_dim(self) -> int:
        """Dimension of the normal vectors that `map` takes."""
        return self.settings.z_dim

    @property
    def w_dim(self) -> int:
        """Dimension of a style vector."""
        return self.settings.w_dim

    @property
    def num_ws(self) -> int:
        """Number of style vectors of an image: one for the input and one for each layer."""
        return self.settings.num_ws

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        size = self.settings.img_resolution
        return self.settings.img_channels, size, size

    @property
    def w_avg(self) -> Float[Array, " w"]:
        """Mean of w in training, the center of truncation."""
        return self.mapping.average

    def map(
        self,
        z: Float[Array, "n z"],
        truncation: float | Array = 1.0,
        *,
        cutoff: int | None = None,
        labels: Float[Array, "n c"] | None = None,
    ) -> Float[Array, "n w"] | Float[Array, "n layers w"]:
        """Map normal vectors to style vectors.

        Args:
            z: Standard normal vectors.
            truncation: Styles become ``w_avg + truncation * (w - w_avg)``.
            cutoff: Number of layers whose styles are truncated; by default all.
            labels: Class labels ``(n, c_dim)``, required if the network is conditional.

        Returns:
            One style vector for each row, or with ``cutoff`` one for each row and layer.
        """
        self._check_rows("z", z, self.z_dim)
        if self.settings.c_dim:
            self._check_rows("labels", labels, self.settings.c_dim)
        given = None if labels is None else jnp.asarray(labels)
        w = self.mapping(jnp.asarray(z), given)
        is_identity = isinstance(truncation, (int, float)) and truncation == 1
        truncated = w if is_identity else self.w_avg + truncation * (w - self.w_avg)
        if cutoff is None:
            return truncated
        count = min(checks.integer("cutoff", cutoff, minimum=0), self.num_ws)
        rows = [truncated] * count + [w] * (self.num_ws - count)
        return jnp.stack(rows, axis=1)

    def images(
        self, w: Float[Array, "n w"] | Float[Array, "n layers w"]
    ) -> Float[Array, "n channels height width"]:
        """Return images in [-1, 1] of style vectors, one for all layers or one for each."""
        return _images(self, jnp.asarray(w))

    def activations(
        self, w: Float[Array, "n w"] | Float[Array, "n layers w"]
    ) -> dict[str, Float[Array, "n channels height width"]]:
        """Return the Fourier features (``input``) and the output of every layer by its name."""
        return {name: images.transpose(0, 3, 1, 2) for name, images in self._stages(w)}

    def transformed(self, transform: Float[Array, "3 3"]) -> "StyleGAN3":
        """Return this network with its images transformed by the inverse of a 3 x 3 matrix."""
        matrix = jnp.asarray(checks.finite_array("transform", transform, ndim=2))
        fits = matrix.shape == (3, 3)
        checks.expect(fits, "transform", "a 3 x 3 matrix", f"shape {matrix.shape}")
        return eqx.tree_at(lambda network: network.input.transform, self, matrix)

    def _stages(self, w: Array) -> Iterator[tuple[str, Array]]:
        if jnp.ndim(w) == 3:
            fits = w.shape[1:] == (self.num_ws, self.w_dim)
            checks.expect(fits, "w", f"(n, {self.num_ws}, {self.w_dim})", f"shape {w.shape}")
            styles = list(jnp.moveaxis(w, 1, 0))
        else:
            self._check_rows("w", w, self.w_dim)
            styles = [w] * self.num_ws
        half = None if self.half is None else jnp.dtype(self.half)
        images = self.input(styles[0])
        yield "input", images
        for layer, style in zip(self.layers, styles[1:], strict=True):
            images = layer(images, style, half)
            yield layer.layer.name, images

    @staticmethod
    def _check_rows(name: str, rows: Any, size: int) -> None:
        shape = () if rows is None else jnp.shape(rows)
        checks.expect(
            len(shape) == 2 and shape[1] == size,
            name,
            f"rows of {size} numbers",
            "nothing" if rows is None else f"shape {shape}",
        )


# Compiled here because callers may not be: operation by operation, a first image takes ten times as
# long.
@eqx.filter_jit
def _images(
    network: StyleGAN3, w: Float[Array, "n w"] | Float[Array, "n layers w"]
) -> Float[Array, "n channels height width"]:
    *_, (_, images) = network._stages(w)
    images = images.astype(jnp.float32) * network.settings.output_scale
    return jnp.clip(images.transpose(0, 3, 1, 2), -1.0, 1.0)
