"""Where the pairs of a gallery go on its sheet."""

import math
from typing import NamedTuple

from gloam.plots import style

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
