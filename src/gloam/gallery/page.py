"""A page: all pairs of solution and item in one HTML file that needs nothing else.

``page.html`` beside this file holds the looks and the script. Whatever the user named is text on
the page, never markup: pages are published, and names of files come from anywhere.
"""

import base64
import hashlib
import html
import io
import json
import re
from importlib import resources

import numpy as np
import pandas as pd
from jaxtyping import UInt8

from gloam import checks
from gloam.datasets import Matches
from gloam.gallery import panels
from gloam.gallery.pairs import ordered, rounded, spread
from gloam.gallery.pictures import Pictures, item_pictures, made_pictures

_BATCH = 256
# Sides of pictures in pixels: up to the first they are kept exactly, small ones are shown about as
# large as the second, and none larger than the third.
_EXACT, _AIM, _LARGEST = 64, 84, 112
_NARROWEST = 130


def page(
    matches: Matches,
    pictures: Pictures | None,
    *,
    title: str = "",
    limit: int = 2000,
    held_out: pd.DataFrame | None = None,
) -> str:
    """A self-contained HTML page to look through what a search found.

    It has the key figures, the distances with a threshold to move, the coverage of each label, and
    the pairs, to be sorted and filtered. It loads nothing and runs no script but its own.

    Args:
        matches: The elites and the items.
        pictures: As for `gallery`. Pictures of up to 64 pixels a side are kept exactly; larger
            ones are shrunk to 112. ``None`` where elites cannot be shown: then the page has the
            pictures of the items, if there are any.
        title: Heading of the page.
        limit: How many pairs to show at most, spread evenly from the best objective to the worst;
            the figures count all. 2,000 pairs of 28 x 28 pixels make a page of 3 to 6 MB in gray,
            and of at most 14 MB in colour.
        held_out: What `Matches.held_out` tells of items that the search never saw.

    Returns:
        The text of the page, to be written in UTF-8.
    """
    limit = checks.integer("limit", limit, minimum=1)
    table = ordered(matches, "objective")
    shown = table.iloc[spread(len(table), limit)]
    thresholds = panels.Thresholds(matches)
    template = resources.files("gloam.gallery").joinpath("page.html").read_text("utf-8")
    script = template.rpartition("<script>")[2].partition("</script>")[0]
    heading = html.escape(title or "Solutions beside their items")
    orders = _orders(matches, shown)
    pairs, sizes = _pairs(matches, pictures, shown)
    parts = {
        "script-hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "title": heading,
        "figures": panels.figures(matches),
        "distances": panels.distances(matches, thresholds),
        "labels": panels.labels(thresholds),
        "held-out": "" if held_out is None else panels.held_out(held_out),
        "notes": _notes(matches, pictures, len(shown)),
        "orders": "\n".join(_choice(by) for by in orders),
        "filter": _filter(thresholds),
        "sizes": sizes,
        "pairs": pairs,
        "data": _data(matches, shown, thresholds, orders),
    }
    # In one pass: what is put in is not looked through again.
    return re.sub(r"<!--([a-z-]+)-->", lambda found: parts[found[1]], template)


def _notes(matches: Matches, pictures: Pictures | None, shown: int) -> str:
    elites = len(matches.elites)
    which = f"All {elites:,} pairs."
    if shown < elites:
        which = (
            f"{shown:,} of {elites:,} pairs, spread evenly from the best objective to the worst."
        )
    both = matches.dataset.has_images and pictures is not None
    sides = " Left the solution, right the item." if both else ""
    what = "item" if matches.dataset.labels is None else "label and item"
    below = "Below" if matches.dataset.has_images or pictures is not None else "Shown"
    return f"{which}{sides} {below}: {what}, objective · distance."


def _orders(matches: Matches, shown: pd.DataFrame) -> dict[str, list[int]]:
    """For each order the place in it of each pair shown."""
    labels = matches.dataset.labels is not None
    tables = {"objective": ordered(matches, "objective"), "distance": ordered(matches, "distance")}
    tables |= {"label": ordered(matches, "label")} if labels else {}
    tables |= {"item": ordered(matches, "item")}
    rows = shown["row"].to_numpy()
    return {by: np.argsort(table["row"].to_numpy())[rows].tolist() for by, table in tables.items()}


def _choice(by: str) -> str:
    checked = " checked" if by == "objective" else ""
    return f'<label><input type="radio" name="order" value="{by}"{checked}> {by}</label>'


def _filter(thresholds: panels.Thresholds) -> str:
    if not thresholds.labels:
        return ""
    options = "".join(
        f'<option value="{code}">{panels.named(row["label"])}</option>'
        for code, row in enumerate(thresholds.labels)
    )
    return (
        f'<label>Label <select id="label"><option value="">all</option>{options}</select></label>'
    )


