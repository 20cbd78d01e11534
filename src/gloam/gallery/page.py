"""The panels of a page, as HTML: key figures, distances, coverage by label, held-out items.

A page: all pairs of solution and item in one HTML file that needs nothing else.

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
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, UInt8

from gloam import checks
from gloam.datasets import Matches
from gloam.gallery.pairs import Pictures, item_pictures, made_pictures, ordered, rounded, spread

_BINS = 40
_STOPS = 200
# A list of more labels than this is no overview.
_MOST_LABELS = 500


class Thresholds:
    """Distances to choose from, and how many items have an elite within each.

    Counting them here, not on the page, keeps it small and its figures those of `Matches`.

    Args:
        matches: The elites and the items.
    """

    def __init__(self, matches: Matches):
        distances = matches.distances
        largest = max(float(distances.max()), 0.0)
        self.top = _usual_top(distances)
        even = np.linspace(0, self.top, _STOPS)
        # In float32 like the distances, so that Python and the page agree on what lies within. The
        # last leaves nothing out.
        self.stops: Float[np.ndarray, " stops"] = np.unique(np.append(even, largest).astype("f4"))
        self.within = self._count(distances)
        self.labels: list[dict[str, Any]] = []
        """For each label its items and ``within``; empty where there are too many labels."""
        names = sorted(set(matches.dataset.labels or []))
        if 0 < len(names) <= _MOST_LABELS:
            codes = {name: code for code, name in enumerate(names)}
            items = np.array([codes[label] for label in matches.dataset.labels or []])
            own = items[matches.elites.cells]
            self.labels = [
                {
                    "label": name,
                    "items": int((items == code).sum()),
                    "within": self._count(distances[own == code]),
                }
                for name, code in codes.items()
            ]

    def _count(self, distances: Float[np.ndarray, " n"]) -> list[int]:
        found: Int[np.ndarray, " stops"]
        found = np.searchsorted(np.sort(distances), self.stops, side="right")
        return found.tolist()


def figures(matches: Matches) -> str:
    """The key figures of an archive."""
    elites = matches.elites
    return _list(
        {
            "QD score": f"{elites.qd_score:,.1f}",
            "coverage": f"{matches.coverage():.1%}",
            "elites / items": f"{len(elites):,} / {len(matches.dataset):,}",
            "best objective": f"{elites.best_objective:.4g}",
            "median distance": _one(np.median(matches.distances)),
        }
    )


def distances(matches: Matches, thresholds: Thresholds) -> str:
    """A histogram of the distances with a threshold to move, and the coverage within it."""
    last, top, values = len(thresholds.stops) - 1, thresholds.top, matches.distances
    chart = _chart(
        "the distances from elites to their items", _bars(_counts(values, top), top), top, values
    )
    figures = (
        f'Coverage within distance <b id="distance">{_one(thresholds.stops[-1])}</b>: '
        f'<b id="coverage">{matches.coverage():.1%}</b>, '
        f'<span id="filled">{len(values):,}</span> of {len(matches.dataset):,} items'
    )
    return f"""<section id="distances" aria-labelledby="distances-title">
<h2 id="distances-title">Distances from solution to item</h2>
{chart}
<div class="js"><label for="threshold">Count an item only if its elite is this near:</label>
<input type="range" id="threshold" min="0" max="{last}" value="{last}" autocomplete="off"></div>
<p><output for="threshold">{figures}</output></p>
</section>"""


def labels(thresholds: Thresholds) -> str:
    """Coverage of each label, plain and within the threshold."""
    if not thresholds.labels:
        return ""
    rows = []
    for row in thresholds.labels:
        share = f"{row['within'][-1] / row['items']:.1%}"
        rows.append(
            f'<tr data-label><th scope="row" title="{named(row["label"])}">'
            f"{named(row['label'])}</th>"
            f'<td>{row["items"]:,}</td><td>{share}</td><td class="js" data-share>{share}</td>'
            f'<td class="wide"><div class="meter" aria-hidden="true"><i style="width:{share}"></i>'
            f'<i style="width:{share}" data-bar></i></div></td></tr>'
        )
    return f"""<section aria-labelledby="labels-title">
