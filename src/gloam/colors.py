"""Colours of figures and thumbnails, told apart with any colour vision."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, UInt8

EMPTY, EMPTY_DOT = "#eeeef1", "#e1e2e8"
"""Cells without an elite, as areas and as dots: lighter than any objective, like paper."""
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#22242b")
"""Colours of lines, by Okabe and Ito; their yellow is too light for a line."""

# Matplotlib's inferno without its ends, so even to the eye and safe for any colour vision. The
# light end is left out because it would not stand off from empty cells.
_DUSK = (
    "160b39 290b55 3e0966 520e6d 65156e 781c6d 8c2369 9f2a63 b1325a "
    "c43c4e d44842 e25734 ed6925 f57d15 fa9207 fca80d fac026 f6d746"
)
# The first colours of the palette at the ends, paper between them.
_APART = ("004c78", "0072b2", "6cb0d6", "f2f2f2", "eda372", "d55e00", "8f3f00")


def rgb(color: str) -> UInt8[np.ndarray, "3"]:
    """A colour ``#rrggbb`` as three bytes.

    >>> rgb("#0072b2").tolist()
    [0, 114, 178]
    """
    return np.frombuffer(bytes.fromhex(color.removeprefix("#")), np.uint8)


def dusk(number: int = 256) -> Float[np.ndarray, "number 3"]:
    """Shades for low to high objectives, dark to light, with channels from 0 to 1."""
    return _between(_DUSK.split(), number)


def apart(number: int = 256) -> Float[np.ndarray, "number 3"]:
    """Shades for differences: orange below zero, pale near it, blue above."""
    return _between(_APART[::-1], number)


def _between(anchors: Sequence[str], number: int) -> Float[np.ndarray, "number 3"]:
    known = np.stack([rgb(anchor) for anchor in anchors]) / 255
    at, ends = np.linspace(0, 1, number), np.linspace(0, 1, len(known))
    return np.stack([np.interp(at, ends, channel) for channel in known.T], axis=1)
