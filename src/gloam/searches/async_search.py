"""The asynchronous search: solutions with tickets, and results in any order."""

import dataclasses
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

from gloam._tools import checks
from gloam._tools.draws import evaluation_seeds
from gloam._tools.programs import compiled, partition
from gloam.algorithms import Algorithm
from gloam.archives import Elites
from gloam.records import SearchState, StepInfo
from gloam.searches import part_step
from gloam.searches.gradients import check_no_gradients
from gloam.searches.metrics import LowObjectiveWarning
from gloam.searches.parts import (
    EmittersInParts,
    HandedOut,
    PartTable,
    RowResult,
    Ticket,
    TicketBook,
    Told,
    checked_rows,
    padded_rows,
)
from gloam.searches.search import Search, elites_of
from gloam.searches.starts import Start

# Number of results that are added to the archive at a time; all pairs of them are compared.
_MOST_ROWS = 64

_ask = compiled(part_step.ask_part)
_add = compiled(part_step.add_rows, donate_state=True)
_add_to_copy = compiled(part_step.add_rows)
_rescaled = compiled(part_step.rescaled)
_adapt = compiled(part_step.adapt_part, donate_state=True)
_train = compiled(part_step.train, donate_state=True)


class AsyncSearch:
    """A search that you drive, for evaluations of uneven duration.

    Each instance of CMA-ES adapts when its own solutions are evaluated, and continues without
    waiting for the others. Results enter the archive in any order. The discount is trained whenever
    as many results have arrived as the synchronous search has in a batch, which is an iteration.

    The search depends only on the seed and on the order of the calls: the same seed, asked and told
    in the same order, gives the same search.

    Args:
        algorithm: For instance `gloam.DMS`. Emitters that need gradients are refused.
        seed: Seed of the random numbers.
        x0: Starting solution, instead of the algorithm's own ``x0``.
        close_at: Share of its solutions that must be evaluated before an instance adapts. Later
            results enter the archive and train the discount, but the instance ignores them.
        start_from: Solutions that were found before, as in `gloam.Search`.

    Example:
        >>> import gloam
        >>> archive = gloam.GridArchive(shape=(10, 10), lower=-1, upper=1)
        >>> search = gloam.AsyncSearch(gloam.DMS(archive, x0=np.zeros(3), sigma0=0.3), seed=7)
        >>> tickets = search.ask(5)
        >>> for ticket in reversed(tickets):
        ...     search.tell(ticket, 1 - np.square(ticket.solution).sum(), ticket.solution[:2])
        >>> search.iteration, search.evaluations, len(search.elites()) > 0
        (0, 5, True)
    """

    @checks.names_arguments
    def __init__(
        self,
        algorithm: Algorithm,
        seed: int = 0,
        *,
        x0: Any = None,
        close_at: float = 1.0,
        start_from: Any = None,
    ):
        self._search = Search(algorithm, seed, x0=x0, start_from=start_from)
        check_no_gradients(algorithm.emitter)
        self.algorithm, self.seed = algorithm, self._search.seed
        self._form = algorithm.emitter.form
        share = checks.number("close_at", close_at, above=0.0, at_most=1.0)
        num_parts, part = part_step.divided(algorithm.emitter)
        pair = algorithm.for_programs(cells_given=True), part
        self._arrays, self._static = partition(pair)
        self._archive, self._batch = algorithm.archive, algorithm.emitter.num_solutions
        self._table = PartTable(algorithm, num_parts)
        self._rows_at_a_time = min(self._table.part_size, _MOST_ROWS)
        self._needed = math.ceil(share * self._table.part_size)
        first = np.zeros((), np.int32)
        ask = partial(part_step.ask_part, pair)
        self._table.allocate_aux(jax.eval_shape(ask, self._search.state, first, first))
        self._tickets = TicketBook()
        self._seeds: dict[tuple[int, int], np.ndarray] = {}  # by part and generation
        self._told: list[Told] = []  # and not in the archive yet
        self._has_objectives: bool | None = None
        self._num_counted = 0  # results since the last training
        self._warning = LowObjectiveWarning(algorithm)

    def ask(self, number: int) -> list[Ticket]:
        """Return up to ``number`` solutions to evaluate.

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
            tickets.append(self._tickets.issue(place, self._table.solution(place), self._form))
        return tickets

    def vector_of(self, ticket: Ticket) -> np.ndarray:
        """Return the solution of a ticket without a result as a ``(sol,)`` vector."""
        return self._tickets.vector(ticket)

    def seed_of(self, ticket: Ticket) -> int:
        """Return a seed below 2**31 for the evaluation of a ticket with random numbers.

        It depends on the seed of the search and on the place of the solution in it, so a solution
        that is evaluated again after a resume has the same one.
        """
        (number,) = self._tickets.numbers([ticket], may_have_failed=True)
        place = self._tickets.place(number)
        generation = place.part, place.generation
        if generation not in self._seeds:
            key = part_step.evaluation_key(self._search.state.key, *generation)
            # Seeds of the open parts, and of as many before them, for late tickets.
            while len(self._seeds) > 2 * self._table.num_parts:
                del self._seeds[next(iter(self._seeds))]
            self._seeds[generation] = evaluation_seeds(key, self._table.part_size)
        return int(self._seeds[generation][place.row % self._table.part_size])

    def tell(
        self,
        tickets: Ticket | Sequence[Ticket],
        objectives: ArrayLike | None,
        measures: ArrayLike,
        **fields: ArrayLike,
    ) -> None:
        """Tell results, in any order.

        Args:
            tickets: One ticket or several. Each is told once.
            objectives: One number for each ticket, or ``None``, as in `gloam.Search.tell`.
            measures: ``(meas,)`` measures of one ticket, ``(n, meas)`` of several, or in the
                archive's shape.
            fields: The extra fields that the archive declares, for one ticket or several.

        Raises:
            ValueError: A ticket is unknown or was told before, or an array has another shape. The
                search is unchanged.
        """
        _check_tickets(tickets)
        if isinstance(tickets, Ticket):
            tickets, measures = [tickets], np.asarray(measures)[None]
            objectives = None if objectives is None else np.asarray(objectives)[None]
            fields = {name: np.asarray(value)[None] for name, value in fields.items()}
        spec = self._search.result_spec
        results = checked_rows(spec, len(tickets), objectives, measures, fields)
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
        """Count evaluations as failed; their emitters continue without them.

        Args:
            tickets: One ticket or several.
            may_come_late: True for an evaluation that exceeded its time limit but is still
                running. If its result is told later, it enters the archive.

        Raises:
            ValueError: A ticket is unknown, or was told or failed before.
        """
        _check_tickets(tickets)
        tickets = [tickets] if isinstance(tickets, Ticket) else tickets
        for number in self._tickets.numbers(tickets, may_have_failed=False):
            handed_out = self._tickets.take(number, as_failed=may_come_late)
            self._take_result(handed_out, RowResult.failed(self._archive))

    @property
    def iteration(self) -> int:
        """Number of finished iterations; each ends with a training of the discount."""
        return self._search.iteration

    @property
    def evaluations(self) -> int:
        """Number of solutions that have a result or have failed."""
        return self.iteration * self._batch + self._num_counted

    @property
    def generations(self) -> np.ndarray:
        """Number of times that each part of the emitter has adapted."""
        return self._table.arrays.generations.copy()

    @property
    def info(self) -> StepInfo | None:
        """Diagnostics of the last iteration; ``None`` before the first."""
        return self._search.info

    def elites(self) -> Elites:
        """Return the elites found so far, including all results that were told."""
        return elites_of(self.algorithm, self._with_results())

    def metrics(self) -> dict[str, Any]:
        """Return the metrics of the search; those of training are of the last iteration."""
        metrics = self._search.metrics_of(self._with_results())
        return metrics | {"evaluations": self.evaluations}

    def snapshot(self) -> dict[str, np.ndarray]:
        """Return the arrays for a figure of the search after the last iteration."""
        return self._search.snapshot()

    def begin_with(self, start: Start) -> None:
        """Begin with evaluated solutions, before the first `ask`."""
        self._search.begin_with(start)

    def checkpoint(self) -> SearchState:
        """Return the state for a checkpoint. Solutions without a result count as not asked."""
        self._add_results()
        state = self._search.state
        # A copy, because the state is donated and must not contain an array twice.
        emitter = EmittersInParts(state.emitter, self._table.copied(), np.array(state.iteration))
        return dataclasses.replace(state, emitter=emitter)

    def restore(self, state: SearchState) -> None:
        """Continue from the state of a checkpoint."""
        saved: EmittersInParts = state.emitter
        self._table.restore(saved.parts)
        self._num_counted = int(saved.parts.num_untrained)
        self._tickets.void()
        self._told.clear()
        iteration = jnp.asarray(saved.iteration, jnp.int32)
        self._search.state = dataclasses.replace(state, emitter=saved.emitters, iteration=iteration)

    def _open(self, part: int) -> None:
        """Ask for the next solutions of a part."""
        self._add_results()  # so that the newest elites are varied
        generation = self._table.generation(part)
        state = self._search.state
        proposal = _ask(self._static, self._arrays, state, np.int32(part), generation)
        self._table.open(part, jax.device_get(proposal))

    def _take_result(self, handed_out: HandedOut, result: RowResult) -> None:
        """Process the result of one ticket."""
        place, solution, has_failed = handed_out
        if has_failed and not result.is_finite:
            return  # it was counted before
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
        """Let a part adapt to its results, and close it."""
        self._add_results()
        rows = self._table.close(part)
        state = self._search.state
        self._search.state = _adapt(self._static, self._arrays, state, np.int32(part), *rows)

    def _train(self) -> None:
        """Train the discount on a batch of results."""
        self._add_results()
        self._num_counted = 0
        batch = self._table.take_untrained()
        search = self._search
        search.state, search.info = _train(self._static, self._arrays, search.state, batch)
        self._warning.check(search.state.low)

    def _add_results(self) -> None:
        """Add the waiting results to the archive, and store them for adaptation and training."""
        told = self._told
        if not told:
            return
        rows = self._rows_to_add()
        state = self._search.state
        self._search.state, *added_rows = _add(self._static, self._arrays, state, *rows)
        batch, added = jax.device_get(added_rows)
        counted = [index for index, row in enumerate(told) if row.is_counted]
        self._table.store_untrained(_rows_of(batch, counted))
        awaited = [index for index, row in enumerate(told) if row.place is not None]
        places = [row.place for row in told if row.place is not None]
        self._table.store(places, _rows_of(batch, awaited), _rows_of(added, awaited))
        told.clear()

    def _with_results(self) -> SearchState:
        """Return the state with the waiting results added; the search is unchanged."""
        state = self._search.state
        if self._told:
            rows = self._rows_to_add()
            state = _add_to_copy(self._static, self._arrays, state, *rows)[0]
        return _rescaled(self._static, self._arrays, state)

    def _rows_to_add(self) -> tuple[Any, ...]:
        has_objectives = self._has_objectives is not False
        size = self._rows_at_a_time
        return padded_rows(self._archive, self._told, size, has_objectives=has_objectives)


def _rows_of(tree: Any, rows: list[int]) -> Any:
    return jax.tree.map(lambda leaf: leaf[rows] if leaf.ndim else leaf, tree)


def _check_tickets(tickets: Any) -> None:
    # A ticket is a tuple itself.
    is_list = isinstance(tickets, (list, tuple)) and not isinstance(tickets, Ticket)
    several = tickets if is_list else [tickets]
    if not all(isinstance(ticket, Ticket) for ticket in several):
        fix = "Give what ask() returned."
        checks.expect(False, "tickets", "one ticket or a list", checks.short(tickets), fix)
