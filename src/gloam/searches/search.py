"""What an evaluation may return, in the form that drivers have it inside.

The warning of objectives below the archive's f_min, which both drivers give once.

What both drivers log: a row of metrics, and the arrays of a snapshot.

How results and searches show themselves: a line of text, and a card in notebooks.

The ask-tell driver: gloam proposes and learns in compiled programs, you evaluate in Python.
"""

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

from gloam import checks
from gloam import drawing as cards
from gloam._version import __version__
from gloam.algorithms import Algorithm
from gloam.archives import Archive, Elites
from gloam.archives.archive import field_rows
from gloam.archives.elites import archive_figures, thumbnail
from gloam.draws import root_key
from gloam.evaluators.answers import AnswerForm
from gloam.evaluators.answers import evaluation_parts as evaluation_parts
from gloam.formats import DamagedFileError, ForeignError, objects
from gloam.formats.arrays import read_arrays, write_arrays
from gloam.formats.checkpoints import state_arrays, state_from
from gloam.programs.search_programs import search_programs
from gloam.programs.splitting import for_programs, shapes_of, split, surroundings
from gloam.records import Fit, Proposal, SearchState, StepInfo
from gloam.step import SearchMetrics

if TYPE_CHECKING:
    from gloam.runs.result import Result


def flat_rows(measures: Any) -> Any:
    """Measures ``(batch, *shape)`` as gloam has them inside: ``(batch, meas)``, rows of numbers."""
    return measures.reshape(measures.shape[0], -1)


def float32(array: np.ndarray) -> np.ndarray:
    """Numbers in single precision. What is too large becomes infinite, and its row has failed."""
    with np.errstate(all="ignore"):
        return array.astype(np.float32)


def valid_rows(archive: Archive, objectives: np.ndarray | None, points: np.ndarray) -> Any:
    """True for rows that did not fail.

    Args:
        archive: Says which measures it accepts.
        objectives: ``(batch,)`` objectives, or none.
        points: ``(batch, meas)`` measures.
    """
    valid = archive.accepts(points)
    return valid if objectives is None else valid & (np.abs(objectives) <= checks.LARGEST)


def warn_of_low_objectives(lowest: float, algorithm: Algorithm, *, stacklevel: int) -> None:
    """Warn that most objectives of a batch lie below ``f_min``, where that does harm.

    Args:
        lowest: The lowest objective seen.
        algorithm: A discount that estimates the range of objectives needs no warning.
        stacklevel: Of `warnings.warn`, counted from the caller.
    """
    if not algorithm.discount.starts_at_f_min:
        return
    f_min = algorithm.archive.f_min
    warnings.warn(
        f"objectives: expected values at or above the archive's f_min = {f_min:g}, got {lowest:g}, "
        "and at least half of a batch below f_min. A discount starts at f_min, so such solutions "
        "do not count as improvements, and they lower the QD score. Set f_min=... of the archive "
        f"at or below the lowest objective that you expect, here {lowest:g} or less.",
        stacklevel=stacklevel + 1,
    )


def metric_columns(report: StepInfo, found: SearchMetrics) -> dict[str, np.ndarray]:
    """Columns of the metrics table, brought from the device all at once."""
    archive, discount = found.archive, found.discount
    columns = {
        "qd_score": archive.qd_score,
        "coverage": archive.coverage,
        "best_objective": archive.best_objective,
        "loss": report.fit.loss,
        "epochs": report.fit.epochs,
        **report.emitter,
        "unique_cells": report.unique_cells,
        "failed": report.failed,
        "failed_total": found.failed,
        "below_f_min": report.below_f_min,
        "outside_bounds": report.outside_bounds,
        "empty_discount": discount.empty_discount,
        "rank_correlation": discount.rank_correlation,
    }
    return dict(zip(columns, jax.device_get(list(columns.values())), strict=True))


def metric_rows(
    seeds: list[int], iteration: int, batch: int, columns: dict[str, np.ndarray]
) -> list[dict[str, Any]]:
    """Rows of the metrics table, without the time; a column has a number for each seed."""
    lists = {name: values.tolist() for name, values in columns.items()}
    return [
        {"seed": seed, "iteration": iteration, "evaluations": iteration * batch}
        | {name: values[i] for name, values in lists.items()}
        for i, seed in enumerate(seeds)
    ]


