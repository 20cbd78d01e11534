"""Settings of StyleGAN3, and what they determine: layers, tensor shapes, filters, initial weights.

All names are those of the official network. Sections and appendices are those of "Alias-Free
Generative Adversarial Networks" (Karras et al., 2021).
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from gloam._tools import checks

_MAPPING = {"num_layers": "mapping_layers", "lr_multiplier": "mapping_lr_multiplier"}
# Arguments that only affect training. Files may contain them.
_IGNORED = {"magnitude_ema_beta"}
_IGNORED_MAPPING = {"w_avg_beta"}


class StyleGAN3Settings(eqx.Module):
    """Constructor arguments of a StyleGAN3.

    The defaults are those of the official network, configuration T. Configuration R has
    ``conv_kernel=1``, ``use_radial_filters=True``, and doubled ``channel_base`` and
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
        expected = f"more than num_critical={self.num_critical}"
        fits = self.num_layers > self.num_critical
        checks.expect(fits, "num_layers", expected, self.num_layers)
        size, least = self.img_resolution, 2 * self.first_cutoff
        fits = size & (size - 1) == 0 and size > least
        checks.expect(fits, "img_resolution", f"a power of 2 above {least:g}", size)
        # A layer has at least one sample along each axis.
        stopband = min(self.first_stopband, size / 2 * self.last_stopband_rel)
        checks.expect(stopband >= 0.5, "stopbands", "at least 0.5", f"{stopband:g}")

    @property
    def num_ws(self) -> int:
        """Number of style vectors of an image: one for the input and one for each layer."""
        return self.num_layers + 2

    @staticmethod
    def from_constructor(arguments: Mapping[str, Any]) -> "StyleGAN3Settings":
        """Return settings from the constructor arguments of an official ``Generator``."""
        name, fix = "constructor arguments", "Check that the file is a StyleGAN3."
        flat = {key: arguments[key] for key in arguments if key != "mapping_kwargs"}
        mapping = arguments.get("mapping_kwargs") or {}
        checks.instance("mapping_kwargs", mapping, dict, fix)
        unknown = set(mapping) - set(_MAPPING) - _IGNORED_MAPPING
        flat |= {_MAPPING[key]: mapping[key] for key in mapping if key in _MAPPING}
        flat = {key: _plain(flat[key]) for key in flat if key not in _IGNORED}
        unknown |= set(flat) - {field.name for field in dataclasses.fields(StyleGAN3Settings)}
        expected, got = (
            "those of StyleGAN3's Generator",
            f"also {checks.short(sorted(map(str, unknown)))}",
        )
        checks.expect(not unknown, name, expected, got, fix)
        checks.expect(
            "img_resolution" in flat, name, "img_resolution", checks.short(sorted(flat)), fix
        )
        return StyleGAN3Settings(**flat)

    def to_json(self) -> str:
        """Return the constructor arguments as JSON, for `from_constructor`."""
        flat = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        mapping = {official: flat.pop(ours) for official, ours in _MAPPING.items()}
        return json.dumps(flat | {"mapping_kwargs": mapping})

    def layers(self) -> list["LayerSettings"]:
        """Return the layers from first to last; the last one is ToRGB.

        Geometric progressions of cutoffs and stopbands determine all sizes (section 3.2).
        """
        last_cutoff = self.img_resolution / 2
        last_stopband = last_cutoff * self.last_stopband_rel
        count = self.num_layers + 1
        exponents = np.minimum(np.arange(count) / (self.num_layers - self.num_critical), 1)
        first_cutoff, first_stopband = self.first_cutoff, self.first_stopband
        cutoffs = first_cutoff * (last_cutoff / first_cutoff) ** exponents
        stopbands = first_stopband * (last_stopband / first_stopband) ** exponents
        rates = np.exp2(np.ceil(np.log2(np.minimum(stopbands * 2, self.img_resolution))))
        half_widths = np.maximum(stopbands, rates / 2) - cutoffs
        sizes = rates + self.margin_size * 2
        sizes[-2:] = self.img_resolution
        channels = np.rint(np.minimum((self.channel_base / 2) / cutoffs, self.channel_max))
        channels[-1] = self.img_channels
        layers = []
        for index in range(count):
            source = max(index - 1, 0)
            is_torgb = index == self.num_layers
            is_critical = index >= self.num_layers - self.num_critical
            in_rate, out_rate = int(rates[source]), int(rates[index])
            tmp_rate = max(in_rate, out_rate) * (1 if is_torgb else self.lrelu_upsampling)
            up, down = tmp_rate // in_rate, tmp_rate // out_rate
            layer = LayerSettings(
                name=f"L{index}_{int(sizes[index])}_{int(channels[index])}",
                is_torgb=is_torgb,
                is_critically_sampled=is_critical,
                use_fp16=bool(rates[index] * 2**self.num_fp16_res > self.img_resolution),
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
                conv_kernel=1 if is_torgb else self.conv_kernel,
                conv_clamp=self.conv_clamp,
                up_factor=up,
                down_factor=down,
                up_taps=self.filter_size * up if up > 1 and not is_torgb else 1,
                down_taps=self.filter_size * down if down > 1 and not is_torgb else 1,
                down_radial=self.use_radial_filters and not is_critical,
            )
            layers.append(layer)
        return layers


