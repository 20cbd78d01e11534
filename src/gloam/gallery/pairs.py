"""A gallery: solutions beside the items of a dataset that they stand for, on one sheet."""

import math
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gloam import checks
from gloam.datasets import Matches
from gloam.gallery.layout import GAP, MARGIN, Layout, layout_for, points
from gloam.gallery.pictures import Pictures, item_pictures, made_pictures
from gloam.plots import style

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
