"""Progress for people: a bar with QD score, coverage, evaluations per second and time left.

Where no bar can move, as in a log file, plain lines are printed instead.
"""

from types import TracebackType
from typing import Protocol, Self

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from gloam import terminal
from gloam.notebook_bars import NotebookBar


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

    def __init__(self, lines: "terminal.ProgressLines | NotebookBar"):
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


def bar(title: str, iterations: int) -> Display:
    """A bar where one can move, else lines."""
    console = terminal.error_console()
    if terminal.can_draw_bars(console):
        return Bar(title, iterations)
    return Lines(terminal.lines_or_bar(console, title, iterations))


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
            console=terminal.error_console(),
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
        console = terminal.error_console()
        self._draws = terminal.can_draw_bars(console)
        self._lines = None if self._draws else terminal.lines_or_bar(console, title, runs)
        # One for all runs: a notebook would fill with bars else.
        self._run_lines: terminal.ProgressLines | NotebookBar | None = None
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
                self._run_lines = terminal.lines_or_bar(self._console, title, iterations)
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
