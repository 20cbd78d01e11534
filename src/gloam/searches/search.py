"""The ask-tell search: gloam proposes and learns in compiled programs, you evaluate in Python."""

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

from gloam import diagnostics, step
from gloam._tools import checks, drawing
from gloam._tools.compiler import keep_compiled_programs
from gloam._tools.draws import evaluation_seeds, root_key
from gloam._tools.programs import compiled, partition
from gloam._tools.progress import tell_of_compilation
from gloam.algorithms import Algorithm
from gloam.archives import Elites
from gloam.archives.elites import archive_figures
from gloam.archives.qd_score import reference_note
from gloam.archives.thumbnails import thumbnail
from gloam.emitters import Branching
from gloam.evaluation import succeeded_rows
from gloam.evaluators import ResultSpec
from gloam.evaluators.results import Results, check_some_valid
from gloam.formats.documents import content_of
from gloam.formats.saved_searches import SavedSearch, read_search, write_search
from gloam.records import Proposal, SearchState, StepInfo
from gloam.searches.gradients import VJP, check_vjp, gradients_by
from gloam.searches.metrics import (
    LowObjectiveWarning,
    metric_columns,
    metric_rows,
    snapshot_arrays,
)
from gloam.searches.starts import Start, read_start, started

_init = compiled(step.init)
_ask = compiled(step.ask)
_weights = compiled(step.gradient_weights)
_metrics = compiled(diagnostics.metrics)


def _tell_with(
    algorithm: Algorithm,
    state: SearchState,
    proposal: Proposal,
    evaluation: Any,
    cells: Any,
    gradients: Any,
) -> tuple[SearchState, StepInfo]:
    pullback = None if gradients is None else lambda weights: gradients
    return step.tell(algorithm, state, proposal, evaluation, cells, pullback)


_tell = compiled(_tell_with, donate_state=True)


