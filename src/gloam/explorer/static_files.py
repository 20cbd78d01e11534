"""The files of the page: read once from the package, never by a path of a request."""

import base64
import hashlib
import json
from functools import cache
from importlib import resources
from typing import NamedTuple

_TYPES = {
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "svg": "image/svg+xml",
}
# Names by which modules import one another. They do not depend on where the files are, so that the
# same modules work on a server and inside of a report.
VENDORED = {
    "uplot": "vendor/uPlot.esm.js",
    "kdbush": "vendor/kdbush.js",
    "d3fc-webgl": "vendor/d3fc-webgl-point.js",
}


class StaticFile(NamedTuple):
    """A file of the page."""

    content: bytes
    media_type: str


@cache
def static_files() -> dict[str, StaticFile]:
    """All files of the page by their names below ``static/``."""
    root = resources.files("gloam.explorer").joinpath("static")
    found = {}
    for folder, prefix in ((root, ""), (root.joinpath("vendor"), "vendor/")):
        for file in folder.iterdir():
            kind = file.name.rpartition(".")[2]
            if kind in _TYPES and file.is_file():
                found[prefix + file.name] = StaticFile(file.read_bytes(), _TYPES[kind])
    return found


def modules() -> dict[str, str]:
    """Names by which modules are imported, and their files."""
    own = {
        f"gloam/{name.removesuffix('.js')}": name
        for name in sorted(static_files())
        if name.endswith(".js") and "/" not in name
    }
    return own | VENDORED


def import_map(places: dict[str, str]) -> str:
    """The text of an import map from names to addresses."""
    return json.dumps({"imports": places}, separators=(",", ":"))


def script_digest(text: str) -> str:
    """SHA-256 of an inline script, as a Content-Security-Policy names it."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def index_page() -> tuple[bytes, str]:
    """The page of the explorer, and the digest of the one inline script in it."""
    places = {name: f"/static/{file}" for name, file in modules().items()}
    imports = import_map(places)
    head = [f'<link rel="stylesheet" href="/static/{name}">' for name in style_names()]
    head.append('<link rel="icon" href="/static/icon.svg" type="image/svg+xml">')
    head.append(f'<script type="importmap">{imports}</script>')
    # All at once, where they would be found one after the other; below the map, which they need.
    head += [f'<link rel="modulepreload" href="{place}">' for place in places.values()]
    start = '<script type="module" src="/static/main.js"></script>'
    text = static_files()["index.html"].content.decode()
    page = text.replace("<!--styles-->", "\n".join(head)).replace("<!--scripts-->", start)
    return page.encode(), script_digest(imports)


def style_names() -> list[str]:
    """The style sheets, in their order."""
    return [
        "vendor/uPlot.min.css",
        *sorted(n for n in static_files() if n.endswith(".css") and "/" not in n),
    ]
