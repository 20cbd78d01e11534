"""A chunk of a batch on a worker of a cluster: the function as bytes, and the time limit."""

import functools
import pickle
import queue
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gloam.evaluators.results import (
    Block,
    PerSolution,
    ResultSpec,
    evaluated_blocks,
    portable_blocks,
)


class ChunkAnswer(NamedTuple):
    """The answer of a worker for a chunk."""

    blocks: list[Block]
    """Results, up to the evaluation that exceeded its limit."""
    is_late: bool
    """True if an evaluation exceeded its limit. It still runs, in a thread of its own."""
    restartable: str | None = None
    """Address of a Dask worker, if a nanny restarts it when its process ends."""


class FunctionBytes:
    """Pickles functions, and remembers the last one.

    Args:
        dumps: The function of cloudpickle, which also takes the functions of a notebook.
    """

    def __init__(self, dumps: Callable[..., bytes]):
        self._dumps = dumps
        self._last: tuple[Any, bytes] = (None, b"")

    def __call__(self, function: Any, name: str = "evaluate") -> bytes:
        """Return the pickled function; ``name`` is that of the argument.

        Raises:
            ValueError: It cannot be sent.
        """
        if self._last[0] is not function:
            try:
                content = self._dumps(function, protocol=pickle.HIGHEST_PROTOCOL)
            except Exception as error:
                raise ValueError(
                    f"{name}: expected a function that can be sent to workers, got an error "
                    f"({error}). Open files, locks and devices inside the function."
                ) from error
            self._last = function, content
        return self._last[1]


def evaluated_chunk(
    content: bytes,
    solutions: np.ndarray,
    spec: ResultSpec,
    retry_rows: bool,
    timeout: float | None,
) -> ChunkAnswer:
    """Evaluate a chunk; ``content`` is the pickled function."""
    function, solutions = loaded(content), read_only(solutions)
    if timeout is None:
        return ChunkAnswer(portable_blocks(function, solutions, spec, retry_rows), False)
    blocks: list[Block] = []
    is_late = collect(blocks, timeout, function, solutions, spec, retry_rows)
    return ChunkAnswer(blocks, is_late)


def read_only(solutions: np.ndarray) -> np.ndarray:
    """Return a view that cannot be written to, as in the process of the search."""
    solutions = solutions.view()
    solutions.flags.writeable = False
    return solutions


@functools.lru_cache(maxsize=4)
def loaded(content: bytes) -> Callable:
    """Return the function of `FunctionBytes`."""
    return pickle.loads(content)


def collect(
    blocks: list[Block],
    timeout: float | None,
    function: Callable,
    solutions: np.ndarray,
    spec: ResultSpec,
    retry_rows: bool,
) -> bool:
    """Evaluate in a thread, append blocks as they come, and return whether one was too late.

    Python cannot end a thread, so one that exceeds its limit is left running.
    """
    finished: queue.SimpleQueue[Block] = queue.SimpleQueue()

    def work() -> None:
        for block in evaluated_blocks(function, solutions, spec, retry_rows=retry_rows):
            finished.put(block.portable())

    threading.Thread(target=work, daemon=True).start()
    each_alone, left = isinstance(function, PerSolution), len(solutions)
    while left:
        limit = None if timeout is None else timeout * (1 if each_alone else left)
        try:
            block = finished.get(timeout=limit)
        except queue.Empty:
            return True
        blocks.append(block)
        left -= block.num_rows
    return False
