"""Galleries: the items of a dataset, each beside its nearest elite, as one figure."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gloam._tools import checks
from gloam.archives import CVTArchive, Elites
from gloam.archives.elites import archive_figures
from gloam.datasets import Dataset, Matches
from gloam.datasets.dataset import checked_images, is_image
from gloam.datasets.matches import Order
from gloam.datasets.rows import evenly_spaced
from gloam.gallery.drawings import (
    Drawer,
    Picture,
    Pictures,
    Svg,
    image_bytes,
    is_picture,
    lines,
    sign,
)
from gloam.plots import style

# Lengths are in pixels of the figure: a small picture is crisp only if each of its pixels covers a
# whole number of them.
_MARGIN, _TOP, _GAP, _SPACE = 54, 228, 3, 24
_SMALLEST, _LARGEST = 56, 168
_MIN_WIDTH = 1100  # room for the heading
_ASPECT = 1.45
_POINT = 72 / style.DPI  # points of a pixel
_IMAGE: Any = {"cmap": "gray", "vmin": 0, "vmax": 255, "aspect": "auto", "zorder": 2}
_BATCH = 256  # solutions that are rendered at a time
_FEW = 2000  # items from which the limits of lines are taken
_NUMBERS = 8  # measures in a caption, which is cut off at the width of its picture

_ORDERS = {
    "explained": "from the most explained variance to the least",
    "distance": "from the nearest to the farthest",
    "objective": "from the best objective to the worst, then those with empty cells",
    "label": "label by label, the nearest first",
    "item": "in the order of the items",
}
_NOT_REACHED = "Not reached: no solution found is nearer to the item than the mean of all items is."
_TOO_FAR = "Not reached: no solution found is within the distance of the item."
_EMPTY = "Empty: no solution found was nearest to the item; an elite of another cell is shown."


def gallery(
    matches: Matches,
    pictures: Pictures,
    *,
    by: Order = "explained",
    count: int = 60,
    title: str = "",
    ax: Axes | None = None,
) -> Figure:
    """Draw pairs of the nearest solution (left) and its item (right).

    All items count, also those whose cells are empty. Items that no solution reached have a dashed
    frame (see `Matches.reached`). If there are more than ``count`` pairs, the ones drawn are evenly
    spaced in the order, with the first and the last, so that they show good and bad matches.

    Args:
        matches: The elites and the items.
        pictures: Pictures of the elites, for instance from `elite_pictures`. Figures cannot show
            SVG: a sign takes its place.
        by: Order of the pairs.
        count: Maximum number of pairs to draw; 10 to 200 fit well.
        title: Heading of the figure.
        ax: Axes to draw into, scaled to fit. Default: a new figure.

    Returns:
        The figure. Its images are solution and item in turn.
    """
    count = checks.integer("count", count, minimum=1)
    table = ordered(matches, by)
    drawn = table.iloc[evenly_spaced(len(table), count)]
    made = _drawable(made_pictures(pictures, drawn["row"].to_numpy()))
    items = _drawable(item_pictures(matches.dataset, drawn["item"].to_numpy()))
    # Lines have no size of their own.
    shape = (items if matches.dataset.has_images else made)[0].shape[:2]
    sheet = _Sheet(len(drawn), [made, items], shape, ax)
    reached = drawn["reached"].to_numpy()
    frames = [
        Rectangle((left - 4, top - 4), sheet.layout.pair + 8, sheet.layout.height + 8)
        for (left, top), is_reached in zip(sheet.corners, reached, strict=True)
        if not is_reached
    ]
    dashed: Any = {"facecolor": "none", "edgecolor": style.QUIET, "linestyle": "--"}
    dashed["linewidth"] = sheet.zoom
    sheet.axes.add_collection(PatchCollection(frames, **dashed))
    rows = zip(drawn["label"], drawn["name"], captions(drawn), strict=True)
    sheet.write_captions(
        [(_shortened(label, name, sheet.letters), *texts) for label, name, texts in rows]
    )
    sheet.write_heading(title or "Solutions beside their items", *_heading(matches, drawn, by))
    return sheet.figure


def elite_gallery(
    elites: Elites, pictures: Pictures, *, count: int = 60, title: str = "", ax: Axes | None = None
) -> Figure:
    """Draw elites without a dataset, from the best objective to the worst.

    If there are more than ``count`` elites, the ones drawn are evenly spaced in this order.

    Args:
        elites: The elites.
        pictures: Pictures of the elites, for instance from ``elite_pictures(elites, draw=draw)``.
        count: Maximum number of elites to draw.
        title: Heading of the figure.
        ax: Axes to draw into, scaled to fit. Default: a new figure.
    """
    checks.instance("elites", elites, Elites, "Give result.elites or search.elites().")
    count = checks.integer("count", count, minimum=1)
    checks.expect(len(elites) > 0, "elites", "at least one elite", "none")
    order = np.argsort(-elites.objectives, kind="stable")
    rows = order[evenly_spaced(len(order), count)]
    made = _drawable(made_pictures(pictures, rows))
    sheet = _Sheet(len(rows), [made], made[0].shape[:2], ax)
    texts = []
    for row in rows.tolist():
        measures = ", ".join(f"{value:.3g}" for value in elites.flat_measures[row, :_NUMBERS])
        measures = (
            measures if len(measures) <= sheet.letters else measures[: sheet.letters - 1] + "…"
        )
        texts.append((f"cell {elites.cells[row]:,}", f"{elites.objectives[row]:.4g}", measures))
    sheet.write_captions(texts)
    which = f"All {len(rows):,} elites"
    if len(rows) < len(elites):
        which = f"{len(rows):,} of {len(elites):,} elites, spread evenly over all of them"
    figures = [f"{name} {value}" for name, value in archive_figures(elites).items()]
    names = elites.archive.measure_names
    below = f"Below: cell, objective, {', '.join(names[:_NUMBERS]) or 'measures'}."
    notes = [f"{which}, from the best objective to the worst.", below]
    sheet.write_heading(title or "Elites", figures, notes)
    return sheet.figure


def _drawable(pictures: np.ndarray | Sequence[Picture]) -> list[np.ndarray]:
    """Return pictures as arrays, which Matplotlib can draw."""
    shown = "SVG: see gallery.html, the explorer or a report"
    return [sign(shown) if isinstance(picture, Svg) else picture for picture in pictures]


class _Sheet:
    """A figure with pictures in rows and columns, and the places of their texts."""

    def __init__(
        self, count: int, sides: list[list[np.ndarray]], shape: tuple[int, int], ax: Axes | None
    ):
        self.layout = layout_for(count, len(sides), shape)
        layout = self.layout
        width, height = (side / style.DPI for side in layout.size)
        self.figure, (self.axes,) = style.sheet(width, height, [(0, 0, width, height)], ax)
        self.axes.set_axis_off()
        self.zoom = 1.0
        if ax is not None:
            self.axes.set_box_aspect(height / width)
            box, pixels = self.axes.get_window_extent(), self.figure.get_dpi() / style.DPI
            self.zoom = min(box.width / layout.size[0], box.height / layout.size[1]) / pixels
        self.letters = int(_POINT * layout.tile / (0.6 * layout.font))
        """Number of letters in a line of a caption."""
        # The mat behind a pair is its frame, and sets white pictures off from the background.
        self.corners = [layout.corner(number) for number in range(count)]
        mats = [
            Rectangle((left - 1, top - 1), layout.pair + 2, layout.height + 2)
            for left, top in self.corners
        ]
        self.axes.add_collection(PatchCollection(mats, facecolor=style.FAINT, linewidth=0))
        for number, (left, top) in enumerate(self.corners):
            for side, images in enumerate(sides):
                x = left + side * (layout.width + _GAP)
                _draw(self.axes, images[number], (x, top, layout.width, layout.height))
        self.axes.set(xlim=(0, layout.size[0]), ylim=(layout.size[1], 0))

    def write_captions(self, texts: Sequence[tuple[str, ...]]) -> None:
        """Write lines of text below each pair."""
        layout, size = self.layout, self.zoom * self.layout.font
        for (left, top), captioned in zip(self.corners, texts, strict=True):
            for line, text in enumerate(captioned):
                y = top + layout.height + 6 + line * layout.line
                _write(self.axes, left, y, text, size, style.QUIET if line else style.INK)

    def write_heading(self, title: str, figures: list[str], notes: list[str]) -> None:
        """Write the title, a line of figures, and lines of notes."""
        axes, zoom, small = self.axes, self.zoom, self.zoom * style.SMALL
        _write(axes, _MARGIN, 36, title, zoom * (style.TITLE + 2), style.INK, weight="bold")
        _write(axes, _MARGIN, 76, "     ".join(figures), zoom * style.LABEL, style.INK)
        for line, note in enumerate(notes):
            _write(axes, _MARGIN, 106 + 24 * line, note, small, style.QUIET)


def elite_pictures(
    elites: Elites,
    dataset: Dataset | None = None,
    domain: Any = None,
    size: int | tuple[int, int] | None = None,
    *,
    draw: Callable[..., Any] | None = None,
) -> Pictures:
    """Return a function that gives pictures of the elites, for `gallery` and `page`.

    The pictures are, in order of preference: those of ``draw``; the archive's field ``image``
    (uint8, or floats from 0 to 1); what the domain renders; the measures, as images if the items
    are images, and as lines otherwise.

    Args:
        elites: The filled archive.
        dataset: The items of its cells. Needed unless ``draw`` is given.
        domain: The domain that was searched. Used if it has a method ``render(solutions, size)``
            that returns images with values from 0 to 1.
        size: Passed to ``render``.
        draw: Makes a picture of one solution. It gets the values of a space by name, a tree or a
            vector, also the measures if it has a parameter ``measures``, and returns an array (gray
            or RGB; uint8, or floats from 0 to 1), an image of PIL or the text of an SVG; or it has
            a parameter ``ax`` and draws on these axes of Matplotlib. Pictures of more than 256
            pixels a side are shrunk. A sign with the reason takes the place of one that fails.

    Example:
        >>> import gloam
        >>> archive = gloam.GridArchive((4, 4), -1, 1)
        >>> search = gloam.Search(gloam.MAPElites(archive, np.zeros(8), 0.1, batch_size=4))
        >>> search.tell([0.0] * 4, search.ask()[:, :2])
        >>> def draw(solution, measures, ax):
        ...     ax.bar(range(8), solution)
        >>> pictures = elite_pictures(search.elites(), draw=draw)
        >>> pictures(np.array([0]))[0].shape
        (256, 256, 3)
    """
    if draw is not None:
        return Drawer(draw).pictures(elites)
    if "image" in elites.store.fields:
        images = elites.field("image")
        shape = dataset.shape if dataset is not None and is_image(dataset.shape) else ()
        if images.ndim == 2 and images.shape[1] == math.prod(shape):
            images = images.reshape(-1, *shape)
        return lambda rows: image_bytes("field 'image'", images[rows])
    render = getattr(domain, "render", None)
    if callable(render):
        return partial(_rendered, render, elites.solutions, size)
    fix = "Give draw=..., a function that draws a solution."
    checks.expect(dataset is not None, "dataset", "the items of the cells", "None", fix)
    assert dataset is not None
    if is_image(dataset.shape):
        pixels = dataset.pixels(elites.flat_measures)
        return lambda rows: pixels[rows]
    limits = _limits(dataset)
    return lambda rows: lines(elites.flat_measures[rows], limits)


def _rendered(
    render: Callable[..., Any],
    solutions: Float[np.ndarray, "n sol"],
    size: int | tuple[int, int] | None,
    rows: Int[np.ndarray, " rows"],
) -> np.ndarray:
    """Return what a domain renders, in batches."""
    blocks = [solutions[rows[start : start + _BATCH]] for start in range(0, len(rows), _BATCH)]
    images = [image_bytes("render", np.asarray(render(block, size))) for block in blocks]
    return np.concatenate(images)


def made_pictures(
    pictures: Pictures, rows: Int[np.ndarray, " n"]
) -> np.ndarray | Sequence[Picture]:
    """Return the pictures of elites, after checking what the user's function returned."""
    made = pictures(rows)
    if isinstance(made, list) and len(made) == len(rows) and all(map(is_picture, made)):
        return made  # drawings, which may differ in size
    return checked_images(made, len(rows))


