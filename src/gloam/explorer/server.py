"""`explore`: serves the explorer on this machine and opens it in the browser."""

import contextlib
import errno
import ipaddress
import logging
import os
import socket
import threading
import time
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gloam._tools import checks
from gloam.explorer.library import Library

_FIRST_PORT = 8400
# Names for the browser of this machine.
_SHOWN = {"127.0.0.1": "localhost", "0.0.0.0": "localhost", "::": "[::1]"}
_EXPECTED_HOST = "an address or a name of this machine"
_FIX_HOST = "Give 127.0.0.1 for this machine alone, or 0.0.0.0 to let other machines in as well."
_ANNOUNCEMENT = (
    "gloam explorer: listening on {}, where everyone who can reach this machine over a network can "
    "read all runs of the folder, without a password. Without --host, only this machine can."
)


def explore(
    folder: str | os.PathLike = "runs",
    *,
    port: int | None = None,
    host: str = "127.0.0.1",
    browser: bool = True,
    draw: Callable[..., Any] | None = None,
) -> None:
    """Show the runs of a folder in the browser, until Ctrl-C. Run folders are not changed.

    Args:
        folder: A folder that contains run folders and studies, or one of them.
        port: Port of the server; by default the first free one from 8400.
        host: Address or name of this machine to listen on. Everyone who can reach it can read the
            runs, without a password; the default can only be reached from this machine.
        browser: Whether to open the browser.
        draw: Makes a picture of a solution, for all runs; see `gloam.gallery.elite_pictures`. It is
            called for one solution at a time.
    """
    uvicorn = _uvicorn()
    from gloam.explorer.app import explorer_app

    root = Path(folder)
    checks.expect(root.is_dir(), "folder", "an existing folder", f"'{root}'", "Give its path.")
    library = Library(root, draw)
    _log_to_terminal()
    listening = _listening(host, port)
    bound, number = listening.getsockname()[:2]
    is_private = ipaddress.ip_address(bound).is_loopback
    address = f"http://{_SHOWN.get(bound) or (f'[{bound}]' if ':' in bound else host)}:{number}/"
    hosts = (host,) if is_private else (host, bound, socket.gethostname())
    config = uvicorn.Config(
        explorer_app(library, hosts, by_address=not is_private),
        log_config=None,  # uvicorn's own closes all handlers of the process
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
    )
    server = uvicorn.Server(config)
    library.folder()  # summaries are read before the first page asks for them
    print(f"gloam explorer: {address} (Ctrl-C ends it)", flush=True)
    if not is_private:
        print(_ANNOUNCEMENT.format(bound), flush=True)
    if browser:
        threading.Thread(target=_open, args=(server, address), daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listening])


def _uvicorn() -> Any:
    try:
        import starlette  # noqa: F401
        import uvicorn
    except ImportError as error:
        raise ValueError(
            f"The explorer needs the package {error.name}. "
            "Install it: pip install 'gloam[explorer]'"
        ) from None
    return uvicorn


def _listening(host: str, port: int | None) -> socket.socket:
    """Return a socket that listens on the given port, or on the first free one."""
    if port is not None:
        checks.integer("port", port, minimum=0)
        checks.expect(port < 65536, "port", "a port up to 65535", port)
    family, address = _resolved(host)
    for number in [*range(_FIRST_PORT, _FIRST_PORT + 20), 0] if port is None else [port]:
        listening = socket.socket(family)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((address, number))
            listening.listen(128)
        except OSError as error:
            listening.close()
            is_own = error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
            checks.expect(is_own, "host", _EXPECTED_HOST, _described(host, address), _FIX_HOST)
            if number != port and error.errno in (errno.EADDRINUSE, errno.EACCES):
                continue
            error.add_note("Choose another port by --port.")
            raise
        return listening
    raise OSError(f"no free port on {host}")


def _resolved(host: str) -> tuple[int, str]:
    """Return the address family and the address of a host; of several, one of IPv4."""
    # The system takes an empty name for all addresses of the machine.
    is_named = isinstance(host, str) and bool(host.strip())
    checks.expect(is_named, "host", _EXPECTED_HOST, checks.short(host), _FIX_HOST)
    try:
        answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        got = f"{checks.short(host)}, which could not be resolved ({reason})"
        raise ValueError(f"host: expected {_EXPECTED_HOST}, got {got}. {_FIX_HOST}") from None
    family, *_, (address, *_) = min(answers, key=lambda answer: answer[0] != socket.AF_INET)
    return family, str(address)


def _described(host: str, address: str) -> str:
    other = "" if host == address else f" ({address})"
    return f"{checks.short(host)}{other}, which is not an address of this machine"


def _open(server: Any, address: str) -> None:
    while not server.started:
        time.sleep(0.05)
    webbrowser.open(address)


class _PlainText(logging.Formatter):
    """Messages and tracebacks, which may name files, without commands for the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        return checks.printable(super().format(record), keep="\n")


def _log_to_terminal() -> None:
    logger = logging.getLogger("gloam.explorer")
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(_PlainText("gloam explorer: %(message)s"))
        logger.addHandler(handler)
    logger.setLevel(logging.WARNING)
