"""Re-evaluation of the elites of a run with noise, and the corrected archive and scores."""

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from gloam import step
from gloam._tools import checks
from gloam._tools.compiler import float32
from gloam._tools.draws import REEVALUATION, evaluation_seeds, root_key
from gloam._tools.programs import compiled, partition
from gloam._tools.warn import warn
from gloam.archives import Archive, Elites
from gloam.archives.qd_score import ArchiveMetrics, archive_metrics, qd_score, reference_note
from gloam.archives.store import add, empty_store, filled_store
from gloam.evaluation import VIOLATION, valid_rows
from gloam.evaluators import Evaluator, ResultSpec, as_evaluator
from gloam.evaluators.results import (
    Results,
    as_seeded,
    check_some_valid,
    rows_with_seeds,
)
from gloam.formats import RunFolder
from gloam.records import Batch

if TYPE_CHECKING:
    import pandas as pd

# Random half-samples of the evaluations, from whose scores standard errors are computed to about
# 9%, and groups of evaluations of which each takes half.
_HALVES, _GROUPS = 64, 16
# Numbers, and elites, that are evaluated before their means are computed.
_NUMBERS, _ELITES = 2**24, 4096


@dataclasses.dataclass(frozen=True)
class Problem:
    """The evaluation of a run, which its result keeps in memory and never in files.

    Args:
        evaluate: The function that the user gave.
        is_traced: Whether it is evaluated in compiled programs.
        per_solution: As in `gloam.optimize`.
        evaluator: As in `gloam.optimize`.
    """

    evaluate: Callable
    is_traced: bool
    per_solution: bool = False
    evaluator: Evaluator | Executor | None = None


@dataclasses.dataclass(frozen=True, repr=False)
class Corrected:
    """Elites that were evaluated again, and the corrected QD score and coverage."""

    elites_by_seed: dict[int, Elites]
    """The corrected elites of every seed: each has its mean objective and mean measures, in the
    cell of these. Of several in one cell the best is kept. Fields are those of the search."""
    table: "pd.DataFrame"
    """A row for each seed: ``corrected_qd_score``, ``corrected_coverage`` and their standard errors
    (``_error``); ``qd_score`` and ``coverage`` as the search reported them; ``f_min``, the
    reference of all QD scores; ``num_elites`` that are left of ``evaluated_elites``;
    ``evaluations``, and how many of them ``failed``."""
    number: int
    """Number of evaluations of each elite."""

    @property
    def elites(self) -> Elites:
        """Corrected elites of the first seed."""
        return next(iter(self.elites_by_seed.values()))

    def __repr__(self) -> str:
        mean: Any = self.table.mean()
        seeds = len(self.table)
        return (
            f"Corrected({'1 seed' if seeds == 1 else f'{seeds} seeds'}, {self.number:,} "
            f"evaluations of each elite, corrected QD score {mean['corrected_qd_score']:.2f}"
            f"{reference_note(mean['f_min'])} (reported {mean['qd_score']:.2f}), corrected "
            f"coverage {mean['corrected_coverage']:.1%} (reported {mean['coverage']:.1%}))"
        )


def reevaluate(
    run_dir: str | os.PathLike | RunFolder,
    evaluate: Callable,
    number: int,
    *,
    per_solution: bool = False,
    evaluator: Evaluator | Executor | None = None,
    archive: Archive | None = None,
) -> Corrected:
    """Evaluate the elites of a run folder again; see `gloam.Result.reevaluated`.

    The corrected scores are written to ``corrected.npz`` of the run folder, for the explorer.

    Args:
        run_dir: The run folder.
        evaluate: The domain or the function of the run. A folder contains no code.
        number: Number of evaluations of each elite.
        per_solution, evaluator: As in `gloam.optimize`.
        archive: The archive of the run, if it is of your own class.
    """
    folder = run_dir if isinstance(run_dir, RunFolder) else RunFolder(run_dir)
    config = folder.must_hold_run().read_config()
    iteration = folder.read_checkpoint_iteration()
    elites_by_seed = {seed: folder.read_archive(seed, archive=archive) for seed in config.seeds}
    last = folder.read_metrics().iloc[-1]
    batch = int(last["evaluations"]) // int(last["iteration"])
    got = type(evaluate).__name__
    checks.expect(callable(evaluate), "evaluate", "a function of a batch of solutions", got)
    problem = Problem(evaluate, config.driver == "fused", per_solution, evaluator)
    found = corrected(elites_by_seed, problem, number, batch)
    write_scores(folder, found, iteration)
    return found