def item_pictures(dataset: Dataset, items: Int[np.ndarray, " n"]) -> np.ndarray | Sequence[Picture]:
    """Return the images of items, or lines if they are vectors."""
    if dataset.has_images:
        return np.stack([dataset.image(item) for item in items.tolist()])
    return lines(dataset.items[items], _limits(dataset))


def _limits(dataset: Dataset) -> tuple[float, float]:
    """Return the limits of lines, the same for all items and elites so that they compare."""
    some = dataset.items[evenly_spaced(len(dataset), _FEW)]
    return float(some.min()), float(some.max())


def ordered(matches: Matches, by: Order) -> pd.DataFrame:
    """Return the table of ``matches``, after checking that there are elites."""
    checks.instance("matches", matches, Matches, "Build gloam.datasets.Matches(elites, dataset).")
    checks.expect(len(matches.elites) > 0, "elites", "at least one elite", "none")
    fits = by != "label" or matches.dataset.labels is not None
    got = "'label' for a dataset without labels"
    checks.expect(fits, "by", "an order other than the label", got)
    return matches.table(by)


def rules(matches: Matches) -> list[str]:
    """Return what the marks of items mean, for those that some item has."""
    archive = matches.elites.archive
    is_near = isinstance(archive, CVTArchive) and archive.within is not None
    not_reached = _TOO_FAR if is_near else _NOT_REACHED
    marked = {not_reached: ~matches.reached, _EMPTY: ~matches.filled}
    return [rule for rule, has_mark in marked.items() if has_mark.any()]


