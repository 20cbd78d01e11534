"""The result of a run."""

import dataclasses
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gloam._tools import checks, drawing
from gloam._tools.readable import with_error
from gloam.archives import Elites
from gloam.archives.elites import scores_from_one_reference
from gloam.archives.qd_score import reference_note, tables_with_one_reference
from gloam.archives.thumbnails import thumbnail
from gloam.callbacks import CallbackFailure
from gloam.datasets import Dataset, Matches
from gloam.datasets.matches import Order
from gloam.evaluators import Evaluator
from gloam.formats import RunFolder
from gloam.runs.reevaluation import Corrected, Problem, corrected, write_scores

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FORMATS = {"QD score": "{:,.2f}", "coverage": "{:.1%}", "best objective": "{:.4g}"}


@dataclasses.dataclass(frozen=True, repr=False)
class Result:
    """Elites and metrics of a run."""

    elites_by_seed: dict[int, Elites]
    """Elites of every seed."""
    metrics: "pd.DataFrame"
    """A row for each seed and logged iteration, with the columns:

    * ``seed``, ``iteration``, ``seconds`` (`gloam.run` interpolates them within a second), and
      ``evaluations`` and ``gradients``: the number of evaluated solutions, and of those whose
      gradients were computed as well;
    * ``qd_score``, ``coverage``, ``num_elites``, ``best_objective`` and ``mean_objective`` of the
      archive; ``f_min``, the reference of the QD score (see `gloam.archives.qd_score`), and
      ``num_counted``, the number of elites in it;
    * ``loss``, ``epochs``, of the last training of the discount model;
    * ``empty_discount``, ``rank_correlation``, how well the discount agrees with the archive: its
      mean over empty cells, and its correlation with the objectives of elites;
    * ``restarts``, of all emitters since the start;
    * ``unique_cells``, number of different cells of the last batch;
    * ``failed`` in the last iteration, and ``failed_total`` since the start; ``infeasible`` and
      ``infeasible_total`` likewise, if the evaluation has constraints;
    * ``started_from``, number of solutions that the run was given by ``start_from``;
    * ``below_f_min``, ``outside_bounds``, solutions of the last batch with an objective below the
      archive's ``f_min`` (0 if it has none) or measures outside its bounds.

    A mixture of emitters, such as that of `gloam.DMS`, adds columns for each of its emitters. Their
    names begin with ``cma_es``, ``aimed``, ``aimed_moves``, ``moves`` or ``swaps``, and with
    gradients also with ``aimed_ascent``, ``ascent`` or ``refinement``. They end in ``_restarts``,
    ``_accepted`` (solutions that beat the elite of their cell) or ``_filled`` (solutions that
    filled an empty cell), since the start, or in ``_share`` (expected share of the next batch).
    ``aimed_reached`` counts targets that were filled while an instance aimed at them. With
    gradients, names that end in ``_gradients_failed`` (``gradients_failed`` for `gloam_lab.CMAMEGA`
    and `gloam_lab.CMAMAEGA`) count gradients that were not finite, and those that end in ``_step``
    or ``_pull`` are what `gloam.emitters.GradientAscent` has learned.
    """
    seeds: list[int]
    """The seeds, in the order in which they were given."""
    run_dir: Path | None
    """The run folder, or ``None``."""
    stopped: str | None = None
    """Reason of the callback that stopped the run before its last iteration."""
    callback_failures: tuple[CallbackFailure, ...] = ()
    """Errors that callbacks raised."""
    _dataset: Dataset | None = dataclasses.field(default=None, compare=False)
    _problem: Problem | None = dataclasses.field(default=None, compare=False)

    def reevaluated(
        self, number: int, *, evaluator: Evaluator | Executor | None = None
    ) -> Corrected:
        """Evaluate the elites again, for problems with noise.

        An archive keeps the highest objective that it has seen in a cell, so with noise the
        objectives of its elites, its QD score and its coverage are biased upwards. Here each elite
        gets the mean objective and the mean measures of ``number`` new evaluations, with random
        numbers that the search has not seen, and is added to an empty archive. The QD score and
        coverage of this archive are the corrected ones.

        Standard errors are root mean squares of the differences between the score and those of 64
        random halves of the evaluations. They shrink as ``1 / sqrt(number)``, and are NaN for one
        evaluation. The run folder, if there is one, gets the scores for the explorer.

        Args:
            number: Number of evaluations of each elite.
            evaluator: Where to evaluate, as in `gloam.optimize`; by default that of the run.

        Raises:
            ValueError: The result was sent to another process, and has no evaluation any more. Use
                `gloam.reevaluate` with a run folder.

        Example:
            >>> import gloam, jax
            >>> def evaluate(solutions, *, key):
            ...     noise = 0.1 * jax.random.normal(key, solutions.shape[:1])
            ...     return noise - (solutions**2).sum(axis=1), solutions[:, :2]
            >>> archive = gloam.GridArchive((8, 8), lower=-1, upper=1)
            >>> algorithm = gloam.MAPElites(archive, x0=[0.0] * 3, sigma0=0.3, batch_size=50)
            >>> result = gloam.run(evaluate, algorithm, iterations=20, progress=False)
            >>> table = result.reevaluated(20).table
            >>> bool(table["corrected_qd_score"][0] < table["qd_score"][0])
            True
        """
        fix = "Use gloam.reevaluate(run_dir, evaluate, number)."
        expected = "a result of this process, which knows its evaluation"
        checks.expect(self._problem is not None, "result", expected, "one without", fix)
        assert self._problem is not None
        problem = self._problem
        if evaluator is not None:
            problem = dataclasses.replace(problem, evaluator=evaluator)
        iteration = self._last("iteration")
        batch = self.evaluations_per_seed // iteration
        found = corrected(self.elites_by_seed, problem, number, batch)
        if self.run_dir is not None:
            write_scores(RunFolder(self.run_dir), found, iteration)
        return found

    def gallery(
        self,
        *,
        draw: Callable[..., Any] | None = None,
        by: Order = "explained",
        count: int = 60,
        title: str = "",
        ax: "Axes | None" = None,
    ) -> "Figure":
        """Draw the elites of the first seed as pictures, beside the items of a dataset.

        Elites without a dataset are drawn from the best objective to the worst, by ``draw``.

        Args:
            draw: Makes a picture of a solution, see `gloam.gallery.elite_pictures`.
            by: Order of the items of a dataset.
            count: Maximum number of elites or pairs.
            title: Heading of the figure.
            ax: Axes to draw into, scaled to fit. Default: a new figure.

        Example:
            >>> import gloam
            >>> archive = gloam.GridArchive((8, 8), lower=-1, upper=1)
            >>> algorithm = gloam.MAPElites(archive, x0=[0.0] * 9, sigma0=0.3, batch_size=20)
            >>> def evaluate(solutions):
            ...     return 1 - (solutions**2).sum(axis=1), solutions[:, :2]
            >>> result = gloam.run(evaluate, algorithm, iterations=5, progress=False)
            >>> def draw(solution, ax):
            ...     ax.plot(solution.cumsum())
            >>> figure = result.gallery(draw=draw, count=4)
            >>> len(figure.axes[0].images)
            4
        """
        from gloam.gallery import elite_gallery, elite_pictures, gallery

        elites, dataset = self.elites, self._items()
        domain = None if self._problem is None else self._problem.evaluate
        pictures = elite_pictures(elites, dataset, domain, draw=draw)
        options: Any = {"count": count, "title": title, "ax": ax}
        if dataset is None:
            return elite_gallery(elites, pictures, **options)
        return gallery(Matches(elites, dataset), pictures, by=by, **options)

    def _items(self) -> Dataset | None:
        """Return the dataset of the run; from its folder, if it was resumed without it."""
        folder = None if self.run_dir is None else RunFolder(self.run_dir)
        if self._dataset is None and folder and folder.read_config().dataset is not None:
            return folder.read_dataset()
        return self._dataset

    def __getstate__(self) -> dict[str, Any]:
        # Functions of the user's often cannot be sent to other processes.
        return self.__dict__ | {"_problem": None}

    @property
    def elites(self) -> Elites:
        """Elites of the first seed."""
        return self.elites_by_seed[self.seeds[0]]

    @property
    def evaluations_per_seed(self) -> int:
        """Number of evaluations of each seed up to the last logged iteration, failed ones too."""
        return self._last("evaluations")

    def __repr__(self) -> str:
        parts = [self._seeds, *(f"{value} {name}" for name, value in self._counts().items())]
        mean = {name: np.mean(values) for name, values in self._by_seed().items()}
        score = f"QD score {mean['QD score']:.2f}{reference_note(self._reference)}"
        parts.append(f"{score}, coverage {mean['coverage']:.1%}")
        return f"Result({', '.join(parts)})"

    def _repr_html_(self) -> str:
        figures = {"seeds": self._seeds} | self._counts()
        for name, values in self._by_seed().items():
            figures[name] = _FORMATS[name].format(np.mean(values))
            if len(values) > 1:
                scale, unit = (100.0, "%") if name == "coverage" else (1.0, "")
                mean, deviation = float(np.mean(values)), float(np.std(values, ddof=1))
                error = deviation / len(values) ** 0.5
                figures[name] = with_error(scale * mean, scale * error, unit)
        figures["QD score"] += reference_note(self._reference)
        if self.run_dir is not None:
            figures["folder"] = str(self.run_dir)
        pictures = [thumbnail(self.elites.archive, self.elites.store)] if len(self.elites) else []
        if "qd_score" in self.metrics and len(self.metrics):
            (metrics,), _ = tables_with_one_reference([self.metrics])
            means = metrics.pivot_table("qd_score", "iteration").to_numpy().ravel()
            pictures.append(drawing.sparkline(means, "QD score over the iterations"))
        return drawing.card("Result", figures, pictures)

    @property
    def _seeds(self) -> str:
        return f"seed {self.seeds[0]}" if len(self.seeds) == 1 else f"{len(self.seeds)} seeds"

    def _counts(self) -> dict[str, str]:
        """Return iterations and evaluations of each seed, if metrics were logged."""
        counts = {
            "iterations": self._last("iteration"),
            "evaluations per seed": self.evaluations_per_seed,
        }
        return {name: f"{count:,}" for name, count in counts.items() if count}

    def _last(self, column: str) -> int:
        """Return the largest value of a column of the metrics; 0 without metrics."""
        if column not in self.metrics or not len(self.metrics):
            return 0
        return int(self.metrics[column].to_numpy().max())

    @property
    def _reference(self) -> float:
        return min(elites.f_min for elites in self.elites_by_seed.values())

    def _by_seed(self) -> dict[str, list[float]]:
        of_seeds = [self.elites_by_seed[seed] for seed in self.seeds]
        values = {
            "QD score": scores_from_one_reference(of_seeds)[1],
            "coverage": [elites.coverage for elites in of_seeds],
        }
        if all(len(elites) for elites in of_seeds):
            values["best objective"] = [elites.best_objective for elites in of_seeds]
        return values
