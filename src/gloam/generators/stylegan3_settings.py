"""Constructor arguments of StyleGAN3, and the table of layers that follows from them."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import numpy as np

from gloam import checks

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
