"""What an asynchronous search keeps on the host: open parts, their results, and the next batch.

The emitter has parts. A part is open from the time it asked for solutions until it adapts. Its
solutions wait in a queue, are handed out, and get their results in any order.

Tickets: which solutions of an asynchronous search are handed out and have no result yet.

Results of single solutions, put together for the compiled programs.
"""

import dataclasses
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from gloam import checks
from gloam.algorithms import Algorithm
from gloam.archives import Archive
from gloam.archives.archive import field_rows
from gloam.records import Batch, Proposal
from gloam.searches.search import flat_rows, float32


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


class Ticket(NamedTuple):
    """A solution to evaluate, and the number that its result is told under."""

    number: int
    solution: np.ndarray


class HandedOut(NamedTuple):
    """A solution that was handed out."""

    place: Place
    solution: np.ndarray
    has_failed: bool
    """True when it was counted as failed before its result came."""


class TicketBook:
    """The tickets that are out. A number is never given twice."""

    def __init__(self) -> None:
        self._out: dict[int, HandedOut] = {}
        self._next = 0

    def issue(self, place: Place, solution: np.ndarray) -> Ticket:
        """A new ticket."""
        ticket = Ticket(self._next, solution)
        self._next += 1
        # A copy, because the user may write into the solution.
        self._out[ticket.number] = HandedOut(place, solution.copy(), False)
        return ticket

    def numbers(self, tickets: Sequence[Ticket], *, may_have_failed: bool) -> list[int]:
        """The numbers of tickets, checked.

        Raises:
            ValueError: A ticket is not out, or is named twice.
        """
        numbers = [ticket.number for ticket in tickets]
        wrong = [
            number
            for number in numbers
            if number not in self._out or (self._out[number].has_failed and not may_have_failed)
        ]
        checks.expect(
            not wrong and len(set(numbers)) == len(numbers),
            "tickets",
            "tickets of ask() without a result, each once",
            f"number {wrong[0]}" if wrong else "a ticket twice",
            "Tell the result of each ticket once, to the search that it came from.",
        )
        return numbers

    def take(self, number: int, *, as_failed: bool = False) -> HandedOut:
        """Take a ticket back. One that failed stays out, so that a late result is accepted."""
        found = self._out.pop(number)
        if as_failed:
            self._out[number] = found._replace(has_failed=True)
        return found

    def void(self) -> None:
        """Refuse all tickets that are out."""
        self._out.clear()


class Result(NamedTuple):
    """The result of one solution."""

    objective: np.ndarray | None
    measures: np.ndarray
    fields: dict[str, np.ndarray]

    @property
    def is_finite(self) -> bool:
        """False when the evaluation failed."""
        return bool(np.isfinite(self.measures).all() and np.isfinite(self.objective or 0.0))


class Told(NamedTuple):
    """A result that has been told, with its solution."""

    place: Place | None
    """Where its part keeps it; ``None`` when it came late."""
    is_counted: bool
    """False when the evaluation was counted before, as failed."""
    solution: np.ndarray
    result: Result


def checked_results(
    archive: Archive, number: int, objectives: Any, measures: Any, fields: dict[str, Any]
) -> list[Result]:
    """The results of ``number`` solutions one by one.

    Raises:
        ValueError: They have other shapes or fields than the archive.
    """
    values: Any = [None] * number
    if objectives is not None:
        values = float32(checks.rows("objectives", objectives, (number,)))
    shapes = checks.measure_shapes(number, archive.measure_shape)
    points = flat_rows(float32(checks.rows("measures", measures, *shapes)))
    specs = dict(archive.fields)
    checks.same_names("fields", specs, fields)
    # Copies, because the user may write into arrays that were told.
    extras = {
        name: np.array(field_rows(name, fields[name], number, spec)) for name, spec in specs.items()
    }
    return [
        Result(value, point, {name: rows[row] for name, rows in extras.items()})
        for row, (value, point) in enumerate(zip(values, points, strict=True))
    ]


def failed_result(archive: Archive) -> Result:
    """The result of an evaluation that failed."""
    measures = np.full(archive.measure_dim, np.nan, np.float32)
    fields = {name: np.zeros(spec.shape, spec.dtype) for name, spec in archive.fields.items()}
    return Result(np.array(np.nan, np.float32), measures, fields)


def padded_rows(
    archive: Archive, told: list[Told], size: int, *, has_objectives: bool
) -> tuple[Any, ...]:
    """Results as arguments of `gloam.searches.part_step.add_rows`, filled up to ``size`` rows."""
    results = [one.result for one in told]
    solutions = _padded([one.solution for one in told], size, 0.0)
    measures = _padded([result.measures for result in results], size, np.nan)
    objectives = None
    if has_objectives:
        objectives = _padded([result.objective for result in results], size, np.nan)
    fields = {
        name: _padded([result.fields[name] for result in results], size, 0)
        for name in archive.fields
    }
    cells = archive.index_on_host(measures)
    return solutions, (objectives, measures, fields), cells, np.arange(size) < len(told)


def rows_of(batch: Batch, rows: list[int]) -> Batch:
    """Some rows of a batch."""
    return jax.tree.map(lambda leaf: leaf[rows], batch)


def _padded(rows: list[Any], size: int, padding: float) -> np.ndarray:
    array = np.stack(rows)
    rest = np.full((size - len(rows), *array.shape[1:]), padding, array.dtype)
    return np.concatenate([array, rest])
