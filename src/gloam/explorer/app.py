"""Parameters of requests, checked: a request that is not understood is refused.

Which requests are answered: of this machine's own pages, by its own names, for reading.

The web application: routes of the explorer.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gloam.explorer import archive_views as archive_view
from gloam.explorer import archive_views as cell_view
from gloam.explorer import archive_views as thumbnails
from gloam.explorer import discount_view, views
from gloam.explorer.archive_views import json_bytes
from gloam.explorer.library import Entry, Library
from gloam.explorer.opened_run import OpenedRun
from gloam.explorer.static_files import index_page, static_files

_LONGEST = 2000


class RefusedError(Exception):
    """A request that is not answered.

    Args:
        status: Status code of the answer.
        reason: What is wrong with it.
    """

    def __init__(self, status: int, reason: str):
        self.status = status
        self.reason = reason
        super().__init__(reason)


class Query:
    """The query of a request.

    Args:
        request: The request.
        known: Names that the query may have, each at most once.
    """

    def __init__(self, request: Request, known: Iterable[str]):
        if len(request.url.query) > _LONGEST:
            raise RefusedError(414, "The query is too long.")
        given = request.query_params.multi_items()
        names = [name for name, _ in given]
        if len(set(names)) < len(names) or not set(names) <= set(known):
            raise RefusedError(400, "The query has parameters that are not known, or twice.")
        self._given = dict(given)

    def integer(self, name: str, *, most: int = 2**63) -> int | None:
        """A whole number from 0 to ``most``, or ``None``."""
        text = self._given.get(name)
        return None if text is None else integer(text, name, most=most)

    def integers(self, name: str, *, count: int) -> list[int]:
        """Whole numbers between commas, from one to ``count`` of them."""
        parts = self._given.get(name, "").split(",")
        if len(parts) > count:
            raise RefusedError(400, f"'{name}' has more than {count} numbers.")
        return [integer(part, name) for part in parts]

    def choice(self, name: str, among: Iterable[str]) -> str:
        """One of several texts, the first by default."""
        known = list(among)
        text = self._given.get(name, known[0])
        if text not in known:
            raise RefusedError(400, f"'{name}' is not one of {', '.join(known)}.")
        return text


def integer(text: str, name: str, *, most: int = 2**31) -> int:
    """A whole number in decimal digits.

    Raises:
        RefusedError: It is something else, or larger than ``most``.
    """
    if not (text.isascii() and text.isdecimal() and len(text) <= 20) or int(text) > most:
        raise RefusedError(400, f"'{name}' is not a whole number up to {most}.")
    return int(text)


logger = logging.getLogger("gloam.explorer")

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_LONGEST_PATH = 400


def content_policy(*script_digests: str) -> str:
    """The Content-Security-Policy of the page: only its own files, no inline scripts but these."""
    scripts = " ".join(["'self'", *(f"'sha256-{digest}'" for digest in script_digests)])
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'self'; img-src 'self' blob: data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


class Guard:
    """Refuses and logs requests that do not come from the explorer's own page.

    A page of another site could otherwise read runs through the browser of the user: by a request
    across sites, or under a name of its own that leads to this machine.

    Args:
        app: What answers the others.
        hosts: Names of this machine that requests may use.
        policy: The Content-Security-Policy of all answers.
    """

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...], policy: str):
        self._app = app
        self._hosts = {host.lower() for host in hosts}
        self._added = {
            "content-security-policy": policy,
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cross-origin-resource-policy": "same-origin",
            "cross-origin-opener-policy": "same-origin",
            "cache-control": "no-cache",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or refuse one request."""
        if scope["type"] != "http":
            return
        refusal = self._refusal(scope)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._added.items():
                    headers[name] = value
            await send(message)

        if refusal is None:
            await self._app(scope, receive, send_with_headers)
            return
        status, reason = refusal
        log_refusal(scope, status, reason)
        await PlainTextResponse(reason, status)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = Headers(scope=scope)
        host = _host_name(headers.get("host", ""))
        if headers.getlist("host") != [headers.get("host")] or host not in self._hosts:
            return 403, "The name of the host is not one of the explorer's."
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return 403, "Requests of other sites are not answered."
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != headers.get("host"):
            return 403, "Requests of other sites are not answered."
        if scope["method"] not in ("GET", "HEAD"):
            return 405, "The explorer only answers GET."
        raw = scope.get("raw_path") or scope["path"].encode()
        if len(raw) > _LONGEST_PATH or b".." in raw or b"%" in raw or b"\\" in raw:
            return 400, "The path is not one of the explorer's."
        if "range" in headers:
            return 416, "Parts of answers are not given."
        return None


def log_refusal(scope: Scope, status: int, reason: str) -> None:
    """Log a request that was refused; what it sent is shown without control characters."""
    raw = (scope.get("raw_path") or b"")[:200]
    logger.warning("refused %r (%d): %s", raw.decode("ascii", "replace"), status, reason)


