"""Drawing without matplotlib: colors, small maps, principal components, cards for notebooks."""

import base64
import html
import io
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, Int, UInt8
from PIL import Image

EMPTY, EMPTY_DOT = "#eeeef1", "#e1e2e8"
"""Colors of cells without an elite, as areas and as dots: lighter than any objective."""
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
PALETTE += ("#22242b", "#332288", "#882255", "#999933", "#117733", "#7f7f7f")
"""Colors of lines: by Okabe and Ito, without their yellow, which is too light for a line, then
black, four of Paul Tol's muted colors, and gray."""

# Matplotlib's inferno, which is perceptually uniform and safe for color-blind readers. Its ends
# are left out; the light one would not stand out from empty cells.
_DUSK = (
    "160b39 290b55 3e0966 520e6d 65156e 781c6d 8c2369 9f2a63 b1325a "
    "c43c4e d44842 e25734 ed6925 f57d15 fa9207 fca80d fac026 f6d746"
)
# From the palette's orange over a pale gray to its blue.
_APART = ("8f3f00", "d55e00", "eda372", "f2f2f2", "6cb0d6", "0072b2", "004c78")

_TEXT = "font-family:sans-serif;font-size:13px;line-height:1.5"
_QUIET = "text-align:left;padding:0 12px 0 0;font-weight:normal;opacity:.7"
_LONGEST = 120  # characters of a text
_SIDE = 160  # pixels of a picture


def card(title: str, figures: Mapping[str, str], pictures: Sequence[str] = ()) -> str:
    """Return HTML with a heading, a table of figures, and pictures as HTML.

    >>> "&lt;b&gt;" in card("<b>", {"cells": "4"})
    True
    """
    rows = "".join(
        f'<tr style="background:none"><th scope="row" style="{_QUIET}">{_text(name)}</th>'
        f'<td style="text-align:left;padding:0">{_text(value)}</td></tr>'
        for name, value in figures.items()
    )
    table = f'<table style="{_TEXT};margin:0;border-collapse:collapse">{rows}</table>'
    shown = "".join(f"<div>{image}</div>" for image in pictures)
    return (
        f'<div style="{_TEXT}"><div style="font-weight:bold">{_text(title)}</div>'
        '<div style="display:flex;flex-wrap:wrap;gap:16px;align-items:flex-start">'
        f"<div>{table}</div>{shown}</div></div>"
    )


def picture(pixels: UInt8[np.ndarray, "height width 3"], text: str) -> str:
    """Return pixels as an inline PNG with an alternative text, enlarged to about 160 pixels."""
    times = max(1, _SIDE // max(pixels.shape[:2]))
    large = pixels.repeat(times, axis=0).repeat(times, axis=1)
    buffer = io.BytesIO()
    Image.fromarray(large).save(buffer, format="PNG", optimize=True)
    code = base64.b64encode(buffer.getvalue()).decode()
    size = f'width="{large.shape[1]}" height="{large.shape[0]}"'
    return f'<img {size} alt="{_text(text)}" src="data:image/png;base64,{code}">'


def sparkline(values: Float[np.ndarray, " n"], text: str) -> str:
    """Return a small curve as inline SVG; empty for fewer than two finite values."""
    finite = np.asarray(values, np.float64)
    finite = finite[np.isfinite(finite)]
    if len(finite) < 2:
        return ""
    chosen = np.rint(np.linspace(0, len(finite) - 1, min(len(finite), _SIDE))).astype(int)
    curve = finite[chosen]
    low, high = float(curve.min()), float(curve.max())
    heights = 38 - 36 * (curve - low) / ((high - low) or 1.0)
    across = np.linspace(2, _SIDE - 2, len(curve))
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, heights, strict=True))
    line = f'fill="none" stroke="{PALETTE[0]}" stroke-width="2"'
    return (
        f'<svg width="{_SIDE}" height="40" role="img" aria-label="{_text(text)}">'
        f'<polyline {line} points="{points}"/></svg>'
    )


def _text(text: str) -> str:
    """Escape text for HTML, and limit its length."""
    return html.escape(text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…")


def shaded(values: Float[np.ndarray, "x y"]) -> UInt8[np.ndarray, "y x 3"]:
    """Color values over a plane as objectives; values that are not finite are empty cells."""
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
    """Return the highest value in each bin of the plane; minus infinity for empty bins."""
    best = np.full((bins, bins), -np.inf)
    np.maximum.at(best, _bins(spots, bins), values)
    return best


def number_by_bin(spots: Float[np.ndarray, "n 2"], bins: int) -> Float[np.ndarray, "bins bins"]:
    """Return the number of points in each bin of the plane; minus infinity for empty bins."""
    counts = np.zeros((bins, bins))
    np.add.at(counts, _bins(spots, bins), 1.0)
    return np.where(counts > 0, counts, -np.inf)


def _bins(spots: Float[np.ndarray, "n 2"], bins: int) -> tuple[Int[np.ndarray, " n"], ...]:
    low, extent = spots.min(axis=0), np.ptp(spots, axis=0)
    share = (spots - low) / np.where(extent > 0, extent, 1.0)
    return tuple(np.minimum((share * bins).astype(int), bins - 1).T)


class PrincipalComponents:
    """The plane of the two directions in which points vary most.

    Args:
        points: ``(n, dim)`` points.
        sample: Number of points, drawn with a fixed seed, from which the directions are computed.
    """

    def __init__(self, points: Float[np.ndarray, "n dim"], *, sample: int = 1000):
        self._origin = points.mean(axis=0)
        # Drawn at random: cells of a grid in even steps would share a coordinate.
        count = min(sample, len(points))
        chosen = np.random.default_rng(0).choice(len(points), count, replace=False)
        axes = np.linalg.svd(points[chosen] - self._origin, full_matrices=False)[2][:2]
        # The sign of a component is arbitrary: its largest entry is made positive.
        signs = np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])
        self._axes = np.zeros((2, points.shape[1]))
        self._axes[: len(axes)] = axes * np.where(signs == 0, 1, signs)[:, None]
        total = max(float(points.var(axis=0).sum()), 1e-30)
        x, y = self.place(points).var(axis=0) / total
        self.labels = f"principal component 1 ({x:.0%})", f"principal component 2 ({y:.0%})"
        """Names of the axes, with the share of the variance that each shows."""

    def place(self, points: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n 2"]:
        """Return the places of points in the plane."""
        return (points - self._origin) @ self._axes.T


def rgb(color: str) -> UInt8[np.ndarray, "3"]:
    """Return a color ``#rrggbb`` as three bytes.

    >>> rgb("#0072b2").tolist()
    [0, 114, 178]
    """
    return np.frombuffer(bytes.fromhex(color.removeprefix("#")), np.uint8)


def dusk(number: int = 256) -> Float[np.ndarray, "number 3"]:
    """Return shades for low to high objectives, dark to light, with channels from 0 to 1."""
    return _interpolated(_DUSK.split(), number)


def apart(number: int = 256) -> Float[np.ndarray, "number 3"]:
    """Return shades for differences: orange below zero, pale near it, blue above."""
    return _interpolated(_APART, number)


def _interpolated(anchors: Sequence[str], number: int) -> Float[np.ndarray, "number 3"]:
    known = np.stack([rgb(anchor) for anchor in anchors]) / 255
    at, ends = np.linspace(0, 1, number), np.linspace(0, 1, len(known))
    return np.stack([np.interp(at, ends, channel) for channel in known.T], axis=1)
