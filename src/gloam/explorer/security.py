"""Which requests are answered: of this machine's own pages, by its own names, for reading."""

import logging
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
