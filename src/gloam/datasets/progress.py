"""A bar for work on many items."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(
    title: str, total: int | None, *, show: bool, size_in_bytes: bool = False, done: int = 0
) -> Iterator[Callable[[int], None]]:
    """Show a bar while the block runs; what it yields moves the bar on by a number."""
    if not show:
        yield lambda step: None
        return
    from rich import progress
    from rich.console import Console

    count = progress.DownloadColumn() if size_in_bytes else progress.MofNCompleteColumn()
    columns = [
        progress.TextColumn("[bold]{task.description}"),
        progress.BarColumn(bar_width=16),
        count,
        progress.TimeRemainingColumn(compact=True),
        progress.TextColumn("left"),
    ]
    with progress.Progress(*columns, console=Console(stderr=True)) as display:
        # Brackets in a name are not markup.
        task = display.add_task(title.replace("[", r"\["), total=total, completed=done)
        yield lambda step: display.advance(task, step)
