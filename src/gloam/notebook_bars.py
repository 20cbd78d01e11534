"""Progress bars in notebooks: HTML that the kernel replaces while work goes on.

They need IPython, which every Jupyter kernel has, and no widgets.
"""

import html
import importlib.util
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console

# Pages redraw slowly; more changes a second would hold up the work.
_SECONDS = 0.2


def in_notebook(console: Console) -> bool:
    """Whether output goes to a notebook that can show bars."""
    return console.is_jupyter and importlib.util.find_spec("IPython") is not None


class NotebookBar:
    """A bar below the cell that is running.

    Args:
        title: Text before the bar.
        total: Units of work in all; ``None`` if it is not known.
        clock: Seconds that pass.
    """

    def __init__(
        self, title: str, total: int | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        from IPython import display  # pyright: ignore[reportMissingImports]

        self._clock = clock
        self._html: Callable[[str], Any] = display.HTML
        self._handle = display.display(self._html(""), display_id=True)
        self.restart(title, total)

    def restart(self, title: str, total: int | None) -> None:
        """Show other work from its beginning."""
        self._title, self._total = title, total
        self._began_at = self._clock()
        self._done, self._note = 0, ""
        self._show()

    def update(self, done: int, note: str = "") -> None:
        """Show that ``done`` units of work are done, at most a few times a second."""
        self._done, self._note = done, note
        if self._clock() - self._shown_at >= _SECONDS or done == self._total:
            self._show()

    def close(self) -> None:
        """Show the last state."""
        self._show()

    def _show(self) -> None:
        self._shown_at = self._clock()
        amount = f"{self._done:,}" if self._total is None else f"{self._done:,}/{self._total:,}"
        parts = [amount, self._note, self._time()]
        text = html.escape(" · ".join(part for part in parts if part))
        limits = "" if self._total is None else f' max="{max(self._total, 1)}" value="{self._done}"'
        content = (
            '<div style="font-family:sans-serif;font-size:13px">'
            f"<b>{html.escape(self._title)}</b> <progress{limits}></progress> {text}</div>"
        )
        if self._handle is not None:
            self._handle.update(self._html(content))

    def _time(self) -> str:
        """Time that passed, and the time left at the same pace."""
        passed = self._shown_at - self._began_at
        if self._total is None or not 0 < self._done < self._total:
            return f"{_clock_text(passed)} in all" if self._done else ""
        return f"{_clock_text(passed * (self._total - self._done) / self._done)} left"


def _clock_text(seconds: float) -> str:
    """Seconds as on a clock.

    >>> _clock_text(75), _clock_text(3675)
    ('1:15', '1:01:15')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
