"""Bookkeeping of an asynchronous search on the host: open parts, tickets and results.

A part of the emitter is open from the time it asks for solutions until it adapts. Its solutions
wait in a queue, are handed out with a ticket, and get their results in any order.
"""

import dataclasses
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from gloam._tools import checks
from gloam.algorithms import Algorithm
from gloam.archives import Archive
from gloam.evaluation import VIOLATION
from gloam.evaluators import ResultSpec
from gloam.records import Added, Batch, Proposal
from gloam.spaces import Form


class OpenParts(eqx.Module):
    """Arrays of a `PartTable`, as stored in a checkpoint. All have the sizes of a batch."""

    generations: Any
    """Number of times that each part has adapted."""
    opened: Any
    """Order in which parts were opened, -1 for parts that are not open."""
    is_told: Any
    """True for solutions of open parts that have a result."""
    accepted: Any
    """True for those that beat the elite of their cell."""
    filled: Any
    """True for those that filled an empty cell."""
    before: Any
    """Objectives of the elites that their cells had."""
    batch: Any
    """Solutions of open parts and their results, part by part."""
    aux: Any
    """``aux`` and ``targets`` of the proposals, see `gloam.records.Proposal`."""
    untrained: Any
    """Results on which the discount has not been trained."""
    num_untrained: Any


class EmittersInParts(eqx.Module):
    """State of the emitter in an asynchronous search."""

    emitters: Any
    """State of the emitter as in a synchronous search."""
    parts: OpenParts
    iteration: Any
    """Number of iterations of this seed. Seeds of a stopped run may differ."""


class Place(NamedTuple):
    """The place of a solution: its part, the generation of the part, and its row."""

    part: int
    generation: int
    row: int
    """Row in the table."""