def _host_name(host: str) -> str | None:
    """The name in a Host header, without the port; a forwarded port is another one."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


_BINARY, _JSON, _PNG = "application/octet-stream", "application/json", "image/png"
_PROJECTIONS = ("pca", "measures", "umap", "t-sne")


def explorer_app(library: Library, hosts: tuple[str, ...] = ()) -> ASGIApp:
    """The application that shows a library.

    Args:
        library: The runs.
        hosts: Names of this machine that requests may use, besides those of the loopback.
    """
    answers = _Answers(library)
    page, digest = index_page()

    def index(request: Request) -> Response:
        return _tagged(request, page, "text/html; charset=utf-8")

    def static(request: Request) -> Response:
        file = static_files().get(request.path_params["name"])
        if file is None:
            raise RefusedError(404, "There is no such file.")
        return _tagged(request, file.content, file.media_type)

    run = "/api/runs/{run}"
    routes = {
        "/": index,
        "/static/{name:path}": static,
        "/api/folder": answers.folder,
        run: answers.run,
        f"{run}/parts": answers.parts,
        f"{run}/metrics": answers.metrics,
        f"{run}/elites": answers.elites,
        f"{run}/map": answers.map,
        f"{run}/discount": answers.discount,
        f"{run}/pairs": answers.pairs,
        f"{run}/sheet": answers.sheet,
        f"{run}/cells/{{cell}}": answers.cell,
        f"{run}/cells/{{cell}}/discount": answers.cell_discount,
        f"{run}/cells/{{cell}}/picture": answers.picture,
    }
    app = Starlette(routes=[Route(path, _guarded(answer)) for path, answer in routes.items()])
    return Guard(app, (*LOOPBACK, *hosts), content_policy(digest))


class _Answers:
    """Answers to requests about the runs of a library."""

    def __init__(self, library: Library):
        self._library = library

    def folder(self, request: Request) -> Response:
        Query(request, ())
        return _tagged(request, json_bytes(views.folder_view(self._library)), _JSON)

    def run(self, request: Request) -> Response:
        Query(request, ())
        content = views.run_summary(self._library, self._entry(request))
        return _tagged(request, json_bytes(content), _JSON)

    def parts(self, request: Request) -> Response:
        Query(request, ())
        content = views.parts_view(self._library, self._entry(request))
        return _tagged(request, json_bytes(content), _JSON)

    def metrics(self, request: Request) -> Response:
        Query(request, ())
        content = views.metrics_view(self._library, self._entry(request))
        return _tagged(request, content, _BINARY)

    def elites(self, request: Request) -> Response:
        query = Query(request, ("seed", "at"))
        run, seed = self._run_and_seed(request, query)
        at = query.integer("at", most=2**31)
        return _tagged(request, archive_view.packed_elites(run, seed, at), _BINARY)

    def map(self, request: Request) -> Response:
        query = Query(request, ("seed", "by"))
        run, seed = self._run_and_seed(request, query)
        by = query.choice("by", _PROJECTIONS)
        return _tagged(request, archive_view.packed_map(run, by, seed), _BINARY)

    def discount(self, request: Request) -> Response:
        query = Query(request, ("at",))
        run = self._library.opened(self._entry(request))
        at = query.integer("at", most=2**31)
        return _tagged(request, discount_view.packed_discount(run, at), _BINARY)

    def pairs(self, request: Request) -> Response:
        run, seed = self._run_and_seed(request, Query(request, ("seed",)))
        return _tagged(request, json_bytes(views.pairs_view(run, seed)), _JSON)

    def sheet(self, request: Request) -> Response:
        query = Query(request, ("seed", "cells"))
        run, seed = self._run_and_seed(request, query)
        cells = query.integers("cells", count=thumbnails.MAX_TILES)
        for cell in cells:
            _check_cell(run, cell)
        return _tagged(request, thumbnails.sheet(run, seed, cells), _PNG)

    def cell(self, request: Request) -> Response:
        run, seed = self._run_and_seed(request, Query(request, ("seed",)))
        details = cell_view.cell_details(run, seed, _cell(request, run))
        return _tagged(request, json_bytes(details), _JSON)

    def cell_discount(self, request: Request) -> Response:
        run, seed = self._run_and_seed(request, Query(request, ("seed",)))
        found = discount_view.discount_at(run, seed, _cell(request, run))
        return _tagged(request, json_bytes({"discount": found}), _JSON)

    def picture(self, request: Request) -> Response:
        query = Query(request, ("seed", "side"))
        run, seed = self._run_and_seed(request, query)
        side = query.choice("side", ("solution", "item"))
        content = thumbnails.picture(run, seed, _cell(request, run), side)
        if content is None:
            raise RefusedError(404, "There is no such picture.")
        return _tagged(request, content, _PNG)

    def _entry(self, request: Request) -> Entry:
        found = self._library.run(request.path_params["run"])
        if found is None:
            raise RefusedError(404, "There is no such run.")
        return found

    def _run_and_seed(self, request: Request, query: Query) -> tuple[OpenedRun, int]:
        run = self._library.opened(self._entry(request))
        seeds = run.config.seeds
        seed = query.integer("seed")
        seed = seeds[0] if seed is None else seed
        if seed not in seeds:
            raise RefusedError(400, "The run has no such seed.")
        return run, seed


def _cell(request: Request, run: OpenedRun) -> int:
    cell = integer(request.path_params["cell"], "cell")
    _check_cell(run, cell)
    return cell


def _check_cell(run: OpenedRun, cell: int) -> None:
    if cell >= run.archive.num_cells:
        raise RefusedError(400, "The archive has no such cell.")


def _guarded(answer: Callable[[Request], Response]) -> Callable[[Request], Response]:
    """Turn errors into answers: what is wrong with a file is told, the rest is only logged."""

    def guarded(request: Request) -> Response:
        try:
            return answer(request)
        except RefusedError as error:
            log_refusal(request.scope, error.status, error.reason)
            return _problem(error.status, error.reason)
        except views.READ_ERRORS as error:
            logger.info("not readable: %s", error)
            return _problem(422, str(error))
        except Exception:
            logger.exception("unexpected error at %r", request.url.path[:200])
            return _problem(500, "The explorer failed here. The terminal says more.")

    return guarded


def _problem(status: int, reason: str) -> Response:
    return Response(json_bytes({"error": reason}), status, media_type=_JSON)


def _tagged(request: Request, content: bytes, media_type: str) -> Response:
    """An answer with a tag of its content, or only the news that it is the same."""
    tag = f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
    headers: dict[str, Any] = {"etag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=media_type)
