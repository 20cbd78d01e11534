"""The web application of the explorer: its routes, and which requests it answers.

It only answers requests of its own page, by this machine's own names, for reading. Requests with
anything unexpected in them are refused and logged.
"""

import hashlib
import ipaddress
import logging
import re
from collections.abc import Callable, Sequence

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gloam.explorer import archive_view, cell_view
from gloam.explorer.library import READ_ERRORS, Entry, Library, OpenedRun
from gloam.explorer.page import index_page, json_bytes, static_files

logger = logging.getLogger("gloam.explorer")

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_LONGEST_PATH = 400
_LONGEST_QUERY = 2000
_BINARY, _JSON = "application/octet-stream", "application/json"
# A drawing of the user's function, also where a browser shows it as a page of its own.
_SVG_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; sandbox"
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")
_PROJECTIONS = ("pca", "measures", "umap", "tsne", "axes")

Answer = tuple[bytes, str]
"""Content and media type."""


def explorer_app(
    library: Library, hosts: tuple[str, ...] = (), *, by_address: bool = False
) -> ASGIApp:
    """Return the application that shows a library.

    Args:
        library: The runs.
        hosts: Names of this machine that requests may use, besides those of the loopback.
        by_address: Whether requests may also use any IP address, for a server that other machines
            can reach.
    """
    answers = _Answers(library)
    page, digest = index_page()
    run = "/api/runs/{run}"
    routes = {
        "/": lambda request: (page, "text/html; charset=utf-8"),
        "/static/{name:path}": answers.static,
        "/api/folder": answers.folder,
        "/api/compare": answers.compare,
        run: answers.run,
        f"{run}/parts": answers.parts,
        f"{run}/metrics": answers.metrics,
        f"{run}/elites": answers.elites,
        f"{run}/column": answers.column,
        f"{run}/map": answers.map,
        f"{run}/discount": answers.discount,
        f"{run}/pairs": answers.pairs,
        f"{run}/sheet": answers.sheet,
        f"{run}/cells/{{cell}}": answers.cell,
        f"{run}/cells/{{cell}}/discount": answers.cell_discount,
        f"{run}/cells/{{cell}}/picture": answers.picture,
    }
    app = Starlette(routes=[Route(path, _endpoint(answer)) for path, answer in routes.items()])
    return Guard(app, (*LOOPBACK, *hosts), content_policy(digest), by_address=by_address)


def _endpoint(answer: Callable[[Request], Answer]) -> Callable[[Request], Response]:
    """Turn answers and errors into responses. Unexpected errors are logged without details."""

    def respond(request: Request) -> Response:
        try:
            content, media_type = answer(request)
        except RefusedError as error:
            _log_refusal(request.scope, error.status, error.reason)
            return _problem(error.status, error.reason)
        except READ_ERRORS as error:
            logger.info("not readable: %s", error)
            return _problem(422, str(error))
        except Exception:
            logger.exception("unexpected error at %r", request.url.path[:200])
            return _problem(500, "The explorer failed. See the terminal for details.")
        tag = f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"etag": tag})
        headers = {"etag": tag}
        if media_type == cell_view.SVG:
            headers["content-security-policy"] = _SVG_POLICY
        return Response(content, headers=headers, media_type=media_type)

    return respond


def _problem(status: int, reason: str) -> Response:
    return Response(json_bytes({"error": reason}), status, media_type=_JSON)


class RefusedError(Exception):
    """A request is refused.

    Args:
        status: Status code of the response.
        reason: What is wrong with the request.
    """

    def __init__(self, status: int, reason: str):
        self.status = status
        self.reason = reason
        super().__init__(reason)


