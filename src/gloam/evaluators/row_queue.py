"""The queue of rows of a batch, handed out in chunks whose size follows the measured time."""

import math
from collections import deque
from collections.abc import Sequence

from gloam._tools import checks
from gloam.evaluators.results import (
    Block,
    Evaluated,
    Failure,
    FailureKind,
    ResultSpec,
    assembled,
)

# Sending a chunk costs about a millisecond, which is small beside this time.
_CHUNK_SECONDS = 0.1


class Pace:
    """Sizes of chunks from the measured time of an evaluation.

    Args:
        chunk: A fixed size, or ``None``.
    """

    def __init__(self, chunk: int | None):
        if chunk is not None:
            checks.integer("chunk", chunk, minimum=1)
        self._chunk = chunk
        self._seconds: float | None = None

    def note(self, block: Block) -> None:
        """Update the estimate with the time of a block."""
        seconds = block.seconds / block.num_rows
        mean = self._seconds
        self._seconds = seconds if mean is None else 0.8 * mean + 0.2 * seconds

    def size(self, rows_left: int, workers: int) -> int:
        """Return the size of the next chunk, which is 1 before the first measurement."""
        if self._chunk is not None:
            return self._chunk
        if self._seconds is None:
            return 1
        # The last chunks are small, so that all workers finish at about the same time.
        fair = math.ceil(rows_left / (2 * workers))
        return max(1, min(fair, int(_CHUNK_SECONDS / max(self._seconds, 1e-9))))


class RowQueue:
    """The rows that wait for evaluation, of one batch or added one by one, and their results.

    Args:
        number: Number of rows at first.
        pace: Sizes of chunks.
        retries: Number of times that a row is handed out again after its worker was lost.
    """

    def __init__(self, number: int, pace: Pace, *, retries: int):
        self._number, self._pace, self._retries = number, pace, retries
        self._fresh = deque(range(number))
        self._alone: deque[int] = deque()
        self._losses: dict[int, int] = {}
        self._missing = set(range(number))
        self._blocks: deque[tuple[Sequence[int], Block]] = deque()

    @property
    def num_missing(self) -> int:
        """Number of rows without a result or a failure."""
        return len(self._missing)

    @property
    def is_done(self) -> bool:
        """True if every row has a result or a failure."""
        return not self._missing

    def add(self) -> int:
        """Add a row and return its number."""
        row, self._number = self._number, self._number + 1
        self._fresh.append(row)
        self._missing.add(row)
        return row

    def pop(self) -> tuple[int, Block] | None:
        """Return the first row that has a result or a failure, and forget it.

        For queues whose rows are handed out one at a time, so that each block is one row.
        """
        if not self._blocks:
            return None
        (row,), block = self._blocks.popleft()
        self._losses.pop(row, None)
        return row, block

    def is_suspect(self, rows: Sequence[int]) -> bool:
        """Whether a row has lost a worker before, to which no other row was handed out."""
        return len(rows) == 1 and rows[0] in self._losses

    @property
    def next_is_suspect(self) -> bool:
        """Whether the next row that is handed out has lost a worker before."""
        return bool(self._alone) and self.is_suspect([self._alone[0]])

    def take(self, workers: int) -> list[int]:
        """Hand out rows for one of ``workers`` workers; an empty list if none are left."""
        if self._alone:
            return [self._alone.popleft()]
        size = self._pace.size(len(self._fresh), workers)
        return [self._fresh.popleft() for _ in range(min(size, len(self._fresh)))]

    def put(self, rows: Sequence[int], block: Block) -> None:
        """Store the results of a part of the rows that were handed out."""
        self._pace.note(block)
        self._blocks.append((rows, block))
        self._missing -= set(rows[block.start : block.start + block.num_rows])

    def put_back(self, rows: Sequence[int]) -> None:
        """Return rows to the queue that were handed out but not begun."""
        self._fresh.extendleft(reversed(rows))

    def lose(
        self, rows: Sequence[int], kind: FailureKind, error: str, *, in_order: bool = False
    ) -> None:
        """Report unfinished rows of a worker that ended or exceeded its time limit.

        Several rows are handed out again one by one, so that only the cause is lost. A single row
        that exceeded its limit has failed. One that lost its worker is tried again, because the
        worker may have ended for another reason.

        Args:
            rows: The rows that the worker had not finished; there may be none.
            kind: What happened to the worker.
            error: Description of the failure.
            in_order: Whether the rows are evaluated one after the other, so that the first is the
                cause.
        """
        if in_order:
            self.put_back(rows[1:])
            rows = rows[:1]
        if len(rows) != 1:
            self._alone.extend(rows)
            return
        (row,) = rows
        self._losses[row] = self._losses.get(row, 0) + 1
        if kind == "lost worker" and self._losses[row] <= self._retries:
            self._alone.appendleft(row)
            return
        self._missing.discard(row)
        self._blocks.append(([row], Block(0, None, Failure(row, kind, error), 0.0)))

    def result(self, spec: ResultSpec) -> Evaluated:
        """Return the evaluation of the whole batch."""
        return assembled(self._blocks, self._number, spec)