class Search:
    """A search that you drive: ask for solutions, evaluate them, tell the results.

    Args:
        algorithm: For instance `gloam.DMS`.
        seed: Seed of the random numbers. The same seed gives the same search.
        x0: Starting solution, instead of the algorithm's ``x0``: a vector, or a dict of values
            of its space, or a tree.
        start_from: Solutions that were found before: `gloam.Elites`, a table as of
            `gloam.Elites.to_pandas`, or the path of a run folder. They enter the archive and train
            the discount, and emitters begin at elites.

    Example:
        >>> import gloam
        >>> archive = gloam.GridArchive(shape=(10, 10), lower=-1, upper=1)
        >>> search = gloam.Search(gloam.DMS(archive, x0=np.zeros(3), sigma0=0.3), seed=7)
        >>> for _ in range(2):
        ...     solutions = search.ask()
        ...     search.tell(1 - np.square(solutions).sum(axis=1), solutions[:, :2])
        >>> search.metrics()["iteration"], search.metrics()["evaluations"]
        (2, 1080)
    """

    @checks.names_arguments
    def __init__(
        self, algorithm: Algorithm, seed: int = 0, *, x0: Any = None, start_from: Any = None
    ):
        checks.instance("algorithm", algorithm, Algorithm, "Build one, for instance gloam.DMS.")
        is_branching = isinstance(algorithm.emitter, Branching)
        fix = "Use gloam.run with an evaluation that JAX can trace, or gloam.DMS."
        expected, got = "one that asks without gradients", algorithm.name
        checks.expect(not is_branching, "algorithm", expected, got, fix)
        keep_compiled_programs()
        self.algorithm = algorithm
        self.seed = checks.seed("seed", seed)
        self.result_spec = ResultSpec.of(algorithm.archive)
        """Specification of the results, for evaluators."""
        self.info: StepInfo | None = None
        """Diagnostics of the last `tell`."""
        # Attributes and methods of Equinox modules are slow to look up, and a batch may take 1 ms.
        self._archive, self._batch = algorithm.archive, algorithm.emitter.num_solutions
        self._accepts, self._index_on_host = self._archive.accepts, self._archive.index_on_host
        self._gradient_rows, self._form = algorithm.emitter.gradient_rows, algorithm.emitter.form
        self._proposal: Proposal | None = None
        self._warning = LowObjectiveWarning(algorithm)
        self._arrays, self._static = partition(algorithm.for_programs(cells_given=True))
        start = _start(algorithm, x0)
        self.state: SearchState = _init(self._static, self._arrays, root_key(self.seed), start)
        if start_from is not None:
            self.begin_with(read_start(start_from, algorithm))

    def begin_with(self, start: Start) -> None:
        """Begin with evaluated solutions, before the first `ask`."""
        self.state = started(self.algorithm, self.state, start)

    def ask(self) -> Any:
        """Return solutions to evaluate; the same ones until `tell` is called.

        They are ``(batch, sol)`` vectors; or, of a `gloam.Space`, a dict with an array
        ``(batch, ...)`` for each variable; or a tree whose arrays have a leading batch axis.
        """
        tell_of_compilation()
        vectors = self.ask_vectors()
        return vectors if self._form is None else self._form.values(vectors)

    def ask_vectors(self) -> np.ndarray:
        """Return the solutions of `ask` as ``(batch, sol)`` vectors."""
        proposal = self._proposal or _ask(self._static, self._arrays, self.state)
        self._proposal = proposal
        solutions = np.asarray(proposal.solutions)
        # By now the device has finished the last `tell`, so this does not wait.
        self._warning.check(self.state.low)
        return solutions

    def seeds(self) -> np.ndarray:
        """Return ``(batch,)`` seeds below 2**31 for evaluations with random numbers.

        They belong to the solutions of `ask`: the same ones until `tell` is called.
        """
        return evaluation_seeds(step.evaluation_key(self.state), self._batch)

    def tell(
        self,
        objectives: ArrayLike | None,
        measures: ArrayLike,
        *,
        cells: ArrayLike | None = None,
        vjp: VJP | None = None,
        **fields: ArrayLike,
    ) -> None:
        """Learn from the evaluation of the solutions that `ask` returned.

        Args:
            objectives: ``(batch,)`` numbers to maximize. A row with NaN or infinity here or in its
                measures counts as failed, and in a cosine archive also one whose measures are all
                zero. Failed rows are masked. ``None`` maximizes closeness to the center of the
                cell, see `gloam.archives.Archive.closeness`.
            measures: ``(batch, meas)`` measures, or ``(batch, *shape)`` if the archive's measures
                have a shape, such as images.
            cells: ``(batch,)`` archive cells, if you have found them yourself.
            vjp: The vector-Jacobian product of your evaluation, for emitters that need gradients
                (``gloam.DMS(..., gradients=True)``). ``vjp(solutions, objective_weights,
                measure_weights)`` returns the gradient of ``objective_weights * objectives +
                sum(measure_weights * measures)`` at each of ``n`` solutions, as ``(n, sol)``
                numbers. Weights are ``(n,)``, and ``(n, meas)`` or in the archive's shape; those of
                objectives are zero if there are none. It is called once, without solutions that
                failed. A gradient with NaN or infinity is masked and counted
                (``gradients_failed``). `gloam.interop.torch_evaluation` makes it from a PyTorch
                function.
            fields: Extra fields that the archive declares, ``(batch, ...)`` each. The field
                ``violation`` need not be declared: ``(batch,)`` numbers, or booleans, above 0 for
                infeasible solutions. They never become elites, and rank below all others by their
                violation. Their objectives and measures are not used, except that a distance
                beyond the archive's ``within`` adds to the violation if both are finite.

        Raises:
            EvaluationError: Every row failed. The search is unchanged, and `ask` returns the same
                solutions again.
            ValueError: Results or gradients have another shape, or ``vjp`` is missing. The search
                is unchanged, also after an error of ``vjp`` itself.
        """
        if self._proposal is None:
            raise ValueError(
                "tell() was called before ask(). Call ask(), evaluate the solutions that it "
                "returns, then call tell()."
            )
        if vjp is not None or len(self._gradient_rows):
            check_vjp(vjp, self.algorithm.emitter)
        results = self.result_spec.checked(objectives, measures, fields, self._batch)
        check_some_valid(int(self._succeeded(results).sum()), self._batch)
        known = self._index_on_host(results[1]) if cells is None else self._checked_cells(cells)
        gradients = None if vjp is None else self.gradients(vjp, results, known)
        self.learn(results, known, gradients)

    def gradients(self, vjp: VJP, results: Results, cells: np.ndarray | None) -> np.ndarray:
        """Return gradients for `learn`, from results that were checked before.

        Rows of failed evaluations are zero; ``vjp`` is not called for them.
        """
        assert self._proposal is not None
        rows, solutions = self._gradient_rows, np.asarray(self._proposal.solutions)
        valid = self._succeeded(results)[rows]
        gradients = np.zeros((len(rows), solutions.shape[1]), np.float32)
        if valid.any():
            weights = _weights(
                self._static, self._arrays, self.state, self._proposal, results, cells
            )
            of_objectives, of_measures = map(np.asarray, (weights.objectives, weights.measures))
            shaped = of_measures.reshape(len(rows), *self._archive.measure_shape)
            # Indexing by a mask copies, so the function may write into its arguments.
            gradients[valid] = gradients_by(
                vjp, solutions[rows[valid]], of_objectives[valid], shaped[valid]
            )
        return gradients

    def learn(
        self,
        results: Results,
        cells: np.ndarray | None = None,
        gradients: np.ndarray | None = None,
    ) -> None:
        """Learn from results that were checked before. All of them may have failed.

        Args:
            results: The results.
            cells: Their cells, if they are known.
            gradients: Those that `gradients` returned, if the emitter needs some.
        """
        if cells is None:
            cells = self._index_on_host(results[1])
        self.state, self.info = _tell(
            self._static, self._arrays, self.state, self._proposal, results, cells, gradients
        )
        self._proposal = None

    @property
    def iteration(self) -> int:
        """Number of finished iterations."""
        return int(self.state.iteration)

    def elites(self) -> Elites:
        """Return the elites found so far."""
        return elites_of(self.algorithm, self.state)

    def metrics(self) -> dict[str, Any]:
        """Return the metrics of the search; those of training are of the last `tell`."""
        return self.metrics_of(self.state)

    def metrics_of(self, state: SearchState) -> dict[str, Any]:
        """Return the metrics of a state that follows the last `tell`."""
        metrics, iteration = _metrics(self._static, self._arrays, state), int(state.iteration)
        if self.info is not None:
            columns = jax.device_get(metric_columns(self.info, metrics))
            columns = {name: np.asarray(value)[None] for name, value in columns.items()}
            counts = self._batch, len(self._gradient_rows)
            return metric_rows([self.seed], iteration, *counts, columns)[0]
        return {
            "seed": self.seed,
            "iteration": iteration,
            "evaluations": iteration * self._batch,
            "gradients": iteration * len(self._gradient_rows),
            "qd_score": float(metrics.archive.qd_score),
            "f_min": float(metrics.archive.f_min),
            "num_elites": int(metrics.archive.num_elites),
            "num_counted": int(metrics.archive.num_counted),
            "coverage": float(metrics.archive.coverage),
            "best_objective": float(metrics.archive.best_objective),
            "mean_objective": float(metrics.archive.mean_objective),
            "failed_total": int(metrics.failed),
            "infeasible_total": int(metrics.infeasible),
            "started_from": int(metrics.started),
        }

    def snapshot(self) -> dict[str, np.ndarray]:
        """Return the arrays for a figure of the search after the last `tell`."""
        assert self.info is not None
        return snapshot_arrays(self.state.store.objectives, self.state.discount, self.info.fit)

    def save(self, path: str | os.PathLike) -> None:
        """Write the search to one file, atomically.

        A proposal that was asked for but not told is not saved; the loaded search asks for the same
        one again.
        """
        saved = SavedSearch(self.algorithm, self.seed, self.state, {}, {})
        write_search(path, saved, kind="search")

    @classmethod
    def load(cls, path: str | os.PathLike, algorithm: Algorithm | None = None) -> "Search":
        """Read a search that `save` wrote. It continues as if it had never stopped.

        Args:
            path: The file.
            algorithm: Needed only if it has parts that are not gloam's, such as a network of your
                own class.

        Raises:
            DamagedFileError: The file is damaged, or `save` did not write it.
            ForeignError: The algorithm has parts of your own and was not given.
        """
        file = checks.existing_file("path", path)
        fix = "Give a file that Search.save wrote."
        saved = read_search(file, algorithm, kind="search", fix=fix)
        with content_of(file, fix):
            search = cls(saved.algorithm, saved.seed)
        search.state = saved.state
        return search

    def __repr__(self) -> str:
        elites = self.elites()
        done = f"seed {self.seed}, iteration {self.iteration:,}"
        reference = reference_note(elites.f_min)
        score = f"QD score {elites.qd_score:.2f}{reference}, coverage {elites.coverage:.1%}"
        return f"Search({self.algorithm.name}, {done}, {score})"

    def _repr_html_(self) -> str:
        elites = self.elites()
        figures = {
            "seed": f"{self.seed}",
            "iteration": f"{self.iteration:,}",
            "evaluations": f"{self.iteration * self._batch:,}",
        }
        pictures = [thumbnail(elites.archive, elites.store)] if len(elites) else []
        title = f"Search with {self.algorithm.name}"
        return drawing.card(title, figures | archive_figures(elites), pictures)

    def _succeeded(self, results: Results) -> np.ndarray:
        objectives, measures, fields = results
        return succeeded_rows(np.asarray(self._accepts(measures)), objectives, fields)

    def _checked_cells(self, cells: ArrayLike) -> np.ndarray:
        rows, number = checks.rows("cells", cells, (self._batch,)), self._archive.num_cells
        is_integer = rows.dtype.kind in "iu"
        inside = is_integer and bool(((rows >= 0) & (rows < number)).all())
        got = f"{rows.dtype} {rows.min()} to {rows.max()}"
        checks.expect(inside, "cells", f"indices from 0 to {number - 1}", got)
        return rows.astype(np.int32)


def elites_of(algorithm: Algorithm, state: SearchState) -> Elites:
    """Return the elites of a state."""
    reference, form = float(state.reference), algorithm.emitter.form
    return Elites(algorithm.archive, state.store, reference=reference, form=form)


def _start(algorithm: Algorithm, x0: Any) -> jax.Array:
    """Return the starting solution as a new array, because the state is donated."""
    default, form = algorithm.emitter.x0, algorithm.emitter.form
    if form is not None and x0 is not None and not hasattr(x0, "shape"):
        x0 = form.vector(x0)
    start = default if x0 is None else checks.finite_array("x0", x0, ndim=1)
    expected = f"{default.size} numbers, as the algorithm has"
    checks.expect(start.shape == default.shape, "x0", expected, start.size)
    return jnp.array(start, jnp.float32, copy=True)
