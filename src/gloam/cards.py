"""Cards: how objects show themselves in notebooks, as a few figures beside a small picture.

A card is HTML that stands alone: no scripts, nothing loaded, all text escaped, colours that suit
light and dark pages.
"""

import base64
import html
import io
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, Int, UInt8
from PIL import Image

from gloam.colors import EMPTY, dusk, rgb

_TEXT = "font-family:sans-serif;font-size:13px;line-height:1.5"
_QUIET = "text-align:left;padding:0 12px 0 0;font-weight:normal;opacity:.7"
_LONGEST = 120  # characters of a text
_SIDE = 160  # pixels


def card(title: str, figures: Mapping[str, str], pictures: Sequence[str] = ()) -> str:
    """A heading, a table of figures and pictures from `picture` or `sparkline`.

    >>> "&lt;b&gt;" in card("<b>", {"cells": "4"})
    True
    """
    rows = "".join(
        f'<tr style="background:none"><th scope="row" style="{_QUIET}">{_text(name)}</th>'
        f'<td style="text-align:left;padding:0">{_text(value)}</td></tr>'
        for name, value in figures.items()
    )
    table = f'<table style="{_TEXT};margin:0;border-collapse:collapse">{rows}</table>'
    shown = "".join(f"<div>{one}</div>" for one in pictures)
    return (
        f'<div style="{_TEXT}"><div style="font-weight:bold">{_text(title)}</div>'
        '<div style="display:flex;flex-wrap:wrap;gap:16px;align-items:flex-start">'
        f"<div>{table}</div>{shown}</div></div>"
    )


def picture(pixels: UInt8[np.ndarray, "height width 3"], text: str) -> str:
    """Pixels as an inline PNG, enlarged without smoothing to about 160 pixels.

    ``text`` is what readers of the page hear who do not see it.
    """
    times = max(1, _SIDE // max(pixels.shape[:2]))
    large = pixels.repeat(times, axis=0).repeat(times, axis=1)
    buffer = io.BytesIO()
    Image.fromarray(large).save(buffer, format="PNG", optimize=True)
    code = base64.b64encode(buffer.getvalue()).decode()
    size = f'width="{large.shape[1]}" height="{large.shape[0]}"'
    return f'<img {size} alt="{_text(text)}" src="data:image/png;base64,{code}">'


def sparkline(values: Float[np.ndarray, " n"], text: str) -> str:
    """A small curve as inline SVG; empty for fewer than two finite values."""
    found = np.asarray(values, np.float64)
    found = found[np.isfinite(found)]
    if len(found) < 2:
        return ""
    found = found[np.rint(np.linspace(0, len(found) - 1, min(len(found), _SIDE))).astype(int)]
    low, high = float(found.min()), float(found.max())
    heights = 38 - 36 * (found - low) / ((high - low) or 1.0)
    across = np.linspace(2, _SIDE - 2, len(found))
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, heights, strict=True))
    line = 'fill="none" stroke="#0072b2" stroke-width="2"'
    return (
        f'<svg width="{_SIDE}" height="40" role="img" aria-label="{_text(text)}">'
        f'<polyline {line} points="{points}"/></svg>'
    )


def shaded(values: Float[np.ndarray, "x y"]) -> UInt8[np.ndarray, "y x 3"]:
    """Values over a plane in the colours of objectives, empty where they are not finite."""
    seen = np.isfinite(values)
    low, high = (values[seen].min(), values[seen].max()) if seen.any() else (0.0, 1.0)
    share = np.where(seen, values - low, 0.0) / ((high - low) or 1.0)
    shades = np.rint(255 * dusk()).astype(np.uint8)
    pixels = shades[np.rint(255 * share).astype(int)]
    pixels[~seen] = rgb(EMPTY)
    return pixels.swapaxes(0, 1)[::-1]


def highest_by_bin(
    spots: Float[np.ndarray, "n 2"], values: Float[np.ndarray, " n"], bins: int
) -> Float[np.ndarray, "bins bins"]:
    """The highest of the values in each bin of the plane, minus infinity where there is none."""
    best = np.full((bins, bins), -np.inf)
    np.maximum.at(best, _bins(spots, bins), values)
    return best


def number_by_bin(spots: Float[np.ndarray, "n 2"], bins: int) -> Float[np.ndarray, "bins bins"]:
    """The number of points in each bin of the plane, minus infinity where there is none."""
    counts = np.zeros((bins, bins))
    np.add.at(counts, _bins(spots, bins), 1.0)
    return np.where(counts > 0, counts, -np.inf)


def _bins(spots: Float[np.ndarray, "n 2"], bins: int) -> tuple[Int[np.ndarray, " n"], ...]:
    low, extent = spots.min(axis=0), np.ptp(spots, axis=0)
    share = (spots - low) / np.where(extent > 0, extent, 1.0)
    return tuple(np.minimum((share * bins).astype(int), bins - 1).T)


def _text(text: str) -> str:
    """Text as HTML, of limited length."""
    short = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    return html.escape(short)