def snapshot_arrays(objectives: Any, discount: Any, fit: Fit) -> dict[str, np.ndarray]:
    """Objectives of the cells, the discount's state, and what it was last trained on."""
    arrays = {
        "objectives": np.asarray(objectives),
        "points": np.asarray(fit.points),
        "targets": np.asarray(fit.targets),
        "real": np.asarray(fit.is_trained),
    }
    learned = state_arrays(discount)
    return arrays | {f"discount {place}": array for place, array in learned.items()}


def result_text(result: "Result") -> str:
    """A line on a result."""
    parts = [_seeds(result), *(f"{value} {name}" for name, value in _progress(result).items())]
    mean = {name: np.mean(values) for name, values in _by_seed(result).items()}
    parts.append(f"QD score {mean['QD score']:.2f}, coverage {mean['coverage']:.1%}")
    return f"Result({', '.join(parts)})"


def result_card(result: "Result") -> str:
    """HTML of a result: means over seeds with their standard errors, and the first seed's map."""
    figures = {"seeds": _seeds(result)} | _progress(result)
    formats = {"QD score": "{:,.2f}", "coverage": "{:.1%}", "best objective": "{:.4g}"}
    for name, values in _by_seed(result).items():
        shown = formats[name].format(np.mean(values))
        if len(values) > 1:
            error = np.std(values, ddof=1) / len(values) ** 0.5
            shown += f" ± {formats[name].format(error)}"
        figures[name] = shown
    if result.run_dir is not None:
        figures["folder"] = str(result.run_dir)
    pictures = [thumbnail(result.elites)] if len(result.elites) else []
    table = result.metrics
    if "qd_score" in table and len(table):
        means = table.pivot_table("qd_score", "iteration").to_numpy().ravel()
        pictures.append(cards.sparkline(means, "QD score over the iterations"))
    return cards.card("Result", figures, pictures)


def search_text(search: "Search") -> str:
    """A line on a search."""
    name, elites = type(search.algorithm).__name__, search.elites
    done = f"seed {search.seed}, iteration {search.iteration:,}"
    score = f"QD score {elites.qd_score:.2f}, coverage {elites.coverage:.1%}"
    return f"Search({name}, {done}, {score})"


def search_card(search: "Search") -> str:
    """HTML of a search."""
    elites, batch = search.elites, search.algorithm.emitter.num_solutions
    figures = {
        "seed": f"{search.seed}",
        "iteration": f"{search.iteration:,}",
        "evaluations": f"{search.iteration * batch:,}",
    }
    pictures = [thumbnail(elites)] if len(elites) else []
    title = f"Search with {type(search.algorithm).__name__}"
    return cards.card(title, figures | archive_figures(elites), pictures)


def _seeds(result: "Result") -> str:
    seeds = result.seeds
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds"


def _progress(result: "Result") -> dict[str, str]:
    """Iterations and evaluations of each seed, where metrics were logged."""
    table = result.metrics
    return {
        name: f"{int(table[column].to_numpy().max()):,}"
        for name, column in (("iterations", "iteration"), ("evaluations", "evaluations"))
        if column in table and len(table)
    }


def _by_seed(result: "Result") -> dict[str, list[float]]:
    found = [result.elites_by_seed[seed] for seed in result.seeds]
    values = {
        "QD score": [elites.qd_score for elites in found],
        "coverage": [elites.coverage for elites in found],
    }
    if all(len(elites) for elites in found):
        values["best objective"] = [elites.best_objective for elites in found]
    return values


class Checked(NamedTuple):
    """An evaluation that was checked: `Search.learn` takes it without an error."""

    evaluation: tuple[np.ndarray | None, np.ndarray, dict[str, np.ndarray]]
    cells: np.ndarray | None
    valid: Any


