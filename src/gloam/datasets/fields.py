"""What a dataset is given besides its items, checked: shape, pictures, bounds, texts."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float32, Shaped, UInt8

from gloam import checks


def is_picture(shape: Sequence[int]) -> bool:
    """Whether items of this shape can be shown: (height, width), perhaps with 1 or 3 colours."""
    return len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3))


def item_shape(shape: Any, given: Shaped[np.ndarray, "n *item"]) -> tuple[int, ...]:
    """``shape`` if it fits the items, or their own if it is empty or ``None``."""
    sizes = (shape,) if isinstance(shape, int) else tuple(shape or ())
    if not sizes:
        return given.shape[1:]
    sizes = tuple(checks.integer("shape", size, minimum=1) for size in sizes)
    numbers = given[0].size
    checks.expect(
        int(np.prod(sizes)) == numbers,
        "shape",
        f"a shape of the {numbers} numbers of an item",
        sizes,
    )
    return sizes


def pictures(images: Any, count: int) -> UInt8[np.ndarray, "n height width *channels"]:
    """``images`` if there is one for each item."""
    array = np.asarray(images)
    fits = array.dtype == np.uint8 and is_picture(array.shape[1:]) and len(array) == count
    checks.expect(
        fits,
        "images",
        f"{count} uint8 pictures (height, width) or (height, width, 3)",
        f"{array.dtype} of shape {array.shape}",
    )
    return array[..., 0] if array.shape[3:] == (1,) else array


def scalar_bounds(
    bounds: Any, items: Float32[np.ndarray, "n meas"], *, pixels: bool
) -> tuple[float, float] | None:
    """``bounds`` if the items lie between them; pixels have 0 and 1, or their extremes, without."""
    lowest, highest = float(items.min()), float(items.max())
    if bounds is None and not pixels:
        return None
    if bounds is None:
        return (0.0, 1.0) if lowest >= 0 and highest <= 1 else (lowest, highest)
    fix = "Give the lowest and the highest value that a measure can have."
    checks.expect(np.shape(bounds) == (2,), "bounds", "two numbers", repr(bounds), fix)
    low, high = (checks.number("bounds", bound) for bound in bounds)
    checks.expect(
        low <= lowest and highest <= high,
        "bounds",
        f"bounds around the items, which go from {lowest:g} to {highest:g}",
        (low, high),
        fix,
    )
    return low, high


def texts(name: str, values: Any, count: int) -> list[str]:
    """One text for each item; what is missing (None, NaN) becomes the empty text."""
    listed: Any = None
    if not isinstance(values, (str, bytes)) and hasattr(values, "__len__"):
        listed = values.tolist() if hasattr(values, "tolist") else list(values)
    several = isinstance(listed, list)
    checks.expect(
        several and len(listed) == count,
        name,
        f"one for each of the {count} items",
        len(listed) if several else repr(values),
    )
    wrong = next((v for v in listed if isinstance(v, (list, tuple, dict, set, np.ndarray))), None)
    checks.expect(wrong is None, name, "one text or number for each item", repr(wrong))
    return [_text(value) for value in listed]


def _text(value: Any) -> str:
    missing = value is None or type(value).__name__ in ("NAType", "NaTType")
    if missing or (isinstance(value, float) and value != value):
        return ""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    # File names may hold bytes that are no UTF-8; tables and pages cannot.
    return str(value).encode(errors="replace").decode()
