"""What runs on a worker of a Dask cluster: the evaluation of one chunk within its time limit."""

import functools
import os
import pickle
import queue
import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gloam.evaluators.answers import AnswerForm
from gloam.evaluators.blocks import Block, PerSolution, evaluated_blocks, portable_blocks


class ChunkAnswer(NamedTuple):
    """What a worker returns for a chunk."""

    blocks: list[Block]
    """Results; they end before the evaluation that passed its limit."""
    is_late: bool
    """Whether an evaluation passed its limit. It still runs, in a thread nobody waits for."""
    restartable: str | None
    """Address of the worker, if a nanny starts it again when its process ends."""


def evaluated_chunk(
    content: bytes,
    solutions: np.ndarray,
    form: AnswerForm,
    retry_rows: bool,
    timeout: float | None,
) -> ChunkAnswer:
    """Evaluate a chunk; ``content`` is the function, as the client's process pickled it."""
    function = _loaded(content)
    solutions = solutions.view()
    solutions.flags.writeable = False  # as in the process of the search
    if timeout is None:
        return ChunkAnswer(portable_blocks(function, solutions, form, retry_rows), False, None)
    blocks, is_late = _within(timeout, function, solutions, form, retry_rows)
    return ChunkAnswer(blocks, is_late, _restartable() if is_late else None)


async def end_process() -> None:
    """End the process of a worker; its nanny starts another. Dask does not wait for coroutines."""
    os._exit(1)


@functools.lru_cache(maxsize=4)
def _loaded(content: bytes) -> Callable:
    return pickle.loads(content)


def _within(
    timeout: float, function: Callable, solutions: np.ndarray, form: AnswerForm, retry_rows: bool
) -> tuple[list[Block], bool]:
    """The blocks that come in time, and whether an evaluation did not.

    Python cannot end a thread, so the one that passed its limit is left behind.
    """
    found: queue.SimpleQueue[Block] = queue.SimpleQueue()

    def work() -> None:
        for block in evaluated_blocks(function, solutions, form, retry_rows=retry_rows):
            found.put(block.portable())

    threading.Thread(target=work, daemon=True).start()
    each_alone, blocks, left = isinstance(function, PerSolution), [], len(solutions)
    while left:
        try:
            block = found.get(timeout=timeout * (1 if each_alone else left))
        except queue.Empty:
            return blocks, True
        blocks.append(block)
        left -= block.num_rows
    return blocks, False


def _restartable() -> str | None:
    from distributed import get_worker  # pyright: ignore[reportMissingImports]

    worker = get_worker()
    return worker.address if worker.nanny else None
