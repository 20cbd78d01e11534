"""Progress of a study: a bar for its runs, and one for the current run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gloam._tools.progress import Bar, Display, RunDisplay, progress_bars


class StudyDisplay:
    """Progress of a study: a bar that counts runs, and a bar for the current run."""

    def __init__(self, title: str, num_runs: int, add_bar: Callable[[str, int], Bar]):
        self._add_bar = add_bar
        self._study_bar = add_bar(title, num_runs)
        self._run_bar: Bar | None = None
        self._num_finished = 0

    def begin_run(self, title: str, iterations: int) -> Display:
        """Return the display for the next run. All runs share one bar."""
        if self._run_bar is None:
            self._run_bar = self._add_bar(title, iterations)
        else:
            self._run_bar.restart(title, iterations)
        return RunDisplay(self._run_bar)

    def finish_run(self) -> None:
        """Count a run as finished."""
        self._num_finished += 1
        self._study_bar.update(self._num_finished)


@contextmanager
def study_display(title: str, num_runs: int) -> Iterator[StudyDisplay]:
    """Show the progress of a study while the block runs."""
    with progress_bars(show_elapsed=True) as add_bar:
        yield StudyDisplay(title, num_runs, add_bar)
