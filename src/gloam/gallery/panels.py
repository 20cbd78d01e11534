"""The panels of a page, as HTML: key figures, distances, coverage by label, held-out items."""

import html
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from gloam import checks
from gloam.datasets import Matches
from gloam.gallery.pairs import rounded

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


def held_out(table: pd.DataFrame) -> str:
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
