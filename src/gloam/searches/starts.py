"""Warm starts: solutions that were found before, brought into the archive of a new search."""

import hashlib
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from gloam import step
from gloam._tools import checks
from gloam._tools.draws import evaluation_key
from gloam._tools.programs import compiled, partition
from gloam._tools.trees import Tree
from gloam.algorithms import Algorithm
from gloam.archives import Elites
from gloam.archives.tables import EliteColumns
from gloam.evaluators import ResultSpec
from gloam.evaluators.results import Results
from gloam.formats import RunFolder
from gloam.formats.arrays import digest
from gloam.records import SearchState
from gloam.spaces import Space
from gloam.spaces.payloads import Payloads

_start_with = compiled(step.start_with)
_start_emitters = compiled(step.start_emitters)

_FIX = (
    "Give elites (result.elites), a table of Elites.to_pandas(), or the path of a run folder to "
    "start_from."
)
_AGAIN = (
    "With reevaluate_start=True, gloam.run and gloam.optimize evaluate the solutions again; to "
    "gloam.Search, give a table with the new columns."
)


class Start(NamedTuple):
    """Solutions that a search starts from."""

    solutions: np.ndarray
    """``(n, sol)`` vectors."""
    results: Results | None
    """Their objectives, measures and fields; ``None`` if they have to be evaluated again."""

    @property
    def digest(self) -> str:
        """Digest of the solutions and results."""
        arrays = {"solutions": self.solutions}
        if self.results is not None:
            objectives, measures, fields = self.results
            arrays |= {"objectives": objectives, "measures": measures} | fields
        parts = [f"{name} {digest(arrays[name])}" for name in sorted(arrays)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def read_start(source: Any, algorithm: Algorithm, *, reevaluate: bool = False) -> Start:
    """Read solutions from an earlier run, a table or elites, and check that they fit.

    Args:
        source: `gloam.Elites`, a table, or the path of a run folder.
        algorithm: The algorithm of the new search.
        reevaluate: Leave out objectives and measures, because they are evaluated again.
    """
    checks.instance("reevaluate_start", reevaluate, bool)
    if isinstance(source, (str, os.PathLike)):
        source = elites_in(RunFolder(source))
    fix = "Leave start_from out, or run the earlier search longer."
    if isinstance(source, Elites):
        checks.expect(len(source) > 0, "start_from", "at least one solution", "none", fix)
        start = _of_elites(source, algorithm, reevaluate)
    else:
        is_table = isinstance(source, Mapping) or hasattr(source, "columns")
        expected = "elites, a table or the path of a run folder"
        got = f"{type(source).__name__} {checks.short(source)}"
        checks.expect(is_table, "start_from", expected, got, _FIX)
        start = _of_table(source, algorithm, reevaluate)
    checks.expect(len(start.solutions) > 0, "start_from", "at least one solution", "none", fix)
    return start


def started(algorithm: Algorithm, state: SearchState, start: Start) -> SearchState:
    """Return the first state of a search that starts from evaluated solutions.

    They enter the archive, the discount is trained on them in batches of the usual size, and
    emitters begin at elites.

    Raises:
        ValueError: None of them has a valid result.
    """
    results, size = start.results, algorithm.emitter.num_solutions
    assert results is not None, "the solutions have been evaluated"
    arrays, static = partition(algorithm.for_programs(cells_given=True))
    for number, first in enumerate(range(0, len(start.solutions), size)):

        def padded(rows: np.ndarray, first: int = first) -> np.ndarray:
            taken = rows[first : first + size]
            padding = np.zeros((size - len(taken), *taken.shape[1:]), taken.dtype)
            return np.concatenate([taken, padding])

        solutions, batch = jax.tree.map(padded, (start.solutions, results))
        is_row = np.arange(first, first + size) < len(start.solutions)
        cells = algorithm.archive.index_on_host(batch[1])
        state = _start_with(
            static, arrays, state, solutions, batch, cells, is_row, np.int32(number)
        )
    expected, fix = "at least one solution with a valid result", "Check the evaluation function."
    checks.expect(int(state.started) > 0, "start_from", expected, "none", fix)
    return _start_emitters(static, arrays, state)


def evaluated_start(
    start: Start, size: int, evaluate: Callable[[Any, PRNGKeyArray], Any], key: PRNGKeyArray
) -> Start:
    """Evaluate a start in batches of ``size`` solutions; the last one repeats solutions.

    Args:
        start: The solutions.
        size: Number of solutions in a batch.
        evaluate: Returns the results of a batch, given a random key.
        key: Random key of all batches.
    """
    batches, total = [], len(start.solutions)
    for number, first in enumerate(range(0, total, size)):
        rows = np.minimum(np.arange(first, first + size), total - 1)
        solutions = jnp.asarray(start.solutions[rows])
        batches.append(evaluate(solutions, evaluation_key(key, number)))

    def joined(*arrays: Any) -> np.ndarray:
        return np.concatenate([np.asarray(array) for array in arrays])[:total]

    return Start(start.solutions, jax.tree.map(joined, *batches))


def elites_in(folder: RunFolder) -> Elites:
    """Return the best elites of all seeds of a run folder."""
    folder.must_hold_run()
    first, *rest = (folder.read_archive(seed) for seed in folder.read_config().seeds)
    return first.merged(*rest)


def _of_elites(elites: Elites, algorithm: Algorithm, reevaluate: bool) -> Start:
    form, solutions = algorithm.emitter.form, elites.solutions
    has_vectors, fix = not isinstance(elites.form, Payloads), "Tell them to a gloam.Pool."
    checks.expect(has_vectors, "start_from", "elites of a search", "elites of a pool", fix)
    if isinstance(form, Space) and isinstance(elites.form, Space):
        if form != elites.form:
            solutions = form.vectors(elites.values())
    elif isinstance(form, Space) or isinstance(elites.form, Space):
        expected, got = f"solutions of {_described(form)}", _described(elites.form)
        fix = "Give a table with a column for each variable."
        checks.expect(False, "start_from", expected, got, fix)
    elif isinstance(form, Tree) and isinstance(elites.form, Tree):
        expected = f"trees with arrays of shapes {checks.short(list(form.shapes))}"
        got = checks.short(list(elites.form.shapes))
        checks.expect(form.shapes == elites.form.shapes, "start_from", expected, got)
    solutions = _checked_vectors(solutions, algorithm)
    if reevaluate:
        return Start(solutions, None)
    fields = {name: elites.field(name) for name in elites.store.fields}
    return Start(solutions, _checked(algorithm, elites.objectives, elites.flat_measures, fields))


def _of_table(table: Any, algorithm: Algorithm, reevaluate: bool) -> Start:
    columns = EliteColumns(table, argument="start_from", fix=_AGAIN)
    emitter = algorithm.emitter
    solutions = _checked_vectors(columns.solutions(emitter.form, emitter.x0.size), algorithm)
    if reevaluate:
        return Start(solutions, None)
    return Start(solutions, _checked(algorithm, *columns.results(algorithm.archive)))


def _checked(
    algorithm: Algorithm, objectives: np.ndarray, measures: np.ndarray, fields: dict[str, Any]
) -> Results:
    archive = algorithm.archive
    measures = measures.reshape(len(measures), -1)
    number, expected = measures.shape[1], f"{archive.measure_dim} measures"
    checks.expect(number == archive.measure_dim, "start_from", expected, number, _AGAIN)
    missing = sorted(set(archive.fields) - set(fields))
    got = f"no field '{missing[0]}'" if missing else ""
    checks.expect(not missing, "start_from", f"fields {sorted(archive.fields)}", got, _AGAIN)
    kept = {name: fields[name] for name in archive.fields}
    return ResultSpec.of(archive).checked(objectives, measures, kept, len(measures))


def _checked_vectors(solutions: np.ndarray, algorithm: Algorithm) -> np.ndarray:
    emitter = algorithm.emitter
    size, expected = solutions.shape[1], f"solutions of {emitter.x0.size} numbers, as x0 has"
    fix = "Use the same variables."
    checks.expect(size == emitter.x0.size, "start_from", expected, size, fix)
    bounds = emitter.solution_bounds
    if bounds is not None:
        lower, upper = np.asarray(bounds.lower), np.asarray(bounds.upper)
        outside = int(((solutions < lower) | (solutions > upper)).any(axis=1).sum())
        fix = "Widen the bounds, or leave these solutions out."
        expected = "solutions within the bounds"
        checks.expect(outside == 0, "start_from", expected, f"{outside} outside", fix)
    solutions = solutions.astype(np.float32)
    return solutions if emitter.form is None else np.asarray(emitter.form.canonical(solutions))


def _described(form: Any) -> str:
    if isinstance(form, Space):
        return f"a space of {', '.join(name for name, _ in form.variables)}"
    return "trees of arrays" if isinstance(form, Tree) else "plain vectors"
