"""The rows of metrics that a run logs: in its folder, or in memory when it has none."""

import time
from typing import TYPE_CHECKING, Any

from gloam.formats import RunFolder

if TYPE_CHECKING:
    import pandas as pd

# Rows wait this long, so that a fast run does not open a file at every iteration.
_SECONDS = 1.0
# Rows as dicts take ten times the memory of rows in a table.
_MAX_WAITING = 1000


class MetricRows:
    """Rows of metrics, few of them as Python objects, however long the run is.

    Args:
        folder: Where the rows are kept; ``None`` keeps them in memory, as columns of numbers.
        num_rows: Number of rows that the folder has.
    """

    def __init__(self, folder: RunFolder | None, num_rows: int = 0):
        self.num_rows = num_rows
        """Number of rows so far."""
        self._folder = folder
        self._waiting: list[dict[str, Any]] = []
        self._tables: list[pd.DataFrame] = []
        self._moved_at = time.perf_counter()

    def add(self, rows: list[dict[str, Any]]) -> None:
        """Add rows.

        Raises:
            OSError: They could not be written.
        """
        self._waiting += rows
        self.num_rows += len(rows)
        is_late = self._folder is not None and time.perf_counter() - self._moved_at > _SECONDS
        if is_late or len(self._waiting) >= _MAX_WAITING:
            self._move(sync=False)

    def save(self) -> None:
        """Bring all rows to the disk."""
        self._move(sync=True)

    def table(self) -> "pd.DataFrame":
        """All rows. In a folder they become one file."""
        import pandas as pd

        self._move(sync=False)
        if self._folder is None:
            return pd.concat(self._tables, ignore_index=True) if self._tables else pd.DataFrame()
        table = self._folder.read_metrics()
        self._folder.write_metrics(table)
        return table

    def _move(self, *, sync: bool) -> None:
        """Bring the waiting rows to where they are kept."""
        if self._folder is not None:
            self._folder.append_metrics(self._waiting, sync=sync)
        elif self._waiting:
            import pandas as pd

            self._tables.append(pd.DataFrame(self._waiting))
        self._waiting.clear()
        self._moved_at = time.perf_counter()