def captions(table: pd.DataFrame) -> list[tuple[str, str]]:
    """Return two lines for each item: objective and distance of the elite, and how good it is.

    The objective of an item whose cell is empty is left out: it is that of another cell.
    """
    objectives = rounded(table["objective"].to_numpy())
    distances = rounded(table["distance"].to_numpy())
    columns = (table[name] for name in ("filled", "reached", "explained"))
    return [
        (
            f"{objective if is_filled else 'empty'} · {distance}",
            (f"explains {explained:.0%}" if explained > 0 else "within the distance")
            if is_reached
            else "not reached",
        )
        for objective, distance, is_filled, is_reached, explained in zip(
            objectives, distances, *columns, strict=True
        )
    ]


def rounded(values: Float[np.ndarray, " n"]) -> list[str]:
    """Return numbers as short texts with as many decimals as the largest of them needs.

    >>> rounded(np.array([0.99962, 0.5])), rounded(np.array([1234.5, -20.0]))
    (['1.000', '0.500'], ['1,234', '-20'])
    """
    largest = float(np.abs(values).max(initial=0.0))
    if not 1e-4 <= largest < 1e7:
        return [f"{value:.3g}" for value in values]
    decimals = max(0, 3 - math.ceil(math.log10(largest)))
    # Adding zero turns -0 into 0.
    return [f"{round(float(value), decimals) + 0.0:,.{decimals}f}" for value in values]


