"""Arrays from files that need not be trusted: sizes are checked before memory is taken.

Rows of numbers: made float32, checked, brought to unit length, and told apart, block by block.

A dataset may fill half of the memory, so nothing here makes a second copy of it by the way.

What a dataset is given besides its items, checked: shape, pictures, bounds, texts.
"""

import hashlib
import os
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from jaxtyping import Float, Float32, Int, Shaped, UInt8

from gloam import checks, files

# Deflate makes at most 1032 bytes of one.
_INFLATION = 1032
_KINDS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """Add the name of the file or folder to errors that do not have it."""
    try:
        yield
    except ValueError as error:
        text = str(error)
        if f"'{file}'" in text:
            raise
        kind = "folder" if file.is_dir() else "file"
        raise ValueError(f"{text} The {kind} is '{file}'.") from error


@contextmanager
def reading(file: Path, what: str, fix: str) -> Iterator[None]:
    """Turn whatever a library raises on a damaged file into a ValueError that names the file."""
    try:
        yield
    except Exception as error:
        if type(error) is ValueError and ": expected " in str(error):
            raise  # one of gloam's own
        reason = str(error) or type(error).__name__
        # What a library advises (pickle, other arguments) is not for users of gloam.
        reason = reason.splitlines()[0].rstrip(".")
        raise ValueError(f"path: expected {what}, got '{file}' ({reason}). {fix}") from error


def inflated_size(declared: int, compressed: int) -> None:
    """Refuse a size that compressed bytes cannot have."""
    if declared > _INFLATION * compressed + 1024:
        raise ValueError(f"it declares {declared:,} bytes and has {compressed:,} compressed ones")


def map_array(file: Path, max_bytes: int | None) -> np.ndarray:
    """The array of a ``.npy`` file, mapped into memory.

    Another dtype on disk is then converted without a copy of it in memory.
    """
    limit = files.byte_limit(max_bytes)
    with files.open_regular(file) as opened:
        size = os.fstat(opened.fileno()).st_size
        shape, fortran_order, dtype, start = files.read_npy_header(opened)
        needed = files.checked_size(shape, dtype.itemsize, limit)
        files.checked_size(shape, 4, limit)  # as float32, which it becomes
        if needed > size - start:
            raise ValueError(f"it declares {needed:,} bytes and has {size - start:,}")
        if needed == 0:
            return np.empty(shape, dtype)
        order = "F" if fortran_order else "C"
        return np.memmap(opened, dtype, "r", start, shape, order)


class ZippedArrays:
    """The arrays of an open ``.npz`` file.

    Args:
        opened: The file.
        max_bytes: Largest array that is read; by default half of the machine's memory.
    """

    def __init__(self, opened: IO[bytes], max_bytes: int | None = None):
        self._size = os.fstat(opened.fileno()).st_size
        self._limit = files.byte_limit(max_bytes)
        self._zip = zipfile.ZipFile(opened)
        members = [info.filename for info in self._zip.infolist()]
        self.names = [name[:-4] for name in members if name.endswith(".npy")]

    def read(self, name: str) -> np.ndarray:
        """The array called ``name``."""
        info = self._zip.getinfo(f"{name}.npy")
        if info.compress_type not in _KINDS or info.flag_bits & 1:
            raise ValueError(f"'{name}' is encrypted, or compressed in a way that NumPy is not")
        compressed = min(info.compress_size, self._size)
        stored = info.compress_type == zipfile.ZIP_STORED
        if stored and info.file_size > compressed:
            raise ValueError(f"'{name}' declares {info.file_size:,} bytes and has {compressed:,}")
        inflated_size(info.file_size, compressed)
        with self._zip.open(info) as member:
            array = files.read_npy(member, info.file_size, self._limit)
            if member.read(1):  # at the end the checksum is compared
                raise ValueError(f"'{name}' has bytes behind its array")
        return array


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
