"""Pictures of elites and of the items that they stand for.

Where the pairs of a gallery go on its sheet.

A gallery: solutions beside the items of a dataset that they stand for, on one sheet.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, Shaped, UInt8
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gloam import checks
from gloam.archives import Elites
from gloam.datasets import Dataset, Matches
from gloam.datasets.dataset import checked_images, is_image
from gloam.plots import style

Pictures = Callable[[np.ndarray], np.ndarray]
"""From places in ``elites.solutions`` to uint8 pictures ``(n, height, width[, 3])``."""

_BATCH = 256


def elite_pictures(
    elites: Elites,
    dataset: Dataset,
    domain: Any = None,
    size: int | tuple[int, int] | None = None,
) -> Pictures:
    """What elites look like: a function for `gallery` and `page`.

    It takes the first of these that there is: a field ``image`` of the archive (uint8, or floats
    from 0 to 1); what the domain renders; the measures, where the items are pictures themselves.

    Args:
        elites: The filled archive.
        dataset: The items that its cells are.
        domain: What was searched. It is asked if it has a method ``render(solutions, size)`` that
            returns pictures with values from 0 to 1.
        size: Handed to ``render``; by default its own choice.
    """
    if "image" in elites.store.fields:
        found = elites.field("image")
        kept = dataset.shape if is_image(dataset.shape) else ()
        if found.ndim == 2 and found.shape[1] == math.prod(kept):
            found = found.reshape(-1, *kept)
        return lambda rows: _bytes("field 'image'", found[rows])
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
        "an archive with a field 'image', a domain with render(), or items that are pictures",
        f"items of shape {dataset.shape}",
        "Return an 'image' field from evaluate, and declare it: fields={'image': (28, 28)}.",
    )
    # As the dataset itself shows its items.
    low, high = dataset.bounds or (float(dataset.items.min()), float(dataset.items.max()))
    pixels = ((elites.measures - low) * (255 / (high - low))).clip(0, 255)
    measures = np.rint(pixels).astype(np.uint8).reshape(-1, *dataset.shape)
    return lambda rows: measures[rows]


def has_pictures(elites: Elites, dataset: Dataset, domain: Any = None) -> bool:
    """Whether `elite_pictures` can show elites; vectors cannot be shown."""
    rendered = callable(getattr(domain, "render", None))
    return rendered or "image" in elites.store.fields or is_image(dataset.shape)


def made_pictures(
    pictures: Pictures, rows: Int[np.ndarray, " n"]
) -> UInt8[np.ndarray, "n height width *channels"]:
    """The pictures of elites, as the user's function gives them, checked."""
    return checked_images(pictures(rows), len(rows))


def item_pictures(
    dataset: Dataset, items: Int[np.ndarray, " n"]
) -> UInt8[np.ndarray, "n height width *channels"] | None:
    """The pictures of items, or ``None`` where they have none."""
    if not dataset.has_images:
        return None
    return np.stack([dataset.image(item) for item in items.tolist()])


def _bytes(name: str, values: Shaped[np.ndarray, "n *picture"]) -> np.ndarray:
    """Pictures in uint8; floats go from 0 to 1."""
    checks.expect(
        is_image(values.shape[1:]),
        name,
        "pictures (height, width) or (height, width, 3)",
        f"shape {values.shape[1:]}",
    )
    if values.dtype == np.uint8:
        return values
    if values.dtype.kind == "f":
        # A little too bright is cut off; bytes kept as floats would be all white.
        values = np.nan_to_num(values)
        highest = float(values.max(initial=0.0))
        checks.expect(
            highest <= 2,
            name,
            "floats from 0 to 1",
            f"up to {highest:g}",
            "Divide by 255, or use uint8.",
        )
        values = 255 * values
    return np.rint(np.clip(values, 0, 255)).astype(np.uint8)


# All lengths on the sheet are in its pixels: a small picture is crisp only where each of its
# pixels covers a whole number of them.
MARGIN, _TOP, GAP, _SPACE = 54, 180, 3, 24
_SMALLEST, _LARGEST = 56, 168
_HEADING = 1100
_LANDSCAPE = 1.45


class Layout(NamedTuple):
    """Where pairs go on the sheet."""

    columns: int
    height: int
    """Of a picture."""
    width: int
    """Of a picture."""
    pair: int
    """Width of the pictures of a pair."""
    tile: int
    """Width of a pair and its caption."""
    font: float
    """Size of captions, in points."""
    line: float
    """Height of a line of a caption."""
    pitch: tuple[int, int]
    """From one pair to the next, across and down."""
    size: tuple[int, int]
    """Width and height of the sheet."""

    def corner(self, place: int) -> tuple[int, int]:
        """Left and top of a pair."""
        row, column = divmod(place, self.columns)
        return MARGIN + column * self.pitch[0], _TOP + row * self.pitch[1]


