"""Solutions that are no vectors: texts and JSON values, kept beside the archive."""

import json
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from gloam._tools import checks

Rows = np.ndarray | Array
MAX_PAYLOAD_BYTES = 1 << 20
"""Largest size of a payload as JSON in UTF-8."""
_FIX = "Leave the row out, or set its objective to NaN: then its payload is ignored."


class Payloads:
    """Payloads by number, as the form of solutions: a solution is the number of its payload.

    Args:
        texts: JSON texts of the payloads by number, as `payload_json` returns them.
    """

    size = 1
    discrete = None

    def __init__(self, texts: Mapping[int, str]):
        self.texts = dict(texts)

    def __repr__(self) -> str:
        return f"Payloads({len(self.texts):,})"

    def canonical(self, vectors: Float[Rows, "*n sol"]) -> Float[Rows, "*n sol"]:
        """Return the vectors."""
        return vectors

    def json_of(self, vectors: Float[Rows, "n sol"]) -> list[str]:
        """Return the payloads of vectors as JSON texts."""
        return [self.texts[number] for number in np.asarray(vectors)[:, 0].astype(int).tolist()]

    def values(self, vectors: Float[Rows, "n sol"]) -> list[Any]:
        """Return the payloads of vectors, as new objects."""
        return [json.loads(text) for text in self.json_of(vectors)]

    def value(self, vector: Float[np.ndarray, " sol"]) -> Any:
        """Return the payload of one vector, as a new object."""
        return self.values(np.asarray(vector)[None])[0]

    def columns(self, vectors: Float[np.ndarray, "n sol"]) -> dict[str, np.ndarray]:
        """Return the column ``payload`` of a table: texts as they are, other values as JSON."""
        column = np.empty(len(vectors), object)
        for row, text in enumerate(self.json_of(vectors)):
            column[row] = json.loads(text) if text.startswith('"') else text
        return {"payload": column}

    def vectors(self, values: Any) -> Float[np.ndarray, "n sol"]:
        """Raise an error: only a pool gives numbers to payloads."""
        fix = "Tell them to a gloam.Pool."
        raise ValueError(
            f"solutions: expected vectors, got payloads, {checks.short(values)}. {fix}"
        )

    vector = from_columns = vectors


def payload_json(name: str, value: Any) -> str:
    r"""Return a payload as JSON text, after checking that the text stands for the same value.

    Args:
        name: Name of the argument, for errors.
        value: A text, or a JSON value: a dict with texts as keys, a list, a number or a boolean.

    Raises:
        ValueError: It is something else, larger than `MAX_PAYLOAD_BYTES`, not valid Unicode, or a
            text with NUL.

    >>> payload_json("payload", "x + 1"), payload_json("payload", {"ops": [1, 2.5]})
    ('"x + 1"', '{"ops": [1, 2.5]}')
    """
    most = f"at most {MAX_PAYLOAD_BYTES:,} bytes of UTF-8"
    if isinstance(value, str):
        checks.expect(len(value) <= MAX_PAYLOAD_BYTES, name, most, f"{len(value):,} characters")
        checks.expect("\0" not in value, name, "a text without NUL", checks.short(value), _FIX)
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        is_same = value is not None and json.loads(text) == value
    except (TypeError, ValueError, RecursionError):
        is_same, text = False, ""
    expected = "a text or a JSON value: finite numbers, lists, and dicts with texts as keys"
    checks.expect(is_same, name, expected, f"{type(value).__name__} {checks.short(value)}", _FIX)
    size = len(text.encode(errors="replace"))
    checks.expect(size <= MAX_PAYLOAD_BYTES, name, most, f"{size:,} bytes")
    is_unicode = not any("\ud800" <= sign <= "\udfff" for sign in text)
    got = f"a lone surrogate in {checks.short(value)}"
    checks.expect(is_unicode, name, "valid Unicode", got, _FIX)
    return text


def packed(texts: Iterable[str]) -> dict[str, np.ndarray]:
    """Return JSON texts as arrays for a file: their bytes, and where each of them ends."""
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
    return {"bytes": np.frombuffer(b"".join(encoded), np.uint8), "ends": ends}


def unpacked(arrays: Mapping[str, np.ndarray], number: int) -> list[str]:
    """Return the JSON texts that `packed` returned.

    Raises:
        ValueError: They are not ``number`` payloads.
    """
    content, ends = arrays.get("bytes"), arrays.get("ends")
    if content is None or ends is None or content.dtype != np.uint8 or content.ndim != 1:
        raise ValueError("it has no payloads")
    bounds = np.concatenate([np.zeros(1, np.int64), np.ravel(ends)])
    is_order = ends.dtype == np.int64 and ends.shape == (number,) and (np.diff(bounds) >= 0).all()
    if not is_order or bounds[-1] != len(content):
        raise ValueError(f"its payloads are not those of {number:,} elites")
    pieces = [content[a:b].tobytes() for a, b in pairwise(bounds)]
    # The text is written again, so that only what `payload_json` accepts is kept.
    return [payload_json("payload", json.loads(piece.decode())) for piece in pieces]
