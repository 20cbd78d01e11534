"""The house style of figures: sizes, colours, and how a figure is saved.

Everything is set on the figure itself. Matplotlib's global settings stay as the user has them, and
no window system is needed.
"""

import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, ListedColormap, Normalize
from matplotlib.figure import Figure

from gloam import files

DPI = 150
TITLE, LABEL, SMALL = 12, 10, 9
"""Font sizes, in points."""
INK, QUIET, FAINT = "#22242b", "#6b6f7b", "#d9dae0"
"""Text, text of second rank, and lines that should not be noticed."""
EMPTY, EMPTY_DOT = "#eeeef1", "#e1e2e8"
"""Cells without an elite, as areas and as dots: lighter than any objective, like paper."""

# Okabe and Ito's colours, told apart with any colour vision; their yellow is too light for a line.
_PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#22242b")
_OWN = {"dms": 0, "cmamae": 1, "dds": 2, "mapelites": 3, "mapelitesline": 4}


def objective_colors() -> Colormap:
    """Dark to light for low to high, from night to dusk.

    It is inferno without its ends, so it is even to the eye and safe for any colour vision; the
    light end is left out because it would not stand off from empty cells.
    """
    shades = matplotlib.colormaps["inferno"](np.linspace(0.1, 0.9, 256))
    return ListedColormap(shades, name="dusk").with_extremes(bad=(0, 0, 0, 0))


def line_colors(labels: Iterable[str]) -> dict[str, str]:
    """A colour for each label; an algorithm has the same one in every figure.

    >>> line_colors(["DMS", "mine", "CMA-MAE"])
    {'DMS': '#0072b2', 'mine': '#009e73', 'CMA-MAE': '#d55e00'}
    """
    labels = list(labels)
    owned = {label: _OWN.get("".join(filter(str.isalnum, label.lower()))) for label in labels}
    free = [i for i in range(len(_PALETTE)) if i not in owned.values()] or [len(_PALETTE) - 1]
    others = [label for label in labels if owned[label] is None]
    owned |= {label: free[i % len(free)] for i, label in enumerate(others)}
    return {label: _PALETTE[place] for label, place in owned.items() if place is not None}


def figure(width: float, height: float) -> Figure:
    """An empty figure, in inches, that finds room for its labels by itself."""
    made = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
    made.set_layout_engine("constrained", w_pad=0.1, h_pad=0.1, wspace=0.03, hspace=0.03)
    return made


def sheet(
    width: float, height: float, boxes: Sequence[tuple[float, float, float, float]]
) -> tuple[Figure, list[Axes]]:
    """A figure with axes at exact places: left, bottom, width and height, all in inches."""
    made = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
    scale = np.array([width, height, width, height])
    return made, [made.add_axes(tuple(np.array(box) / scale)) for box in boxes]


def dress(axes: Axes, *, grid: bool = False) -> None:
    """Give axes the house's fonts, ticks and frame; ``grid`` is for curves, not for maps."""
    axes.tick_params(labelsize=SMALL, labelcolor=QUIET, color=FAINT, length=3)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set(fontsize=LABEL, color=INK)
    for side, spine in axes.spines.items():
        spine.set(color=FAINT, linewidth=0.8)
        spine.set_visible(not grid or side in ("left", "bottom"))
    if grid:
        axes.grid(color=FAINT, linewidth=0.6, alpha=0.7)
        axes.set_axisbelow(True)


def color_bar(
    figure: Figure, axes: Axes, limits: tuple[float, float], label: str = "", *, more: bool = False
) -> None:
    """Fill axes with the colours of objectives within limits; without a label, without numbers too.

    ``more`` says by an arrow that there are values above the limits.
    """
    colors = ScalarMappable(Normalize(*limits), objective_colors())
    bar = figure.colorbar(colors, cax=axes, extend="max" if more else "neither", extendfrac=0.025)
    bar.set_label(label)
    if not label:
        bar.set_ticks([])
    dress(axes)
    for spine in axes.spines.values():
        spine.set_visible(False)


def heading(axes: Axes, title: str, subtitle: str = "", *, gap: float = 16) -> None:
    """A bold title at the left, above a quiet line of second rank."""
    axes.set_title(
        title,
        loc="left",
        fontsize=TITLE,
        color=INK,
        fontweight="bold",
        pad=6 + gap * bool(subtitle),
    )
    if subtitle:
        axes.annotate(
            subtitle,
            (0, 1),
            xytext=(0, 6),
            xycoords="axes fraction",
            color=QUIET,
            textcoords="offset points",
            fontsize=LABEL,
            va="bottom",
        )


def save(figure: Figure, path: str | os.PathLike, *, pdf: bool = False) -> Path:
    """Write a figure as PNG, whole or not at all, and with ``pdf`` as PDF beside it.

    Returns:
        The path of the PNG.
    """
    place = Path(path)
    if place.suffix != ".png":
        place = place.with_name(f"{place.name}.png")
    files.write_bytes(place, _rendered(figure, "png"))
    if pdf:
        files.write_bytes(place.with_suffix(".pdf"), _rendered(figure, "pdf"))
    return place


def _rendered(figure: Figure, kind: str) -> bytes:
    buffer = io.BytesIO()
    # Without the date, the same data gives the same file.
    metadata = {"CreationDate": None} if kind == "pdf" else {}
    figure.savefig(buffer, format=kind, dpi=DPI, metadata=metadata)
    return buffer.getvalue()
