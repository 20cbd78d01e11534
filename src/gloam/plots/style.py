"""The house style of figures: sizes, colors, color bars, headings, legends, and saving.

Everything is set on the figure itself. Matplotlib's global settings stay as the user has them, and
no window system is needed.
"""

import io
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, ListedColormap, Normalize
from matplotlib.figure import Figure, SubFigure

from gloam._tools import checks, files
from gloam._tools.drawing import EMPTY as EMPTY
from gloam._tools.drawing import EMPTY_DOT as EMPTY_DOT
from gloam._tools.drawing import PALETTE, apart, dusk

DPI = 150
_NOTEBOOK_DPI = 80
TITLE, LABEL, SMALL = 12, 10, 9
"""Font sizes, in points."""
INK, QUIET, FAINT = "#22242b", "#6b6f7b", "#d9dae0"
"""Text, secondary text, and lines in the background."""

Limits = tuple[float, float]
"""Values of the darkest and the lightest color."""

_RESERVED = {
    "dms": 0,
    "cmamae": 1,
    "dds": 2,
    "mapelites": 3,
    "mapelitesline": 4,
    "dmspaper": 5,
}


def objective_colors() -> Colormap:
    """Return the colors of objectives, dark for low and light for high ones."""
    return ListedColormap(dusk(), name="dusk").with_extremes(bad=(0, 0, 0, 0))


def difference_colors() -> Colormap:
    """Return the colors of differences: orange below zero, pale near it, blue above."""
    return ListedColormap(apart(), name="apart").with_extremes(bad=(0, 0, 0, 0))


def color_scale(limits: Limits, colors: Colormap | None = None) -> dict[str, Any]:
    """Return the arguments of matplotlib's functions for a scale of colors."""
    return {"cmap": colors or objective_colors(), "vmin": limits[0], "vmax": limits[1]}


def line_colors(labels: Iterable[str]) -> dict[str, str]:
    """Return a color for each label; an algorithm has the same one in every figure.

    gloam's algorithms have colors of their own. That of any other label follows from its name,
    whatever its position and the other labels are, unless two labels would share a color.

    >>> line_colors(["DMS", "mine", "CMA-MAE"])["mine"] == line_colors(["mine"])["mine"]
    True
    """
    keys = {label: "".join(filter(str.isalnum, label.lower())) for label in labels}
    numbers = {label: _RESERVED[key] for label, key in keys.items() if key in _RESERVED}
    others = range(len(_RESERVED), len(PALETTE))
    for label in sorted(set(keys) - set(numbers)):
        first = others[zlib.crc32(keys[label].encode()) % len(others)]
        # The next free color; of many labels, some take those of algorithms that are not shown.
        order = [*range(first, others.stop), *range(others.start, first), *range(others.start)]
        free = [number for number in order if number not in numbers.values()]
        numbers[label] = (free or order)[0]
    return {label: PALETTE[numbers[label]] for label in keys}


class _Sheet(Figure):
    """A figure that notebooks display without pyplot."""

    def _repr_png_(self) -> bytes:
        return _rendered(self, "png", dpi=_NOTEBOOK_DPI)


def figure(width: float, height: float) -> Figure:
    """Return an empty figure, sized in inches, with automatic layout."""
    made = _Sheet(figsize=(width, height), dpi=DPI, facecolor="white")
    made.set_layout_engine("constrained", w_pad=0.1, h_pad=0.1, wspace=0.03, hspace=0.03)
    return made


def sheet(
    width: float,
    height: float,
    boxes: Sequence[tuple[float, float, float, float]],
    ax: Axes | None = None,
) -> tuple[Figure, list[Axes]]:
    """Return a figure with axes at exact places: left, bottom, width and height, all in inches.

    If ``ax`` is given, they are at the same relative places within it.
    """
    scale = np.array([width, height, width, height])
    relative = [tuple(np.array(box) / scale) for box in boxes]
    if ax is not None:
        ax.set_axis_off()
        return figure_of(ax), [ax.inset_axes(box) for box in relative]
    made = _Sheet(figsize=(width, height), dpi=DPI, facecolor="white")
    return made, [made.add_axes(box) for box in relative]


def axes_for(ax: Axes | None, width: float, height: float) -> Axes:
    """Return the given axes, or those of a new figure of this size in inches."""
    return figure(width, height).subplots() if ax is None else ax


def panels(
    ax: Axes | None, rows: int, columns: int, size: tuple[float, float]
) -> tuple[Figure, np.ndarray]:
    """Return ``(rows, columns)`` axes in a new figure of ``size`` inches, or inside of ``ax``."""
    if ax is None:
        made = figure(*size)
        return made, made.subplots(rows, columns, squeeze=False)
    if rows == columns == 1:
        return figure_of(ax), np.array([[ax]])
    ax.set_axis_off()
    wide, high = 1 / columns, 1 / rows
    made = [
        ax.inset_axes(((j + 0.14) * wide, 1 - (i + 0.84) * high, 0.8 * wide, 0.74 * high))
        for i in range(rows)
        for j in range(columns)
    ]
    return figure_of(ax), np.array(made).reshape(rows, columns)


