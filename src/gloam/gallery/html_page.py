"""Galleries as one self-contained HTML page: key figures, coverage, and all items to browse.

``html_page.html`` beside this file has the style and the script. Titles, labels and names are
escaped, because pages are published and file names come from anywhere.
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
from jaxtyping import Float, Int
from PIL import Image

from gloam._tools import checks
from gloam.archives.qd_score import reference_note
from gloam.datasets import Matches
from gloam.datasets.matches import Order
from gloam.datasets.rows import evenly_spaced
from gloam.gallery.drawings import Picture, Pictures, Svg, sign
from gloam.gallery.pairs import (
    captions,
    item_pictures,
    made_pictures,
    ordered,
    rounded,
    rules,
)
from gloam.spaces import Space

_BINS, _STOPS = 40, 200
_MAX_LABELS = 500  # more labels are not listed
_MAX_VARIABLES = 20  # more variables are not listed
_BATCH = 256  # pairs whose images are in memory at a time
# Sides of images in pixels: up to _EXACT they are embedded unchanged; on the page, small images are
# enlarged to about _AIM, and none is larger than _LARGEST.
_EXACT, _AIM, _LARGEST = 64, 84, 112
_MAX_SVG = 8_000_000  # characters of all SVG on a page
_NARROWEST = 130


def page(
    matches: Matches,
    pictures: Pictures,
    *,
    title: str = "",
    limit: int = 2000,
    held_out: pd.DataFrame | None = None,
) -> str:
    """Return a self-contained HTML page with the results of a search on a dataset.

    It has the key figures, the distances with an adjustable threshold, coverage and explained
    variance of each label, and all items beside their nearest elites, which can be sorted and
    filtered. It loads nothing and runs only its own script.

    Args:
        matches: The elites and the items.
        pictures: As for `gallery`. Images of up to 64 pixels a side are embedded unchanged; larger
            ones are shrunk to 112. SVG is embedded up to 8 MB.
        title: Heading of the page.
        limit: Maximum number of items to show, evenly spaced from the best explained to the worst;
            the figures count all. 2,000 pairs of 28 x 28 pixels make a page of 3 to 6 MB in gray,
            and of at most 14 MB in color.
        held_out: Table of items that were held out of the search, from `Matches.held_out`.

    Returns:
        The text of the page, to be written as UTF-8.
    """
    limit = checks.integer("limit", limit, minimum=1)
    table = ordered(matches, "explained")
    shown = table.iloc[evenly_spaced(len(table), limit)]
    thresholds = Thresholds(matches)
    template = resources.files("gloam.gallery").joinpath("html_page.html").read_text("utf-8")
    script = template.rpartition("<script>")[2].partition("</script>")[0]
    orders = _orders(matches, shown)
    pairs, sizes = _pairs(matches, pictures, shown)
    parts = {
        "script-hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "title": html.escape(title or "Solutions beside their items"),
        "figures": _figures(matches),
        "distances": _distances(matches, thresholds),
        "labels": _labels(matches, thresholds),
        "held-out": "" if held_out is None else _held_out(held_out),
        "notes": _notes(matches, len(shown)),
        "orders": "\n".join(_choice(by) for by in orders),
        "filter": _filter(thresholds),
        "sizes": sizes,
        "pairs": pairs,
        "data": _data(matches, shown, thresholds, orders),
    }
    # In one pass, so that placeholders in inserted text stay text.
    return re.sub(r"<!--([a-z-]+)-->", lambda match: parts[match[1]], template)


class Thresholds:
    """Distances to choose from, and the number of items that have an elite within each.

    They are counted here and not on the page, so that it stays small and agrees with `Matches`.

    Args:
        matches: The elites and the items.
    """

    def __init__(self, matches: Matches):
        distances = matches.distances
        self.top = _usual_top(distances)
        stops = np.append(np.linspace(0, self.top, _STOPS), max(float(distances.max()), 0.0))
        # In float32 like the distances, so that Python and the page agree on what lies within.
        self.stops: Float[np.ndarray, " stops"] = np.unique(stops.astype("f4"))
        self.within = self._count(distances)
        self.labels: list[dict[str, Any]] = []
        """Name, number of items and ``within`` of each label; empty if there are too many."""
        labels = np.array(matches.dataset.labels or [], dtype=object)
        names = sorted(set(labels))
        if len(names) <= _MAX_LABELS:
            for name in names:
                of_label = distances[labels == name]
                counts = {"items": len(of_label), "within": self._count(of_label)}
                self.labels.append({"label": name, **counts})

    def _count(self, distances: Float[np.ndarray, " n"]) -> list[int]:
        return np.searchsorted(np.sort(distances), self.stops, side="right").tolist()


# Panels


def _figures(matches: Matches) -> str:
    elites = matches.elites
    return _list(
        {
            "explained variance": f"{matches.explained:.1%}",
            "not reached / items": f"{int((~matches.reached).sum()):,} / {len(matches.dataset):,}",
            "coverage": f"{matches.coverage():.1%}",
            "elites / items": f"{len(elites):,} / {len(matches.dataset):,}",
            "QD score": f"{elites.qd_score:,.1f}{reference_note(elites.f_min)}",
            "best objective": f"{elites.best_objective:.4g}",
            "median distance": _short(np.median(matches.distances)),
        }
    )


def _distances(matches: Matches, thresholds: Thresholds) -> str:
    """Return the histogram of distances, the slider and the number of items within it."""
    last, top, values = len(thresholds.stops) - 1, thresholds.top, matches.distances
    bars, distance = _bars(_counts(values, top), top), _short(thresholds.stops[-1])
    return f"""<section id="distances" aria-labelledby="distances-title">
