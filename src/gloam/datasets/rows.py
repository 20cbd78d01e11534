"""Rows of numbers: stacked, validated, normalized and deduplicated, in blocks of about 16 MB.

A dataset may fill half of the memory, so these functions do not make a second copy of it.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Int, Shaped

from gloam._tools import checks

_BLOCK_BYTES = 1 << 24


def blocks(rows: Shaped[np.ndarray, "n *item"]) -> Iterator[slice]:
    """Yield slices that divide ``rows`` into blocks."""
    size = max(1, _BLOCK_BYTES // max(1, rows[:1].nbytes))
    for start in range(0, len(rows), size):
        yield slice(start, min(start + size, len(rows)))


def evenly_spaced(total: int, count: int) -> Int[np.ndarray, " n"]:
    """Return at most ``count`` indices below ``total``, with the first and the last of them.

    >>> evenly_spaced(10, 4).tolist(), evenly_spaced(3, 4).tolist()
    ([0, 3, 6, 9], [0, 1, 2])
    """
    return np.rint(np.linspace(0, total - 1, min(total, count))).astype(int)


def stacked(values: Any) -> Shaped[np.ndarray, "n *item"]:
    """Return an array, or a sequence of items of the same shape, as one array of numbers."""
    if isinstance(values, Sequence) and not isinstance(values, (str, bytes)):
        values = _joined(values)
    values = values if isinstance(values, np.ndarray) else np.asarray(values)
    fix = "Give an array (items, measures), or (items, height, width) for images."
    is_numeric = values.dtype.kind in "biuf"
    checks.expect(is_numeric, "items", "an array of numbers", f"dtype {values.dtype}", fix)
    checks.expect(values.ndim >= 2, "items", "a row for each item", f"shape {values.shape}", fix)
    checks.expect(values.size > 0, "items", "at least one item", f"shape {values.shape}")
    return values


def _joined(values: Sequence[Any]) -> np.ndarray:
    checks.expect(len(values) > 0, "items", "at least one item", "none")
    items: list[np.ndarray] = []
    for row, value in enumerate(values):
        try:
            item = np.asarray(value)
        except ValueError:  # the item is itself ragged
            item = np.empty(0, object)
        got = f"dtype {item.dtype} in row {row}"
        checks.expect(item.dtype.kind in "biuf", "items", "arrays of numbers", got)
        items.append(item)
        checks.expect(
            item.shape == items[0].shape,
            "items",
            f"items of one shape, {items[0].shape} as in row 0",
            f"{item.shape} in row {row}",
            "Resize or crop the items.",
        )
    return np.stack(items)


def float32(
    rows: Shaped[np.ndarray, "n *item"], *, pixels: bool = False
) -> Float32[np.ndarray, "n *item"]:
    """Return ``rows`` in memory as float32, without a copy if they already are.

    Args:
        rows: The rows; they may be mapped from a file.
        pixels: Whether the values are bytes from 0 to 255, to be scaled to [0, 1].
    """
    if rows.dtype == np.float32 and not isinstance(rows, np.memmap):
        return rows
    result = np.empty(rows.shape, np.float32)
    with np.errstate(over="ignore"):  # values beyond float32 become infinite; see check_finite
        for block in blocks(rows):
            result[block] = rows[block]
            if pixels:
                result[block] /= np.float32(255)
    return result


def check_finite(rows: Float[np.ndarray, "n meas"], names: Sequence[str] | None) -> None:
    """Raise an error that names the first row with NaN or infinity, if there is one."""
    bad = [
        block.start + np.flatnonzero(~np.isfinite(rows[block]).all(axis=1))
        for block in blocks(rows)
    ]
    numbers = np.concatenate(bad)
    if len(numbers):
        name = "" if names is None else f" ('{names[numbers[0]]}')"
        more = f" and {len(numbers) - 1} more" if len(numbers) > 1 else ""
        got = f"NaN or infinity in row {numbers[0]}{name}{more}"
        checks.expect(False, "items", "finite numbers", got, "Remove or repair these rows.")


def unit_blocks(rows: Float[np.ndarray, "n meas"]) -> Iterator[Float32[np.ndarray, "b meas"]]:
    """Yield the rows scaled to unit length, block by block; rows of zeros are an error."""
    for block in blocks(rows):
        # In float64, which holds the square of every float32.
        wide = rows[block].astype(np.float64)
        norms = np.linalg.norm(wide, axis=1, keepdims=True)
        checks.expect(
            norms.min() > 0,
            "items",
            "no rows of zeros for the cosine metric",
            f"zeros in row {block.start + int(norms.argmin())}",
            "Remove it, or use metric='euclidean'.",
        )
        yield np.divide(wide, norms, out=wide).astype(np.float32)


def first_of_equal(
    parts: Iterable[Shaped[np.ndarray, "b *item"]],
) -> tuple[Int[np.ndarray, " distinct"], Int[np.ndarray, " n"]]:
    """Return the index of the first of each group of equal rows, and each row's group.

    Rows are compared by 128-bit BLAKE2 digests, which take 16 bytes a row.

    Args:
        parts: Consecutive blocks of rows.
    """
    digests = bytearray()
    for part in parts:
        # Adding zero turns -0 into 0, so that they compare equal.
        rows = np.ascontiguousarray(part + part.dtype.type(0)).reshape(len(part), -1)
        for row in rows:
            digests += hashlib.blake2b(row.data, digest_size=16).digest()
    words = np.frombuffer(digests, "S16")
    _, first, group = np.unique(words, return_index=True, return_inverse=True)
    kept = np.sort(first)
    return kept, np.searchsorted(kept, first[group])


def chosen(
    rows: Shaped[np.ndarray, "n *item"], kept: Int[np.ndarray, " k"], *, in_place: bool
) -> Shaped[np.ndarray, "k *item"]:
    """Return the rows with the ascending indices ``kept``; ``in_place`` overwrites ``rows``."""
    if not in_place:
        return rows[kept]
    for block in blocks(rows[: len(kept)]):
        # Rows only move forward, so none is overwritten before it is read.
        rows[block] = rows[kept[block]]
    return rows[: len(kept)]