def write_scores(folder: RunFolder, found: Corrected, iteration: int) -> None:
    """Write corrected scores of elites of an iteration into a run folder, for the explorer."""
    scores = {str(name): column.to_numpy() for name, column in found.table.items()}
    try:
        folder.write_corrected(scores, number=found.number, iteration=iteration)
    except (OSError, ValueError) as error:
        warn(f"The corrected scores could not be written to '{folder.path}': {error}")


def corrected(
    elites_by_seed: Mapping[int, Elites], problem: Problem, number: int, batch: int
) -> Corrected:
    """Evaluate the elites of all seeds ``number`` times, ``batch`` solutions at a time."""
    import pandas as pd

    number = checks.count("number", number)
    rows, corrected_elites = [], {}
    # One reference for all scores, before and after, so that they can be compared.
    f_min = min(elites.f_min for elites in elites_by_seed.values())
    with _evaluation(problem, next(iter(elites_by_seed.values()))) as evaluate:
        for seed, elites in elites_by_seed.items():
            key = jax.random.fold_in(root_key(seed), REEVALUATION)
            key = jax.random.fold_in(key, number)
            means = _Means(elites, number)
            for chunk in means.chunks():
                means.put(chunk, _evaluated(evaluate, elites, chunk, number, batch, key))
            corrected_elites[seed], row = means.result(f_min)
            rows.append({"seed": seed} | row)
    return Corrected(corrected_elites, pd.DataFrame(rows), number)


_Evaluate = Callable[[Float[np.ndarray, "rows sol"], PRNGKeyArray], Results]


def _evaluate(
    domain_and_form: Any, solutions: Float[Array, "rows sol"], key: PRNGKeyArray
) -> step.Evaluation:
    domain, form = domain_and_form
    return step.evaluate_vectors(domain, form, solutions, key)


def _index_of(archive: Archive, measures: Float[Array, "rows meas"]) -> Int[Array, " rows"]:
    with float32():  # as in a search
        return archive.index_of(measures)


_compiled_evaluate, _compiled_index_of = compiled(_evaluate), compiled(_index_of)


@contextmanager
def _evaluation(problem: Problem, elites: Elites) -> Iterator[_Evaluate]:
    """Yield the evaluation of rows with a random key, with its workers started."""
    if problem.is_traced:
        arrays, static = partition((problem.evaluate, elites.form))
        yield lambda solutions, key: _compiled_evaluate(static, arrays, jnp.asarray(solutions), key)
        return
    function, has_seeds = as_seeded(
        problem.evaluate, elites.form, per_solution=problem.per_solution
    )
    evaluator, spec = as_evaluator(problem.evaluator), ResultSpec.of(elites.archive)
    evaluator.check(function)

    def evaluate(solutions: np.ndarray, key: PRNGKeyArray) -> Any:
        rows: np.ndarray = solutions
        if has_seeds:
            rows = rows_with_seeds(solutions, evaluation_seeds(key, len(solutions)))
        return evaluator.evaluate(function, rows, spec)[:3]

    with evaluator:
        yield evaluate


class _Evaluations(NamedTuple):
    """Evaluations of some elites."""

    objectives: Float[np.ndarray, "rows number"] | None
    measures: Float[np.ndarray, "rows number meas"]
    valid: Bool[np.ndarray, "rows number"]


