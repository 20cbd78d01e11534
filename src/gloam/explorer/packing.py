"""How data reaches the page: JSON for small things, packed arrays for large ones."""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

_DTYPES = {"float32": "<f4", "float64": "<f8", "int32": "<i4", "uint8": "|u1"}
_ALIGNED = 8


def json_bytes(content: Any) -> bytes:
    r"""JSON in ASCII, whatever names are in it; NaN and infinities become ``null``.

    >>> json_bytes({"a": [float("nan"), np.float32(0.5)], "b": "\udc80"})
    b'{"a":[null,0.5],"b":"\\udc80"}'
    """
    return json.dumps(_plain(content), allow_nan=False, separators=(",", ":")).encode()


def packed(arrays: Mapping[str, np.ndarray], about: Mapping[str, Any] = {}) -> bytes:
    """Arrays of numbers behind a JSON header, for `unpack` of ``static/source.js``.

    Four bytes with the length of the header, the header, and the arrays as little-endian numbers,
    each at a multiple of eight bytes.
    """
    described, parts, offset = [], [], 0
    for name, array in arrays.items():
        content = np.ascontiguousarray(array).astype(_DTYPES[str(array.dtype)]).tobytes()
        filled = content + b"\0" * (-len(content) % _ALIGNED)
        entry = {"name": name, "dtype": str(array.dtype), "shape": list(array.shape)}
        described.append(entry | {"offset": offset})
        parts.append(filled)
        offset += len(filled)
    header = json_bytes({"about": about, "arrays": described})
    header += b" " * (-(4 + len(header)) % _ALIGNED)
    return b"".join([len(header).to_bytes(4, "little"), header, *parts])


def _plain(value: Any) -> Any:
    """A value as the JSON module takes it."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return value
