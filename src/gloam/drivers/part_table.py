"""What an asynchronous search keeps on the host: open parts, their results, and the next batch.

The emitter has parts. A part is open from the time it asked for solutions until it adapts. Its
solutions wait in a queue, are handed out, and get their results in any order.
"""

import dataclasses
from collections import deque
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from gloam.algorithms import Algorithm
from gloam.records import Batch, Proposal


class OpenParts(eqx.Module):
    """The arrays of a `PartTable`, as a checkpoint has them. All have the sizes of a batch."""

    generations: Any
    """How often each part has adapted."""
    opened: Any
    """Order in which the parts were opened, -1 for parts that are not open."""
    is_told: Any
    """True for solutions of open parts that have a result."""
    improved: Any
    """True for those that improved the archive."""
    filled: Any
    """True for those that filled an empty cell."""
    batch: Any
    """Solutions of open parts and their results, part by part."""
    memory: Any
    """What the parts need to learn from their solutions."""
    untrained: Any
    """Results that the discount has not been trained on."""
    num_untrained: Any


class EmittersInParts(eqx.Module):
    """The emitter in the state of an asynchronous search."""

    emitters: Any
    """The state that the emitter has in a synchronous search."""
    parts: OpenParts
    iteration: Any
    """Iterations of this seed. Those of a run with several seeds may differ when it is stopped."""


class Place(NamedTuple):
    """Where a solution of a part is: of which part, of which of its generations, which row."""

    part: int
    generation: int
    row: int
    """Row of the table."""


