"""How a dataset shows itself in notebooks: a few figures and pictures of some items."""

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from gloam import drawing as cards
from gloam.drawing import PrincipalComponents

if TYPE_CHECKING:
    from gloam.datasets.dataset import Dataset

_COLUMNS, _ROWS, _TILE, _GAP = 8, 3, 32, 2
_MOST_LABELS = 4
# Items that a map is made of, and points that turn its axes.
_MOST, _SAMPLE = 20_000, 200


def dataset_card(dataset: "Dataset") -> str:
    """HTML of a dataset."""
    figures = {
        "items": f"{len(dataset):,} of shape {dataset.shape}",
        "labels": _labels(dataset),
        "bounds": "" if dataset.bounds is None else "{:g} to {:g}".format(*dataset.bounds),
        "duplicates merged": f"{dataset.merged:,}" if dataset.merged else "",
        "files skipped": f"{len(dataset.skipped):,}" if dataset.skipped else "",
        "source": "" if dataset.source is None else str(dataset.source),
    }
    shown = {name: value for name, value in figures.items() if value}
    if dataset.has_images:
        return cards.card("Dataset", shown, [cards.picture(_sheet(dataset), "Some of the items")])
    return cards.card("Dataset", shown, [cards.picture(_map(dataset), "Map of the items")])


def _labels(dataset: "Dataset") -> str:
    if dataset.labels is None:
        return ""
    counts = Counter(dataset.labels)
    most = [f"{label[:20]} ({number:,})" for label, number in counts.most_common(_MOST_LABELS)]
    more = [f"and {len(counts) - len(most):,} more"] if len(counts) > len(most) else []
    return ", ".join(most + more)


def _sheet(dataset: "Dataset") -> UInt8[np.ndarray, "height width 3"]:
    """Pictures of items that are spread evenly over the dataset."""
    number = min(len(dataset), _COLUMNS * _ROWS)
    chosen = np.rint(np.linspace(0, len(dataset) - 1, number)).astype(int)
    rows, pitch = -(-number // _COLUMNS), _TILE + _GAP
    sheet = Image.new("RGB", (min(number, _COLUMNS) * pitch, rows * pitch), "#eeeef1")
    for place, item in enumerate(chosen.tolist()):
        tile = Image.fromarray(dataset.image(item)).convert("RGB")
        tile.thumbnail((_TILE, _TILE))
        row, column = divmod(place, _COLUMNS)
        sheet.paste(tile, (column * pitch, row * pitch))
    return np.asarray(sheet)


def _map(dataset: "Dataset") -> UInt8[np.ndarray, "height width 3"]:
    """How many items lie where, along principal components."""
    number = min(len(dataset), _MOST)
    chosen = np.rint(np.linspace(0, len(dataset) - 1, number)).astype(int)
    points = dataset.items[chosen].astype(np.float64)
    if points.shape[1] == 1:
        spots = np.stack([points[:, 0], np.zeros(number)], axis=1)
    else:
        spots = PrincipalComponents(points, sample=_SAMPLE).place(points)
    bins = int(np.clip(round(number**0.5), 4, 40))
    return cards.shaded(cards.number_by_bin(spots, bins))
