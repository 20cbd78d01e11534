"""Galleries: the items of a dataset, each beside its nearest elite, as one figure."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, Shaped, UInt8
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gloam._tools import checks
from gloam.archives import Elites
from gloam.datasets import Dataset, Matches
from gloam.datasets.dataset import checked_images, is_image
from gloam.datasets.matches import Order
from gloam.datasets.rows import evenly_spaced
from gloam.plots import style

Pictures = Callable[[np.ndarray], np.ndarray]
"""Maps indices of elites in ``elites.solutions`` to uint8 images ``(n, height, width[, 3])``."""

# Lengths are in pixels of the figure: a small picture is crisp only if each of its pixels covers a
# whole number of them.
_MARGIN, _TOP, _GAP, _SPACE = 54, 228, 3, 24
_SMALLEST, _LARGEST = 56, 168
_MIN_WIDTH = 1100  # room for the heading
_ASPECT = 1.45
_POINT = 72 / style.DPI  # points of a pixel
_IMAGE: Any = {"cmap": "gray", "vmin": 0, "vmax": 255, "aspect": "auto", "zorder": 2}
_BATCH = 256  # solutions that are rendered at a time

_ORDERS = {
    "explained": "from the most explained variance to the least",
    "distance": "from the nearest to the farthest",
    "objective": "from the best objective to the worst, then those with empty cells",
    "label": "label by label, the nearest first",
    "item": "in the order of the items",
}
_NOT_REACHED = "Not reached: no solution found is nearer to the item than the mean of all items is."
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
        pictures: Images of the elites, for instance from `elite_pictures`.
        by: Order of the pairs.
        count: Maximum number of pairs to draw; 10 to 200 fit well.
        title: Heading of the figure.
        ax: Axes to draw into, scaled to fit. Default: a new figure.

    Returns:
        The figure. Its images are solution and item in turn; solutions only, if the dataset has no
        images.
    """
    count = checks.integer("count", count, minimum=1)
    table = ordered(matches, by)
    drawn = table.iloc[evenly_spaced(len(table), count)]
    made = made_pictures(pictures, drawn["row"].to_numpy())
    items = item_pictures(matches.dataset, drawn["item"].to_numpy())
    sides = [made] if items is None else [made, items]
    layout = layout_for(len(drawn), len(sides), sides[-1].shape[1:3])
    width, height = (side / style.DPI for side in layout.size)
    figure, (axes,) = style.sheet(width, height, [(0, 0, width, height)], ax)
    axes.set_axis_off()
    zoom = 1.0
    if ax is not None:
        axes.set_box_aspect(height / width)
        box, pixels = axes.get_window_extent(), figure.get_dpi() / style.DPI
        zoom = min(box.width / layout.size[0], box.height / layout.size[1]) / pixels
    # The mat behind a pair is its frame, and sets white pictures off from the background.
    corners = [layout.corner(number) for number in range(len(drawn))]
    mats = [
        Rectangle((left - 1, top - 1), layout.pair + 2, layout.height + 2) for left, top in corners
    ]
    axes.add_collection(PatchCollection(mats, facecolor=style.FAINT, linewidth=0))
    reached = drawn["reached"].to_numpy()
    frames = [
        Rectangle((left - 4, top - 4), layout.pair + 8, layout.height + 8)
        for (left, top), is_reached in zip(corners, reached, strict=True)
        if not is_reached
    ]
    dashed = {"facecolor": "none", "edgecolor": style.QUIET, "linestyle": "--", "linewidth": zoom}
    axes.add_collection(PatchCollection(frames, **dashed))
    for number, (left, top) in enumerate(corners):
        for side, images in enumerate(sides):
            x = left + side * (layout.width + _GAP)
            _draw(axes, images[number], (x, top, layout.width, layout.height))
    _captions(axes, drawn, layout, zoom)
    _heading(axes, matches, title, len(drawn), by, zoom)
    axes.set(xlim=(0, layout.size[0]), ylim=(layout.size[1], 0))
    return figure


def elite_pictures(
    elites: Elites, dataset: Dataset, domain: Any = None, size: int | tuple[int, int] | None = None
) -> Pictures:
    """Return a function that gives images of the elites, for `gallery` and `page`.

    The images are, in order of preference: the archive's field ``image`` (uint8, or floats from 0
    to 1); what the domain renders; the measures, if the items are images.

    Args:
        elites: The filled archive.
        dataset: The items of its cells.
        domain: The domain that was searched. Used if it has a method ``render(solutions, size)``
            that returns images with values from 0 to 1.
        size: Passed to ``render``.
    """
    if "image" in elites.store.fields:
        images = elites.field("image")
        shape = dataset.shape if is_image(dataset.shape) else ()
        if images.ndim == 2 and images.shape[1] == math.prod(shape):
            images = images.reshape(-1, *shape)
        return lambda rows: _bytes("field 'image'", images[rows])
    render = getattr(domain, "render", None)
    if callable(render):
        solutions = elites.solutions
        return lambda rows: np.concatenate(
            [
                _bytes("render", np.asarray(render(solutions[rows[start : start + _BATCH]], size)))
                for start in range(0, len(rows), _BATCH)
            ]
        )
    checks.expect(
        is_image(dataset.shape),
        "pictures",
        "an archive with a field 'image', a domain with render(), or items that are images",
        f"items of shape {dataset.shape}",
        "Return an 'image' field from evaluate, and declare it: fields={'image': (28, 28)}.",
    )
    pixels = dataset.pixels(elites.flat_measures)
    return lambda rows: pixels[rows]