class Layout(NamedTuple):
    """Sizes and positions of pairs in a figure, in pixels."""

    columns: int
    height: int
    """Height of a picture."""
    width: int
    """Width of a picture."""
    pair: int
    """Width of the pictures of a pair."""
    tile: int
    """Width of a pair with its caption."""
    font: float
    """Font size of captions, in points."""
    line: float
    """Line height of captions."""
    pitch: tuple[int, int]
    """Distance from one pair to the next, across and down."""
    size: tuple[int, int]
    """Width and height of the figure."""

    def corner(self, number: int) -> tuple[int, int]:
        """Return the left and top of a pair."""
        row, column = divmod(number, self.columns)
        return _MARGIN + column * self.pitch[0], _TOP + row * self.pitch[1]


def layout_for(count: int, sides: int, shape: tuple[int, int]) -> Layout:
    """Return the layout of ``count`` pairs in landscape format; more pairs are drawn smaller."""
    longer = max(shape)
    aim = min(max(1300 / math.sqrt(count), 2 * _SMALLEST) / sides, _LARGEST)
    scale = round(aim / longer) if longer <= aim else aim / longer
    height, width = (max(1, round(scale * side)) for side in shape)
    pair = sides * (width + _GAP) - _GAP
    tile = max(pair, 2 * _SMALLEST)
    font = min(max(_POINT * tile / 7.4, 6), 8)
    line = 1.35 * font / _POINT
    across, down = tile + _SPACE, math.ceil(height + 3 * line) + _SPACE

    def size(columns: int) -> tuple[int, int]:
        rows = math.ceil(count / columns)
        wide = max(columns * across - _SPACE + 2 * _MARGIN, _MIN_WIDTH)
        return wide, _TOP + rows * down - _SPACE + _MARGIN

    def badness(columns: int) -> float:
        """Return the deviation from the aspect ratio plus the share that would stay empty."""
        wide, high = size(columns)
        tiles = math.ceil(count / columns) * columns
        return abs(math.log(wide / high / _ASPECT)) + 2 * (1 - count / tiles)

    columns = min(range(1, count + 1), key=badness)
    return Layout(columns, height, width, pair, tile, font, line, (across, down), size(columns))


