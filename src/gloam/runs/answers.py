"""Answers: solutions for new items, from the elites of a finished search and a few evaluations."""

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from gloam._tools import checks
from gloam._tools.compiler import float32
from gloam._tools.draws import evaluation_key, evaluation_seeds, root_key
from gloam._tools.programs import compiled, partition
from gloam._tools.progress import work_bar
from gloam.archives import Archive, CVTArchive, Elites
from gloam.archives.qd_score import archive_metrics
from gloam.archives.store import filled_store
from gloam.datasets import Dataset
from gloam.datasets.matches import is_closeness
from gloam.emitters import AimedMoves
from gloam.emitters.emitter import checked_start
from gloam.errors import ForeignError
from gloam.evaluation import VIOLATION, measure_shapes, valid_rows
from gloam.evaluators import Evaluator, Failure, ResultSpec, as_evaluator
from gloam.evaluators.results import Results, as_seeded, rows_with_seeds
from gloam.formats import RunFolder
from gloam.records import Targets
from gloam.runs.failures import Outcome, all_failures, refuse_first_batches
from gloam.runs.result import Result
from gloam.searches.starts import elites_in
from gloam.spaces import Space

# Evaluations of an item by default, and largest number of batches: a batch learns from all before.
_EVALUATIONS, _BATCHES = 10, 10
# Standard deviation of the noise, as a share of that of the elites: as `AimedMoves` has by default,
# whose step size is about the spread of solutions.
_NOISE = 0.04
# Largest number of solutions in a combination, as `AimedMoves` has it.
_NUM_NEAR = 32
# Rows that are compared with the items at a time, distances of these, and numbers of the elites
# near to targets.
_ROWS, _DISTANCES, _NUMBERS = 4096, 2**22, 2**24