class Search:
    """A search that you drive: ask for solutions, evaluate them your way, tell the results.

    Args:
        algorithm: For instance `gloam.DMS`.
        seed: The same seed gives the same search.
        x0: Where the search starts, instead of at the algorithm's own ``x0``.

    Example:
        >>> import gloam
        >>> archive = gloam.GridArchive(shape=(10, 10), lower=-1, upper=1)
        >>> search = gloam.Search(gloam.DMS(archive, x0=np.zeros(3), sigma0=0.3), seed=7)
        >>> for _ in range(2):
        ...     solutions = search.ask()
        ...     search.tell(1 - np.square(solutions).sum(axis=1), solutions[:, :2])
        >>> search.metrics["iteration"], search.metrics["evaluations"]
        (2, 1080)
    """

    def __init__(self, algorithm: Algorithm, seed: int = 0, *, x0: ArrayLike | None = None):
        checks.instance("algorithm", algorithm, Algorithm, "Build one, for instance gloam.DMS.")
        self.algorithm = algorithm
        self.seed = checks.seed("seed", seed)
        arrays, rest = split(for_programs(algorithm, cells_given=True))
        programs = search_programs(rest, shapes_of(arrays), surroundings())
        self._init, self._ask, self._tell, self._metrics = programs
        self._arrays = arrays
        # Looked up once: attributes of Equinox modules are slow to read, and a batch may take 1 ms.
        self._archive, self._batch = algorithm.archive, algorithm.emitter.num_solutions
        self._fields = dict(self._archive.fields)
        self._shapes = checks.measure_shapes(self._batch, self._archive.measure_shape)
        self._proposal: Proposal | None = None
        self.report: StepInfo | None = None  # what the last `tell` said of itself
        self._has_warned = False
        self._has_unseen_objectives = False
        self.state: SearchState = self._init(arrays, root_key(self.seed), _start(algorithm, x0))

    def ask(self) -> np.ndarray:
        """``(batch, sol)`` solutions to evaluate. Asking again before telling gives the same."""
        proposal = self._proposal or self._ask(self._arrays, self.state)
        self._proposal = proposal
        solutions = np.asarray(proposal.solutions)
        # Objectives that `tell` left to the device are known by now, and nothing waits for them.
        if self._has_unseen_objectives and int(self.state.low.batches) > 0:
            self._warn_of_low_objectives(float(self.state.low.lowest))
        self._has_unseen_objectives = False
        return solutions

    def tell(
        self,
        objectives: ArrayLike | None,
        measures: ArrayLike,
        *,
        cells: ArrayLike | None = None,
        **fields: ArrayLike,
    ) -> None:
        """Learn from the evaluation of the solutions asked last.

        Args:
            objectives: ``(batch,)`` numbers to maximise. A row with NaN or infinity here or in its
                measures counts as failed, in a cosine archive also one whose measures are all
                zero: it is left out, and the others count. ``None`` maximises closeness to
                the centre of the cell, see `gloam.archives.Archive.closeness`.
            measures: ``(batch, meas)`` measures, or ``(batch, *shape)`` where the archive's have a
                shape, such as images.
            cells: ``(batch,)`` archive cells, when you have found them yourself.
            fields: The extra fields that the archive declares, ``(batch, ...)`` each.

        Raises:
            EvaluationError: Every row failed. The search is as it was: ask again gives the same.
        """
        self.learn(self.checked(objectives, measures, cells, fields))

    def checked(
        self,
        objectives: ArrayLike | None,
        measures: ArrayLike,
        cells: ArrayLike | None,
        fields: dict[str, Any],
        *,
        may_all_fail: bool = False,
    ) -> Checked:
        """The arguments of `tell`, checked. The search stays as it is.

        ``may_all_fail`` accepts a batch without a valid row: its emitters restart.
        """
        if self._proposal is None:
            raise ValueError(
                "tell() was called before ask(). Call ask(), evaluate the solutions that it "
                "returns, then call tell()."
            )
        batch, values = self._batch, None
        if objectives is not None:
            values = float32(checks.rows("objectives", objectives, (batch,)))
        points = flat_rows(float32(checks.rows("measures", measures, *self._shapes)))
        checks.same_names("fields", self._fields, fields)
        extras = {
            name: field_rows(name, fields[name], batch, spec) for name, spec in self._fields.items()
        }
        if cells is not None:
            cells = checks.rows("cells", cells, (batch,))
            whole = cells.dtype.kind in "iu"
            inside = whole and bool(((cells >= 0) & (cells < self._archive.num_cells)).all())
            checks.expect(
                inside,
                "cells",
                f"indices from 0 to {self._archive.num_cells - 1}",
                f"{cells.dtype} {cells.min()} to {cells.max()}",
            )
            cells = cells.astype(np.int32)
        valid = valid_rows(self._archive, values, points)
        if not may_all_fail:
            checks.some_valid(int(valid.sum()), batch)
        if cells is None:
            cells = self._archive.index_on_host(points)
        return Checked((values, points, extras), cells, valid)

    def learn(self, told: Checked) -> None:
        """The part of `tell` that changes the search."""
        self.state, self.report = self._tell(
            self._arrays, self.state, self._proposal, told.evaluation, told.cells
        )
        self._proposal = None
        values, valid = told.evaluation[0], told.valid
        self._has_unseen_objectives = values is None
        if values is not None and not self._has_warned:
            below = values[valid] < self._archive.f_min
            if below.any() and 2 * below.sum() >= len(below):
                self._warn_of_low_objectives(float(values[valid].min()), stacklevel=4)

    def _warn_of_low_objectives(self, lowest: float, *, stacklevel: int = 3) -> None:
        if not self._has_warned:
            self._has_warned = True
            warn_of_low_objectives(lowest, self.algorithm, stacklevel=stacklevel)

    def __repr__(self) -> str:
        return search_text(self)

    def _repr_html_(self) -> str:
        return search_card(self)

    @property
    def iteration(self) -> int:
        """Iterations finished."""
        return int(self.state.iteration)

    @property
    def answer_form(self) -> AnswerForm:
        """The form of answers that evaluators check: shapes of measures and fields."""
        return AnswerForm.of(self._archive)

    @property
    def elites(self) -> Elites:
        """The elites found so far."""
        return Elites(self.algorithm.archive, self.state.store)

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics of the search as it is now; those of training are of the last `tell`."""
        return self.metrics_of(self.state)

    def metrics_of(self, state: SearchState) -> dict[str, Any]:
        """The metrics of a state that has come from the state of the last `tell`."""
        found, iteration = self._metrics(self._arrays, state), int(state.iteration)
        batch, archive = self.algorithm.emitter.num_solutions, found.archive
        if self.report is not None:
            columns = metric_columns(self.report, found)
            columns = {name: np.asarray(value)[None] for name, value in columns.items()}
            return metric_rows([self.seed], iteration, batch, columns)[0]
        return {
            "seed": self.seed,
            "iteration": iteration,
            "evaluations": iteration * batch,
            "qd_score": float(archive.qd_score),
            "coverage": float(archive.coverage),
            "best_objective": float(archive.best_objective),
            "failed_total": int(found.failed),
        }

    def snapshot(self) -> dict[str, np.ndarray]:
        """Arrays for a picture of the search after the last `tell`."""
        assert self.report is not None
        return snapshot_arrays(self.state.store.objectives, self.state.discount, self.report.fit)

    def save(self, path: str | os.PathLike) -> None:
        """Write the search to one file, atomically.

        A proposal that was asked but not told is not saved: the loaded search asks for it again.
        """
        arrays: dict[str, np.ndarray] = {}
        content = {
            "gloam": __version__,
            "seed": self.seed,
            "algorithm": objects.encode(self.algorithm, arrays),
        }
        parts = {f"array {name}": array for name, array in arrays.items()}
        parts |= {f"state {name}": array for name, array in state_arrays(self.state).items()}
        write_arrays(Path(path), parts, kind="search", about=content)

    @classmethod
    def load(cls, path: str | os.PathLike, algorithm: Algorithm | None = None) -> "Search":
        """Read a search that `save` wrote; it goes on as if it had never stopped.

        Args:
            path: The file.
            algorithm: Needed only when it has parts that gloam does not know, such as a network of
                your own class.

        Raises:
            DamagedFileError: The file is damaged, or `save` did not write it.
            ForeignError: The algorithm has parts of your own and was not given.
        """
        file = checks.existing_file("path", path)
        fix = "Give a file that Search.save wrote."
        arrays, content = read_arrays(file, kind="search", fix=fix)
        named = {name.partition(" ")[2]: array for name, array in arrays.items() if name[0] == "a"}
        state = {name.partition(" ")[2]: array for name, array in arrays.items() if name[0] == "s"}
        try:
            seed = checks.integer("seed", content.get("seed"), minimum=0)
            if algorithm is None:
                algorithm = objects.decode(content.get("algorithm"), named)
            else:
                mine = objects.encode(algorithm, {})
                differ = objects.differences(content.get("algorithm"), mine, "algorithm")
                if differ:
                    raise ValueError(f"it was saved with another algorithm: {differ[0]}")
            if not isinstance(algorithm, Algorithm):
                raise ValueError("it holds no algorithm")
            search = cls(algorithm, seed)
            search.state = state_from(search.state, state)
        except ForeignError:
            raise
        except (TypeError, ValueError, OverflowError) as error:
            raise DamagedFileError(file, str(error).rstrip("."), fix) from None
        return search


def _start(algorithm: Algorithm, x0: ArrayLike | None) -> jax.Array:
    """An array of its own: the state that holds it is donated to the next."""
    own = algorithm.emitter.x0
    start = own if x0 is None else checks.finite_array("x0", x0, ndim=1)
    checks.expect(
        start.shape == own.shape, "x0", f"{own.size} numbers, as the algorithm has", f"{start.size}"
    )
    return jnp.array(start, jnp.float32, copy=True)
