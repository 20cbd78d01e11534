"""A pool of elites without an emitter: solutions are texts or JSON values from outside."""

import dataclasses
import json
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from gloam import diagnostics, step
from gloam._tools import checks, drawing
from gloam._tools.compiler import float32, keep_compiled_programs
from gloam._tools.draws import PROPOSALS, root_key, uniforms
from gloam._tools.programs import compiled, partition
from gloam.algorithms import Algorithm
from gloam.algorithms.algorithm import checked_archive
from gloam.archives import Archive, Elites
from gloam.archives.elites import archive_figures
from gloam.archives.store import random_cells, running_counts
from gloam.archives.targets import draw_targets, nearest
from gloam.archives.thumbnails import thumbnail
from gloam.discounts import NoDiscount
from gloam.emitters import Variation
from gloam.evaluation import succeeded_rows
from gloam.evaluators import ResultSpec
from gloam.formats import objects
from gloam.formats.documents import content_of
from gloam.formats.saved_searches import SavedSearch, read_search, write_search
from gloam.records import SearchState
from gloam.spaces.payloads import Payloads, packed, payload_json, unpacked

# Rows in a call of the compiled programs: the last one is padded.
_ROWS = 64
# A solution is the number of its cell, and float32 counts up to this.
_MOST_CELLS = 2**24


class Parent(NamedTuple):
    """An elite to vary."""

    payload: Any
    """The text, or a new copy of the JSON value."""
    objective: float
    measures: Float[np.ndarray, " *measure_shape"]
    cell: int


class Target(NamedTuple):
    """A cell to aim at. With a dataset, cells have the numbers of its items."""

    cell: int
    center: Float[np.ndarray, " *measure_shape"]
    is_empty: bool
    """False while no cell is empty."""


class _Drawn(NamedTuple):
    """Cells of parents and targets."""

    parents: Int[Array, " n"]
    targets: Int[Array, " n"]
    centers: Float[Array, "n meas"]
    are_empty: Bool[Array, " n"]


@float32()
def _draw(
    algorithm: Algorithm, state: SearchState, key: PRNGKeyArray, near: Float[Array, ""]
) -> _Drawn:
    key_parents, key_targets, key_near = jax.random.split(key, 3)
    counts = running_counts(state.store.occupied)
    random, _ = random_cells(counts, _ROWS, key=key_parents)
    targets = draw_targets(algorithm.archive, state.store, counts, state.x0, _ROWS, key=key_targets)
    # The solution of an elite is the number of its cell.
    nearest_elites = targets.solutions[:, 0, 0].astype(jnp.int32)
    parents = jnp.where(uniforms(key_near, _ROWS) < near, nearest_elites, random)
    centers = algorithm.archive.centers_of(targets.cells)
    return _Drawn(parents, targets.cells, centers, targets.are_empty)


@float32()
def _measure_distances(
    algorithm: Algorithm, state: SearchState, measures: Float[Array, "n meas"]
) -> Float[Array, " n"]:
    archive, is_empty = algorithm.archive, ~state.store.occupied
    centers = archive.centers_of(jnp.arange(archive.num_cells, dtype=jnp.int32)) / archive.units
    points = archive.discount_space(measures) / archive.units
    cells, _ = nearest(points, centers, is_empty | ~jnp.any(is_empty), 1)
    return jnp.sqrt(archive.squared_distances(measures, cells[:, 0]))


_init = compiled(step.init)
_distances = compiled(_measure_distances)
_drawn = compiled(_draw)
_start_with = compiled(step.start_with)
_metrics = compiled(diagnostics.metrics)


