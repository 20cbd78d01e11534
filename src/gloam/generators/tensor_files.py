"""Safetensors files: arrays by name with a header of texts, read without trust.

The format is the length of a header (8 bytes), the header (JSON: kind, shape and place of each
array) and the bytes of the arrays. Sizes are checked against the size of the file before memory is
taken.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import ml_dtypes
import numpy as np

from gloam import checks, files

_KINDS: dict[str, np.dtype] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype(bool),
}
_LENGTH_BYTES = 8
# The limit that the format itself sets.
_LARGEST_HEADER = 100_000_000
_METADATA = "__metadata__"
_FIX = "It may be truncated or of another format: fetch or convert it again."


def read_tensors(
    name: str, path: str | os.PathLike, *, max_bytes: int | None = None
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays and metadata of a safetensors file.

    Args:
        name: What the file is, for messages.
        path: The file.
        max_bytes: Largest array that is read; by default half of the machine's memory.

    Returns:
        Arrays by name (of all precisions as float32), and the metadata: texts by name.

    Raises:
        ValueError: It is no such file, it is damaged, or it is too large; names the file.
    """
    path = checks.existing_file(name, path)
    try:
        with files.open_regular(path) as file:
            return _read(file, files.byte_limit(max_bytes))
    except (OSError, ValueError, MemoryError, RecursionError) as error:
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise ValueError(
            f"{name}: expected a safetensors file, got '{path}' ({reason}). {_FIX}"
        ) from None


def write_tensors(
    path: str | os.PathLike, arrays: Mapping[str, Any], metadata: Mapping[str, str]
) -> None:
    """Write a safetensors file, atomically."""
    kinds = {dtype: kind for kind, dtype in _KINDS.items()}
    header: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    # Wide numbers first, as the format asks for, so that each array is aligned to its numbers.
    plain = {name: np.asarray(array) for name, array in arrays.items()}
    ordered = sorted(plain, key=lambda name: (-plain[name].dtype.itemsize, name))
    end = 0
    for name in ordered:
        array = plain[name]
        dtype = array.dtype.newbyteorder("<")
        known = dtype in kinds and name != _METADATA
        checks.expect(known, name, "an array of plain numbers", f"{array.dtype}")
        start, end = end, end + array.nbytes
        header[name] = {
            "dtype": kinds[dtype],
            "shape": list(array.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)

    def save(file: IO[bytes]) -> None:
        file.write(len(text).to_bytes(_LENGTH_BYTES, "little") + text)
        for name in ordered:
            array = plain[name]
            file.write(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())

    files.write(Path(path), save)


def check_shapes(
    name: str, expected: Mapping[str, tuple[int, ...]], arrays: Mapping[str, np.ndarray], fix: str
) -> None:
    """Check that all expected arrays are there, finite and of the expected shapes."""
    missing = [key for key in expected if key not in arrays]
    checks.expect(not missing, name, f"{len(expected)} tensors", _some_missing(missing), fix)
    for key, shape in expected.items():
        found = arrays[key].shape
        checks.expect(found == shape, f"{name}: {key}", f"shape {shape}", f"shape {found}", fix)
        finite = bool(np.isfinite(arrays[key]).all())
        checks.expect(finite, f"{name}: {key}", "finite numbers", "NaN or infinity", fix)


def _some_missing(missing: list[str]) -> str:
    shown = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
    return f"a file without {len(missing)} of them ({shown})"


def _read(file: IO[bytes], limit: int) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    size = os.fstat(file.fileno()).st_size
    header = _header(file, size)
    metadata = header.pop(_METADATA, {})
    if not _is_dict_of(metadata, str):
        raise ValueError("its metadata are not texts by name")
    start = file.tell()
    entries = {name: _Entry(name, entry, limit) for name, entry in header.items()}
    # Without gaps and overlaps, no byte means two things, and none is hidden.
    end = 0
    for entry in sorted(entries.values(), key=lambda entry: (entry.start, entry.end)):
        if entry.start != end:
            raise ValueError(f"the bytes of {entry.name} do not follow those before it")
        end = entry.end
    if start + end != size:
        raise ValueError(f"it declares {end:,} bytes of arrays and has {size - start:,}")
    return {name: entry.read(file, start) for name, entry in entries.items()}, metadata


def _header(file: IO[bytes], size: int) -> dict[str, Any]:
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    if size < _LENGTH_BYTES or length > min(size - _LENGTH_BYTES, _LARGEST_HEADER):
        raise ValueError(f"it declares a header of {length:,} bytes and has {size:,} in all")
    content = file.read(length)
    try:
        header = json.loads(content, object_pairs_hook=_unique)
    except UnicodeDecodeError:
        raise ValueError("its header is no text") from None
    except json.JSONDecodeError:
        raise ValueError("its header is no JSON") from None
    if not isinstance(header, dict):
        raise ValueError("its header does not name arrays")
    return header


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("its header has a name twice")
    return found


def _is_dict_of(value: Any, kind: type) -> bool:
    return isinstance(value, dict) and all(isinstance(item, kind) for item in value.values())


class _Entry:
    """What a header says of one array, checked."""

    def __init__(self, name: str, entry: Any, limit: int):
        name = checks.short(name)
        if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
            raise ValueError(f"its header does not say what {name} is")
        kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(kind, str) or kind not in _KINDS:
            raise ValueError(f"{name} is of kind {checks.short(kind)}, not of {', '.join(_KINDS)}")
        if not (_are_sizes(shape) and _are_sizes(offsets) and len(offsets) == 2):
            raise ValueError(f"the shape or the place of {name} is not of whole numbers")
        self.name, self.shape, self.dtype = name, tuple(shape), _KINDS[kind]
        self.start, self.end = offsets
        needed = files.checked_size(self.shape, self.dtype.itemsize, limit)
        files.checked_size(self.shape, 4, limit)  # as float32, which it becomes
        if self.end - self.start != needed:
            raise ValueError(f"{name} needs {needed:,} bytes and has {self.end - self.start:,}")

    def read(self, file: IO[bytes], start: int) -> np.ndarray:
        size = self.end - self.start
        file.seek(start + self.start)
        content = np.fromfile(file, np.uint8, size)
        if content.size != size:
            raise ValueError(f"it ends within {self.name}")
        if self.dtype == bool:  # bytes beside 0 and 1 are no booleans
            array = content != 0
        else:
            array = content.view(self.dtype)
        array = array.reshape(self.shape)
        is_float = self.dtype.kind == "f" or self.dtype == ml_dtypes.bfloat16
        return array.astype(np.float32) if is_float else array


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(size) is int and size >= 0 for size in value)