def _plain(value: Any) -> Any:
    """Convert NumPy scalars to Python numbers, and whole floats to integers."""
    value = value.item() if isinstance(value, np.generic) else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


class LayerSettings(eqx.Module):
    """Sizes, sampling rates and filter specifications of one synthesis layer."""

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
        """Padding before and after each axis of the upsampled images; negative values crop."""
        total = (self.out_size - 1) * self.down_factor + 1
        total -= (self.in_size + self.conv_kernel - 1) * self.up_factor
        total += self.up_taps + self.down_taps - 2
        # Appendix C.3: samples are placed symmetrically, so the first pad is the larger one.
        before = (total + self.up_factor) // 2
        return before, total - before


def tensor_shapes(settings: StyleGAN3Settings) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter and buffer by its official name."""
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


def random_tensors(settings: StyleGAN3Settings, *, key: PRNGKeyArray) -> dict[str, np.ndarray]:
    """Return the tensors of an untrained network by their official names."""
    # NumPy draws them: compiling a program for each shape would take longer than a first image.
    draw = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    shapes = tensor_shapes(settings)
    tensors = {
        name: draw.standard_normal(shape, np.float32)
        if name.endswith(".weight")
        else np.zeros(shape, np.float32)
        for name, shape in shapes.items()
    }
    for index in range(settings.mapping_layers):
        tensors[f"mapping.fc{index}.weight"] /= settings.mapping_lr_multiplier
    for layer in settings.layers():
        name = f"synthesis.{layer.name}"
        tensors[f"{name}.magnitude_ema"] = np.ones((), np.float32)
        tensors[f"{name}.affine.bias"] = np.ones(layer.in_channels, np.float32)
        tensors |= {f"{name}.{kind}": taps for kind, taps in _filters(layer).items()}
    first = settings.layers()[0]
    source = "synthesis.input"
    # Before training, the input does not depend on w.
    tensors[f"{source}.affine.weight"] = np.zeros(shapes[f"{source}.affine.weight"], np.float32)
    tensors[f"{source}.affine.bias"] = np.array([1, 0, 0, 0], np.float32)
    tensors[f"{source}.transform"] = np.eye(3, dtype=np.float32)
    tensors[f"{source}.phases"] = draw.random(first.in_channels, np.float32) - np.float32(0.5)
    # Frequencies are distributed uniformly over a disc whose radius is the bandwidth.
    directions = draw.standard_normal((first.in_channels, 2))
    radii = np.linalg.norm(directions, axis=1, keepdims=True)
    scale = first.in_cutoff / (radii * np.exp(np.square(radii) / 4))
    tensors[f"{source}.freqs"] = (directions * scale).astype(np.float32)
    return tensors


def _filters(layer: LayerSettings) -> dict[str, np.ndarray]:
    rate, filters = layer.tmp_sampling_rate, {}
    if layer.up_taps > 1:
        width = layer.in_half_width * 2
        filters["up_filter"] = lowpass(layer.up_taps, layer.in_cutoff, width, rate)
    if layer.down_taps > 1:
        design, width = radial_lowpass if layer.down_radial else lowpass, layer.out_half_width * 2
        filters["down_filter"] = design(layer.down_taps, layer.out_cutoff, width, rate)
    return filters


def lowpass(
    num_taps: int, cutoff: float, width: float, sampling_rate: float
) -> Float[np.ndarray, " taps"]:
    """Design a separable low-pass filter: a sinc in a Kaiser window.

    Args:
        num_taps: Length of the filter.
        cutoff: Cutoff frequency.
        width: Width of the transition band.
        sampling_rate: In the unit of ``cutoff`` and ``width``.

    Returns:
        Filter taps that sum to 1.
    """
    from scipy.signal import firwin  # lazily: the import takes a second

    return np.asarray(firwin(num_taps, cutoff, width=width, fs=sampling_rate), np.float32)


def radial_lowpass(
    num_taps: int, cutoff: float, width: float, sampling_rate: float
) -> Float[np.ndarray, "taps taps"]:
    """Design a radially symmetric low-pass filter, with the arguments of `lowpass`.

    It is a jinc, ``J1(2 pi c r) / (pi r)``, in a Kaiser window (appendix C).
    """
    from scipy.signal import kaiser_atten, kaiser_beta  # lazily, as above
    from scipy.special import j1

    positions = (np.arange(num_taps) - (num_taps - 1) / 2) / sampling_rate
    radius = np.hypot(*np.meshgrid(positions, positions))
    safe = np.where(radius > 0, radius, 1.0)
    # The limit of the jinc at 0 is the cutoff frequency.
    taps = np.where(radius > 0, j1(2 * np.pi * cutoff * safe) / (np.pi * safe), cutoff)
    attenuation = kaiser_atten(num_taps, width / (sampling_rate / 2))
    window = np.kaiser(num_taps, kaiser_beta(attenuation))
    taps = taps * np.outer(window, window)
    return (taps / taps.sum()).astype(np.float32)