class Pool:
    """Elites whose solutions are texts or JSON values, such as programs and prompts.

    The pool chooses parents and cells to aim at. The solutions come from outside: a language model,
    a grammar, or a person. In `elites`, the solution of an elite is its payload.

    Args:
        archive: The cells to fill.
        seed: Seed of the proposals.

    Example:
        >>> import gloam
        >>> archive = gloam.GridArchive(shape=(8,), lower=0, upper=8, measure_names=["length"])
        >>> pool = gloam.Pool(archive, seed=1)
        >>> def tell(words):
        ...     vowels = [sum(letter in "aeiou" for letter in word) for word in words]
        ...     return pool.tell(vowels, [[len(word)] for word in words], words)
        >>> tell(["pool", "a"])
        array([ True,  True])
        >>> for _ in range(3):
        ...     _ = tell([parent.payload + "e" for parent, target in pool.propose(4)])
        >>> pool.elites().best.values
        'poolee'
    """

    @checks.names_arguments
    def __init__(self, archive: Archive, seed: int = 0):
        cells = checked_archive(archive).num_cells
        checks.expect(cells <= _MOST_CELLS, "archive", f"at most {_MOST_CELLS:,} cells", cells)
        keep_compiled_programs()
        # The emitter stands for the size of a batch and is never asked.
        emitter = Variation(np.zeros(1), 1.0, batch_size=_ROWS)
        self.algorithm = algorithm = Algorithm(emitter, archive, NoDiscount(), name="pool")
        self.archive = archive
        self.seed = checks.seed("seed", seed)
        self.result_spec = ResultSpec.of(archive)
        """Specification of the results, for evaluators."""
        self._arrays, self._static = partition(algorithm.for_programs(cells_given=True))
        state: SearchState = _init(self._static, self._arrays, root_key(self.seed), jnp.zeros(1))
        self._numbers = jnp.arange(archive.num_cells, dtype=jnp.float32)[:, None]
        self.state = _with_solutions(state, self._numbers)
        self._texts: dict[int, str] = {}
        self._told = self._proposed = 0

    @checks.names_arguments
    def propose(self, number: int = 16, *, near: float = 0.5) -> list[tuple[Parent, Target]]:
        """Return pairs of a parent and a cell to aim at, new ones at each call.

        Targets are random empty cells, or any cells while none is empty.

        Args:
            number: Number of pairs.
            near: Share of the parents that are the elites nearest to their targets, in the mean.
                The others are random elites.

        Raises:
            ValueError: The pool has no elite.
        """
        number = checks.count("number", number)
        near = checks.number("near", near, at_least=0.0, at_most=1.0)
        fix = "Tell it solutions to begin with, for instance some that you wrote."
        checks.expect(len(self._texts) > 0, "pool", "at least one elite", "none", fix)
        key = jax.random.fold_in(self.state.key, PROPOSALS)
        pairs: list[tuple[Parent, Target]] = []
        while len(pairs) < number:
            key_pairs = jax.random.fold_in(key, self._proposed)
            drawn = _drawn(self._static, self._arrays, self.state, key_pairs, np.float32(near))
            self._proposed += 1
            pairs += self._pairs(jax.device_get(drawn))[: number - len(pairs)]
        return pairs

    def _pairs(self, drawn: _Drawn) -> list[tuple[Parent, Target]]:
        cells = np.asarray(drawn.parents)
        shape, store = self.archive.measure_shape, self.state.store
        payloads = [json.loads(self._texts[cell]) for cell in cells.tolist()]
        objectives = np.asarray(store.objectives)[cells].tolist()
        measures = np.asarray(store.measures)[cells].reshape(-1, *shape)
        parents = map(Parent, payloads, objectives, measures, cells.tolist())
        centers = np.asarray(drawn.centers).reshape(-1, *shape)
        targets = map(Target, drawn.targets.tolist(), centers, drawn.are_empty.tolist())
        return list(zip(parents, targets, strict=True))

    def tell(
        self,
        objectives: ArrayLike | Sequence[float | None] | None,
        measures: ArrayLike | Sequence[ArrayLike | None],
        payloads: Sequence[Any],
        **fields: ArrayLike,
    ) -> Bool[np.ndarray, " n"]:
        """Add any number of solutions, also such that were not proposed.

        Args:
            objectives: ``(n,)`` numbers to maximize. A row with ``None``, NaN or infinity here or
                in its measures counts as failed: it never becomes an elite, and its payload is
                ignored. ``None`` for all maximizes closeness to the center of the cell, see
                `gloam.archives.Archive.closeness`.
            measures: ``(n, meas)`` measures, or ``(n, *shape)`` if the archive's have a shape.
            payloads: ``n`` texts or JSON values (finite numbers, lists, and dicts with texts as
                keys) of at most 1 MiB each.
            fields: Extra fields that the archive declares, and ``violation``, as for
                `gloam.Search.tell`.

        Returns:
            A mask of the rows that became elites.

        Raises:
            ValueError: A payload is malformed, or results have another shape. The pool is
                unchanged.
        """
        expected, fix = "a list of payloads", "For one solution, give a list with one item."
        is_list = hasattr(payloads, "__len__") and not isinstance(payloads, (str, bytes, dict))
        checks.expect(is_list, "payloads", expected, checks.short(payloads), fix)
        given = list(payloads)
        number = checks.count("len(payloads)", len(given), minimum=0)
        became_elite = np.zeros(number, bool)
        if number == 0:
            return became_elite
        blank = np.full(self.archive.measure_shape, np.nan)
        results = self.result_spec.checked(
            _without_none(objectives, np.nan), _without_none(measures, blank), fields, number
        )
        accepted = np.asarray(self.archive.accepts(results[1]))
        succeeded = succeeded_rows(accepted, results[0], results[2])
        rows = np.flatnonzero(succeeded).tolist()
        texts = {row: payload_json(f"payloads[{row}]", given[row]) for row in rows}

        state = self.state
        for first in range(0, number, _ROWS):
            state = self._with_block(state, first, results)
        changed = np.asarray(state.store.objectives) != np.asarray(self.state.store.objectives)
        cells = np.flatnonzero(changed)
        winners = np.asarray(state.store.solutions)[cells, 0].astype(int)
        self._texts |= {
            cell: texts[row] for cell, row in zip(cells.tolist(), winners.tolist(), strict=True)
        }
        state = _with_solutions(state, self._numbers)
        failed, told = state.failed + (number - len(rows)), state.iteration + 1
        self.state = dataclasses.replace(state, failed=failed, iteration=told)
        self._told += number
        became_elite[winners] = True
        return became_elite

    def _with_block(self, state: SearchState, first: int, results: Any) -> SearchState:
        """Add up to `_ROWS` rows; the solution of a row is its number."""
        number = len(results[1])
        taken = np.minimum(np.arange(first, first + _ROWS), number - 1)
        is_row = np.arange(first, first + _ROWS) < number
        block = jax.tree.map(lambda rows: rows[taken], results)
        cells = self.archive.index_on_host(block[1])
        solutions = taken[:, None].astype(np.float32)
        started = np.int32((self._told + first) % (2**31 - 1))
        return _start_with(
            self._static, self._arrays, state, solutions, block, cells, is_row, started
        )

    def screen(self, measures: ArrayLike) -> Float[np.ndarray, " n"]:
        """Return how far candidates are from the nearest empty cell; the nearest are most novel.

        It is for measures that cost little beside the objective: make several candidates, and
        evaluate those with the smallest numbers. While no cell is empty, all cells count.

        Args:
            measures: ``(n, meas)`` measures, or ``(n, *shape)`` if the archive's have a shape.

        Returns:
            Root mean squared distances to the center of the cell, in widths of a cell for a grid;
            infinite for rows that the archive cannot place, such as those with NaN.
        """
        number = len(checks.real_array("measures", measures, "rows of measures"))
        if number == 0:
            return np.zeros(0, np.float32)
        _, rows, _ = ResultSpec(tuple(self.archive.measure_shape), {}).checked(
            None, measures, {}, number
        )
        accepted = np.asarray(self.archive.accepts(rows))
        distances = np.full(number, np.inf, np.float32)
        for first in range(0, number, _ROWS):
            taken = np.minimum(np.arange(first, first + _ROWS), number - 1)
            block = np.where(accepted[taken, None], rows[taken], 0)
            found = _distances(self._static, self._arrays, self.state, block)
            distances[taken] = np.asarray(found)
        return np.where(accepted, distances, np.inf)

    def elites(self) -> Elites:
        """Return the elites. ``elite.values`` is the payload, and tables have it in ``payload``."""
        store, reference = self.state.store, float(self.state.reference)
        return Elites(self.archive, store, reference=reference, form=Payloads(self._texts))

    def metrics(self) -> dict[str, Any]:
        """Return the metrics of the pool, with the names of `gloam.Search.metrics`.

        ``iteration`` is the number of calls of `tell`.
        """
        metrics = _metrics(self._static, self._arrays, self.state)
        failed, started = int(metrics.failed), int(metrics.started)
        return {
            "seed": self.seed,
            "iteration": int(self.state.iteration),
            "evaluations": self._told,
            "qd_score": float(metrics.archive.qd_score),
            "f_min": float(metrics.archive.f_min),
            "num_elites": int(metrics.archive.num_elites),
            "num_counted": int(metrics.archive.num_counted),
            "coverage": float(metrics.archive.coverage),
            "best_objective": float(metrics.archive.best_objective),
            "mean_objective": float(metrics.archive.mean_objective),
            "failed_total": failed,
            "infeasible_total": self._told - failed - started,
        }

    def save(self, path: str | os.PathLike) -> None:
        """Write the pool to one file, atomically."""
        cells = np.flatnonzero(np.asarray(self.state.store.occupied)).tolist()
        texts = packed(self._texts[cell] for cell in cells)
        about = {"told": self._told, "proposed": self._proposed}
        saved = SavedSearch(self.algorithm, self.seed, self.state, about, texts)
        write_search(path, saved, kind="pool")

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Pool":
        """Read a pool that `save` wrote. It continues with the same proposals.

        Raises:
            DamagedFileError: The file is damaged, or `save` did not write it.
        """
        file = checks.existing_file("path", path)
        fix = "Give a file that Pool.save wrote."
        saved = read_search(file, None, kind="pool", fix=fix)
        with content_of(file, fix):
            pool = cls(saved.algorithm.archive, saved.seed)
            contents = [objects.encode(each.algorithm, {}) for each in (saved, pool)]
            if contents[0] != contents[1]:
                raise ValueError("its algorithm is not that of a pool")
            cells = np.flatnonzero(np.asarray(saved.state.store.occupied)).tolist()
            texts = unpacked(saved.further, len(cells))
            pool._texts = dict(zip(cells, texts, strict=True))
            told, proposed = (saved.about.get(name) for name in ("told", "proposed"))
            pool._told = checks.integer("told", told, minimum=0)
            pool._proposed = checks.integer("proposed", proposed, minimum=0)
            pool.state = _with_solutions(saved.state, pool._numbers)
        return pool

    def __len__(self) -> int:
        """Return the number of elites."""
        return len(self._texts)

    def __repr__(self) -> str:
        return f"Pool({self._told:,} solutions told, seed {self.seed}, {self.elites()!r})"

    def _repr_html_(self) -> str:
        elites = self.elites()
        figures = {"seed": f"{self.seed}", "solutions told": f"{self._told:,}"}
        pictures = [thumbnail(elites.archive, elites.store)] if len(elites) else []
        return drawing.card("Pool", figures | archive_figures(elites), pictures)


def _with_solutions(state: SearchState, solutions: Float[Array, "cells 1"]) -> SearchState:
    return dataclasses.replace(state, store=dataclasses.replace(state.store, solutions=solutions))


def _without_none(rows: Any, blank: Any) -> Any:
    """Return a list with ``blank`` for ``None``; anything else is returned unchanged."""
    if not isinstance(rows, (list, tuple)):
        return rows
    return [blank if row is None else row for row in rows]
