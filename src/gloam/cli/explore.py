"""`gloam explore`: run folders in the browser."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro


@dataclasses.dataclass(frozen=True)
class Explore:
    """Show runs and studies in the browser, live while they run.

    The explorer reads the folder and changes nothing in it. It needs `pip install
    'gloam[explorer]'`. On another machine, forward a port: ssh -L 8400:localhost:8400 MACHINE
    """

    runs: Annotated[Path, tyro.conf.Positional] = Path("runs")
    """Folder with runs and studies in it, or the folder of one."""
    port: int | None = None
    """Port of the server. Default: the first free port from 8400."""
    host: str = "127.0.0.1"
    """Address to listen on. Everyone who can reach it can read the runs."""
    browser: bool = True
    """Open the browser."""

    def __call__(self) -> None:
        """Serve until Ctrl-C."""
        from gloam.explorer.server import explore

        explore(self.runs, port=self.port, host=self.host, browser=self.browser)
