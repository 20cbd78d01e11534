"""The asynchronous search: solutions by ticket, results in any order."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

from gloam import checks
from gloam.algorithms import Algorithm
from gloam.archives import Elites
from gloam.programs.search_programs import async_programs
from gloam.programs.splitting import for_programs, shapes_of, split, surroundings
from gloam.records import SearchState
from gloam.searches.parts import (
    EmittersInParts,
    HandedOut,
    PartTable,
    Result,
    Ticket,
    TicketBook,
    Told,
    checked_results,
    failed_result,
    padded_rows,
    rows_of,
)
from gloam.searches.search import Search, warn_of_low_objectives

# Results that are added to the archive at a time; all pairs of them are compared.
_MOST_ROWS = 64


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
        self._table = PartTable(algorithm, part)
        self._rows_at_a_time = min(self._table.part_size, _MOST_ROWS)
        self._needed = math.ceil(share * self._table.part_size)
        first = np.zeros((), np.int32)
        shapes = jax.eval_shape(self._programs.ask, arrays, self._search.state, first, first)
        self._table.reserve_memory(shapes.memory)
        self._tickets = TicketBook()
        self._told: list[Told] = []  # and not in the archive yet
        self._has_objectives: bool | None = None
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
            tickets.append(self._tickets.issue(place, self._table.solution(place)))
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
        results = checked_results(self._archive, len(tickets), objectives, measures, fields)
        numbers = self._tickets.numbers(tickets, may_have_failed=True)
        has_objectives = objectives is not None
        checks.expect(
            self._has_objectives in (None, has_objectives),
            "objectives",
            "numbers for all solutions or for none",
            "both",
        )
        self._has_objectives = has_objectives
        for number, result in zip(numbers, results, strict=True):
            self._take_result(self._tickets.take(number), result)

    def fail(self, tickets: Ticket | Sequence[Ticket], *, may_come_late: bool = False) -> None:
        """Count evaluations as failed: their emitters go on without a result.

        Args:
            tickets: One ticket or several.
            may_come_late: True for an evaluation that is still running but took too long. If its
                result is told after all, it enters the archive.

        Raises:
            ValueError: A ticket is unknown, or was told or failed before.
        """
        tickets = [tickets] if isinstance(tickets, Ticket) else tickets
        for number in self._tickets.numbers(tickets, may_have_failed=False):
            handed_out = self._tickets.take(number, as_failed=may_come_late)
            self._take_result(handed_out, failed_result(self._archive))

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
        # A copy: the state is donated, and must not have an array twice.
        emitter = EmittersInParts(state.emitter, self._table.copied(), np.array(state.iteration))
        return dataclasses.replace(state, emitter=emitter)

    @state.setter
    def state(self, state: SearchState) -> None:
        own: EmittersInParts = state.emitter
        parts, emitters, iteration = own.parts, own.emitters, own.iteration
        self._table.restore(parts)
        self._num_counted = int(parts.num_untrained)
        self._tickets.void()
        self._told.clear()
        iteration = jnp.asarray(iteration, jnp.int32)
        self._search.state = dataclasses.replace(state, emitter=emitters, iteration=iteration)

    def _open(self, part: int) -> None:
        """Ask for the next solutions of a part."""
        self._add_results()  # elites to vary are the newest
        generation = self._table.generation(part)
        state = self._search.state
        proposal = self._programs.ask(self._arrays, state, np.int32(part), generation)
        self._table.open(part, jax.device_get(proposal))

    def _take_result(self, handed_out: HandedOut, result: Result) -> None:
        """Take the result of one ticket, and do what is due by it."""
        place, solution, has_failed = handed_out
        if has_failed and not result.is_finite:
            return  # it was counted as failed before
        is_awaited = not has_failed and self._table.is_open(place)
        self._told.append(Told(place if is_awaited else None, not has_failed, solution, result))
        self._num_counted += not has_failed
        if is_awaited and self._table.mark_told(place) >= self._needed:
            self._adapt(place.part)
        if self._num_counted == self._batch:
            self._train()
        if len(self._told) >= self._rows_at_a_time:
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
            warn_of_low_objectives(lowest, self.algorithm, stacklevel=4)

    def _add_results(self) -> None:
        """Put the results that wait into the archive, and where they are learned from."""
        told = self._told
        if not told:
            return
        added = self._programs.add(self._arrays, self._search.state, *self._rows_to_add())
        self._search.state = added[0]
        batch, improved, filled = jax.device_get(added[1:])
        counted = [row for row, one in enumerate(told) if one.is_counted]
        self._table.put_untrained(rows_of(batch, counted))
        awaited = [row for row, one in enumerate(told) if one.place is not None]
        places = [one.place for one in told if one.place is not None]
        self._table.put(places, rows_of(batch, awaited), improved[awaited], filled[awaited])
        told.clear()

    def _with_results(self) -> SearchState:
        """The state with the results that wait in the archive. The search stays as it is."""
        if not self._told:
            return self._search.state
        rows = self._rows_to_add()
        return self._programs.add_to_copy(self._arrays, self._search.state, *rows)[0]

    def _rows_to_add(self) -> tuple[Any, ...]:
        has_objectives = self._has_objectives is not False
        size = self._rows_at_a_time
        return padded_rows(self._archive, self._told, size, has_objectives=has_objectives)
