"""Names and shapes of StyleGAN3's tensors, and random ones as before training."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from gloam.generators.filters import lowpass, radial_lowpass
from gloam.generators.stylegan3_settings import LayerSettings, StyleGAN3Settings


def tensor_shapes(settings: StyleGAN3Settings) -> dict[str, tuple[int, ...]]:
    """Shape of every parameter and buffer by its official name."""
    w, table = settings.w_dim, settings.layers()
    channels = table[0].in_channels
    shapes: dict[str, tuple[int, ...]] = {
        "synthesis.input.weight": (channels, channels),
        "synthesis.input.transform": (3, 3),
        "synthesis.input.freqs": (channels, 2),
        "synthesis.input.phases": (channels,),
        **_linear("synthesis.input.affine", w, 4),
    }
    for layer in table:
        name, size = f"synthesis.{layer.name}", layer.conv_kernel
        shapes[f"{name}.weight"] = (layer.out_channels, layer.in_channels, size, size)
        shapes[f"{name}.bias"] = (layer.out_channels,)
        shapes[f"{name}.magnitude_ema"] = ()
        if layer.up_taps > 1:
            shapes[f"{name}.up_filter"] = (layer.up_taps,)
        if layer.down_taps > 1:
            shapes[f"{name}.down_filter"] = (layer.down_taps,) * (1 + layer.down_radial)
        shapes |= _linear(f"{name}.affine", w, layer.in_channels)
    shapes["mapping.w_avg"] = (w,)
    size = settings.z_dim
    if settings.c_dim:
        shapes |= _linear("mapping.embed", settings.c_dim, w)
        size += w
    for index in range(settings.mapping_layers):
        shapes |= _linear(f"mapping.fc{index}", size, w)
        size = w
    return shapes


def _linear(name: str, in_features: int, out_features: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (out_features, in_features), f"{name}.bias": (out_features,)}


def random_tensors(
    settings: StyleGAN3Settings, *, key: PRNGKeyArray
) -> dict[str, Array | np.ndarray]:
    """Every tensor of a network before training, by its official name."""
    shapes = tensor_shapes(settings)
    keys = dict(zip(shapes, jax.random.split(key, len(shapes)), strict=True))
    tensors: dict[str, Array | np.ndarray] = {}
    for name, shape in shapes.items():
        if name.endswith(".weight"):
            tensors[name] = jax.random.normal(keys[name], shape)
        else:
            tensors[name] = jnp.zeros(shape)
    for index in range(settings.mapping_layers):
        tensors[f"mapping.fc{index}.weight"] /= settings.mapping_lr_multiplier
    for layer in settings.layers():
        name = f"synthesis.{layer.name}"
        tensors[f"{name}.magnitude_ema"] = jnp.ones(())
        tensors[f"{name}.affine.bias"] = jnp.ones(layer.in_channels)
        tensors |= {f"{name}.{kind}": taps for kind, taps in _filters(layer).items()}
    first = settings.layers()[0]
    place = "synthesis.input"
    # The input does not depend on w before training.
    tensors[f"{place}.affine.weight"] = jnp.zeros(shapes[f"{place}.affine.weight"])
    tensors[f"{place}.affine.bias"] = jnp.array([1.0, 0.0, 0.0, 0.0])
    tensors[f"{place}.transform"] = jnp.eye(3)
    tensors[f"{place}.phases"] = (
        jax.random.uniform(keys[f"{place}.phases"], (first.in_channels,)) - 0.5
    )
    # Frequencies lie evenly in a disc whose radius is the bandwidth.
    directions = jax.random.normal(keys[f"{place}.freqs"], (first.in_channels, 2))
    radii = jnp.linalg.norm(directions, axis=1, keepdims=True)
    scale = first.in_cutoff / (radii * jnp.exp(jnp.square(radii) / 4))
    tensors[f"{place}.freqs"] = directions * scale
    return tensors


def _filters(layer: LayerSettings) -> dict[str, np.ndarray]:
    rate, filters = layer.tmp_sampling_rate, {}
    if layer.up_taps > 1:
        filters["up_filter"] = lowpass(
            layer.up_taps, layer.in_cutoff, layer.in_half_width * 2, rate
        )
    if layer.down_taps > 1:
        design = radial_lowpass if layer.down_radial else lowpass
        filters["down_filter"] = design(
            layer.down_taps, layer.out_cutoff, layer.out_half_width * 2, rate
        )
    return filters