class _Answers:
    """Answers to requests about the runs of a library."""

    def __init__(self, library: Library):
        self._library = library

    def static(self, request: Request) -> Answer:
        file = static_files().get(request.path_params["name"])
        if file is None:
            raise RefusedError(404, "There is no such file.")
        return file.content, file.media_type

    def folder(self, request: Request) -> Answer:
        Query(request)
        return json_bytes(self._library.folder()), _JSON

    def compare(self, request: Request) -> Answer:
        groups = Query(request, "groups").groups("groups")
        entries = [[self._known(run_id) for run_id in ids] for ids in groups]
        return json_bytes(self._library.comparison(entries)), _JSON

    def run(self, request: Request) -> Answer:
        Query(request)
        return json_bytes(self._library.summary(self._entry(request))), _JSON

    def parts(self, request: Request) -> Answer:
        Query(request)
        run = self._library.opened(self._entry(request))
        return json_bytes(archive_view.described_run(run)), _JSON

    def metrics(self, request: Request) -> Answer:
        Query(request)
        return self._library.packed_metrics(self._entry(request)), _BINARY

    def elites(self, request: Request) -> Answer:
        query = Query(request, "seed", "at")
        run, seed = self._run_and_seed(request, query)
        at = query.integer("at", most=2**31)
        return archive_view.packed_elites(run, seed, at), _BINARY

    def column(self, request: Request) -> Answer:
        query = Query(request, "seed", "number")
        run, seed = self._run_and_seed(request, query)
        return archive_view.packed_column(run, seed, query.integer("number") or 0), _BINARY

    def map(self, request: Request) -> Answer:
        query = Query(request, "seed", "by", "x", "y")
        run, seed = self._run_and_seed(request, query)
        by = query.choice("by", _PROJECTIONS)
        x, y = query.integer("x"), query.integer("y")
        axes = (0 if x is None else x, 1 if y is None else y)
        return archive_view.packed_map(run, by, seed, axes), _BINARY

    def discount(self, request: Request) -> Answer:
        query = Query(request, "at")
        run = self._library.opened(self._entry(request))
        return archive_view.packed_discount(run, query.integer("at", most=2**31)), _BINARY

    def pairs(self, request: Request) -> Answer:
        run, seed = self._run_and_seed(request, Query(request, "seed"))
        return json_bytes(cell_view.pairs(run, seed)), _JSON

    def sheet(self, request: Request) -> Answer:
        query = Query(request, "seed", "cells")
        run, seed = self._run_and_seed(request, query)
        cells = query.integers("cells", count=cell_view.MAX_TILES)
        for cell in cells:
            _check_cell(run, cell)
        return cell_view.sheet(run, seed, cells)

    def cell(self, request: Request) -> Answer:
        run, seed = self._run_and_seed(request, Query(request, "seed"))
        return json_bytes(cell_view.cell_details(run, seed, _cell(request, run))), _JSON

    def cell_discount(self, request: Request) -> Answer:
        run, seed = self._run_and_seed(request, Query(request, "seed"))
        discount = cell_view.discount_at(run, seed, _cell(request, run))
        return json_bytes({"discount": discount}), _JSON

    def picture(self, request: Request) -> Answer:
        query = Query(request, "seed", "side")
        run, seed = self._run_and_seed(request, query)
        side = query.choice("side", ("solution", "item"))
        answer = cell_view.picture(run, seed, _cell(request, run), side)
        if answer is None:
            raise RefusedError(404, "There is no such picture.")
        return answer

    def _entry(self, request: Request) -> Entry:
        return self._known(request.path_params["run"])

    def _known(self, run_id: str) -> Entry:
        entry = self._library.run(run_id)
        if entry is None:
            raise RefusedError(404, "There is no such run.")
        return entry

    def _run_and_seed(self, request: Request, query: "Query") -> tuple[OpenedRun, int]:
        run = self._library.opened(self._entry(request))
        seeds = run.config.seeds
        seed = query.integer("seed")
        seed = seeds[0] if seed is None else seed
        if seed not in seeds:
            raise RefusedError(400, "The run has no such seed.")
        return run, seed


def _cell(request: Request, run: OpenedRun) -> int:
    cell = _integer(request.path_params["cell"], "cell")
    _check_cell(run, cell)
    return cell


def _check_cell(run: OpenedRun, cell: int) -> None:
    if cell >= run.archive.num_cells:
        raise RefusedError(400, "The archive has no such cell.")