<h2 id="labels-title">Coverage by label</h2>
<div class="scroll" tabindex="0" role="region" aria-labelledby="labels-title"><table>
<thead><tr><th scope="col">label</th><th scope="col">items</th>
<th scope="col"><span class="key soft"></span>coverage</th>
<th scope="col" class="js"><span class="key"></span>near enough</th><td></td></tr></thead>
<tbody>
{chr(10).join(rows)}
</tbody></table></div>
</section>"""


def held_out_panel(table: pd.DataFrame) -> str:
    """How near the elites come to items never seen, beside how near the items seen come."""
    columns = list(table.columns) if isinstance(table, pd.DataFrame) else []
    checks.expect(
        {"distance", "floor"} <= set(columns) and len(table) > 0,
        "held_out",
        "a table with rows of distance and floor",
        f"columns {columns}, {len(table)} rows",
        "Give what matches.held_out(others) returns.",
    )
    distance, floor = (table[name].to_numpy(float) for name in ("distance", "floor"))
    top = _usual_top(np.concatenate([distance, floor]))
    bars, steps = _counts(distance, top), _counts(floor, top)
    highest = max(int(bars.max()), int(steps.max()))
    line = "".join(
        f"V{100 - 100 * count / highest:.2f}H{100 * (place + 1) / _BINS:g}"
        for place, count in enumerate(steps)
    )
    drawn = f'{_bars(bars, top, highest)}<path class="floor" d="M0 100{line}V100"></path>'
    values = _list(
        {
            "items never seen": f"{len(table):,}",
            "median distance": _one(np.median(distance)),
            "median floor": _one(np.median(floor)),
        }
    )
    return f"""<section aria-labelledby="held-out-title">
<h2 id="held-out-title">Held-out items</h2>
<dl class="figures small">
{values}
</dl>
{_chart("the distances from held-out items to elites", drawn, top, distance)}
<p class="quiet"><span class="key"></span>distance to the nearest elite
<span class="key line"></span>floor: distance to the nearest item that the search saw. An archive
that met all of its own items exactly would come that near.</p>
</section>"""


def named(label: str) -> str:
    """A label as it is read; a dataset has the empty text for a missing one."""
    return html.escape(label) if label.strip() else "(none)"


def _list(entries: dict[str, str]) -> str:
    return "\n".join(f"<div><dt>{k}</dt><dd>{v}</dd></div>" for k, v in entries.items())


def _one(value: Any) -> str:
    return rounded(np.array([float(value)]))[0]


def _usual_top(values: Float[np.ndarray, " n"]) -> float:
    """The largest, unless a few far off would squeeze all others into a corner."""
    largest, usual = float(values.max()), float(np.quantile(values, 0.99))
    return max(usual if 0 < 1.5 * usual < largest else largest, 0.0)


def _counts(values: Float[np.ndarray, " n"], top: float) -> Int[np.ndarray, " bins"]:
    """How many lie in each part of 0 to ``top``; in the last one with all beyond."""
    return np.histogram(np.clip(values, 0, top), _BINS, range=(0, top or 1.0))[0]


def _bars(counts: Int[np.ndarray, " bins"], top: float, highest: int | None = None) -> str:
    """Bars in a box of 100 by 100, each with the distance that it starts from."""
    wide, full = 100 / _BINS, 100 / (highest or int(counts.max()))
    return "".join(
        f'<rect class="bar" data-from="{top * place / _BINS:.6g}" x="{(place + 0.05) * wide:g}" '
        f'y="{100 - full * count:.2f}" width="{0.9 * wide:g}" height="{full * count:.2f}"></rect>'
        for place, count in enumerate(counts)
    )


def _chart(what: str, drawn: str, top: float, values: Float[np.ndarray, " n"]) -> str:
    more = " and more" if float(values.max()) > top else ""
    text = f"Histogram of {what}: half of them are at most {_one(np.median(values))}"
    return f"""<svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img"
 aria-label="{text}">{drawn}</svg>
<div class="scale" aria-hidden="true"><span>0</span><span>{_one(top)}{more}</span></div>"""


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
    thresholds = Thresholds(matches)
    template = resources.files("gloam.gallery").joinpath("page.html").read_text("utf-8")
    script = template.rpartition("<script>")[2].partition("</script>")[0]
    heading = html.escape(title or "Solutions beside their items")
    orders = _orders(matches, shown)
    pairs, sizes = _pairs(matches, pictures, shown)
    parts = {
        "script-hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "title": heading,
        "figures": figures(matches),
        "distances": distances(matches, thresholds),
        "labels": labels(thresholds),
        "held-out": "" if held_out is None else held_out_panel(held_out),
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


def _filter(thresholds: Thresholds) -> str:
    if not thresholds.labels:
        return ""
    options = "".join(
        f'<option value="{code}">{named(row["label"])}</option>'
        for code, row in enumerate(thresholds.labels)
    )
    return (
        f'<label>Label <select id="label"><option value="">all</option>{options}</select></label>'
    )


def _data(
    matches: Matches,
    shown: pd.DataFrame,
    thresholds: Thresholds,
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
    known = "" if label is None else f"<b>{named(label)}</b> "
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