<h2 id="distances-title">Distances from items to their nearest solutions</h2>
{_chart("the distances from items to their nearest elites", bars, top, values)}
<div class="js"><label for="threshold">Count an item only if a solution is this near:</label>
<input type="range" id="threshold" min="0" max="{last}" value="{last}" autocomplete="off"></div>
<p class="js"><output for="threshold">With a solution within distance
<b id="distance">{distance}</b>: <b id="coverage">100.0%</b>,
<span id="filled">{len(values):,}</span> of {len(values):,} items</output></p>
</section>"""


def _labels(matches: Matches, thresholds: Thresholds) -> str:
    """Return coverage and explained variance of each label, and its items within the threshold."""
    if not thresholds.labels:
        return ""
    rows = []
    table: Any = matches.coverage_by_label().itertuples()
    for row in table:
        name = _named(row.label)
        rows.append(
            f'<tr data-label><th scope="row" title="{name}">{name}</th><td>{row.items:,}</td>'
            f"<td>{row.coverage:.1%}</td><td>{row.explained:.1%}</td>"
            '<td class="js" data-share>100.0%</td><td class="wide js">'
            '<div class="meter" aria-hidden="true"><i style="width:100%" data-bar></i></div></td>'
            "</tr>"
        )
    return f"""<section aria-labelledby="labels-title">
<h2 id="labels-title">Labels</h2>
<div class="scroll" tabindex="0" role="region" aria-labelledby="labels-title"><table>
<thead><tr><th scope="col">label</th><th scope="col">items</th>
<th scope="col">coverage</th><th scope="col">explained</th>
<th scope="col" class="js">near enough</th><td class="js"></td></tr></thead>
<tbody>
{chr(10).join(rows)}
</tbody></table></div>
</section>"""


def _held_out(table: pd.DataFrame) -> str:
    """Return the histograms of distance and floor of held-out items."""
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
        f"V{100 - 100 * count / highest:.2f}H{100 * (number + 1) / _BINS:g}"
        for number, count in enumerate(steps)
    )
    drawn = f'{_bars(bars, top, highest)}<path class="floor" d="M0 100{line}V100"></path>'
    figures = {
        "held-out items": f"{len(table):,}",
        "median distance": _short(np.median(distance)),
        "median floor": _short(np.median(floor)),
    }
    return f"""<section aria-labelledby="held-out-title">