def has_pictures(elites: Elites, dataset: Dataset, domain: Any = None) -> bool:
    """Whether `elite_pictures` can show the elites."""
    can_render = callable(getattr(domain, "render", None))
    return can_render or "image" in elites.store.fields or is_image(dataset.shape)


def made_pictures(
    pictures: Pictures, rows: Int[np.ndarray, " n"]
) -> UInt8[np.ndarray, "n height width *channels"]:
    """Return the images of elites, after checking what the user's function returned."""
    return checked_images(pictures(rows), len(rows))


def item_pictures(
    dataset: Dataset, items: Int[np.ndarray, " n"]
) -> UInt8[np.ndarray, "n height width *channels"] | None:
    """Return the images of items, or ``None`` if they have no images."""
    if not dataset.has_images:
        return None
    return np.stack([dataset.image(item) for item in items.tolist()])


def _bytes(name: str, values: Shaped[np.ndarray, "n *image"]) -> np.ndarray:
    """Return images as uint8; floats range from 0 to 1."""
    expected = "images (height, width) or (height, width, 3)"
    checks.expect(is_image(values.shape[1:]), name, expected, f"shape {values.shape[1:]}")
    if values.dtype == np.uint8:
        return values
    if values.dtype.kind == "f":
        # Slightly too bright is clipped; bytes stored as floats would be all white.
        values = np.nan_to_num(values)
        highest = float(values.max(initial=0.0))
        fix = "Divide by 255, or use uint8."
        checks.expect(highest <= 2, name, "floats from 0 to 1", f"up to {highest:g}", fix)
        values = 255 * values
    return np.rint(np.clip(values, 0, 255)).astype(np.uint8)


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
    marked = {_NOT_REACHED: ~matches.reached, _EMPTY: ~matches.filled}
    return [rule for rule, has_mark in marked.items() if has_mark.any()]


def captions(table: pd.DataFrame) -> list[tuple[str, str]]:
    """Return two lines for each item: objective and distance of the elite, and what it explains.

    The objective of an item whose cell is empty is left out: it is that of another cell.
    """
    objectives = rounded(table["objective"].to_numpy())
    distances = rounded(table["distance"].to_numpy())
    rows = zip(objectives, distances, table["filled"], table["explained"], strict=True)
    return [
        (
            f"{objective if is_filled else 'empty'} · {distance}",
            f"explains {explained:.0%}" if explained > 0 else "not reached",
        )
        for objective, distance, is_filled, explained in rows
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
    """Draw a picture centred in its box and as large as possible."""
    left, top, width, height = box
    scale = min(height / picture.shape[0], width / picture.shape[1])
    wide, high = round(scale * picture.shape[1]), round(scale * picture.shape[0])
    x, y = left + (width - wide) // 2, top + (height - high) // 2
    filtering = "nearest" if scale >= 1 else "antialiased"
    axes.imshow(picture, extent=(x, x + wide, y + high, y), interpolation=filtering, **_IMAGE)


def _captions(axes: Axes, drawn: pd.DataFrame, layout: Layout, zoom: float) -> None:
    """Write label, name, objective, distance and explained variance below each pair."""
    letters = int(_POINT * layout.tile / (0.6 * layout.font))
    rows = zip(drawn["label"], drawn["name"], captions(drawn), strict=True)
    for number, (label, name, (values, explained)) in enumerate(rows):
        left, top = layout.corner(number)
        name = _shortened(label, name, letters)
        y, size = top + layout.height + 6, zoom * layout.font
        _write(axes, left, y, name, size, style.INK)
        _write(axes, left, y + layout.line, values, size, style.QUIET)
        _write(axes, left, y + 2 * layout.line, explained, size, style.QUIET)


def _heading(axes: Axes, matches: Matches, title: str, drawn: int, by: str, zoom: float) -> None:
    items, missed = len(matches.dataset), int((~matches.reached).sum())
    figures = [
        f"explained variance {matches.explained:.1%}",
        f"not reached {missed:,} of {items:,} items",
        f"coverage {matches.coverage():.1%}",
    ]
    which = f"All {drawn:,} items"
    if drawn < items:
        which = f"{drawn:,} of {items:,} items, spread evenly over all of them"
    sides = "Left the nearest solution, right the item. " if matches.dataset.has_images else ""
    what = "item" if matches.dataset.labels is None else "label · item"
    title = title or "Solutions beside their items"
    below = f"{sides}Below: {what}, objective · distance, explained variance."
    small = zoom * style.SMALL
    _write(axes, _MARGIN, 36, title, zoom * (style.TITLE + 2), style.INK, weight="bold")
    _write(axes, _MARGIN, 76, "     ".join(figures), zoom * style.LABEL, style.INK)
    _write(axes, _MARGIN, 106, f"{which}, {_ORDERS[by]}.", small, style.QUIET)
    _write(axes, _MARGIN, 130, below, small, style.QUIET)
    for line, rule in enumerate(rules(matches)):
        _write(axes, _MARGIN, 154 + 24 * line, rule, small, style.QUIET)


def _write(
    axes: Axes, x: float, y: float, text: str, size: float, color: str, weight: str = "normal"
) -> None:
    options: Any = {"fontsize": size, "color": color, "fontweight": weight}
    axes.text(x, y, text, va="top", parse_math=False, **options)


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