@checks.names_arguments
def answer(
    evaluate: Callable[..., Any],
    elites: Elites | RunFolder | str | os.PathLike,
    items: Any,
    evaluations: int | None = None,
    *,
    seed: int = 0,
    bounds: checks.SolutionBounds | None = None,
    per_solution: bool = False,
    evaluator: Evaluator | Executor | None = None,
    progress: bool = False,
) -> Result:
    """Find a solution for each new item, from the elites of a finished search.

    The first answer of an item is the elite with the nearest measures. Then combinations of the
    nearest solutions are evaluated, whose measures would be the item if measures were linear
    (`gloam.emitters.AimedMoves`). All of them are remembered, so that later combinations begin
    nearer to the item. See docs/recipes.md.

    An answer is the nearest solution. If the search had an objective, it is the one with the best
    objective among those that came into the item's cell: nearer to it than half the distance from
    the item to the nearest elite. So no answer is farther from its item than the nearest elite is.
    If the archive of the search has a distance ``within`` which solutions count, the cell is what
    lies within it, and an item has no answer if no solution does. Distances are those of the
    search: by its metric, and on a grid in widths of cells.

    Args:
        evaluate: The evaluation of the search, as for `gloam.optimize` or `gloam.run`. Without
            evaluations it is not called.
        elites: The elites, or a run folder, of which the best elites of all seeds count.
        items: The new items: a `gloam.datasets.Dataset`, or an array ``(items, meas)`` or
            ``(items, *shape)`` of measures.
        evaluations: Largest number of evaluations, for all items together; 10 for each by default.
        seed: Seed of the random numbers.
        bounds: Bounds of the solutions, as the algorithm of the search had them. By default those
            of the space of the elites, or those in the run folder.
        per_solution, evaluator: As in `gloam.optimize`.
        progress: Whether to show a progress bar.

    Returns:
        The answers: the elite of cell ``i`` is that of item ``i``, also if its measures are nearer
        to another item. The metrics have a row for each batch, and one for the nearest elites, with
        ``evaluations``, ``failed_total`` and ``mean_distance``.

    Example:
        >>> import gloam
        >>> domain = gloam.domains.Arm(num_joints=5)
        >>> algorithm = gloam.DMS(domain.archive(), domain.x0, 0.2, num_emitters=2)
        >>> result = gloam.run(domain, algorithm, iterations=20, progress=False)
        >>> answers = gloam.answer(domain, result.elites, [[1.0, 2.0], [-2.5, 0.5]], 20)
        >>> answers.elites.solutions.shape, answers.evaluations_per_seed
        ((2, 5), 20)
    """
    began, seed = time.perf_counter(), checks.seed("seed", seed)
    known, box = _read(elites, bounds)
    archive = _archive_of(items, known.archive)
    number = archive.num_cells
    total = number * _EVALUATIONS if evaluations is None else evaluations
    total = checks.integer("evaluations", total, minimum=0)
    size = -(-total // min(_BATCHES, -(-total // number))) if total else 1
    emitter, root = _emitter(known, box), root_key(seed)
    memory = _Memory(known, archive, total)
    problem = _Problem(evaluate, memory, per_solution, as_evaluator(evaluator))
    rows: list[dict[str, Any]] = []

    def log(evaluations: int, failed: int) -> None:
        answers = memory.answers()
        is_given = archive.f_min is not None
        figures = archive_metrics(answers.store, answers.f_min, is_given=is_given)
        rows.append(
            {"seed": seed, "iteration": len(rows), "seconds": time.perf_counter() - began}
            | {"evaluations": evaluations, "gradients": 0, "failed_total": failed}
            | {name: np.asarray(value).item() for name, value in vars(figures).items()}
            | {"mean_distance": float(memory.distances().mean())}
        )

    log(0, 0)
    workers = problem.evaluator if total else contextlib.nullcontext()
    with workers, work_bar("answers", total, show=progress) as advance:
        for batch, first in enumerate(range(0, total, size)):
            chosen = np.arange(first, min(first + size, total)) % number
            key = jax.random.fold_in(root, batch)
            solutions = memory.combined(emitter, chosen, key=key)
            results, failures = problem.evaluated(solutions, key=evaluation_key(root, batch))
            if batch == 0:
                refuse_first_batches([Outcome(seed, len(solutions), failures)])
            memory.add(solutions, results)
            log(first + len(solutions), rows[-1]["failed_total"] + len(failures))
            advance(len(solutions))
    import pandas as pd

    return Result({seed: memory.answers()}, pd.DataFrame(rows), [seed], None)


def _read(source: Any, bounds: checks.SolutionBounds | None) -> tuple[Elites, Any]:
    """Return the elites, and the bounds of their solutions."""
    box: Any = bounds
    if isinstance(source, (RunFolder, str, os.PathLike)):
        folder = source if isinstance(source, RunFolder) else RunFolder(source)
        source = elites_in(folder)
        if bounds is None:
            with contextlib.suppress(ForeignError):  # an algorithm of the user's own
                box = folder.read_part("algorithm").emitter.solution_bounds
    fix = "Give result.elites, search.elites() or the path of a run folder."
    checks.instance("elites", source, Elites, fix)
    fix = "Run the search longer."
    checks.expect(len(source) > 0, "elites", "at least one elite", "none", fix)
    return source, box


def _archive_of(items: Any, known: Archive) -> CVTArchive:
    """Return an archive with a cell for each item, with the metric and fields of the search."""
    metric, within = "euclidean", None
    if isinstance(known, CVTArchive):
        metric, within = known.metric, known.within
    options: Any = {"f_min": known.f_min, "fields": known.fields, "index": "exact"}
    options |= {"within": within}
    options |= {"measure_names": known.measure_names}
    shape, fix = tuple(known.measure_shape), "Give items in the form of the search's measures."
    if isinstance(items, Dataset):
        checks.expect(items.shape == shape, "items", f"shape {shape}", f"{items.shape}", fix)
        return items.archive(metric, **options)
    rows = checks.finite_array("items", items, ndim=2, or_more=True, fix=fix)
    shapes = measure_shapes(len(rows), shape)
    expected = f"a gloam.datasets.Dataset, or shape {checks.one_of(shapes)}"
    checks.expect(rows.shape in shapes, "items", expected, f"shape {rows.shape}", fix)
    return CVTArchive(rows.reshape(len(rows), *shape), metric=metric, **options)


def _emitter(elites: Elites, bounds: Any) -> AimedMoves:
    """Return the emitter that combines elites, for one target."""
    form, solutions = elites.form, elites.solutions
    x0 = form if isinstance(form, Space) and bounds is None else solutions[0]
    start, box = checked_start(x0, bounds)
    noise = _NOISE * solutions.std(axis=0, dtype=np.float64)
    options: Any = {"sigma0": 1.0, "iso_sigma": np.clip(noise, 1e-30, 1e10), "bounds": box}
    if box is not None and box.is_box:  # one share of the widths
        share = float(np.mean(noise / np.asarray(box.width)))
        options["iso_sigma"] = min(max(share, 1e-9), 1.0)
    return AimedMoves(start, batch_size=1, **options)


def _combined(emitter: AimedMoves, targets: Targets, key: PRNGKeyArray) -> Float[Array, "n sol"]:
    with float32():
        none = targets.solutions[:0, 0]
        return emitter.ask(None, none, key=key, targets=lambda *_, **__: targets).solutions


_compiled_combined = compiled(_combined)


class _Problem:
    """The evaluation of the search, with checked results."""

    def __init__(
        self,
        evaluate: Callable[..., Any],
        memory: "_Memory",
        per_solution: bool,
        evaluator: Evaluator,
    ):
        checks.instance("per_solution", per_solution, bool)
        self._archive, self.evaluator = memory.archive, evaluator
        self._function, self._has_seeds = as_seeded(
            evaluate, memory.elites.form, per_solution=per_solution
        )
        evaluator.check(self._function)
        spec = ResultSpec.of(self._archive)
        self._spec = dataclasses.replace(spec, has_objectives=memory.has_objective)

    def evaluated(
        self, solutions: Float[np.ndarray, "batch sol"], *, key: PRNGKeyArray
    ) -> tuple[Results, list[Failure]]:
        """Return the results of a batch, with NaN in the measures of rows that are not valid."""
        rows = solutions
        if self._has_seeds:
            rows = rows_with_seeds(solutions, evaluation_seeds(key, len(solutions)))
        evaluated = self.evaluator.evaluate(self._function, rows, self._spec)
        failures = all_failures(evaluated, self._archive)
        objectives, measures, fields, _ = evaluated
        accepted = np.asarray(self._archive.accepts(measures))
        valid = valid_rows(accepted, objectives, fields.get(VIOLATION))
        return (objectives, np.where(valid[:, None], measures, np.nan), fields), failures


class _Memory:
    """All solutions that are known, and which of them are near to the items.

    Args:
        elites: The elites of the search.
        archive: The archive with the items.
        capacity: Number of solutions that may be added.
    """

    def __init__(self, elites: Elites, archive: CVTArchive, capacity: int):
        size = 4 * capacity * (elites.solutions.shape[1] + archive.measure_dim)
        checks.fits_memory("evaluations", size, f"{capacity:,} evaluations", "Use fewer.")
        self.elites, self.archive = elites, archive
        self.has_objective = not is_closeness(elites)
        arrays = {name: elites.field(name) for name in archive.fields} | {
            "solutions": elites.solutions,
            "objectives": elites.objectives,
            "measures": elites.flat_measures,
        }
        # The elites, and room for new solutions.
        self._arrays = {
            name: (array, np.zeros((capacity, *array.shape[1:]), array.dtype))
            for name, array in arrays.items()
        }
        self._length, number = 0, archive.num_cells
        self._items = self._spaced(np.asarray(archive.centroids))
        self._middle = self._items.mean(axis=0, dtype=np.float64)
        # Of each item: the nearest solutions, the answer, and its objective if it is in the cell.
        self._near = np.zeros((number, _NUM_NEAR), int)
        self._squared = np.full((number, _NUM_NEAR), np.inf)
        self._answer, self._inside = np.zeros(number, int), np.full(number, -np.inf)
        # Squared, as the distances are.
        self._radius = np.full(number, -np.inf)
        if self.has_objective and archive.within is not None:
            within = archive.within
            self._radius[:] = within**2 if archive.metric == "euclidean" else 2 * within
        self._compare(np.arange(len(elites)))
        if self.has_objective and archive.within is None:
            self._radius = self._squared[:, 0] / 4
            is_exact = self.distances() == 0
            objectives = self._of("objectives", self._answer)
            self._inside = np.where(is_exact, objectives, -np.inf)

    def add(self, solutions: Float[np.ndarray, "batch sol"], results: Results) -> None:
        """Remember evaluated solutions; those with NaN in their measures are left out."""
        objectives, measures, fields = results
        is_valid = np.isfinite(measures).all(axis=1)
        rows = np.flatnonzero(is_valid)
        new = {"solutions": solutions, "objectives": objectives, "measures": measures} | fields
        slots = slice(self._length, self._length + len(rows))
        for name, (_, added) in self._arrays.items():
            if new[name] is not None:
                added[slots] = new[name][rows]
        self._length += len(rows)
        self._compare(len(self.elites) + np.arange(slots.start, slots.stop))

    def combined(
        self, emitter: AimedMoves, items: Int[np.ndarray, " batch"], *, key: PRNGKeyArray
    ) -> Float[np.ndarray, "batch sol"]:
        """Return a combination of near solutions for each of some items."""
        size = max(1, _NUMBERS // (_NUM_NEAR * self._items.shape[1]))
        blocks = []
        for start in range(0, len(items), size):
            chosen = items[start : start + size]
            near, squared = self._near[chosen], self._squared[chosen]
            measures = self._spaced(self._of("measures", near.ravel()))
            parts = {
                "cells": chosen,
                "are_empty": np.ones(len(chosen), bool),
                "centers": self._items[chosen],
                "solutions": self._of("solutions", near.ravel()).reshape(*near.shape, -1),
                "measures": measures.reshape(*near.shape, -1),
                "are_elites": np.isfinite(squared),
            }
            targets = Targets(**jax.tree.map(jnp.asarray, parts))
            several = dataclasses.replace(emitter, batch_size=len(chosen))
            arrays, static = partition(several)
            keys = jax.random.fold_in(key, start)
            blocks.append(np.asarray(_compiled_combined(static, arrays, targets, keys)))
        return np.concatenate(blocks)

    def answers(self) -> Elites:
        """Return the answers, that of item ``i`` as the elite of cell ``i``."""
        archive, cells = self.archive, np.arange(self.archive.num_cells)
        measures = self._of("measures", self._answer)
        objectives = self._of("objectives", self._answer)
        if not self.has_objective:
            objectives = np.asarray(archive.closeness(jnp.asarray(measures), jnp.asarray(cells)))
        fields = {name: self._of(name, self._answer) for name in archive.fields}
        solutions = self._of("solutions", self._answer)
        store = filled_store(archive, solutions, objectives, measures, cells, fields)
        reference = self.elites.f_min if self.has_objective else 0.0
        return Elites(archive, store, reference=reference, form=self.elites.form)

    def distances(self) -> Float[np.ndarray, " items"]:
        """Return the distances between items and answers, in the space of the search."""
        steps = self._spaced(self._of("measures", self._answer)) - self._items
        return np.linalg.norm(steps.astype(np.float64), axis=1)

    def _compare(self, rows: Int[np.ndarray, " n"]) -> None:
        """Update the nearest solutions and the answers of all items by some rows."""
        size = max(1, min(_ROWS, _DISTANCES // len(self._items)))
        items = self._items - self._middle
        for start in range(0, len(rows), size):
            block = rows[start : start + size]
            points = self._spaced(self._of("measures", block)) - self._middle
            squared = (items**2).sum(axis=1)[:, None] + (points**2).sum(axis=1)
            self._update(block, np.maximum(squared - 2 * items @ points.T, 0.0))

    def _update(self, rows: Int[np.ndarray, " n"], squared: Float[np.ndarray, "items n"]) -> None:
        """Update nearest solutions and answers, given squared distances from the items."""
        inside = squared <= self._radius[:, None]
        objectives = np.where(inside, self._of("objectives", rows), -np.inf)
        best, nearest = objectives.argmax(axis=1), squared.argmin(axis=1)
        every = np.arange(len(squared))
        is_nearer = squared[every, nearest] < self._squared[:, 0]
        self._answer = np.where(is_nearer & (self._inside == -np.inf), rows[nearest], self._answer)
        is_better = objectives[every, best] > self._inside
        self._answer = np.where(is_better, rows[best], self._answer)
        self._inside = np.maximum(self._inside, objectives[every, best])
        candidates = np.concatenate([self._squared, squared], axis=1)
        numbers = np.concatenate([self._near, np.broadcast_to(rows, squared.shape)], axis=1)
        order = candidates.argsort(axis=1, kind="stable")[:, :_NUM_NEAR]
        self._squared = np.take_along_axis(candidates, order, axis=1)
        self._near = np.take_along_axis(numbers, order, axis=1)

    def _of(self, name: str, rows: Int[np.ndarray, " n"]) -> np.ndarray:
        """Return an array of some solutions, elites or new ones."""
        old, added = self._arrays[name]
        is_new = rows >= len(old)
        values = old[np.where(is_new, 0, rows)]
        values[is_new] = added[rows[is_new] - len(old)]
        return values

    def _spaced(self, measures: Float[np.ndarray, "n meas"]) -> Float[np.ndarray, "n meas"]:
        """Return measures in the space of the search, in which distances count."""
        archive = self.elites.archive
        return np.asarray(archive.discount_space(jnp.asarray(measures)) / archive.units)