<h2 id="held-out-title">Held-out items</h2>
<dl class="figures small">
{_list(figures)}
</dl>
{_chart("the distances from held-out items to elites", drawn, top, distance)}
<p class="quiet"><span class="key"></span>distance to the nearest elite
<span class="key line"></span>floor: distance to the nearest item of the search. An archive whose
elites match their own items exactly has distances equal to the floor.</p>
</section>"""


def _list(entries: dict[str, str]) -> str:
    return "\n".join(f"<div><dt>{k}</dt><dd>{v}</dd></div>" for k, v in entries.items())


def _named(label: str) -> str:
    """Return a label as HTML; missing labels are empty texts."""
    return html.escape(label) if label.strip() else "(none)"


def _short(value: float | np.floating) -> str:
    return rounded(np.array([float(value)]))[0]


# Histograms


def _usual_top(values: Float[np.ndarray, " n"]) -> float:
    """Return the end of the scale: the largest value, or the 99th percentile before outliers."""
    largest, usual = float(values.max()), float(np.quantile(values, 0.99))
    return max(usual if 0 < 1.5 * usual < largest else largest, 0.0)


def _counts(values: Float[np.ndarray, " n"], top: float) -> Int[np.ndarray, " bins"]:
    """Count the values in each bin from 0 to ``top``; the last bin includes larger values."""
    return np.histogram(np.clip(values, 0, top), _BINS, range=(0, top or 1.0))[0]


def _bars(counts: Int[np.ndarray, " bins"], top: float, highest: int | None = None) -> str:
    """Return bars in a box of 100 by 100, each with the distance that it starts from."""
    wide, full = 100 / _BINS, 100 / (highest or int(counts.max()))
    return "".join(
        f'<rect class="bar" data-from="{top * number / _BINS:.6g}" x="{(number + 0.05) * wide:g}" '
        f'y="{100 - full * count:.2f}" width="{0.9 * wide:g}" height="{full * count:.2f}"></rect>'
        for number, count in enumerate(counts)
    )


def _chart(what: str, drawn: str, top: float, values: Float[np.ndarray, " n"]) -> str:
    more = " and more" if float(values.max()) > top else ""
    text = f"Histogram of {what}: half of them are at most {_short(np.median(values))}"
    return f"""<svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img"
 aria-label="{text}">{drawn}</svg>
