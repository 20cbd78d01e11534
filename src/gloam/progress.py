"""Progress displays: bars on a terminal and in notebooks, plain lines in log files."""

import html
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Protocol, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

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


class Display(Protocol):
    """Something that shows how far a run is."""

    def update(
        self, iteration: int, qd_score: float, coverage: float, rate: float, failed: int = 0
    ) -> None:
        """Show the run after ``iteration`` iterations, at ``rate`` evaluations a second.

        ``failed`` evaluations of all iterations and seeds have failed.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Silent:
    """Shows nothing."""

    def update(
        self, iteration: int, qd_score: float, coverage: float, rate: float, failed: int = 0
    ) -> None:
        """Show nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None


class Lines(Silent):
    """Prints a plain line at each tenth of a run and at least once a minute, or moves a bar.

    Args:
        lines: Plain lines, or a bar in a notebook.
    """

    def __init__(self, lines: "ProgressLines | NotebookBar"):
        self._lines = lines

    def update(
        self, iteration: int, qd_score: float, coverage: float, rate: float, failed: int = 0
    ) -> None:
        """Print a line if one is due, or move the bar."""
        self._lines.update(iteration, _note(qd_score, coverage, rate, failed))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lines.close()


def run_display(title: str, iterations: int) -> Display:
    """A bar where one can move, else lines."""
    console = error_console()
    if can_draw_bars(console):
        return Bar(title, iterations)
    return Lines(lines_or_bar(console, title, iterations))


class _WithProgress:
    """Shows a progress display of rich while it is entered."""

    _progress: Progress

    def __enter__(self) -> Self:
        self._progress.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.__exit__(kind, error, trace)


class Bar(_WithProgress):
    """A bar on the terminal."""

    def __init__(self, title: str, iterations: int):
        # Short enough for a terminal of 80 columns.
        self._progress = Progress(
            _title_column(),
            BarColumn(bar_width=10),
            MofNCompleteColumn(),
            TextColumn("QD {task.fields[qd_score]:,.0f} {task.fields[coverage]:.1%}"),
            TextColumn("{task.fields[rate]:,.0f}/s{task.fields[failed]}"),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            console=error_console(),
        )
        self._task = self._progress.add_task(
            title, total=iterations, qd_score=0.0, coverage=0.0, rate=0.0, failed=""
        )

    def update(
        self, iteration: int, qd_score: float, coverage: float, rate: float, failed: int = 0
    ) -> None:
        """Move the bar."""
        self._progress.update(
            self._task,
            completed=iteration,
            qd_score=qd_score,
            coverage=coverage,
            rate=rate,
            failed=_failed(failed),
        )


class StudyBar(_WithProgress):
    """A bar over many runs, with a bar for the run that is going on."""

    def __init__(self, title: str, runs: int):
        console = error_console()
        self._draws = can_draw_bars(console)
        self._lines = None if self._draws else lines_or_bar(console, title, runs)
        # One for all runs: a notebook would fill with bars else.
        self._run_lines: ProgressLines | NotebookBar | None = None
        self._console = console
        self._finished = 0
        self._progress = Progress(
            _title_column(),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            disable=not self._draws,
        )
        self._study = self._progress.add_task(title, total=runs, note="")
        self._run = self._progress.add_task("", total=1, note="", visible=False)

    def begin(self, title: str, iterations: int) -> Display:
        """A display for the next run."""
        if not self._draws:
            if self._run_lines is None:
                self._run_lines = lines_or_bar(self._console, title, iterations)
            else:
                self._run_lines.restart(title, iterations)
            return Lines(self._run_lines)
        self._progress.reset(
            self._run, total=iterations, description=title, note="compiling", visible=True
        )
        return _RunOfStudy(self._progress, self._run)

    def finish_run(self) -> None:
        """Count a run as finished."""
        self._finished += 1
        self._progress.advance(self._study)
        if self._lines is not None:
            self._lines.update(self._finished)


class _RunOfStudy(Silent):
    def __init__(self, progress: Progress, task: TaskID):
        self._progress, self._task = progress, task

    def update(
        self, iteration: int, qd_score: float, coverage: float, rate: float, failed: int = 0
    ) -> None:
        """Move the lower bar."""
        note = _note(qd_score, coverage, rate, failed)
        self._progress.update(self._task, completed=iteration, note=note)


def _title_column() -> TextColumn:
    # Titles have names of the user's functions and files, whose brackets are not markup.
    return TextColumn("{task.description}", style="bold", markup=False)


def _note(qd_score: float, coverage: float, rate: float, failed: int) -> str:
    return f"QD {qd_score:,.0f} {coverage:.1%} {rate:,.0f}/s{_failed(failed)}"


def _failed(number: int) -> str:
    """Shown where there are failures, as most runs have none."""
    return f" {number:,} failed" if number else ""


@contextmanager
def work_bar(
    title: str, total: int | None, *, show: bool, size_in_bytes: bool = False, done: int = 0
) -> Iterator[Callable[[int], None]]:
    """Show a bar while the block runs; what it yields moves the bar on by a number."""
    if not show:
        yield lambda step: None
        return
    console = error_console()
    if not can_draw_bars(console):
        lines = lines_or_bar(console, title, total)
        yield _advance(lines, size_in_bytes, done)
        lines.close()
        return
    from rich import progress

    count = progress.DownloadColumn() if size_in_bytes else progress.MofNCompleteColumn()
    columns = [
        # The titles have names of files and functions, whose brackets are not markup.
        progress.TextColumn("{task.description}", style="bold", markup=False),
        progress.BarColumn(bar_width=16),
        count,
        progress.TimeRemainingColumn(compact=True),
        progress.TextColumn("left"),
    ]
    with progress.Progress(*columns, console=console) as display:
        task = display.add_task(title, total=total, completed=done)
        yield lambda step: display.advance(task, step)


def _advance(
    lines: ProgressLines | NotebookBar, size_in_bytes: bool, done: int
) -> Callable[[int], None]:
    unit = "bytes" if size_in_bytes else ""

    def advance(step: int) -> None:
        nonlocal done
        done += step
        lines.update(done, unit)

    return advance