def _data(
    matches: Matches,
    shown: pd.DataFrame,
    thresholds: panels.Thresholds,
    orders: dict[str, list[int]],
) -> str:
    """What the script needs to know, as JSON that cannot end the element it stands in."""
    codes = {row["label"]: code for code, row in enumerate(thresholds.labels)}
    content = {
        "items": len(matches.dataset),
        "top": thresholds.top,
        "stops": [float(stop) for stop in thresholds.stops],
        "texts": rounded(thresholds.stops),
        "within": thresholds.within,
        "labels": thresholds.labels,
        "orders": orders,
        "distance": [float(distance) for distance in shown["distance"]],
        "label": [codes.get(label) for label in shown["label"]],
    }
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _pairs(matches: Matches, pictures: Pictures | None, shown: pd.DataFrame) -> tuple[str, str]:
    """The list of pairs, and the sizes that its style asks for."""
    images, (height, width) = _images(matches, pictures, shown)
    columns = (
        shown["label"],
        shown["name"],
        rounded(shown["objective"].to_numpy()),
        rounded(shown["distance"].to_numpy()),
        images,
    )
    entries = "\n".join(_entry(*row) for row in zip(*columns, strict=True))
    pair = len(images[0]) * (width + 3) - 1
    sizes = f"--box:{height}px;--wide:{width}px;--tile:{max(pair, _NARROWEST)}px"
    return entries, sizes


def _images(
    matches: Matches, pictures: Pictures | None, shown: pd.DataFrame
) -> tuple[list[list[tuple[str, str]]], tuple[int, int]]:
    """For each pair what its pictures show and their attributes; and the room of a picture."""
    dataset, rows, items = matches.dataset, shown["row"].to_numpy(), shown["item"].to_numpy()
    if dataset.has_images:
        first = dataset.image(0)
    elif pictures is not None:
        first = made_pictures(pictures, rows[:1])[0]
    else:
        return [[] for _ in rows], (0, 0)
    box = _box(first.shape[0], first.shape[1])
    images: list[list[tuple[str, str]]] = []
    for start in range(0, len(rows), _BATCH):  # large pictures need not all be there at once
        part = slice(start, start + _BATCH)
        made = None if pictures is None else made_pictures(pictures, rows[part])
        both = {"solution for": made, "item": item_pictures(dataset, items[part])}
        sides = [
            [(what, _source(one, box)) for one in side]
            for what, side in both.items()
            if side is not None
        ]
        images += [list(pair) for pair in zip(*sides, strict=True)]
    return images, box


def _entry(
    label: str | None,
    name: str,
    objective: str,
    distance: str,
    images: list[tuple[str, str]],
) -> str:
    what = html.escape(name)
    drawn = "".join(f'<span><img alt="{shows} {what}" {image}></span>' for shows, image in images)
    known = "" if label is None else f"<b>{panels.named(label)}</b> "
    return (
        "<li>"
        + (f'<div class="pictures">{drawn}</div>' if drawn else "")
        + f'<div class="name" title="{what}">{known}{what}</div>'
        f'<div class="numbers">{objective} · {distance}</div></li>'
    )


def _box(height: int, width: int) -> tuple[int, int]:
    """Room for a picture on the page: small ones enlarged by a whole number."""
    longer = max(height, width)
    scale = round(_AIM / longer) if longer <= _AIM else min(1.0, _LARGEST / longer)
    return max(1, round(scale * height)), max(1, round(scale * width))


def _source(picture: UInt8[np.ndarray, "height width *channels"], box: tuple[int, int]) -> str:
    """A picture as the attributes of an element ``img`` that fits into the box."""
    from PIL import Image

    height, width = picture.shape[:2]
    image = Image.fromarray(picture)
    buffer = io.BytesIO()
    if max(height, width) <= _EXACT:
        kind = "png"
        image.save(buffer, "PNG", optimize=True)
    else:
        kind = "jpeg"
        image.thumbnail((_LARGEST, _LARGEST), Image.Resampling.LANCZOS)
        image.save(buffer, "JPEG", quality=88, subsampling=0)
    scale = min(box[0] / height, box[1] / width)
    crisp = ' class="crisp"' if scale >= 1 else ""
    data = base64.b64encode(buffer.getvalue()).decode()
    return (
        f'width="{max(1, round(scale * width))}" height="{max(1, round(scale * height))}"{crisp} '
        f'src="data:image/{kind};base64,{data}"'
    )