def figure_of(ax: Axes) -> Figure:
    """Return the figure that contains the axes, also if they are in a subfigure."""
    parent = ax.figure
    return parent.figure if isinstance(parent, SubFigure) else parent


def dress(axes: Axes, *, grid: bool = False) -> None:
    """Set fonts, ticks and frame of axes; ``grid`` is for curves, not for maps."""
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
    figure: Figure, axes: Axes, limits: Limits, label: str = "", *, more: bool = False
) -> None:
    """Fill axes with the color bar of objectives; without a label it has no ticks either.

    ``more`` adds an arrow for values above the limits.
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
    """Add a color bar to the right of axes, with arrows for values beyond its limits."""
    first = axes if isinstance(axes, Axes) else axes[0]
    shown, (low, high) = drawn.get_array(), drawn.get_clim()
    values = np.ma.masked_invalid([] if shown is None else shown).compressed()
    beyond = values.min(initial=low) < low, values.max(initial=high) > high
    names = {(True, True): "both", (True, False): "min", (False, True): "max"}
    looks = {"extend": names.get(beyond, "neither"), "shrink": 0.85, "pad": 0.03, "aspect": 24}
    bar = figure_of(first).colorbar(drawn, ax=axes, **looks)
    bar.set_label(label)
    dress(bar.ax)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]


def heading(axes: Axes, title: str, subtitle: str = "") -> None:
    """Set a bold title at the left, above a subtitle in secondary color."""
    pad = 22 if subtitle else 6
    axes.set_title(title, loc="left", fontsize=TITLE, color=INK, fontweight="bold", pad=pad)
    if subtitle:
        annotate(axes, subtitle, (0, 1), (0, 6), "axes fraction", fontsize=LABEL, va="bottom")


def annotate(
    axes: Axes,
    text: str,
    point: tuple[float, float],
    offset: tuple[float, float],
    coordinates: Any = "data",
    **looks: Any,
) -> None:
    """Write a small text at an offset, in points, from a point of the axes."""
    looks = {"fontsize": SMALL, "color": QUIET} | looks
    axes.annotate(text, point, offset, xycoords=coordinates, textcoords="offset points", **looks)


def figure_heading(figure: Figure, title: str) -> None:
    """Set a bold title at the upper left of a figure with several panels."""
    figure.suptitle(title, x=0.015, ha="left", fontsize=TITLE, fontweight="bold", color=INK)


def legend(where: Figure | Axes, entries: Mapping[str, Artist], **options: Any) -> None:
    """Add a legend without a frame."""
    looks = {"frameon": False, "fontsize": SMALL, "labelcolor": INK}
    where.legend(list(entries.values()), list(entries), **looks | options)


def save(figure: Figure, path: str | os.PathLike, *, pdf: bool = False) -> Path:
    """Write a figure as PNG or PDF, atomically, and with ``pdf`` also a PDF beside the PNG.

    Args:
        figure: The figure.
        path: Name that ends in ``.png`` or ``.pdf``; without a suffix, ``.png`` is added.
        pdf: Whether to write a PDF as well.

    Returns:
        The path of the file.
    """
    file = figure_file(path)
    files.write_bytes(file, _rendered(figure, file.suffix[1:]))
    if pdf and file.suffix != ".pdf":
        files.write_bytes(file.with_suffix(".pdf"), _rendered(figure, "pdf"))
    return file


def figure_file(path: str | os.PathLike, name: str = "path") -> Path:
    """Return the file that `save` writes, before there is a figure.

    Raises:
        ValueError: Figures cannot be written under this name.
    """
    file = checks.path(name, path)
    is_plain = not file.suffix[1:2].isalpha()  # also for a name such as alpha0.5
    fix = "Change the end of the name, or leave it out."
    expected = "a name that ends in .png or .pdf"
    checks.expect(is_plain or file.suffix in (".png", ".pdf"), name, expected, f"'{file}'", fix)
    return file.with_name(f"{file.name}.png") if is_plain else file


def save_all(figures: Mapping[str, Figure], folder: Path, *, pdf: bool) -> list[Path]:
    """Write figures under their names and return the files written."""
    written = []
    for stem, drawn in figures.items():
        path = save(drawn, folder / f"{stem}.png", pdf=pdf)
        written += [path, path.with_suffix(".pdf")] if pdf else [path]
    return written


def _rendered(figure: Figure, kind: str, dpi: int = DPI) -> bytes:
    buffer = io.BytesIO()
    # Without the date, equal data gives equal files.
    metadata = {"CreationDate": None} if kind == "pdf" else {}
    figure.savefig(buffer, format=kind, dpi=dpi, metadata=metadata)
    return buffer.getvalue()
