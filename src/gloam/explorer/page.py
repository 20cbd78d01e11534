"""The explorer's page: its files, and the formats in which it receives data."""

import base64
import hashlib
import json
import math
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

_TYPES = {
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "svg": "image/svg+xml",
}
# Modules import one another by these names. They do not depend on where the files are, so that the
# same modules work on a server and inside of a report.
VENDORED = {
    "uplot": "vendor/uPlot.esm.js",
    "kdbush": "vendor/kdbush.js",
    "d3fc-webgl": "vendor/d3fc-webgl-point.js",
}
_DTYPES = {"float32": "<f4", "float64": "<f8", "int32": "<i4", "uint8": "|u1"}
_ALIGNMENT = 8


class StaticFile(NamedTuple):
    """A file of the page."""

    content: bytes
    media_type: str


@cache
def static_files() -> dict[str, StaticFile]:
    """Return all files of the page by their names below ``static/``.

    They are read once from the package, never by a path that a request names.
    """
    root = resources.files("gloam.explorer").joinpath("static")
    static = {}
    for folder, prefix in ((root, ""), (root.joinpath("vendor"), "vendor/")):
        for file in folder.iterdir():
            kind = file.name.rpartition(".")[2]
            if kind in _TYPES and file.is_file():
                static[prefix + file.name] = StaticFile(file.read_bytes(), _TYPES[kind])
    return static


def modules() -> dict[str, str]:
    """Return the names by which modules are imported, and their files."""
    names = sorted(name for name in static_files() if name.endswith(".js") and "/" not in name)
    return {f"gloam/{name.removesuffix('.js')}": name for name in names} | VENDORED


def style_names() -> list[str]:
    """Return the names of the style sheets, in order."""
    names = sorted(name for name in static_files() if name.endswith(".css") and "/" not in name)
    return ["vendor/uPlot.min.css", *names]


def import_map(addresses: dict[str, str]) -> str:
    """Return the text of an import map from names of modules to addresses."""
    return json.dumps({"imports": addresses}, separators=(",", ":"))


def script_digest(text: str) -> str:
    """Return the SHA-256 of an inline script as a Content-Security-Policy names it."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def index_page() -> tuple[bytes, str]:
    """Return the page of the explorer, and the digest of its only inline script."""
    addresses = {name: f"/static/{file}" for name, file in modules().items()}
    imports = import_map(addresses)
    head = [f'<link rel="stylesheet" href="/static/{name}">' for name in style_names()]
    head.append('<link rel="icon" href="/static/icon.svg" type="image/svg+xml">')
    head.append(f'<script type="importmap">{imports}</script>')
    # Loaded at once rather than one after the other. They need the import map above.
    head += [f'<link rel="modulepreload" href="{address}">' for address in addresses.values()]
    start = '<script type="module" src="/static/main.js"></script>'
    return filled_page("\n".join(head), start).encode(), script_digest(imports)


def filled_page(head: str, scripts: str) -> str:
    """Return ``index.html`` with its head and its scripts."""
    text = static_files()["index.html"].content.decode()
    before, _, rest = text.partition("<!--styles-->")
    middle, _, end = rest.partition("<!--scripts-->")
    return before + head + middle + scripts + end


def json_bytes(content: Any) -> bytes:
    r"""Return JSON in ASCII, also for names that are not valid Unicode.

    NaN and infinities become ``null``.

    >>> json_bytes({"a": [float("nan"), np.float32(0.5)], "b": "\udc80"})
    b'{"a":[null,0.5],"b":"\\udc80"}'
    """
    return json.dumps(_plain(content), allow_nan=False, separators=(",", ":")).encode()


def packed(arrays: Mapping[str, np.ndarray], about: Mapping[str, Any] = {}) -> bytes:
    """Pack arrays of numbers behind a JSON header, for `unpack` of ``static/source.js``.

    The format is four bytes with the length of the header, the header, and the arrays as
    little-endian numbers, each at a multiple of eight bytes.
    """
    described, parts, offset = [], [], 0
    for name, array in arrays.items():
        content = np.ascontiguousarray(array).astype(_DTYPES[str(array.dtype)]).tobytes()
        padded = content + b"\0" * (-len(content) % _ALIGNMENT)
        entry = {"name": name, "dtype": str(array.dtype), "shape": list(array.shape)}
        described.append(entry | {"offset": offset})
        parts.append(padded)
        offset += len(padded)
    header = json_bytes({"about": about, "arrays": described})
    header += b" " * (-(4 + len(header)) % _ALIGNMENT)
    return b"".join([len(header).to_bytes(4, "little"), header, *parts])


def _plain(value: Any) -> Any:
    """Convert a value to types that the JSON module accepts."""
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