def _evaluated(
    evaluate: _Evaluate, elites: Elites, chunk: slice, number: int, batch: int, key: PRNGKeyArray
) -> _Evaluations:
    """Evaluate some elites ``number`` times each."""
    solutions, archive = elites.solutions[chunk], elites.archive
    size, first = len(solutions) * number, chunk.start * number
    results = []
    for start in range(0, size, batch):
        # Always a whole batch, whose shape the domain knows and is compiled for.
        rows = np.minimum(np.arange(start, start + batch), size - 1) // number
        results.append(evaluate(solutions[rows], jax.random.fold_in(key, first + start)))

    def joined(arrays: list[Any]) -> np.ndarray | None:
        is_given = all(array is not None for array in arrays)
        return np.concatenate([np.asarray(a) for a in arrays])[:size] if is_given else None

    objectives, measures = (joined([result[i] for result in results]) for i in (0, 1))
    violations = joined([fields.get(VIOLATION) for _, _, fields in results])
    assert measures is not None
    valid = valid_rows(np.asarray(archive.accepts(measures)), objectives, violations)
    valid = valid.reshape(-1, number)
    measures = np.where(valid[..., None], measures.reshape(*valid.shape, -1), 0.0)
    if objectives is not None:
        objectives = np.where(valid, objectives.reshape(valid.shape), 0.0)
    return _Evaluations(objectives, measures, valid)


