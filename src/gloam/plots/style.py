"""The house style of figures: sizes, colours, and how a figure is saved.

Everything is set on the figure itself. Matplotlib's global settings stay as the user has them, and
no window system is needed.
"""

import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, ListedColormap, Normalize
from matplotlib.figure import Figure, SubFigure

from gloam import files
from gloam.drawing import EMPTY as EMPTY
from gloam.drawing import EMPTY_DOT as EMPTY_DOT
from gloam.drawing import PALETTE, apart, dusk

DPI = 150
_NOTEBOOK_DPI = 80
TITLE, LABEL, SMALL = 12, 10, 9
"""Font sizes, in points."""
INK, QUIET, FAINT = "#22242b", "#6b6f7b", "#d9dae0"
"""Text, text of second rank, and lines that should not be noticed."""

_OWN = {"dms": 0, "cmamae": 1, "dds": 2, "mapelites": 3, "mapelitesline": 4}


def objective_colors() -> Colormap:
    """Dark to light for low to high, from night to dusk."""
    return ListedColormap(dusk(), name="dusk").with_extremes(bad=(0, 0, 0, 0))


def difference_colors() -> Colormap:
    """Orange for differences below zero, pale near it, blue above."""
    return ListedColormap(apart(), name="apart").with_extremes(bad=(0, 0, 0, 0))


def line_colors(labels: Iterable[str]) -> dict[str, str]:
    """A colour for each label; an algorithm has the same one in every figure.

    >>> line_colors(["DMS", "mine", "CMA-MAE"])
    {'DMS': '#0072b2', 'mine': '#009e73', 'CMA-MAE': '#d55e00'}
    """
    labels = list(labels)
    owned = {label: _OWN.get("".join(filter(str.isalnum, label.lower()))) for label in labels}
    free = [i for i in range(len(PALETTE)) if i not in owned.values()] or [len(PALETTE) - 1]
    others = [label for label in labels if owned[label] is None]
    owned |= {label: free[i % len(free)] for i, label in enumerate(others)}
    return {label: PALETTE[place] for label, place in owned.items() if place is not None}


class _Sheet(Figure):
    """A figure that shows itself in notebooks, where pyplot would have to be imported else."""

    def _repr_png_(self) -> bytes:
        return _rendered(self, "png", dpi=_NOTEBOOK_DPI)


def figure(width: float, height: float) -> Figure:
    """An empty figure, in inches, that finds room for its labels by itself."""
    made = _Sheet(figsize=(width, height), dpi=DPI, facecolor="white")
    made.set_layout_engine("constrained", w_pad=0.1, h_pad=0.1, wspace=0.03, hspace=0.03)
    return made


def sheet(
    width: float,
    height: float,
    boxes: Sequence[tuple[float, float, float, float]],
    ax: Axes | None = None,
) -> tuple[Figure, list[Axes]]:
    """A figure with axes at exact places: left, bottom, width and height, all in inches.

    Given ``ax``, they are at the same places within it.
    """
    scale = np.array([width, height, width, height])
    places = [tuple(np.array(box) / scale) for box in boxes]
    if ax is not None:
        ax.set_axis_off()
        return figure_of(ax), [ax.inset_axes(place) for place in places]
    made = _Sheet(figsize=(width, height), dpi=DPI, facecolor="white")
    return made, [made.add_axes(place) for place in places]


def axes_for(ax: Axes | None, width: float, height: float) -> Axes:
    """The axes given, or those of a new figure of this size."""
    return figure(width, height).subplots() if ax is None else ax


def panels(
    ax: Axes | None, rows: int, columns: int, size: tuple[float, float]
) -> tuple[Figure, np.ndarray]:
    """``(rows, columns)`` axes in a new figure of ``size`` inches, or in the place of ``ax``."""
    if ax is None:
        made = figure(*size)
        return made, made.subplots(rows, columns, squeeze=False)
    if rows == columns == 1:
        return figure_of(ax), np.array([[ax]])
    ax.set_axis_off()
    places = [
        [
            ((j + 0.14) / columns, 1 - (i + 0.84) / rows, 0.8 / columns, 0.74 / rows)
            for j in range(columns)
        ]
        for i in range(rows)
    ]
    return figure_of(ax), np.array([[ax.inset_axes(place) for place in row] for row in places])


def figure_of(ax: Axes) -> Figure:
    """The figure that axes are in, whole where they are in a part of it."""
    found = ax.figure
    return found.figure if isinstance(found, SubFigure) else found


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
    """Fill axes of their own with the colours of objectives within limits.

    Without a label the bar has no numbers, too.
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


def side_bar(drawn: ScalarMappable, axes: Axes | Sequence[Axes], label: str) -> None:
    """A bar of the colours of what was drawn, at the right of its axes."""
    first = axes if isinstance(axes, Axes) else axes[0]
    bar = figure_of(first).colorbar(drawn, ax=axes, shrink=0.85, pad=0.03, aspect=24)
    bar.set_label(label)
    dress(bar.ax)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]


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


def _rendered(figure: Figure, kind: str, dpi: int = DPI) -> bytes:
    buffer = io.BytesIO()
    # Without the date, the same data gives the same file.
    metadata = {"CreationDate": None} if kind == "pdf" else {}
    figure.savefig(buffer, format=kind, dpi=dpi, metadata=metadata)
    return buffer.getvalue()
