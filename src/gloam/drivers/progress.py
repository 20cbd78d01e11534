"""Progress for people: a bar with QD score, coverage, evaluations per second and time left."""

from types import TracebackType
from typing import Protocol, Self

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


class Display(Protocol):
    """Something that shows how far a run is."""

    def update(self, iteration: int, qd_score: float, coverage: float, rate: float) -> None:
        """Show the run after ``iteration`` iterations, at ``rate`` evaluations a second."""
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

    def update(self, iteration: int, qd_score: float, coverage: float, rate: float) -> None:
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


class Bar:
    """A bar on the terminal."""

    def __init__(self, title: str, iterations: int):
        # Short enough for a terminal of 80 columns.
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=10),
            MofNCompleteColumn(),
            TextColumn("QD {task.fields[qd_score]:,.0f} {task.fields[coverage]:.1%}"),
            TextColumn("{task.fields[rate]:,.0f}/s"),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task(
            title, total=iterations, qd_score=0.0, coverage=0.0, rate=0.0
        )

    def update(self, iteration: int, qd_score: float, coverage: float, rate: float) -> None:
        """Move the bar."""
        self._progress.update(
            self._task, completed=iteration, qd_score=qd_score, coverage=coverage, rate=rate
        )

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


class StudyBar:
    """A bar over many runs, with a bar for the run that is going on."""

    def __init__(self, title: str, runs: int):
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        self._study = self._progress.add_task(title, total=runs, note="")
        self._run = self._progress.add_task("", total=1, note="", visible=False)

    def begin(self, title: str, iterations: int) -> "_RunOfStudy":
        """A display for the next run."""
        self._progress.reset(
            self._run, total=iterations, description=title, note="compiling", visible=True
        )
        return _RunOfStudy(self._progress, self._run)

    def finish_run(self) -> None:
        """Count a run as finished."""
        self._progress.advance(self._study)

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


class _RunOfStudy(Silent):
    def __init__(self, progress: Progress, task: TaskID):
        self._progress, self._task = progress, task

    def update(self, iteration: int, qd_score: float, coverage: float, rate: float) -> None:
        """Move the lower bar."""
        note = f"QD {qd_score:,.0f} {coverage:.1%} {rate:,.0f}/s"
        self._progress.update(self._task, completed=iteration, note=note)
