"""Pictures of elites and items as PNG: one at full size, or many small ones on a sheet."""

import io
from collections.abc import Sequence

import numpy as np
from jaxtyping import UInt8

from gloam.explorer.opened_run import OpenedRun
from gloam.gallery.pictures import item_pictures, made_pictures

MAX_TILES = 48
"""Pairs on one sheet."""
THUMB = 64
"""Side of a small picture, in pixels."""
_GAP = 4
_LARGE = 512


def picture(run: OpenedRun, seed: int, cell: int, side: str) -> bytes | None:
    """The picture of an elite (``"solution"``) or of its item (``"item"``); ``None`` for none."""
    if side == "item":
        dataset = run.dataset
        found = None if dataset is None else item_pictures(dataset, np.array([cell]))
    else:
        rows = run.elites(seed)
        pictures, row = run.pictures(rows), rows.row_of(cell)
        if pictures is None or row is None:
            return None
        found = made_pictures(pictures, np.array([row]))
    return None if found is None else _png(_enlarged(found[0], _LARGE))


def sheet(run: OpenedRun, seed: int, cells: Sequence[int]) -> bytes:
    """Pairs side by side, one below the other: solution left, item right, in the given order.

    A cell without an elite has an empty left side; a dataset without pictures an empty right one.
    """
    tiles = np.zeros((MAX_TILES, THUMB, 2 * THUMB + _GAP, 4), np.uint8)
    rows, dataset = run.elites(seed), run.dataset
    pictures = run.pictures(rows)
    places = [(place, rows.row_of(cell)) for place, cell in enumerate(cells)]
    filled = [(place, row) for place, row in places if row is not None]
    if pictures is not None and filled:
        # Always as many rows: a function that is compiled is compiled once.
        chosen = np.array([row for _, row in filled])
        made = made_pictures(pictures, np.resize(chosen, MAX_TILES))
        for (place, _), one in zip(filled, made, strict=False):
            tiles[place, :, :THUMB] = _fitted(one)
    items = None if dataset is None else item_pictures(dataset, np.asarray(cells, int))
    for place, one in enumerate([] if items is None else items):
        tiles[place, :, THUMB + _GAP :] = _fitted(one)
    return _png(tiles[: len(cells)].reshape(-1, 2 * THUMB + _GAP, 4))


def _fitted(one: UInt8[np.ndarray, "h w *c"]) -> UInt8[np.ndarray, "64 64 4"]:
    """A picture in the middle of a square: small ones enlarged in whole steps."""
    from PIL import Image

    image = Image.fromarray(one).convert("RGBA")
    scale = THUMB / max(image.size)
    if scale >= 2:
        scale, how = int(scale), Image.Resampling.NEAREST
    else:
        how = Image.Resampling.LANCZOS
    size = (max(1, round(scale * image.width)), max(1, round(scale * image.height)))
    square = Image.new("RGBA", (THUMB, THUMB))
    square.paste(image.resize(size, how), ((THUMB - size[0]) // 2, (THUMB - size[1]) // 2))
    return np.asarray(square)


def _enlarged(one: UInt8[np.ndarray, "h w *c"], aim: int) -> UInt8[np.ndarray, "h w *c"]:
    """A small picture with each pixel as a square; a large one as it is."""
    times = max(1, aim // (2 * max(one.shape[:2])))
    return one.repeat(times, axis=0).repeat(times, axis=1)


def _png(pixels: np.ndarray) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=3)
    return buffer.getvalue()