class _Means:
    """Means of the evaluations of the elites of one seed: of all, and of random half-samples."""

    def __init__(self, elites: Elites, number: int):
        self._elites, self._number = elites, number
        self._random = np.random.default_rng(0)
        num_cells, measure_dim = elites.archive.num_cells, elites.archive.measure_dim
        # The first row is of all evaluations, the others of halves. Each cell has a column, so that
        # programs are compiled once for all seeds; columns without an elite are not valid.
        size = (1 + _HALVES if number > 1 else 1, num_cells)
        self._objectives, self._cells = np.zeros(size, np.float32), np.zeros(size, np.int32)
        self._valid = np.zeros(size, bool)
        self._measures = np.zeros((num_cells, measure_dim), np.float32)
        most = min(_ELITES, num_cells)
        self._chunk = int(np.clip(_NUMBERS // (number * measure_dim), 1, most))
        self._num_valid = 0
        self._arrays, self._static = partition(elites.archive.for_programs(cells_given=True))

    def chunks(self) -> Iterator[slice]:
        """Yield the elites in parts that are evaluated together."""
        total = len(self._elites)
        for start in range(0, total, self._chunk):
            yield slice(start, min(start + self._chunk, total))

    def put(self, chunk: slice, evaluations: _Evaluations) -> None:
        """Compute means of the evaluations of some elites."""
        archive, number = self._elites.archive, self._number
        self._num_valid += int(evaluations.valid.sum())
        means, all_cells, valid = self._means(evaluations, evaluations.valid)
        self._measures[chunk] = means
        # Noise is often on objectives alone, and then elites stay where they are.
        has_noise = np.ptp(evaluations.measures, axis=1).any(axis=1)
        moves = has_noise | ~evaluations.valid.all(axis=1)
        groups = np.arange(number) % (min(number, _GROUPS) // 2 * 2 or 1)
        for row in range(len(self._objectives)):
            weights, cells, usable = evaluations.valid, all_cells, valid
            if row:
                ranks = self._random.random((len(means), groups.max() + 1)).argsort(axis=1)
                weights = evaluations.valid & (ranks < (groups.max() + 1) // 2)[:, groups]
                if moves.any():
                    _, cells, usable = self._means(evaluations, weights)
                    cells = np.where(moves, cells, all_cells)
            objectives = evaluations.objectives
            if objectives is None:
                measures = evaluations.measures.reshape(-1, archive.measure_dim)
                closeness = archive.closeness(
                    jnp.asarray(measures, jnp.float32), jnp.asarray(np.repeat(cells, number))
                )
                objectives = np.asarray(closeness).reshape(weights.shape)
            self._objectives[row, chunk] = _mean(objectives[..., None], weights)[:, 0]
            self._cells[row, chunk], self._valid[row, chunk] = cells, usable

    def _means(
        self, evaluations: _Evaluations, weights: Bool[np.ndarray, "rows number"]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return mean measures, their cells, and a mask of rows that have a mean."""
        archive = self._elites.archive
        means = _mean(evaluations.measures, weights).astype(np.float32)
        valid = np.asarray(archive.accepts(means)) & weights.any(axis=1)
        padding = np.ones((self._chunk - len(means), means.shape[1]), np.float32)
        cells = self._index_of(np.concatenate([means, padding]))[: len(means)]
        excess = archive.excess(jnp.asarray(means), jnp.asarray(cells))
        return means, cells, valid if excess is None else valid & (np.asarray(excess) <= 0)

    def _index_of(self, measures: Float[np.ndarray, "rows meas"]) -> Int[np.ndarray, " rows"]:
        cells = self._elites.archive.index_on_host(measures)
        if cells is None:
            cells = _compiled_index_of(self._static, self._arrays, measures)
        return np.asarray(cells)

    def result(self, f_min: float) -> tuple[Elites, dict[str, Any]]:
        """Return the corrected elites, and a row of the table with QD scores from ``f_min``."""
        elites, total = self._elites, len(self._elites)
        if total:
            check_some_valid(int(self._valid[0].sum()), total)
        cells = np.resize(elites.cells, len(self._measures))
        store = filled_store(
            elites.archive,
            np.asarray(elites.store.solutions)[cells],
            self._objectives[0],
            self._measures,
            self._cells[0],
            {name: np.asarray(values)[cells] for name, values in elites.store.fields.items()},
            self._valid[0],
        )
        again = Elites(elites.archive, store, reference=f_min, form=elites.form, is_corrected=True)
        is_given = elites.archive.f_min is not None
        scores = np.array(
            [
                _score(elites.archive.num_cells, is_given, *means, f_min)
                for means in zip(self._objectives, self._cells, self._valid, strict=True)
            ]
        )
        errors = np.full(2, np.nan)
        if len(scores) > 1:
            errors = np.sqrt(np.mean((scores[1:] - scores[0]) ** 2, axis=0))
        evaluations = total * self._number
        return again, {
            "corrected_qd_score": qd_score(again.objectives, f_min, is_given=is_given),
            "corrected_qd_score_error": errors[0],
            "corrected_coverage": again.coverage,
            "corrected_coverage_error": errors[1],
            "qd_score": qd_score(elites.objectives, f_min, is_given=is_given),
            "coverage": elites.coverage,
            "f_min": f_min,
            "num_elites": len(again),
            "evaluated_elites": total,
            "evaluations": evaluations,
            "failed": evaluations - self._num_valid,
        }


def _mean(
    values: Float[np.ndarray, "rows number n"], weights: Bool[np.ndarray, "rows number"]
) -> Float[np.ndarray, "rows n"]:
    """Return means of the evaluations with weight, in float64; zero if there are none."""
    total = np.maximum(weights.sum(axis=1), 1)[:, None]
    return np.einsum("rin,ri->rn", values, weights.astype(np.float64)) / total


def _score(
    num_cells: int,
    is_given: bool,
    objectives: Float[np.ndarray, " rows"],
    cells: Int[np.ndarray, " rows"],
    valid: Bool[np.ndarray, " rows"],
    f_min: float,
) -> tuple[float, float]:
    """Return QD score and coverage of rows that are added to an empty archive."""
    metrics = _metrics(objectives, cells, valid, f_min, num_cells, is_given)
    return float(metrics.qd_score), float(metrics.coverage)


@partial(jax.jit, static_argnums=(4, 5))
def _metrics(
    objectives: Float[Array, " rows"],
    cells: Int[Array, " rows"],
    valid: Bool[Array, " rows"],
    f_min: Float[Array, ""] | float,
    num_cells: int,
    is_given: bool,
) -> ArchiveMetrics:
    empty = jnp.zeros((objectives.shape[0], 0), jnp.float32)
    batch = Batch(
        solutions=empty,
        objectives=objectives,
        measures=empty,
        cells=cells,
        valid=valid,
        fields={},
    )
    store, _ = add(empty_store(num_cells, 0, 0, {}), batch)
    return archive_metrics(store, f_min, is_given=is_given)
