"""Shows and measures whether neighbouring items of a dataset have similar faces."""

import io
from pathlib import Path

import numpy as np
from PIL import Image

from gloam._tools import files
from gloam.datasets import Matches

_SIDE, _GAP = 112, 4
_NUM_ROWS, _NUM_NEAREST = 6, 6


def neighbour_sheet(matches: Matches, faces: np.ndarray, path: Path) -> None:
    """Write a picture with rows of an item and its nearest neighbours, below their faces.

    The first items of the rows are chosen to be far apart.
    """
    items = matches.dataset.items[matches.elites.cells]
    nearest = _nearest(items)
    blocks = []
    for row in _far_apart(items, min(_NUM_ROWS, len(items))):
        chosen = [row, *nearest[row][: _NUM_NEAREST - 1]]
        cells = matches.elites.cells[chosen]
        blocks.append(_strip([faces[place] for place in chosen]))
        blocks.append(_strip([matches.dataset.image(int(cell)) for cell in cells]))
        blocks.append(np.full((3 * _GAP, blocks[-1].shape[1], 3), 255, np.uint8))
    buffer = io.BytesIO()
    Image.fromarray(np.concatenate(blocks[:-1])).save(buffer, "PNG", optimize=True)
    files.write_bytes(path, buffer.getvalue())


def relation(matches: Matches, faces: np.ndarray) -> str:
    """Compare the distances between faces of neighbours and between any two faces, in a sentence.

    The distance between two faces is that of their latents, and of their mean colours (0 to 255).
    """
    latents = matches.elites.solutions
    colours = faces.reshape(len(faces), -1, 3).mean(axis=1)
    nearest = _nearest(matches.dataset.items[matches.elites.cells])[:, : _NUM_NEAREST - 1]
    parts = []
    for name, rows in (("latents", latents), ("mean colours", colours)):
        distances = np.linalg.norm(rows[:, None] - rows[None], axis=2)
        near = np.take_along_axis(distances, nearest, axis=1).mean()
        every = distances.sum() / max(1, len(rows) * (len(rows) - 1))
        parts.append(f"{name} {near:.2f} against {every:.2f}")
    return f"distance between faces of neighbours against any two faces: {', '.join(parts)}"


def _nearest(items: np.ndarray) -> np.ndarray:
    """Return for each item the others, from the nearest to the farthest by angle."""
    closeness = items @ items.T
    np.fill_diagonal(closeness, np.inf)
    return np.argsort(-closeness, axis=1, kind="stable")[:, 1:]


def _far_apart(items: np.ndarray, count: int) -> list[int]:
    chosen = [0]
    while len(chosen) < count:
        closest = (items @ items[chosen].T).max(axis=1)
        chosen.append(int(np.argmin(closest)))
    return chosen


def _strip(pictures: list[np.ndarray]) -> np.ndarray:
    small = [np.asarray(Image.fromarray(picture).resize((_SIDE, _SIDE))) for picture in pictures]
    framed = [np.pad(each, ((0, _GAP), (0, _GAP), (0, 0)), constant_values=255) for each in small]
    return np.concatenate(framed, axis=1)
