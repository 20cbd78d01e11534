"""Progress on standard error: bars on terminals and in notebooks, plain lines in log files."""

import importlib.util
import sys
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache

from rich import filesize
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from gloam._tools.checks import printable

_LINE_SECONDS = 60.0
_COMPILING = "Compiling the search (once per process; later starts use the cache) ..."


class Display(AbstractContextManager["Display"]):
    """Progress of a run. Derive from it to pass a display of your own to `gloam.run`."""

    @abstractmethod
    def update(
        self,
        iteration: int,
        qd_score: float,
        coverage: float,
        rate: float,
        failed: int = 0,
        f_min: float = 0.0,
    ) -> None:
        """Show the state of the run.

        Args:
            iteration: Number of iterations finished.
            qd_score, coverage: Means over the seeds.
            rate: Number of evaluations per second.
            failed: Number of failed evaluations so far, over all seeds.
            f_min: Reference of the QD score.
        """

    def __exit__(self, *error: object) -> None:
        """Called when the run ends; does nothing by default."""


class Silent(Display):
    """Shows nothing."""

    def update(
        self,
        iteration: int,
        qd_score: float,
        coverage: float,
        rate: float,
        failed: int = 0,
        f_min: float = 0.0,
    ) -> None:
        """Do nothing."""


@contextmanager
def run_display(title: str, iterations: int) -> Iterator[Display]:
    """Show the progress of one run while the block runs."""
    with progress_bars() as add_bar:
        yield RunDisplay(add_bar(title, iterations))


@contextmanager
def work_bar(
    title: str, total: int | None, *, show: bool, size_in_bytes: bool = False, done: int = 0
) -> Iterator[Callable[[int], None]]:
    """Show a bar while the block runs, and yield a function that advances it.

    Args:
        title: Text before the bar.
        total: Units of work in total, or ``None`` if unknown.
        show: Whether to show the bar.
        size_in_bytes: Whether the units are bytes.
        done: Units of work that are already done.
    """
    if not show:
        yield lambda step: None
        return
    with progress_bars(size_in_bytes=size_in_bytes) as add_bar:
        bar = add_bar(title, total)
        if done:
            bar.update(done)

        def advance(step: int) -> None:
            nonlocal done
            done += step
            bar.update(done)

        yield advance


def print_line(line: object, *, flush: bool = False) -> None:
    """Print one line on standard output, as `gloam._tools.checks.printable` writes it."""
    print(printable(line), flush=flush)


def print_lines(text: str) -> None:
    """Print a text of several lines on standard output, each by `print_line`."""
    for line in text.split("\n"):
        print_line(line)


def error_console() -> Console:
    """Return a console on standard error."""
    return Console(stderr=True)


@cache
def tell_of_compilation() -> None:
    """Print a line, once, that a search compiles; on terminals and in notebooks only."""
    console = error_console()
    if console.is_terminal or console.is_jupyter:
        console.print(_COMPILING, markup=False, highlight=False)


class RunDisplay(Display):
    """Shows a run on a bar."""

    def __init__(self, bar: "Bar"):
        self._bar = bar
        bar.update(0, "compiling")

    def update(
        self,
        iteration: int,
        qd_score: float,
        coverage: float,
        rate: float,
        failed: int = 0,
        f_min: float = 0.0,
    ) -> None:
        """Move the bar."""
        reference = f" (from {f_min:g})" if f_min else ""
        failures = f" {failed:,} failed" if failed else ""
        note = f"QD {qd_score:,.0f}{reference} {coverage:.1%} {rate:,.0f}/s{failures}"
        self._bar.update(iteration, note)


class Bar:
    """A bar of rich; without one, a plain line after each tenth of the work and each minute.

    Args:
        title: Start of the line.
        total: Units of work in total, or ``None`` if unknown.
        bars: The display that the bar is added to, or ``None`` for lines.
        amount: Formats a number of units.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        title: str,
        total: int | None,
        *,
        bars: Progress | None = None,
        amount: Callable[[int], str] = "{:,}".format,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._bars, self._amount, self._clock = bars, amount, clock
        self._task = None if bars is None else bars.add_task(printable(title), total=total, note="")
        self.restart(title, total)

    def restart(self, title: str, total: int | None) -> None:
        """Show other work from its beginning."""
        self._title, self._total = printable(title), total
        self._num_tenths, self._printed_at = 0, self._clock()
        if self._bars is not None and self._task is not None:
            self._bars.reset(self._task, total=total, description=self._title, note="")

    def update(self, done: int, note: str = "") -> None:
        """Show that ``done`` units of work are done, with a note."""
        if self._bars is not None and self._task is not None:
            self._bars.update(self._task, completed=done, note=note)
            return
        num_tenths = 10 * done // self._total if self._total else 0
        now = self._clock()
        if num_tenths == self._num_tenths and now - self._printed_at < _LINE_SECONDS:
            return
        self._num_tenths, self._printed_at = num_tenths, now
        amount = self._amount(done)
        if self._total is not None:
            amount += f" of {self._amount(self._total)}"
        line = f"{self._title}: {amount}" + (f", {printable(note)}" if note else "")
        print(line, file=sys.stderr, flush=True)


@contextmanager
def progress_bars(
    *, size_in_bytes: bool = False, show_elapsed: bool = False
) -> Iterator[Callable[[str, int | None], Bar]]:
    """Yield a function that adds a bar, or lines if standard error cannot show bars."""
    console = error_console()
    amount = filesize.decimal if size_in_bytes else "{:,}".format
    if console.is_jupyter:
        can_draw = importlib.util.find_spec("ipywidgets") is not None
    else:
        can_draw = console.is_terminal and not console.is_dumb_terminal
    if not can_draw:
        yield lambda title, total: Bar(title, total, amount=amount)
        return
    remaining = [TimeRemainingColumn(compact=True), TextColumn("left")]
    columns = [
        # Titles contain names of files and functions, whose brackets are not markup.
        TextColumn("{task.description}", style="bold", markup=False),
        BarColumn(bar_width=10),  # a run fits on a terminal of 80 columns
        DownloadColumn() if size_in_bytes else MofNCompleteColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        *([TimeElapsedColumn()] if show_elapsed else remaining),
    ]
    with Progress(*columns, console=console) as bars:
        try:
            yield lambda title, total: Bar(title, total, bars=bars)
        finally:
            bars.refresh()  # rich does not show the last state in notebooks
