"""Low-pass filters of StyleGAN3: Kaiser-windowed, separable or radially symmetric.

The formulas are those of Kaiser's window method (`scipy.signal.firwin` has them, too) and of
appendix C of "Alias-Free Generative Adversarial Networks" (Karras et al., 2021).

Constructor arguments of StyleGAN3, and the table of layers that follows from them.

Names and shapes of StyleGAN3's tensors, and random ones as before training.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from gloam import checks


def kaiser_beta(num_taps: int, width: float) -> float:
    """Shape of the Kaiser window for a transition band.

    Args:
        num_taps: Length of the filter.
        width: Width of the transition band as a share of the Nyquist frequency.

    Returns:
        ``beta`` of the window (Kaiser's two formulas: attenuation of the stopband in dB, then
        ``beta`` of the attenuation).

    Example:
        >>> round(kaiser_beta(12, 0.4), 3)
        3.34
    """
    attenuation = 2.285 * (num_taps - 1) * np.pi * width + 7.95
    if attenuation > 50:
        return float(0.1102 * (attenuation - 8.7))
    if attenuation > 21:
        return float(0.5842 * (attenuation - 21) ** 0.4 + 0.07886 * (attenuation - 21))
    return 0.0


def lowpass(
    num_taps: int, cutoff: float, width: float, sampling_rate: float
) -> Float[np.ndarray, " taps"]:
    """Separable low-pass filter: a sinc in a Kaiser window, normalised to a sum of 1.

    Args:
        num_taps: Length of the filter.
        cutoff: Cutoff frequency.
        width: Width of the transition band.
        sampling_rate: In the unit of ``cutoff`` and ``width``.
    """
    positions = np.arange(num_taps) - (num_taps - 1) / 2
    taps = np.sinc(2 * cutoff / sampling_rate * positions)
    taps *= np.kaiser(num_taps, kaiser_beta(num_taps, width / (sampling_rate / 2)))
    return (taps / taps.sum()).astype(np.float32)


def radial_lowpass(
    num_taps: int, cutoff: float, width: float, sampling_rate: float
) -> Float[np.ndarray, "taps taps"]:
    """Radially symmetric low-pass filter: a jinc in a Kaiser window. Arguments as in `lowpass`."""
    from scipy.special import j1  # lazily: the import takes time

    positions = (np.arange(num_taps) - (num_taps - 1) / 2) / sampling_rate
    radius = np.hypot(*np.meshgrid(positions, positions))
    # jinc(0) is the limit of J1(2 pi c r) / (pi r), which is c.
    safe = np.where(radius > 0, radius, 1.0)
    taps = np.where(radius > 0, j1(2 * np.pi * cutoff * safe) / (np.pi * safe), cutoff)
    window = np.kaiser(num_taps, kaiser_beta(num_taps, width / (sampling_rate / 2)))
    taps = taps * np.outer(window, window)
    return (taps / taps.sum()).astype(np.float32)


_MAPPING = {"num_layers": "mapping_layers", "lr_multiplier": "mapping_lr_multiplier"}
# Arguments that matter for training only. Files may have them.
_IGNORED = {"magnitude_ema_beta"}
_IGNORED_MAPPING = {"w_avg_beta"}


class StyleGAN3Settings(eqx.Module):
    """Sizes and filters of a StyleGAN3, by the official names of its constructor arguments.

    The defaults are those of the official network, configuration T. Configuration R has
    ``conv_kernel=1`` and ``use_radial_filters=True``, and twice ``channel_base`` and
    ``channel_max``.

    Example:
        >>> settings = StyleGAN3Settings(img_resolution=256, channel_base=16384)
        >>> settings.num_ws, [layer.name for layer in settings.layers()][-2:]
        (16, ['L13_256_64', 'L14_256_3'])
    """

    img_resolution: int = eqx.field(static=True)
    z_dim: int = eqx.field(static=True, default=512)
    c_dim: int = eqx.field(static=True, default=0)
    w_dim: int = eqx.field(static=True, default=512)
    img_channels: int = eqx.field(static=True, default=3)
    mapping_layers: int = eqx.field(static=True, default=2)
    mapping_lr_multiplier: float = eqx.field(static=True, default=0.01)
    channel_base: int = eqx.field(static=True, default=32768)
    channel_max: int = eqx.field(static=True, default=512)
    num_layers: int = eqx.field(static=True, default=14)
    num_critical: int = eqx.field(static=True, default=2)
    first_cutoff: float = eqx.field(static=True, default=2.0)
    first_stopband: float = eqx.field(static=True, default=2**2.1)
    last_stopband_rel: float = eqx.field(static=True, default=2**0.3)
    margin_size: int = eqx.field(static=True, default=10)
    output_scale: float = eqx.field(static=True, default=0.25)
    num_fp16_res: int = eqx.field(static=True, default=4)
    conv_kernel: int = eqx.field(static=True, default=3)
    filter_size: int = eqx.field(static=True, default=6)
    lrelu_upsampling: int = eqx.field(static=True, default=2)
    use_radial_filters: bool = eqx.field(static=True, default=False)
    conv_clamp: float | None = eqx.field(static=True, default=256.0)

    def __check_init__(self):
        lowest = {"c_dim": 0, "num_critical": 0, "margin_size": 0, "num_fp16_res": 0}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type is int or field.name == "img_resolution":
                checks.integer(field.name, value, minimum=lowest.get(field.name, 1))
            elif field.type is float:
                checks.number(field.name, value, above=0)
        checks.instance("use_radial_filters", self.use_radial_filters, bool)
        if self.conv_clamp is not None:
            checks.number("conv_clamp", self.conv_clamp, at_least=0)
        fits = self.num_layers > self.num_critical
        checks.expect(
            fits, "num_layers", f"more than num_critical={self.num_critical}", self.num_layers
        )
        power = self.img_resolution & (self.img_resolution - 1) == 0
        checks.expect(
            power and self.img_resolution > 2 * self.first_cutoff,
            "img_resolution",
            f"a power of 2 above {2 * self.first_cutoff:g}",
            self.img_resolution,
        )

    @property
    def num_ws(self) -> int:
        """Number of style vectors of one image: the input's and each layer's."""
        return self.num_layers + 2

    def layers(self) -> list["LayerSettings"]:
        """The table of layers, first to last; the last one is ToRGB."""
        return _layers(self)

    @staticmethod
    def from_constructor(arguments: Mapping[str, Any]) -> "StyleGAN3Settings":
        """Settings from the arguments that the official ``Generator`` was built with."""
        flat = {name: arguments[name] for name in arguments if name != "mapping_kwargs"}
        mapping = dict(arguments.get("mapping_kwargs") or {})
        unknown = set(mapping) - set(_MAPPING) - _IGNORED_MAPPING
        flat |= {_MAPPING[name]: mapping[name] for name in mapping if name in _MAPPING}
        flat = {name: _plain(flat[name]) for name in flat if name not in _IGNORED}
        known = {field.name for field in dataclasses.fields(StyleGAN3Settings)}
        unknown |= set(flat) - known
        checks.expect(
            not unknown,
            "constructor arguments",
            "those of StyleGAN3's Generator",
            f"also {sorted(unknown)}",
            "Check that the file is a StyleGAN3.",
        )
        checks.expect(
            "img_resolution" in flat,
            "constructor arguments",
            "img_resolution",
            sorted(flat),
            "Check that the file is a StyleGAN3.",
        )
        return StyleGAN3Settings(**flat)

    def constructor(self) -> dict[str, Any]:
        """Inverse of `from_constructor`."""
        flat = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        mapping = {official: flat.pop(ours) for official, ours in _MAPPING.items()}
        return flat | {"mapping_kwargs": mapping}

    def to_json(self) -> str:
        """The constructor arguments as JSON."""
        return json.dumps(self.constructor())


def _plain(value: Any) -> Any:
    """A NumPy scalar as the Python number that it is."""
    value = value.item() if isinstance(value, np.generic) else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


class LayerSettings(eqx.Module):
    """One synthesis layer: sizes, rates and what its filters are designed for."""

    name: str = eqx.field(static=True)
    is_torgb: bool = eqx.field(static=True)
    is_critically_sampled: bool = eqx.field(static=True)
    use_fp16: bool = eqx.field(static=True)
    in_channels: int = eqx.field(static=True)
    out_channels: int = eqx.field(static=True)
    in_size: int = eqx.field(static=True)
    out_size: int = eqx.field(static=True)
    in_sampling_rate: int = eqx.field(static=True)
    out_sampling_rate: int = eqx.field(static=True)
    tmp_sampling_rate: int = eqx.field(static=True)
    in_cutoff: float = eqx.field(static=True)
    out_cutoff: float = eqx.field(static=True)
    in_half_width: float = eqx.field(static=True)
    out_half_width: float = eqx.field(static=True)
    conv_kernel: int = eqx.field(static=True)
    conv_clamp: float | None = eqx.field(static=True)
    up_factor: int = eqx.field(static=True)
    down_factor: int = eqx.field(static=True)
    up_taps: int = eqx.field(static=True)
    down_taps: int = eqx.field(static=True)
    down_radial: bool = eqx.field(static=True)

    @property
    def padding(self) -> tuple[int, int]:
        """Zeros before and after each axis of the upsampled images (cut off where negative)."""
        total = (self.out_size - 1) * self.down_factor + 1
        total -= (self.in_size + self.conv_kernel - 1) * self.up_factor
        total += self.up_taps + self.down_taps - 2
        # Appendix C.3: samples lie symmetrically, so the first pad is the larger one.
        before = (total + self.up_factor) // 2
        return before, total - before


def _layers(settings: StyleGAN3Settings) -> list[LayerSettings]:
    """Geometric progressions of cutoffs and stopbands give all else (section 3.2)."""
    last_cutoff = settings.img_resolution / 2
    last_stopband = last_cutoff * settings.last_stopband_rel
    count = settings.num_layers + 1
    exponents = np.minimum(np.arange(count) / (settings.num_layers - settings.num_critical), 1)
    first_cutoff, first_stopband = settings.first_cutoff, settings.first_stopband
    cutoffs = first_cutoff * (last_cutoff / first_cutoff) ** exponents
    stopbands = first_stopband * (last_stopband / first_stopband) ** exponents
    rates = np.exp2(np.ceil(np.log2(np.minimum(stopbands * 2, settings.img_resolution))))
    half_widths = np.maximum(stopbands, rates / 2) - cutoffs
    sizes = rates + settings.margin_size * 2
    sizes[-2:] = settings.img_resolution
    channels = np.rint(np.minimum((settings.channel_base / 2) / cutoffs, settings.channel_max))
    channels[-1] = settings.img_channels
    layers = []
    for index in range(count):
        source = max(index - 1, 0)
        is_torgb = index == settings.num_layers
        is_critical = index >= settings.num_layers - settings.num_critical
        in_rate, out_rate = int(rates[source]), int(rates[index])
        tmp_rate = max(in_rate, out_rate) * (1 if is_torgb else settings.lrelu_upsampling)
        up, down = tmp_rate // in_rate, tmp_rate // out_rate
        layer = LayerSettings(
            name=f"L{index}_{int(sizes[index])}_{int(channels[index])}",
            is_torgb=is_torgb,
            is_critically_sampled=is_critical,
            use_fp16=bool(rates[index] * 2**settings.num_fp16_res > settings.img_resolution),
            in_channels=int(channels[source]),
            out_channels=int(channels[index]),
            in_size=int(sizes[source]),
            out_size=int(sizes[index]),
            in_sampling_rate=in_rate,
            out_sampling_rate=out_rate,
            tmp_sampling_rate=tmp_rate,
            in_cutoff=float(cutoffs[source]),
            out_cutoff=float(cutoffs[index]),
            in_half_width=float(half_widths[source]),
            out_half_width=float(half_widths[index]),
            conv_kernel=1 if is_torgb else settings.conv_kernel,
            conv_clamp=settings.conv_clamp,
            up_factor=up,
            down_factor=down,
            up_taps=settings.filter_size * up if up > 1 and not is_torgb else 1,
            down_taps=settings.filter_size * down if down > 1 and not is_torgb else 1,
            down_radial=settings.use_radial_filters and not is_critical,
        )
        layers.append(layer)
    return layers


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