class PartTable:
    """The open parts of the emitter, and the results for the next training of the discount."""

    def __init__(self, algorithm: Algorithm, num_parts: int):
        emitter, archive = algorithm.emitter, algorithm.archive
        self.num_parts, self.part_size = num_parts, emitter.num_solutions // num_parts
        number = emitter.num_solutions
        sizes = (number, emitter.x0.shape[0], archive.measure_dim, dict(archive.fields))
        self.arrays = OpenParts(
            generations=np.zeros(self.num_parts, np.int32),
            opened=np.full(self.num_parts, -1, np.int32),
            is_told=np.zeros(number, bool),
            accepted=np.zeros(number, bool),
            filled=np.zeros(number, bool),
            before=np.zeros(number, np.float32),
            batch=_empty_rows(*sizes),
            aux=None,
            untrained=_empty_rows(*sizes),
            num_untrained=np.zeros((), np.int32),
        )
        self._queue: deque[Place] = deque()

    def allocate_aux(self, proposal: Any) -> None:
        """Allocate ``aux`` of all parts; the argument has the shapes of one proposal."""

        def zeros(leaf: Any) -> np.ndarray:
            return np.zeros((self.num_parts * leaf.shape[0], *leaf.shape[1:]), leaf.dtype)

        aux = jax.tree.map(zeros, (proposal.aux, proposal.targets))
        self.arrays = dataclasses.replace(self.arrays, aux=aux)

    def restore(self, arrays: OpenParts) -> None:
        """Continue with the arrays of a checkpoint. Solutions without a result are queued again."""
        self.arrays = jax.tree.map(np.array, arrays)
        opened = self.arrays.opened
        parts = [part for part in np.argsort(opened).tolist() if opened[part] >= 0]
        self._queue = deque(place for part in parts for place in self._untold(part))

    def copied(self) -> OpenParts:
        """Return a copy of the arrays."""
        return jax.tree.map(np.array, self.arrays)

    def idle_part(self) -> int | None:
        """Return the part to open next: of those that are not open, the one that adapted least."""
        opened, generations = self.arrays.opened, self.arrays.generations
        idle = np.flatnonzero(opened < 0)
        return int(idle[np.argmin(generations[idle])]) if len(idle) else None

    def generation(self, part: int) -> np.ndarray:
        """Return the number of times that a part has adapted."""
        return self.arrays.generations[part]

    def open(self, part: int, proposal: Proposal) -> None:
        """Open a part: put its solutions into the queue."""
        arrays, rows = self.arrays, self._rows(part)
        arrays.opened[part] = 1 + arrays.opened.max()
        arrays.batch.solutions[rows] = proposal.solutions
        arrays.batch.valid[rows] = arrays.is_told[rows] = False
        arrays.batch.violations[rows] = 0
        arrays.batch.is_far[rows] = False

        def store(of_all: np.ndarray, of_part: Any) -> None:
            of_all[self._share(of_all, part)] = of_part

        jax.tree.map(store, arrays.aux, (proposal.aux, proposal.targets))
        self._queue.extend(self._untold(part))

    def take(self) -> Place | None:
        """Hand out the next solution of the queue, or ``None``."""
        return self._queue.popleft() if self._queue else None

    def solution(self, place: Place) -> np.ndarray:
        """Return a copy of a solution of an open part."""
        return self.arrays.batch.solutions[place.row].copy()

    def is_open(self, place: Place) -> bool:
        """Return whether the part of a solution waits for its result; otherwise it is late."""
        part = place.part
        is_same = self.arrays.generations[part] == place.generation
        return bool(is_same and self.arrays.opened[part] >= 0)

    def mark_told(self, place: Place) -> int:
        """Mark a solution as evaluated; return the number of evaluated solutions of its part."""
        self.arrays.is_told[place.row] = True
        return int(self.arrays.is_told[self._rows(place.part)].sum())

    def store(self, places: list[Place], results: Batch, added: Added) -> None:
        """Store results for the parts to adapt to."""
        rows = [place.row for place in places]
        _copy_rows(self.arrays.batch, rows, results)
        self.arrays.accepted[rows] = added.accepted
        self.arrays.filled[rows] = added.filled
        self.arrays.before[rows] = added.before

    def store_untrained(self, results: Batch) -> None:
        """Store results for the training of the discount."""
        number, more = self.arrays.num_untrained, len(results.valid)
        _copy_rows(self.arrays.untrained, slice(int(number), int(number) + more), results)
        number[...] += more

    def close(self, part: int) -> tuple[np.ndarray, Any, Batch, np.ndarray, np.ndarray, np.ndarray]:
        """Close a part; return its generation, ``aux``, results and what was added of them."""
        arrays, rows = self.arrays, self._rows(part)
        generation = arrays.generations[part].copy()
        aux = jax.tree.map(lambda array: array[self._share(array, part)].copy(), arrays.aux)
        batch = jax.tree.map(lambda array: array[rows].copy(), arrays.batch)
        accepted, filled = arrays.accepted[rows] & batch.valid, arrays.filled[rows] & batch.valid
        arrays.generations[part] += 1
        arrays.opened[part] = -1
        arrays.is_told[rows] = False
        if self._queue and any(place.part == part for place in self._queue):
            self._queue = deque(place for place in self._queue if place.part != part)
        return generation, aux, batch, accepted, filled, arrays.before[rows].copy()

    def take_untrained(self) -> Batch:
        """Return the results for the training of the discount, and begin the next batch."""
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
    return Batch(
        solutions=zeros(solution_dim),
        objectives=zeros(),
        measures=zeros(measure_dim),
        cells=zeros(dtype=np.int32),
        valid=zeros(dtype=bool),
        fields=extras,
        violations=zeros(),
        is_far=zeros(dtype=bool),
    )


def _copy_rows(table: Any, rows: Any, results: Batch) -> None:
    def copy(array: np.ndarray, new: Any) -> None:
        array[rows] = new

    jax.tree.map(copy, table, results)


class Ticket(NamedTuple):
    """A solution to evaluate, and the number under which its result is told."""

    number: int
    solution: Any
    """``(sol,)`` numbers, or a dict of values of a space, or a tree."""


class HandedOut(NamedTuple):
    """A solution that was handed out."""

    place: Place
    solution: np.ndarray
    has_failed: bool
    """True if it was counted as failed before its result arrived."""