def layout_for(count: int, sides: int, shape: tuple[int, int]) -> Layout:
    """A landscape sheet for ``count`` pairs: the more there are, the smaller each."""
    longer = max(shape)
    aim = min(max(1300 / math.sqrt(count), 2 * _SMALLEST) / sides, _LARGEST)
    scale = round(aim / longer) if longer <= aim else aim / longer
    height, width = (max(1, round(scale * side)) for side in shape)
    pair = sides * (width + GAP) - GAP
    tile = max(pair, 2 * _SMALLEST)
    font = min(max(points(tile) / 7.4, 6), 8)
    line = 1.35 * font * style.DPI / 72
    across, down = tile + _SPACE, math.ceil(height + 2 * line) + _SPACE

    def size(columns: int) -> tuple[int, int]:
        rows = math.ceil(count / columns)
        return (
            max(columns * across - _SPACE + 2 * MARGIN, _HEADING),
            _TOP + rows * down - _SPACE + MARGIN,
        )

    def badness(columns: int) -> float:
        """How far from landscape, and how much of the sheet would stay empty."""
        wide, high = size(columns)
        full = math.ceil(count / columns) * columns
        return abs(math.log(wide / high / _LANDSCAPE)) + 2 * (1 - count / full)

    columns = min(range(1, count + 1), key=badness)
    return Layout(columns, height, width, pair, tile, font, line, (across, down), size(columns))


def points(pixels: float) -> float:
    """A length in pixels of the sheet, in points."""
    return pixels * 72 / style.DPI


Order = Literal["objective", "distance", "label", "item"]

_ORDERS = {
    "objective": "from the best objective to the worst",
    "distance": "from the nearest to the farthest",
    "label": "label by label, the nearest first",
    "item": "in the order of the items",
}


def gallery(
    matches: Matches,
    pictures: Pictures,
    *,
    by: Order = "objective",
    count: int = 60,
    title: str = "",
    ax: Axes | None = None,
) -> Figure:
    """Pairs of a solution, on the left, and its item, in order.

    Where there are more than ``count`` pairs, those drawn are spread evenly over the order, the
    first and the last among them, so that good and bad ones are seen alike.

    Args:
        matches: The elites and the items.
        pictures: From places in ``elites.solutions`` to uint8 pictures, for instance
            `elite_pictures`.
        by: The order.
        count: How many pairs to draw at most; 10 to 200 look well.
        title: Heading of the sheet.
        ax: Axes whose place the sheet takes, smaller or larger; by default it is a new figure.

    Returns:
        A figure of one set of axes (without ``ax``), whose images are solution and item in turn. Of
        a dataset without pictures, only the solutions are drawn.
    """
    count = checks.integer("count", count, minimum=1)
    table = ordered(matches, by)
    drawn = table.iloc[spread(len(table), count)]
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
    # The mat behind a pair is its frame and its gap, and tells white pictures from the sheet.
    corners = [layout.corner(place) for place in range(len(drawn))]
    mats = [
        Rectangle((left - 1, top - 1), layout.pair + 2, layout.height + 2) for left, top in corners
    ]
    axes.add_collection(PatchCollection(mats, facecolor=style.FAINT, linewidth=0))
    for place, (left, top) in enumerate(corners):
        for side, shown in enumerate(sides):
            box = (left + side * (layout.width + GAP), top, layout.width, layout.height)
            _draw(axes, shown[place], box)
    _captions(axes, drawn, corners, layout, zoom)
    _heading(axes, matches, title, len(drawn), by, zoom)
    axes.set(xlim=(0, layout.size[0]), ylim=(layout.size[1], 0))
    return figure


def ordered(matches: Matches, by: Order) -> pd.DataFrame:
    """The table of ``matches``, of which there must be one at least."""
    checks.instance("matches", matches, Matches, "Build gloam.datasets.Matches(elites, dataset).")
    checks.expect(len(matches.elites) > 0, "elites", "at least one elite", "none")
    if by == "label":
        checks.expect(
            matches.dataset.labels is not None,
            "by",
            "'objective', 'distance' or 'item'",
            "'label' for a dataset without labels",
        )
    return matches.table(by)


