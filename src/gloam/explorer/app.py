"""The web application: routes of the explorer."""

import hashlib
import logging
from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from gloam.explorer import archive_view, cell_view, discount_view, thumbnails, views
from gloam.explorer.library import Entry, Library
from gloam.explorer.opened_run import OpenedRun
from gloam.explorer.packing import json_bytes
from gloam.explorer.queries import Query, RefusedError, integer
from gloam.explorer.security import LOOPBACK, Guard, content_policy, log_refusal
from gloam.explorer.static_files import index_page, static_files

logger = logging.getLogger("gloam.explorer")

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
