"""Where progress is shown: moving bars on a terminal and in notebooks, plain lines in log files.

Text of users (paths, names, titles) reaches rich only through `plain`, because rich reads square
brackets as markup.
"""

import sys
import time
from collections.abc import Callable

from rich.console import Console
from rich.text import Text

from gloam.notebook_bars import NotebookBar, in_notebook

_LINE_SECONDS = 60.0
_PARTS = 10


def error_console() -> Console:
    """A console on standard error."""
    return Console(stderr=True)


def plain(text: str) -> Text:
    """``text`` for rich, with every square bracket kept.

    >>> plain("pip install 'gloam[faiss]'").plain
    "pip install 'gloam[faiss]'"
    """
    return Text(text)


def can_draw_bars(console: Console) -> bool:
    """Whether rich can move a bar on ``console``; in notebooks `lines_or_bar` does that."""
    return console.is_terminal and not console.is_dumb_terminal and not console.is_jupyter


def lines_or_bar(console: Console, title: str, total: int | None) -> "ProgressLines | NotebookBar":
    """A bar in a notebook, elsewhere plain lines."""
    return (NotebookBar if in_notebook(console) else ProgressLines)(title, total)


class ProgressLines:
    """Prints a plain line at each tenth of the work and at least once a minute.

    Args:
        title: Start of each line.
        total: Units of work in all; ``None`` if it is not known.
        clock: Seconds that pass.
    """

    def __init__(
        self, title: str, total: int | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self.restart(title, total)

    def restart(self, title: str, total: int | None) -> None:
        """Print lines on other work from now on."""
        self._title, self._total = title, total
        self._tenth = 0
        self._printed_at = self._clock()

    def update(self, done: int, note: str = "") -> None:
        """Print a line if one is due after ``done`` units of work."""
        tenth = done * _PARTS // self._total if self._total else 0
        now = self._clock()
        if tenth == self._tenth and now - self._printed_at < _LINE_SECONDS:
            return
        self._tenth, self._printed_at = tenth, now
        amount = f"{done:,}" if self._total is None else f"{done:,} of {self._total:,}"
        line = f"{self._title}: {amount}" + (f", {note}" if note else "")
        print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Nothing is left to print."""