def _draw(axes: Axes, picture: np.ndarray, box: tuple[int, int, int, int]) -> None:
    """Draw a picture centered in its box and as large as possible."""
    left, top, width, height = box
    scale = min(height / picture.shape[0], width / picture.shape[1])
    wide, high = round(scale * picture.shape[1]), round(scale * picture.shape[0])
    x, y = left + (width - wide) // 2, top + (height - high) // 2
    filtering = "nearest" if scale >= 1 else "antialiased"
    axes.imshow(picture, extent=(x, x + wide, y + high, y), interpolation=filtering, **_IMAGE)


def _heading(matches: Matches, drawn: pd.DataFrame, by: Order) -> tuple[list[str], list[str]]:
    """Return the key figures, and the notes about what is shown."""
    items, missed = len(matches.dataset), int((~matches.reached).sum())
    figures = [
        f"explained variance {matches.explained:.1%}",
        f"not reached {missed:,} of {items:,} items",
        f"coverage {matches.coverage():.1%}",
    ]
    which = f"All {len(drawn):,} items"
    if len(drawn) < items:
        which = f"{len(drawn):,} of {items:,} items, spread evenly over all of them"
    what = "item" if matches.dataset.labels is None else "label · item"
    below = "Left the nearest solution, right the item. "
    below += f"Below: {what}, objective · distance, explained variance."
    return figures, [f"{which}, {_ORDERS[by]}.", below, *rules(matches)]


def _write(
    axes: Axes, x: float, y: float, text: str, size: float, color: str, weight: str = "normal"
) -> None:
    options: Any = {"fontsize": size, "color": color, "fontweight": weight}
    axes.text(x, y, checks.printable(text), va="top", parse_math=False, **options)


def _shortened(label: str | None, name: str, letters: int) -> str:
    """Return label and name in at most ``letters`` letters; long names keep their end.

    A folder that is the label is not repeated, and a suffix is dropped if the rest then fits.

    >>> _shortened("cat", "photographs/0017.png", 16), _shortened("a very long label", "x", 8)
    ('cat · …/0017.png', 'a very …')
    >>> _shortened("cat", "cat/0017.png", 14), _shortened("cat", "cat/0017.png", 10)
    ('cat · 0017.png', 'cat · 0017')
    """
    label, name = (" ".join((text or "").split()) for text in (label, name))
    name = name.removeprefix(f"{label}/")
    if len(label) > letters:
        return label[: letters - 1] + "…"
    before = f"{label} · " if label else ""
    room = letters - len(before)
    stem = name.rpartition(".")[0]
    if stem and len(stem) <= room < len(name):
        return before + stem
    if len(name) <= room:
        return before + name
    return before + "…" + name[len(name) - room + 1 :] if room > 4 else label