<div class="scale" aria-hidden="true"><span>0</span><span>{_short(top)}{more}</span></div>"""


# Pairs


def _notes(matches: Matches, shown: int) -> str:
    items = len(matches.dataset)
    which = f"All {items:,} items."
    if shown < items:
        which = f"{shown:,} of {items:,} items, spread evenly from the best explained to the worst."
    what = "item" if matches.dataset.labels is None else "label and item"
    last = ", variables" if isinstance(matches.elites.form, Space) else ""
    below = f"Below: {what}, objective · distance, explained variance{last}."
    shows = f"{which} Left the nearest solution, right the item. {below}"
    return "\n".join(f'<p class="quiet">{line}</p>' for line in [shows, *rules(matches)])


def _orders(matches: Matches, shown: pd.DataFrame) -> dict[str, list[int]]:
    """Return the rank of each pair shown in every order."""
    every: list[Order] = ["explained", "distance", "objective", "label", "item"]
    if matches.dataset.labels is None:
        every.remove("label")
    items = shown["item"].to_numpy()
    return {by: np.argsort(ordered(matches, by)["item"].to_numpy())[items].tolist() for by in every}


def _choice(by: str) -> str:
    checked = " checked" if by == "explained" else ""
    return f'<label><input type="radio" name="order" value="{by}"{checked}> {by}</label>'


def _filter(thresholds: Thresholds) -> str:
    if not thresholds.labels:
        return ""
    options = "".join(
        f'<option value="{code}">{_named(row["label"])}</option>'
        for code, row in enumerate(thresholds.labels)
    )
    everything = '<option value="">all</option>'
    return f'<label>Label <select id="label">{everything}{options}</select></label>'


def _data(
    matches: Matches, shown: pd.DataFrame, thresholds: Thresholds, orders: dict[str, list[int]]
) -> str:
    """Return the data of the script as JSON that cannot end the element it is in."""
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


def _pairs(matches: Matches, pictures: Pictures, shown: pd.DataFrame) -> tuple[str, str]:
    """Return the list of pairs, and the sizes for its style."""
    images, (height, width) = _images(matches, pictures, shown)
    columns = (
        shown["label"],
        shown["name"],
        shown["reached"],
        captions(shown),
        _variables(matches, shown),
        images,
    )
    entries = "\n".join(_entry(*row) for row in zip(*columns, strict=True))
    pair = 2 * (width + 3) - 1
    return entries, f"--box:{height}px;--wide:{width}px;--tile:{max(pair, _NARROWEST)}px"


def _entry(
    label: str | None,
    name: str,
    is_reached: bool,
    caption: tuple[str, str],
    variables: str,
    images: list[tuple[str, str]],
) -> str:
    name = html.escape(name)
    drawn = "".join(f'<span><img alt="{shows} {name}" {image}></span>' for shows, image in images)
    known = "" if label is None else f"<b>{_named(label)}</b> "
    mark = "" if is_reached else ' class="unreached"'
    return (
        f'<li{mark}><div class="pictures">{drawn}</div>'
        f'<div class="name" title="{name}">{known}{name}</div>'
        f'<div class="numbers">{caption[0]}</div><div class="numbers">{caption[1]}</div>'
        f"{variables}</li>"
    )


def _variables(matches: Matches, shown: pd.DataFrame) -> list[str]:
    """Return a line with the variables of each pair's solution; empty without a space."""
    form = matches.elites.form
    if not isinstance(form, Space):
        return [""] * len(shown)
    lines = []
    for texts in form.texts(matches.elites.solutions[shown["row"].to_numpy()]):
        # Texts of inactive variables are empty.
        named = [f"{name}: {value}" for name, value in texts.items() if value]
        more = ", ..." if len(named) > _MAX_VARIABLES else ""
        line = html.escape(", ".join(named[:_MAX_VARIABLES]) + more)
        # The line is cut off at the width of the pictures; the title is not.
        lines.append(f'<div class="numbers" title="{line}">{line}</div>')
    return lines


def _images(
    matches: Matches, pictures: Pictures, shown: pd.DataFrame
) -> tuple[list[list[tuple[str, str]]], tuple[int, int]]:
    """Return the alternative text and attributes of the images of each pair, and their box."""
    dataset, rows, items = matches.dataset, shown["row"].to_numpy(), shown["item"].to_numpy()
    first: Any = dataset.image(0) if dataset.has_images else made_pictures(pictures, rows[:1])[0]
    height, width = (1, 1) if isinstance(first, Svg) else first.shape[:2]
    box = _box(height, width)
    images: list[list[tuple[str, str]]] = []
    budget = _MAX_SVG
    for start in range(0, len(rows), _BATCH):
        part = slice(start, start + _BATCH)
        made = zip(
            made_pictures(pictures, rows[part]), item_pictures(dataset, items[part]), strict=True
        )
        for solution, item in made:
            drawn = solution
            if isinstance(solution, Svg):
                budget -= len(solution.text)
                drawn = solution if budget >= 0 else sign("left out: too much SVG for a page")
            images.append([("solution for", _source(drawn, box)), ("item", _source(item, box))])
    return images, box


def _box(height: int, width: int) -> tuple[int, int]:
    """Return the size of images on the page; small ones are enlarged by a whole number."""
    longer = max(height, width)
    scale = round(_AIM / longer) if longer <= _AIM else min(1.0, _LARGEST / longer)
    return max(1, round(scale * height)), max(1, round(scale * width))


def _source(picture: Picture, box: tuple[int, int]) -> str:
    """Return the attributes of an ``img`` element that fits into the box."""
    if isinstance(picture, Svg):
        return f'width="{box[1]}" height="{box[0]}" src="{picture.address}"'
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
