"""Progress of reading, embedding and downloading."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gloam import terminal


@contextmanager
def bar(
    title: str, total: int | None, *, show: bool, size_in_bytes: bool = False, done: int = 0
) -> Iterator[Callable[[int], None]]:
    """Show a bar while the block runs; what it yields moves the bar on by a number."""
    if not show:
        yield lambda step: None
        return
    console = terminal.error_console()
    if not terminal.can_draw_bars(console):
        yield _lines(title, total, size_in_bytes, done)
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


def _lines(title: str, total: int | None, size_in_bytes: bool, done: int) -> Callable[[int], None]:
    lines = terminal.ProgressLines(title, total)
    unit = "bytes" if size_in_bytes else ""

    def advance(step: int) -> None:
        nonlocal done
        done += step
        lines.update(done, unit)

    return advance
