"""Random requests to the explorer: no failure, no file from outside, all headers."""

import asyncio
import json
import string
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gloam.explorer.app import explorer_app
from gloam.explorer.library import Library
from tests.run_folders import write_grid_run, write_pictures_run

from .attack import SECRET, Attack

_HEADERS = (
    "content-security-policy",
    "x-content-type-options",
    "referrer-policy",
    "cross-origin-resource-policy",
    "cross-origin-opener-policy",
    "cache-control",
)
_VIEWS = ("", "/parts", "/metrics", "/elites", "/map", "/discount", "/pairs", "/sheet")
_CELLS = ("", "/discount", "/picture")
_PATHS = ("", "static/main.js", "static/style.css", "api/folder", "api/compare", "static/", "api")
_TEXTS = (
    "..",
    "../../secret.txt",
    "..%2f..%2fsecret.txt",
    "....//secret.txt",
    "/etc/passwd",
    "\\..\\secret.txt",
    "%00",
    "\0",
    "\r\nx: y",
    "secret.txt",
    "grid",
    ".",
    "//",
    "é",
    "\udcff",
    "-1",
    "0",
    "3",
    "48",
    "1e3",
    "9" * 30,
    "٣",
    "nan",
    "{run}",
    "<script>",
    "x" * 500,
)
_NAMES = ("seed", "at", "by", "cells", "side", "groups", "x", "seed[]", "")
_VALUES = (*_TEXTS, "", "pca", "tsne", "measures", "solution", "item", "1,2", "1;2", ",", ";;")
_FIELDS: dict[str, tuple[str, ...]] = {
    "host": ("localhost", "127.0.0.1:8400", "[::1]:1", "evil.example", "[::1", "", "localhost:x"),
    "origin": ("http://localhost", "null", "http://[", "http://[::1", "x", "http://a]b", "\x7f"),
    "sec-fetch-site": ("same-origin", "none", "cross-site", "", "x"),
    "range": ("bytes=0-1", "x"),
    "if-none-match": ('"x"', "*", ""),
    "accept-encoding": ("gzip", "x" * 100),
    "content-length": ("-1", "99999999999", "x"),
    "cookie": ("a=b", ";" * 300),
    "x-forwarded-host": ("evil.example",),
    "referer": ("http://evil.example/",),
}
_METHODS = ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PATCH", "get", "", "G\0T")


class Answer(NamedTuple):
    """Status, headers and content of a response."""

    status: int
    headers: dict[str, str]
    content: bytes

    def check(self) -> "Answer":
        """Check that the explorer did not fail, and that the answer is protected."""
        assert self.status < 500, f"status {self.status}: {self.content[:200]!r}"
        missing = [name for name in _HEADERS if name not in self.headers]
        assert not missing, f"status {self.status} without {missing}"
        assert SECRET.encode() not in self.content, "a file outside of the folder"
        assert b"root:x:0" not in self.content, "a file of the system"
        return self


def ask(app: Any, path: str, **changes: Any) -> Answer:
    """Send one request to an application, without a server.

    Args:
        app: The application.
        path: Path after the first slash, with the query, as it is.
        changes: Other entries of the ASGI scope.
    """
    path, _, query = path.partition("?")
    raw = f"/{path}".encode(errors="surrogateescape")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": raw.decode(errors="replace"),
        "raw_path": raw,
        "query_string": query.encode(errors="surrogateescape"),
        "root_path": "",
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8400),
    } | changes
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    if not sent:
        assert scope["type"] != "http", "no answer"
        return Answer(0, dict.fromkeys(_HEADERS, ""), b"")
    headers = {
        name.decode("latin-1"): value.decode("latin-1") for name, value in sent[0]["headers"]
    }
    return Answer(sent[0]["status"], headers, b"".join(part.get("body", b"") for part in sent[1:]))


def every_view(run_id: str) -> list[str]:
    """All paths of the explorer about one run."""
    views = [f"api/runs/{run_id}{view}" for view in _VIEWS]
    views[-1] += "?cells=0,1,2"
    return views + [f"api/runs/{run_id}/cells/1{view}" for view in _CELLS]


class Requests:
    """Random paths, queries, headers and methods.

    Args:
        work: A folder.
    """

    def __init__(self, work: Path):
        root = work / "requests" / "runs"
        write_grid_run(root / "grid")
        write_pictures_run(root / "pictures")
        (root.parent / "secret.txt").write_text(SECRET)
        (root / "secret.txt").symlink_to(root.parent / "secret.txt")
        (root / "outside").symlink_to(root.parent)
        (root / "grid" / "failures.parquet").symlink_to(root.parent / "secret.txt")
        self._app = explorer_app(Library(root))
        folder = json.loads(ask(self._app, "api/folder").content)
        self._ids = [run["id"] for run in folder["runs"]]

    def draw(self, rng: np.random.Generator) -> Attack:
        """Return a random request."""
        path, changes = self._path(rng), self._changes(rng)
        told = f"{changes.get('method', 'GET')} /{path} {dict(changes.get('headers', []))}"

        def run() -> None:
            ask(self._app, path, **changes).check()
            assert ask(self._app, "api/folder").check().status == 200

        return Attack(ascii(told)[:300], run)

    def _path(self, rng: np.random.Generator) -> str:
        def some(texts: Any) -> str:
            return str(rng.choice(texts)) if rng.random() < 0.8 else _noise(rng)

        run_id = str(rng.choice(self._ids)) if rng.random() < 0.8 else some(_TEXTS)
        path = some(_PATHS)
        if rng.random() < 0.6:
            path = f"api/runs/{run_id}{rng.choice(_VIEWS)}"
        if rng.random() < 0.3:
            cell = rng.integers(60) if rng.random() < 0.5 else some(_TEXTS)
            path = f"api/runs/{run_id}/cells/{cell}{rng.choice(_CELLS)}"
        if rng.random() < 0.2:
            path += rng.choice(["/", ""]) + some(_TEXTS)
        if rng.random() < 0.1:
            at = int(rng.integers(len(path) + 1))
            path = path[:at] + some(_TEXTS) + path[at:]
        if rng.random() < 0.6:
            pairs = [f"{some(_NAMES)}={some(_VALUES)}" for _ in range(rng.integers(1, 4))]
            path += "?" + "&".join(pairs)
        if "groups=" in path and rng.random() < 0.7:
            path = "api/compare?groups=" + str(rng.choice([",", ";"])).join(self._ids)
        return path

    def _changes(self, rng: np.random.Generator) -> dict[str, Any]:
        changes: dict[str, Any] = {}
        if rng.random() < 0.15:
            changes["method"] = str(rng.choice(_METHODS))
        if rng.random() < 0.03:
            changes["type"] = str(rng.choice(["websocket", "lifespan", "x"]))
        if rng.random() < 0.4:
            headers = [] if rng.random() < 0.2 else [(b"host", b"localhost")]
            for name in rng.choice(list(_FIELDS), rng.integers(1, 4)):
                value = str(rng.choice(_FIELDS[str(name)])) if rng.random() < 0.8 else _noise(rng)
                content = value.encode(errors="replace")
                if name == "host" and rng.random() < 0.8:
                    headers = [(n, v) for n, v in headers if n != b"host"]
                headers.append((str(name).encode(), content))
            changes["headers"] = headers
        return changes


def _noise(rng: np.random.Generator) -> str:
    letters = string.printable + "é☃\udc80\x00\x7f\x9b"
    return "".join(rng.choice(list(letters), rng.integers(0, 30)))
