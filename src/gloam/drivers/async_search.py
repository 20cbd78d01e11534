"""The asynchronous search: solutions by ticket, results in any order."""

import dataclasses
import math
from collections.abc import Container, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import ArrayLike

from gloam import checks
from gloam.algorithms import Algorithm
from gloam.archives import Elites
from gloam.archives.fields import field_rows
from gloam.drivers.async_programs import async_programs
from gloam.drivers.evaluation import flat_rows, float32
from gloam.drivers.low_objectives import warn_of_low_objectives
from gloam.drivers.part_table import EmittersInParts, PartTable, Place
from gloam.drivers.search import Search
from gloam.drivers.splitting import for_programs, shapes_of, split, surroundings
from gloam.records import Batch, SearchState


class Ticket(NamedTuple):
    """A solution to evaluate, and the number that its result is told under."""

    number: int
    solution: np.ndarray


class _Result(NamedTuple):
    """A result that has been told and is not in the archive yet."""

    place: Place | None
    """Where its part keeps it; ``None`` when it came late."""
    is_counted: bool
    """False when the solution was given up, and counted then."""
    solution: np.ndarray
    objective: Any
    measures: np.ndarray
    fields: dict[str, np.ndarray]


class AsyncSearch:
    """A search that you drive, for evaluations that take uneven times.

    Each emitter adapts when its own solutions are evaluated, and goes on without waiting for the
    others. Results enter the archive in any order. The discount is trained whenever as many results
    have come as a batch of the synchronous search has; that is an iteration.

    What the search does depends on the order in which results are told, and on nothing else: the
    same seed, asked and told in the same order, gives the same search.

    Args:
        algorithm: For instance `gloam.DMS`.
        seed: Seed of the random numbers.
        x0: Where the search starts, instead of at the algorithm's own ``x0``.
        close_at: An emitter adapts when this share of its solutions is evaluated. Results of the
            others come late: they enter the archive and train the discount, but the emitter does
            not learn from them.

    Example:
        >>> import gloam
        >>> archive = gloam.GridArchive(shape=(10, 10), lower=-1, upper=1)
        >>> search = gloam.AsyncSearch(gloam.DMS(archive, x0=np.zeros(3), sigma0=0.3), seed=7)
        >>> tickets = search.ask(5)
        >>> for ticket in reversed(tickets):
        ...     search.tell(ticket, 1 - np.square(ticket.solution).sum(), ticket.solution[:2])
        >>> search.metrics["iteration"], search.metrics["evaluations"], len(search.elites) > 0
        (0, 5, True)
    """

    def __init__(
        self,
        algorithm: Algorithm,
        seed: int = 0,
        *,
        x0: ArrayLike | None = None,
        close_at: float = 1.0,
    ):
        self._search = Search(algorithm, seed, x0=x0)
        self.algorithm, self.seed = algorithm, self._search.seed
        share = checks.number("close_at", close_at, above=0.0, at_most=1.0)
        part = algorithm.emitter.part()
        arrays, rest = split((for_programs(algorithm, cells_given=True), part))
        self._arrays = arrays
        self._programs = async_programs(rest, shapes_of(arrays), surroundings())
        self._archive, self._batch = algorithm.archive, algorithm.emitter.num_solutions
        self._fields = dict(self._archive.fields)
        self._table = PartTable(algorithm, part)
        self._needed = math.ceil(share * self._table.part_size)
        first = np.zeros((), np.int32)
        shapes = jax.eval_shape(self._programs.ask, arrays, self._search.state, first, first)
        self._table.reserve_memory(shapes.memory)
        self._out: dict[int, tuple[Place, np.ndarray]] = {}
        self._given_up: dict[int, np.ndarray] = {}
        self._results: list[_Result] = []
        self._has_objectives: bool | None = None
        self._next_number = 0
        self._num_counted = 0  # results since the last training
        self._has_warned = False

    def ask(self, number: int) -> list[Ticket]:
        """Up to ``number`` solutions to evaluate; fewer when all of the emitters' are handed out.

        At most ``num_solutions`` of the emitter are handed out at a time.
        """
        checks.integer("number", number, minimum=1)
        tickets = []
        while len(tickets) < number:
            place = self._table.take()
            if place is None:
                part = self._table.idle_part()
                if part is None:
                    break
                self._open(part)
                continue
            ticket = Ticket(self._next_number, self._table.solution(place))
            self._out[ticket.number] = place, ticket.solution.copy()
            self._next_number += 1
            tickets.append(ticket)
        return tickets

    def tell(
        self,
        tickets: Ticket | Sequence[Ticket],
        objectives: ArrayLike | None,
        measures: ArrayLike,
        **fields: ArrayLike,
    ) -> None:
        """Learn from results, in any order.

        Args:
            tickets: One ticket or several, each of which is told once.
            objectives: One number for each ticket, or ``None``, as in `gloam.Search.tell`.
            measures: ``(meas,)`` measures of one ticket, ``(n, meas)`` of several, or in the
                archive's shape.
            fields: The extra fields that the archive declares, for one ticket or several.

        Raises:
            ValueError: A ticket is unknown or was told before, or an array has another shape. The
                search is as it was.
        """
        if isinstance(tickets, Ticket):
            tickets, measures = [tickets], np.asarray(measures)[None]
            objectives = None if objectives is None else np.asarray(objectives)[None]
            fields = {name: np.asarray(value)[None] for name, value in fields.items()}
        number = len(tickets)
        values: Any = [None] * number
        if objectives is not None:
            values = float32(checks.rows("objectives", objectives, (number,)))
        shapes = checks.measure_shapes(number, self._archive.measure_shape)
        points = flat_rows(float32(checks.rows("measures", measures, *shapes)))
        checks.same_names("fields", self._fields, fields)
        extras = {
            name: np.array(field_rows(name, fields[name], number, spec))
            for name, spec in self._fields.items()
        }
        numbers = self._known(tickets, self._out.keys() | self._given_up.keys())
        has_objectives = objectives is not None
        checks.expect(
            self._has_objectives in (None, has_objectives),
            "objectives",
            "numbers for all solutions or for none",
            "both",
        )
        self._has_objectives = has_objectives
        for row, one in enumerate(numbers):
            own = {name: rows[row] for name, rows in extras.items()}
            self._take_result(one, values[row], points[row], own)

    def fail(self, tickets: Ticket | Sequence[Ticket]) -> None:
        """Count evaluations as failed: their emitters go on without a result.

        A result that is told after all, of an evaluation that took too long, enters the archive.

        Raises:
            ValueError: A ticket is unknown or was told before.
        """
        tickets = [tickets] if isinstance(tickets, Ticket) else tickets
        nothing = {name: np.zeros(spec.shape, spec.dtype) for name, spec in self._fields.items()}
        for number in self._known(tickets, self._out.keys()):
            solution = self._out[number][1]
            measures = np.full(self._archive.measure_dim, np.nan, np.float32)
            self._take_result(number, np.float32(np.nan), measures, nothing)
            self._given_up[number] = solution

    @property
    def iteration(self) -> int:
        """Iterations finished: trainings of the discount, each by a batch of results."""
        return self._search.iteration

    @property
    def evaluations(self) -> int:
        """Solutions that have a result or have failed."""
        return self.iteration * self._batch + self._num_counted

    @property
    def generations(self) -> np.ndarray:
        """How often each emitter has adapted."""
        return self._table.arrays.generations.copy()

    @property
    def report(self) -> Any:
        """What the last iteration said of itself; ``None`` before the first."""
        return self._search.report

    @property
    def elites(self) -> Elites:
        """The elites found so far, all results that were told included."""
        return Elites(self.algorithm.archive, self._with_results().store)

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics of the search as it is now; those of training are of the last iteration."""
        found = self._search.metrics_of(self._with_results())
        return found | {"evaluations": self.evaluations}

    def snapshot(self) -> dict[str, np.ndarray]:
        """Arrays for a picture of the search after the last iteration."""
        return self._search.snapshot()

    @property
    def state(self) -> SearchState:
        """All that a checkpoint keeps. Solutions that are handed out count as not asked."""
        self._add_results()
        state = self._search.state
        emitter = EmittersInParts(state.emitter, self._table.copied())
        return dataclasses.replace(state, emitter=emitter)

    @state.setter
    def state(self, state: SearchState) -> None:
        parts = state.emitter.parts
        self._table.restore(parts)
        self._num_counted = int(parts.num_untrained)
        self._out.clear()
        self._given_up.clear()
        self._results.clear()
        self._search.state = dataclasses.replace(state, emitter=state.emitter.emitters)

    def _known(self, tickets: Sequence[Ticket], known: Container[int]) -> list[int]:
        """The numbers of tickets, each of which is known and named once."""
        numbers = [ticket.number for ticket in tickets]
        unknown = [number for number in numbers if number not in known]
        checks.expect(
            not unknown and len(set(numbers)) == len(numbers),
            "tickets",
            "tickets of ask() that have no result, each once",
            f"number {unknown[0]}" if unknown else "a ticket twice",
            "Tell the result of each ticket once, to the search that it came from.",
        )
        return numbers

    def _open(self, part: int) -> None:
        """Ask for the next solutions of a part."""
        self._add_results()  # elites to vary are the newest
        generation = self._table.generation(part)
        state = self._search.state
        proposal = self._programs.ask(self._arrays, state, np.int32(part), generation)
        self._table.open(part, jax.device_get(proposal))

    def _take_result(
        self, number: int, objective: Any, measures: np.ndarray, fields: dict[str, np.ndarray]
    ) -> None:
        """Take the result of one ticket, and do what is due by it."""
        if number in self._given_up:
            solution = self._given_up.pop(number)
            self._results.append(_Result(None, False, solution, objective, measures, fields))
        else:
            place, solution = self._out.pop(number)
            is_late = not self._table.is_open(place)
            kept = None if is_late else place
            self._results.append(_Result(kept, True, solution, objective, measures, fields))
            self._num_counted += 1
            if not is_late and self._table.mark_told(place) >= self._needed:
                self._adapt(place.part)
        if self._num_counted == self._batch:
            self._train()
        if len(self._results) >= self._table.part_size:
            self._add_results()

    def _adapt(self, part: int) -> None:
        """Let a part learn from its results; it can be opened again."""
        self._add_results()
        rows = self._table.close(part)
        state = self._search.state
        self._search.state = self._programs.adapt(self._arrays, state, np.int32(part), *rows)

    def _train(self) -> None:
        """Train the discount on the results of an iteration."""
        self._add_results()
        self._num_counted = 0
        batch = self._table.take_untrained()
        state, self._search.report = self._programs.train(self._arrays, self._search.state, batch)
        self._search.state = state
        if not self._has_warned and int(state.low.batches) > 0:
            self._has_warned = True
            lowest = float(state.low.lowest)
            warn_of_low_objectives(lowest, self._archive.f_min, stacklevel=4)

    def _add_results(self) -> None:
        """Put the results that wait into the archive."""
        if not self._results:
            return
        rows = self._padded_results()
        state, batch, improved = self._programs.add(self._arrays, self._search.state, *rows)
        self._search.state = state
        batch, improved = jax.device_get((batch, improved))
        counted = [row for row, result in enumerate(self._results) if result.is_counted]
        self._table.put_untrained(_rows(batch, counted))
        kept = [row for row, result in enumerate(self._results) if result.place is not None]
        places = [place for place, *_ in self._results if place is not None]
        self._table.put(places, _rows(batch, kept), improved[kept])
        self._results.clear()

    def _with_results(self) -> SearchState:
        """The state as it is when the results that wait are in the archive."""
        state = self._search.state
        if not self._results:
            return state
        return self._programs.add_to_copy(self._arrays, state, *self._padded_results())[0]

    def _padded_results(self) -> tuple[Any, ...]:
        """The results that wait, as arguments of `gloam.part_step.add_rows`."""
        results, size = self._results, self._table.part_size
        number = len(results)
        solutions = _padded([result.solution for result in results], size, 0.0)
        measures = _padded([result.measures for result in results], size, np.nan)
        objectives = None
        if self._has_objectives is not False:
            objectives = _padded([result.objective for result in results], size, np.nan)
        fields = {
            name: _padded([result.fields[name] for result in results], size, 0)
            for name in self._fields
        }
        cells = self._archive.index_on_host(measures)
        is_row = np.arange(size) < number
        return solutions, (objectives, measures, fields), cells, is_row


def _padded(rows: list[Any], size: int, padding: float) -> np.ndarray:
    array = np.stack(rows)
    rest = np.full((size - len(rows), *array.shape[1:]), padding, array.dtype)
    return np.concatenate([array, rest])


def _rows(batch: Batch, rows: list[int]) -> Batch:
    return jax.tree.map(lambda leaf: leaf[rows], batch)