def spread(total: int, count: int) -> Int[np.ndarray, " n"]:
    """At most ``count`` places of ``total``, evenly spread, the first and the last among them.

    >>> spread(10, 4).tolist(), spread(3, 4).tolist()
    ([0, 3, 6, 9], [0, 1, 2])
    """
    return np.rint(np.linspace(0, total - 1, min(total, count))).astype(int)


def rounded(values: Float[np.ndarray, " n"]) -> list[str]:
    """Numbers as short texts, with as many decimals as the largest of them needs.

    >>> rounded(np.array([0.99962, 0.5])), rounded(np.array([1234.5, -20.0]))
    (['1.000', '0.500'], ['1,234', '-20'])
    """
    largest = float(np.abs(values).max(initial=0.0))
    if not 1e-4 <= largest < 1e7:
        return [f"{value:.3g}" for value in values]
    decimals = max(0, 3 - math.ceil(math.log10(largest)))
    # Adding zero turns -0 into 0.
    return [f"{round(float(value), decimals) + 0.0:,.{decimals}f}" for value in values]


def _draw(axes: Axes, picture: np.ndarray, box: tuple[int, int, int, int]) -> None:
    """A picture as large as its box allows, in the middle of it."""
    left, top, width, height = box
    scale = min(height / picture.shape[0], width / picture.shape[1])
    wide, high = round(scale * picture.shape[1]), round(scale * picture.shape[0])
    x, y = left + (width - wide) // 2, top + (height - high) // 2
    axes.imshow(
        picture,
        cmap="gray",
        vmin=0,
        vmax=255,
        aspect="auto",
        zorder=2,
        extent=(x, x + wide, y + high, y),
        interpolation="nearest" if scale >= 1 else "antialiased",
    )


def _captions(
    axes: Axes,
    drawn: pd.DataFrame,
    corners: list[tuple[int, int]],
    layout: Layout,
    zoom: float,
) -> None:
    """Below each pair what it is, and how good."""
    letters = int(points(layout.tile) / (0.6 * layout.font))
    columns = (
        drawn["label"],
        drawn["name"],
        rounded(drawn["objective"].to_numpy()),
        rounded(drawn["distance"].to_numpy()),
    )
    for (left, top), *row in zip(corners, *columns, strict=True):
        label, name, objective, distance = row
        texts = [
            (_named(label, name, letters), style.INK),
            (f"{objective} · {distance}", style.QUIET),
        ]
        for line, (text, color) in enumerate(texts):
            axes.text(
                left,
                top + layout.height + 6 + line * layout.line,
                text,
                color=color,
                va="top",
                fontsize=zoom * layout.font,
                parse_math=False,
            )


def _named(label: str | None, name: str, letters: int) -> str:
    """Label and name in so many letters; of a long name the end is kept, which tells files apart.

    The folder that is the label is not repeated, and a suffix is left out if the rest then fits.

    >>> _named("cat", "photographs/0017.png", 16), _named("a very long label", "x", 8)
    ('cat · …/0017.png', 'a very …')
    >>> _named("cat", "cat/0017.png", 14), _named("cat", "cat/0017.png", 10)
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


def _heading(axes: Axes, matches: Matches, title: str, drawn: int, by: str, zoom: float) -> None:
    elites, median = len(matches.elites), float(np.median(matches.distances))
    (near,) = rounded(np.array([median]))
    figures = [
        f"{elites:,} elites for {len(matches.dataset):,} items",
        f"coverage {matches.coverage():.1%}",
        f"within the median distance of {near}: {matches.coverage(median):.1%}",
    ]
    which = f"All {drawn:,} pairs"
    if drawn < elites:
        which = f"{drawn:,} of {elites:,} pairs, spread evenly over all of them"
    sides = "Left the solution, right the item. " if matches.dataset.has_images else ""
    what = "item" if matches.dataset.labels is None else "label · item"
    lines = [
        (36, title or "Solutions beside their items", style.TITLE + 2, style.INK, "bold"),
        (76, "     ".join(figures), style.LABEL, style.INK, "normal"),
        (106, f"{which}, {_ORDERS[by]}.", style.SMALL, style.QUIET, "normal"),
        (130, f"{sides}Below: {what}, objective · distance.", style.SMALL, style.QUIET, "normal"),
    ]
    for y, text, size, color, weight in lines:
        axes.text(
            MARGIN,
            y,
            text,
            fontsize=zoom * size,
            color=color,
            fontweight=weight,
            va="top",
            parse_math=False,
        )