class TicketBook:
    """The tickets without a result. Numbers are never reused."""

    def __init__(self) -> None:
        self._out: dict[int, HandedOut] = {}
        self._next = 0

    def issue(self, place: Place, solution: np.ndarray, form: Form | None = None) -> Ticket:
        """Return a new ticket, with the solution in its form."""
        ticket = Ticket(self._next, solution if form is None else form.value(solution))
        self._next += 1
        # A copy, because the user may modify the solution.
        self._out[ticket.number] = HandedOut(place, solution.copy(), False)
        return ticket

    def vector(self, ticket: Ticket) -> np.ndarray:
        """Return a copy of the solution of a ticket."""
        return self._out[ticket.number].solution.copy()

    def numbers(self, tickets: Sequence[Ticket], *, may_have_failed: bool) -> list[int]:
        """Return the numbers of tickets.

        Raises:
            ValueError: A ticket is unknown, has a result already, or occurs twice.
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
            "tickets of ask() that have no result yet, each once",
            f"number {wrong[0]}" if wrong else "a ticket twice",
            "Tell the result of each ticket once, to the search that it came from.",
        )
        return numbers

    def take(self, number: int, *, as_failed: bool = False) -> HandedOut:
        """Remove a ticket. One that failed is kept, so that a late result is accepted."""
        handed_out = self._out.pop(number)
        if as_failed:
            self._out[number] = handed_out._replace(has_failed=True)
        return handed_out

    def place(self, number: int) -> Place:
        """Return the place of a ticket's solution."""
        return self._out[number].place

    def void(self) -> None:
        """Invalidate all tickets."""
        self._out.clear()


class RowResult(NamedTuple):
    """The result of one solution."""

    objective: np.ndarray | None
    measures: np.ndarray
    fields: dict[str, np.ndarray]

    @property
    def is_finite(self) -> bool:
        """False if the evaluation failed."""
        return bool(np.isfinite(self.measures).all() and np.isfinite(self.objective or 0.0))

    @classmethod
    def failed(cls, archive: Archive) -> "RowResult":
        """Return the result of an evaluation that failed."""
        measures = np.full(archive.measure_dim, np.nan, np.float32)
        fields = {name: np.zeros(spec.shape, spec.dtype) for name, spec in archive.fields.items()}
        return cls(np.array(np.nan, np.float32), measures, fields)


class Told(NamedTuple):
    """A result that has been told, with its solution."""

    place: Place | None
    """Place of the solution in its part; ``None`` if the result is late."""
    is_counted: bool
    """False if the evaluation was counted before, as failed."""
    solution: np.ndarray
    result: RowResult


def checked_rows(
    spec: ResultSpec, number: int, objectives: Any, measures: Any, fields: dict[str, Any]
) -> list[RowResult]:
    """Return the results of ``number`` solutions one by one.

    Raises:
        ValueError: They do not have the specified form.
    """
    values, points, extras = spec.checked(objectives, measures, fields, number)
    return [
        RowResult(
            None if values is None else values[row],
            points[row],
            {name: rows[row] for name, rows in extras.items()},
        )
        for row in range(number)
    ]


def padded_rows(
    archive: Archive, told: list[Told], size: int, *, has_objectives: bool
) -> tuple[Any, ...]:
    """Return results as arguments of `gloam.searches.part_step.add_rows`, padded to ``size``."""
    results = [row.result for row in told]
    solutions = _padded([row.solution for row in told], size, 0.0)
    measures = _padded([result.measures for result in results], size, np.nan)
    objectives = None
    if has_objectives:
        objectives = _padded([result.objective for result in results], size, np.nan)
    fields = {
        name: _padded([result.fields[name] for result in results], size, 0)
        for name in archive.fields
    }
    violations = [result.fields.get(VIOLATION, np.float32(0)) for result in results]
    fields[VIOLATION] = _padded(violations, size, 0)
    cells = archive.index_on_host(measures)
    return solutions, (objectives, measures, fields), cells, np.arange(size) < len(told)


def _padded(rows: list[Any], size: int, padding: float) -> np.ndarray:
    array = np.stack(rows)
    missing = np.full((size - len(rows), *array.shape[1:]), padding, array.dtype)
    return np.concatenate([array, missing])
