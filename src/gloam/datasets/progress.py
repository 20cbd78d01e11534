"""Progress of reading, embedding and downloading."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gloam import terminal
from gloam.notebook_bars import NotebookBar


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
        lines = terminal.lines_or_bar(console, title, total)
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
    lines: terminal.ProgressLines | NotebookBar, size_in_bytes: bool, done: int
) -> Callable[[int], None]:
    unit = "bytes" if size_in_bytes else ""

    def advance(step: int) -> None:
        nonlocal done
        done += step
        lines.update(done, unit)

    return advance
