"""Pictures of elites and of the items that they stand for."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Int, Shaped, UInt8

from gloam import checks
from gloam.archives import Elites
from gloam.datasets import Dataset, fields

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
        kept = dataset.shape if fields.is_picture(dataset.shape) else ()
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
        fields.is_picture(dataset.shape),
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
    return rendered or "image" in elites.store.fields or fields.is_picture(dataset.shape)


def made_pictures(
    pictures: Pictures, rows: Int[np.ndarray, " n"]
) -> UInt8[np.ndarray, "n height width *channels"]:
    """The pictures of elites, as the user's function gives them, checked."""
    return fields.pictures(pictures(rows), len(rows))


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
        fields.is_picture(values.shape[1:]),
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
