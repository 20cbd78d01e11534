"""`explore`: serves the explorer on this machine and opens it in the browser."""

import contextlib
import logging
import os
import socket
import threading
import time
import webbrowser
from pathlib import Path
from typing import Any

from gloam import checks
from gloam.explorer.library import Library

_FIRST_PORT = 8400


def explore(
    folder: str | os.PathLike = "runs",
    *,
    port: int | None = None,
    host: str = "127.0.0.1",
    browser: bool = True,
) -> None:
    """Show the runs of a folder in the browser, until Ctrl-C. Run folders are not changed.

    Args:
        folder: A folder that contains run folders and studies, or one of them.
        port: Port of the server; by default the first free one from 8400.
        host: Address to listen on. Everyone who can reach it can read the runs; the default can
            only be reached from this machine.
        browser: Whether to open the browser.
    """
    uvicorn = _uvicorn()
    from gloam.explorer.app import explorer_app

    root = Path(folder)
    checks.expect(root.is_dir(), "folder", "an existing folder", f"'{root}'", "Give its path.")
    library = Library(root)
    _log_to_terminal()
    listening = _listening(host, port)
    shown = "localhost" if host == "127.0.0.1" else host
    address = f"http://{shown}:{listening.getsockname()[1]}/"
    config = uvicorn.Config(
        explorer_app(library, (host,)),
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
    )
    server = uvicorn.Server(config)
    library.folder()  # summaries are read before the first page asks for them
    print(f"gloam explorer: {address} (Ctrl-C ends it)", flush=True)
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
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in [*range(_FIRST_PORT, _FIRST_PORT + 20), 0] if port is None else [port]:
        found = socket.socket(family)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((host, number))
            found.listen(128)
        except OSError as error:
            found.close()
            if number != port:
                continue
            error.add_note("Choose another port by --port.")
            raise
        return found
    raise OSError(f"no free port on {host}")


def _open(server: Any, address: str) -> None:
    while not server.started:
        time.sleep(0.05)
    webbrowser.open(address)


def _log_to_terminal() -> None:
    logger = logging.getLogger("gloam.explorer")
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("gloam explorer: %(message)s"))
        logger.addHandler(handler)
    logger.setLevel(logging.WARNING)
