"""Rows of numbers: made float32, checked, brought to unit length, and told apart, block by block.

A dataset may fill half of the memory, so nothing here makes a second copy of it by the way.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Int, Shaped

from gloam import checks

_BLOCK_BYTES = 1 << 24


def blocks(rows: Shaped[np.ndarray, "n *item"]) -> Iterator[slice]:
    """Slices that cut ``rows`` into pieces of about 16 MB."""
    size = max(1, _BLOCK_BYTES // max(1, rows[:1].nbytes))
    for start in range(0, len(rows), size):
        yield slice(start, min(start + size, len(rows)))


def stacked(values: Any) -> Shaped[np.ndarray, "n *item"]:
    """An array, or a sequence of items of one shape, as one array of numbers."""
    if not isinstance(values, np.ndarray):
        listed = isinstance(values, Sequence) and not isinstance(values, (str, bytes))
        values = _joined(values) if listed else np.asarray(values)
    fix = "Give an array (items, measures), or (items, height, width) for pictures."
    numbers = values.dtype.kind in "biuf"
    checks.expect(numbers, "items", "an array of numbers", f"dtype {values.dtype}", fix)
    checks.expect(values.ndim >= 2, "items", "a row for each item", f"shape {values.shape}", fix)
    checks.expect(values.size > 0, "items", "at least one item", f"shape {values.shape}")
    return values


def _joined(values: Sequence[Any]) -> np.ndarray:
    checks.expect(len(values) > 0, "items", "at least one item", "none")
    rows = np.empty(0)
    for number, value in enumerate(values):
        try:
            row = np.asarray(value)
        except ValueError:  # the item is itself of mixed lengths
            row = np.empty(0, object)
        checks.expect(
            row.dtype.kind in "biuf",
            "items",
            "arrays of numbers",
            f"dtype {row.dtype} in row {number}",
        )
        if number == 0:
            rows = np.empty((len(values), *row.shape), row.dtype)
        checks.expect(
            row.shape == rows.shape[1:],
            "items",
            f"one shape, {rows.shape[1:]} as in row 0",
            f"{row.shape} in row {number}",
            "Resize or cut the items.",
        )
        if not np.can_cast(row.dtype, rows.dtype):
            rows = rows.astype(np.result_type(row.dtype, rows.dtype))
        rows[number] = row
    return rows


def chosen(
    rows: Shaped[np.ndarray, "n *item"], kept: Int[np.ndarray, " k"], *, in_place: bool
) -> Shaped[np.ndarray, "k *item"]:
    """The rows ``kept``, which are numbered upwards; ``in_place`` they are moved to the front."""
    if not in_place:
        return rows[kept]
    for block in blocks(rows[: len(kept)]):
        # A row moves to the front, never back, so none is lost before it is read.
        rows[block] = rows[kept[block]]
    return rows[: len(kept)]


def float32(rows: Shaped[np.ndarray, "n *item"]) -> Float32[np.ndarray, "n *item"]:
    """``rows`` in memory as float32: themselves if they are that already."""
    if rows.dtype == np.float32 and not isinstance(rows, np.memmap):
        return rows
    result = np.empty(rows.shape, np.float32)
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is then refused
        for block in blocks(rows):
            result[block] = rows[block]
    return result


def check_finite(rows: Float[np.ndarray, "n meas"], names: Sequence[str] | None) -> None:
    """Raise if a number is NaN or infinite, and say in which row."""
    bad = [
        block.start + np.flatnonzero(~np.isfinite(rows[block]).all(axis=1))
        for block in blocks(rows)
    ]
    found = np.concatenate(bad)
    if len(found):
        name = "" if names is None else f" ('{names[found[0]]}')"
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        checks.expect(
            False,
            "items",
            "finite numbers",
            f"NaN or infinity in row {found[0]}{name}{more}",
            "Remove or repair these rows.",
        )


def unit_blocks(rows: Float[np.ndarray, "n meas"]) -> Iterator[Float32[np.ndarray, "b meas"]]:
    """Rows of length one, block by block; a row of zeros has no direction and is refused."""
    for block in blocks(rows):
        # Squares of float32 numbers fit in float64 only.
        wide = rows[block].astype(np.float64)
        norms = np.linalg.norm(wide, axis=1, keepdims=True)
        zero = np.flatnonzero(norms == 0)
        checks.expect(
            len(zero) == 0,
            "items",
            "no rows of zeros for the cosine metric",
            f"zeros in row {block.start + (zero[0] if len(zero) else 0)}",
            "Remove it, or use metric='euclidean'.",
        )
        yield np.divide(wide, norms, out=wide).astype(np.float32)


def first_of_equal(
    parts: Iterable[Shaped[np.ndarray, "b *item"]],
) -> tuple[Int[np.ndarray, " distinct"], Int[np.ndarray, " n"]]:
    """Which rows are the first of their kind, and for every row its place among those.

    Rows are compared by 128 bits of BLAKE2: 16 bytes a row, and no two different rows have ever
    been seen to share them.

    Args:
        parts: Consecutive blocks of rows.
    """
    digests = bytearray()
    for part in parts:
        # Adding zero turns -0 into the 0 that it equals.
        rows = np.ascontiguousarray(part + part.dtype.type(0)).reshape(len(part), -1)
        for row in rows:
            digests += hashlib.blake2b(row.data, digest_size=16).digest()
    words = np.frombuffer(digests, np.uint64).reshape(-1, 2)
    order = np.lexsort((words[:, 1], words[:, 0]))  # stable: equal rows stay in their order
    ahead = words[order]
    new = np.ones(len(order), bool)
    new[1:] = (ahead[1:] != ahead[:-1]).any(axis=1)
    first = np.empty(len(order), np.int64)
    first[order] = order[new][np.cumsum(new) - 1]
    kept = np.sort(order[new])
    return kept, np.searchsorted(kept, first)
