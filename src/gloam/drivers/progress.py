"""Progress for people: a bar with QD score, coverage, evaluations per second and time left."""

from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
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

    def __init__(self, title: str, iterations: int, *, start: int = 0):
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("QD {task.fields[qd_score]:,.1f}  cov {task.fields[coverage]:.1%}"),
            TextColumn("{task.fields[rate]:,.0f} evals/s"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task(
            title, total=iterations, completed=start, qd_score=0.0, coverage=0.0, rate=0.0
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