class Query:
    """The query of a request, validated on read.

    Args:
        request: The request.
        known: Names of the parameters that it may have, each at most once.
    """

    def __init__(self, request: Request, *known: str):
        if len(request.url.query) > _LONGEST_QUERY:
            raise RefusedError(414, "The query is too long.")
        given = request.query_params.multi_items()
        names = [name for name, _ in given]
        if len(set(names)) < len(names) or not set(names) <= set(known):
            raise RefusedError(400, "The query has unknown or repeated parameters.")
        self._given = dict(given)

    def integer(self, name: str, *, most: int = 2**63) -> int | None:
        """Return an integer from 0 to ``most``, or ``None``."""
        text = self._given.get(name)
        return None if text is None else _integer(text, name, most=most)

    def integers(self, name: str, *, count: int) -> list[int]:
        """Return one to ``count`` integers, separated by commas."""
        parts = self._given.get(name, "").split(",")
        if len(parts) > count:
            raise RefusedError(400, f"'{name}' has more than {count} numbers.")
        return [_integer(part, name) for part in parts]

    def groups(self, name: str) -> list[list[str]]:
        """Return groups, separated by semicolons, of different names, separated by commas."""
        groups = [group.split(",") for group in self._given.get(name, "").split(";")]
        names = [member for group in groups for member in group]
        if len(set(names)) < len(names):
            raise RefusedError(400, f"'{name}' has repeated names.")
        return groups

    def choice(self, name: str, among: Sequence[str]) -> str:
        """Return one of several texts, by default the first."""
        text = self._given.get(name, among[0])
        if text not in among:
            raise RefusedError(400, f"'{name}' is not one of {', '.join(among)}.")
        return text


def _integer(text: str, name: str, *, most: int = 2**31) -> int:
    """Parse an integer in decimal digits."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 20) or int(text) > most:
        raise RefusedError(400, f"'{name}' is not an integer up to {most}.")
    return int(text)


class Guard:
    """Refuses and logs requests that do not come from the explorer's own page.

    Otherwise a page of another site could read runs through the user's browser: by a cross-site
    request, or under a host name of its own that resolves to this machine.

    Args:
        app: The application that answers the other requests.
        hosts: Names of this machine that requests may use.
        policy: The Content-Security-Policy of all responses that have none of their own.
        by_address: Whether requests may also use any IP address. No site can take an address for
            a name of its own.
    """

    def __init__(
        self, app: ASGIApp, hosts: tuple[str, ...], policy: str, *, by_address: bool = False
    ):
        self._app = app
        self._hosts = {host.lower() for host in hosts}
        self._by_address = by_address
        self._headers = {
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

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, send_with_headers)
            return
        status, reason = refusal
        _log_refusal(scope, status, reason)
        await PlainTextResponse(reason, status)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = Headers(scope=scope)
        given = headers.getlist("host")
        if len(given) != 1 or not self._is_own(_host_name(given[0])):
            return 403, "The host name is not one of the explorer's."
        sites, origins = headers.getlist("sec-fetch-site"), headers.getlist("origin")
        own_origins = {f"http://{given[0]}", f"https://{given[0]}"}
        if not (set(sites) <= {"same-origin", "none"} and set(origins) <= own_origins):
            return 403, "Requests of other sites are refused."
        if scope["method"] not in ("GET", "HEAD"):
            return 405, "The explorer only answers GET."
        raw = scope.get("raw_path") or scope["path"].encode()
        if len(raw) > _LONGEST_PATH or b".." in raw or b"%" in raw or b"\\" in raw:
            return 400, "The path is not one of the explorer's."
        if not scope.get("query_string", b"").isascii():  # Starlette would fail to decode it
            return 400, "The query is not percent-encoded."
        if "range" in headers:
            return 416, "Range requests are not supported."
        return None

    def _is_own(self, name: str) -> bool:
        return name in self._hosts or (self._by_address and _is_address(name))


def content_policy(script_digest: str) -> str:
    """Return the Content-Security-Policy of the page: its own files, and one inline script."""
    return (
        f"default-src 'none'; script-src 'self' 'sha256-{script_digest}'; style-src 'self'; "
        "img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


def _log_refusal(scope: Scope, status: int, reason: str) -> None:
    """Log a request that was refused, without control characters that it may contain."""
    raw = (scope.get("raw_path") or b"")[:200]
    logger.warning("refused %r (%d): %s", raw.decode("ascii", "replace"), status, reason)


def _host_name(host: str) -> str:
    """Return the name in a Host header, "" if there is none. The port may differ, if forwarded."""
    match = _HOST.fullmatch(host)
    return match["name"].strip("[]").lower() if match else ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