class PartTable:
    """Open parts of the emitter, and the results that the discount is to be trained on."""

    def __init__(self, algorithm: Algorithm, part: Any):
        emitter, archive = algorithm.emitter, algorithm.archive
        self.num_parts, self.part_size = emitter.num_parts, part.num_solutions
        number = emitter.num_solutions
        sizes = (number, emitter.x0.shape[0], archive.measure_dim, dict(archive.fields))
        self.arrays = OpenParts(
            np.zeros(self.num_parts, np.int32),
            np.full(self.num_parts, -1, np.int32),
            np.zeros(number, bool),
            np.zeros(number, bool),
            np.zeros(number, bool),
            _empty_rows(*sizes),
            None,
            _empty_rows(*sizes),
            np.zeros((), np.int32),
        )
        self._queue: deque[Place] = deque()

    def reserve_memory(self, memory: Any) -> None:
        """Make room for the memory of all parts; ``memory`` has the shapes of that of one."""

        def room(leaf: Any) -> np.ndarray:
            return np.zeros((self.num_parts * leaf.shape[0], *leaf.shape[1:]), leaf.dtype)

        self.arrays = dataclasses.replace(self.arrays, memory=jax.tree.map(room, memory))

    def restore(self, arrays: OpenParts) -> None:
        """Go on with the arrays of a checkpoint. What was handed out is to be handed out again."""
        self.arrays = jax.tree.map(np.array, arrays)
        opened = self.arrays.opened
        parts = [part for part in np.argsort(opened).tolist() if opened[part] >= 0]
        self._queue = deque(place for part in parts for place in self._untold(part))

    def copied(self) -> OpenParts:
        """The arrays, which later results do not change."""
        return jax.tree.map(np.array, self.arrays)

    def idle_part(self) -> int | None:
        """The part to open next: of those that are not open, one that has adapted least often."""
        opened, generations = self.arrays.opened, self.arrays.generations
        idle = np.flatnonzero(opened < 0)
        return int(idle[np.argmin(generations[idle])]) if len(idle) else None

    def generation(self, part: int) -> np.ndarray:
        """How often a part has adapted."""
        return self.arrays.generations[part]

    def open(self, part: int, proposal: Proposal) -> None:
        """Put the solutions of a part into the queue."""
        arrays, rows = self.arrays, self._rows(part)
        arrays.opened[part] = 1 + arrays.opened.max()
        arrays.batch.solutions[rows] = proposal.solutions
        arrays.batch.valid[rows] = arrays.is_told[rows] = False

        def keep(all_: np.ndarray, one: Any) -> None:
            all_[self._share(all_, part)] = one

        jax.tree.map(keep, arrays.memory, proposal.memory)
        self._queue.extend(self._untold(part))

    def take(self) -> Place | None:
        """Hand out the next solution of the queue."""
        return self._queue.popleft() if self._queue else None

    def solution(self, place: Place) -> np.ndarray:
        """A copy of a solution of an open part."""
        return self.arrays.batch.solutions[place.row].copy()

    def is_open(self, place: Place) -> bool:
        """Whether the solution's part waits for its result; else the result comes late."""
        part = place.part
        is_same = self.arrays.generations[part] == place.generation
        return bool(is_same and self.arrays.opened[part] >= 0)

    def mark_told(self, place: Place) -> int:
        """Note that a solution has a result. Returns how many of its part have one."""
        self.arrays.is_told[place.row] = True
        return int(self.arrays.is_told[self._rows(place.part)].sum())

    def put(
        self, places: list[Place], results: Batch, improved: np.ndarray, filled: np.ndarray
    ) -> None:
        """Keep results for the parts to learn from."""
        rows = [place.row for place in places]
        _copy_rows(self.arrays.batch, rows, results)
        self.arrays.improved[rows] = improved
        self.arrays.filled[rows] = filled

    def put_untrained(self, results: Batch) -> None:
        """Keep results for the discount to be trained on."""
        number, more = self.arrays.num_untrained, len(results.valid)
        _copy_rows(self.arrays.untrained, slice(int(number), int(number) + more), results)
        number[...] += more

    def close(self, part: int) -> tuple[np.ndarray, Any, Batch, np.ndarray, np.ndarray]:
        """Close a part: generation, memory, results, and which improved and filled a cell."""
        arrays, rows = self.arrays, self._rows(part)
        generation = arrays.generations[part].copy()
        memory = jax.tree.map(lambda all_: all_[self._share(all_, part)].copy(), arrays.memory)
        batch = jax.tree.map(lambda all_: all_[rows].copy(), arrays.batch)
        improved, filled = arrays.improved[rows] & batch.valid, arrays.filled[rows] & batch.valid
        arrays.generations[part] += 1
        arrays.opened[part] = -1
        arrays.is_told[rows] = False
        if self._queue and any(place.part == part for place in self._queue):
            self._queue = deque(place for place in self._queue if place.part != part)
        return generation, memory, batch, improved, filled

    def take_untrained(self) -> Batch:
        """The results that the discount is to be trained on. The next batch begins."""
        self.arrays.num_untrained[...] = 0
        return jax.tree.map(np.copy, self.arrays.untrained)

    def _rows(self, part: int) -> slice:
        return slice(part * self.part_size, (part + 1) * self.part_size)

    def _share(self, array: np.ndarray, part: int) -> slice:
        size = len(array) // self.num_parts
        return slice(part * size, (part + 1) * size)

    def _untold(self, part: int) -> list[Place]:
        rows = self._rows(part)
        generation = int(self.arrays.generations[part])
        untold = rows.start + np.flatnonzero(~self.arrays.is_told[rows])
        return [Place(part, generation, row) for row in untold.tolist()]


def _empty_rows(number: int, solution_dim: int, measure_dim: int, fields: dict[str, Any]) -> Any:
    def zeros(*shape: int, dtype: Any = np.float32) -> Any:
        return np.zeros((number, *shape), dtype)

    extras = {name: zeros(*spec.shape, dtype=spec.dtype) for name, spec in fields.items()}
    cells, valid = zeros(dtype=np.int32), zeros(dtype=bool)
    return Batch(zeros(solution_dim), zeros(), zeros(measure_dim), cells, valid, extras)


def _copy_rows(table: Any, rows: Any, results: Batch) -> None:
    def copy(all_: np.ndarray, new: Any) -> None:
        all_[rows] = new

    jax.tree.map(copy, table, results)
