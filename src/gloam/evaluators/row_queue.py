"""Which rows of a batch still need an evaluation, and in which chunks they are given out."""

import math
from collections import deque
from collections.abc import Sequence

from gloam.evaluators.answers import AnswerForm, Block, Evaluated, Failure, FailureKind, assembled

# A chunk of this length makes the cost of sending it, about a millisecond, small.
_CHUNK_SECONDS = 0.1


class Pace:
    """Sizes of chunks from the measured time of an evaluation.

    Args:
        chunk: A fixed size, or ``None``.
    """

    def __init__(self, chunk: int | None):
        self._chunk = chunk
        self._seconds: float | None = None

    def note(self, block: Block) -> None:
        """Measure the rows of a block."""
        one = block.seconds / block.num_rows
        self._seconds = one if self._seconds is None else 0.8 * self._seconds + 0.2 * one

    def size(self, rows_left: int, workers: int) -> int:
        """Number of rows of the next chunk: one until something was measured."""
        if self._chunk is not None:
            return self._chunk
        if self._seconds is None:
            return 1
        # The last chunks are small, so that all workers finish at about the same time.
        fair = math.ceil(rows_left / (2 * workers))
        return max(1, min(fair, int(_CHUNK_SECONDS / max(self._seconds, 1e-9))))


class RowQueue:
    """The rows of one batch: those that wait, and the results that came.

    Args:
        number: Number of rows.
        pace: Sizes of chunks.
        retries: How often a row is given out again after a worker was lost with it.
    """

    def __init__(self, number: int, pace: Pace, *, retries: int):
        self._number, self._pace, self._retries = number, pace, retries
        self._fresh = deque(range(number))
        self._alone: deque[int] = deque()
        self._losses: dict[int, int] = {}
        self._missing = set(range(number))
        self._blocks: list[tuple[Sequence[int], Block]] = []

    @property
    def is_done(self) -> bool:
        """True when every row has a result or a failure."""
        return not self._missing

    def take(self, workers: int) -> list[int]:
        """Rows for one of ``workers`` workers; none when all are given out."""
        if self._alone:
            return [self._alone.popleft()]
        size = self._pace.size(len(self._fresh), workers)
        return [self._fresh.popleft() for _ in range(min(size, len(self._fresh)))]

    def put(self, rows: Sequence[int], block: Block) -> None:
        """Results for a part of the rows given out."""
        self._pace.note(block)
        self._blocks.append((rows, block))
        self._missing -= set(rows[block.start : block.start + block.num_rows])

    def put_back(self, rows: Sequence[int]) -> None:
        """Rows that were given out and not begun."""
        self._fresh.extendleft(reversed(rows))

    def lose(self, rows: Sequence[int], kind: FailureKind, error: str) -> None:
        """Rows of which one, unknown, ended its worker or passed its time limit.

        Several are given out again alone, so that the others are not lost with it. One row that
        passed its limit has failed; one that lost its worker is tried again, because the worker
        may have ended for another reason.
        """
        if len(rows) > 1:
            self._alone.extend(rows)
            return
        (row,) = rows
        self._losses[row] = self._losses.get(row, 0) + 1
        if kind == "lost worker" and self._losses[row] <= self._retries:
            self._alone.append(row)
            return
        self._missing.discard(row)
        self._blocks.append(([row], Block(0, None, Failure(row, kind, error), 0.0)))

    def result(self, form: AnswerForm) -> Evaluated:
        """The whole batch."""
        return assembled(self._blocks, self._number, form)
