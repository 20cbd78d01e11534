"""Comparison of algorithms by their results over seeds: a table, tests and effect sizes."""

import dataclasses
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from gloam._tools import checks
from gloam._tools.readable import Bold, as_latex, as_markdown, p_value, significant, with_error
from gloam.archives import Elites
from gloam.archives.elites import scores_from_one_reference
from gloam.archives.qd_score import recounted
from gloam.formats import RunFolder
from gloam.runs import Result
from gloam.searches import Pool

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Run = Result | Pool | RunFolder | str | os.PathLike
"""A result, a pool, or a run folder."""
_NEEDED = {"evaluations", "qd_score", "f_min", "num_elites", "num_counted", "mean_objective"}
_METRICS = {"qd_score": "QD score", "coverage": "coverage", "best_objective": "best objective"}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Results of several algorithms on one problem."""

    scores: pd.DataFrame
    """A row for each algorithm and seed: QD score, coverage, best objective and evaluations."""
    metrics: dict[str, pd.DataFrame]
    """Metrics over the iterations by algorithm."""
    f_min: float
    """Reference of all QD scores."""

    def table(self) -> pd.DataFrame:
        """Return mean and standard error of each algorithm, best QD score first."""
        groups = self.scores.groupby("algorithm", sort=False)
        rows = {"seeds": groups.size(), "evaluations": groups["evaluations"].max()}
        for name in _METRICS:
            rows |= {name: groups[name].mean(), f"{name}_error": groups[name].sem()}
        return pd.DataFrame(rows).sort_values("qd_score", ascending=False).reset_index()

    def tests(self, metric: str = "qd_score") -> pd.DataFrame:
        """Return the Games-Howell test of each pair of algorithms, with Hedges' g.

        Args:
            metric: ``"qd_score"``, ``"coverage"`` or ``"best_objective"``.
        """
        checks.expect(metric in _METRICS, "metric", f"one of {list(_METRICS)}", repr(metric))
        by_name = self.scores.groupby("algorithm", sort=False)[metric]
        groups = {str(name): values.to_numpy(np.float64) for name, values in by_name}
        tests = games_howell(groups)
        rows = [
            {
                "algorithm": first,
                "other": second,
                "difference": tests[first, second].difference,
                "p": tests[first, second].p,
                "hedges_g": hedges_g(groups[first], groups[second]),
                "sign": tests[first, second].sign,
            }
            for first, second in itertools.combinations(groups, 2)
        ]
        return pd.DataFrame(rows)

    def figure(
        self,
        columns: Sequence[str] = ("qd_score", "coverage"),
        *,
        over: Literal["iteration", "evaluations"] | None = None,
        title: str | None = None,
    ) -> "Figure":
        """Draw metrics over iterations, or evaluations if batches differ in size.

        Args:
            columns, over: As in `gloam.plots.curves`.
            title: Heading of the figure; by default the reference of the QD score.
        """
        from gloam.plots import curves  # matplotlib takes a second to import

        title = f"QD score with f_min = {self.f_min:g}" if title is None else title
        return curves(self.metrics, columns=list(columns), over=over, title=title)

    def _readable(self) -> pd.DataFrame:
        """Return the table as text: mean ± standard error, the best in bold.

        A mean is the best if it is significantly above all others (Games-Howell, p < 0.05).
        """
        table = self.table()
        texts = pd.DataFrame({name: table[name] for name in ("algorithm", "seeds")})
        texts["evaluations"] = [f"{number:,}" for number in table["evaluations"]]
        for metric, heading in _METRICS.items():
            scale, unit = (100.0, "%") if metric == "coverage" else (1.0, "")
            best = self._best(metric)
            pairs = zip(table[metric], table[f"{metric}_error"], strict=True)
            shown = [with_error(scale * mean, scale * error, unit) for mean, error in pairs]
            cells = zip(table["algorithm"], shown, strict=True)
            marked = [Bold(text) if name == best else text for name, text in cells]
            texts[heading] = pd.Series(marked, dtype=object)
        return texts

    def to_latex(self) -> str:
        """Return the table as LaTeX, for the package booktabs: mean ± standard error.

        The best is in bold if it is significantly above all others (Games-Howell, p < 0.05).
        """
        return as_latex(self._readable())

    def to_markdown(self) -> str:
        """Return the table, and the tests of QD scores if there are at least two seeds each.

        The best is in bold if it is significantly above all others (Games-Howell, p < 0.05).
        """
        reference = (
            f"\nQD scores are counted from {self.f_min:g}. Elites below it count as 0 if their "
            "archive has no f_min.\n"
        )
        lines = [as_markdown(self._readable()), reference]
        if self._has_tests:
            tests = self.tests().astype(object)
            tests["difference"] = [significant(value, 4) for value in tests["difference"]]
            tests["p"] = [p_value(value) for value in tests["p"]]
            tests["hedges_g"] = [f"{value:.2f}" for value in tests["hedges_g"]]
            lines.append(f"\nGames-Howell tests of the QD score:\n\n{as_markdown(tests)}")
        return "".join(lines)

    @property
    def _has_tests(self) -> bool:
        """Whether there are two algorithms, and two seeds of each."""
        sizes = self.scores["algorithm"].value_counts().to_list()
        return len(sizes) > 1 and min(sizes) > 1

    def _best(self, metric: str) -> str | None:
        """Return the algorithm that is significantly better than all others, if there is one."""
        if not self._has_tests:
            return None
        tests = self.tests(metric)
        winners = [*tests.loc[tests["sign"] == ">", "algorithm"]]
        winners += [*tests.loc[tests["sign"] == "<", "other"]]
        names = set(self.scores["algorithm"])
        return next((name for name in names if winners.count(name) == len(names) - 1), None)

    def __repr__(self) -> str:
        return self.to_markdown()


@checks.names_arguments
def compare(runs: Mapping[str, Run | Sequence[Run]], *, f_min: float | None = None) -> Comparison:
    """Compare algorithms on one problem, by the results of several seeds.

    Compare at equal numbers of evaluations; the table shows them.

    Args:
        runs: Results, run folders or pools by name of the algorithm; a list of them counts as one.
            The curves of a pool have one point, because it keeps no earlier metrics.
        f_min: Reference of all QD scores, which are sums of ``objective - f_min``. By default the
            lowest of the runs' own (`gloam.archives.qd_score`).

    Returns:
        The comparison: ``table()``, ``tests()``, ``figure()``; printed, it is Markdown.

    Example:
        >>> import gloam
        >>> domain = gloam.domains.Arm(num_joints=3)
        >>> algorithms = {"a": gloam.MAPElites, "b": gloam.MAPElitesLine}
        >>> results = {
        ...     name: gloam.run(
        ...         domain,
        ...         build(domain.archive(), domain.x0, 0.2, batch_size=9),
        ...         iterations=3,
        ...         seeds=2,
        ...         progress=False,
        ...     )
        ...     for name, build in algorithms.items()
        ... }
        >>> compare(results).table()["seeds"].tolist()
        [2, 2]
    """
    fix = "Give results or run folders by name: compare({'DMS': result, 'other': 'runs/other'})."
    got = f"{type(runs).__name__} {checks.short(runs)}"
    checks.expect(isinstance(runs, Mapping), "runs", "a dict of runs", got, fix)
    checks.expect(len(runs) > 0, "runs", "at least one algorithm", "none", fix)
    runs_by_name = {name: list(_read_runs(name, given)) for name, given in runs.items()}
    _check_cells(runs_by_name)
    entries = [
        (name, table, elites)
        for name, tables_and_elites in runs_by_name.items()
        for table, by_seed in tables_and_elites
        for elites in by_seed
    ]
    archives = [elites for _, _, elites in entries]
    if f_min is None:
        reference, scores = scores_from_one_reference(archives)
    else:
        reference = checks.number("f_min", f_min)
        scores = [elites.qd_score_from(reference) for elites in archives]
    rows = [
        {
            "algorithm": name,
            "qd_score": score,
            "coverage": elites.coverage,
            "best_objective": elites.best_objective,
            "evaluations": max(table["evaluations"].tolist()),
        }
        for (name, table, elites), score in zip(entries, scores, strict=True)
    ]
    metrics = {}
    for name, tables_and_elites in runs_by_name.items():
        rows_of_runs = pd.concat([table for table, _ in tables_and_elites])
        metrics[name] = recounted(rows_of_runs, reference, is_given=f_min is not None)
    return Comparison(pd.DataFrame(rows), metrics, reference)


def _read_runs(name: Any, given: Any) -> Iterator[tuple[pd.DataFrame, list[Elites]]]:
    """Yield the metrics and the elites of all seeds of each run of an algorithm."""
    checks.instance("name of an algorithm in runs", name, str)
    argument, runs = f"runs['{name}']", given if isinstance(given, (list, tuple)) else [given]
    checks.expect(len(runs) > 0, argument, "at least one run", "none", "Leave it out.")
    for run in runs:
        if isinstance(run, Result):
            table, by_seed = run.metrics, list(run.elites_by_seed.values())
        elif isinstance(run, Pool):
            table, by_seed = pd.DataFrame([run.metrics()]), [run.elites()]
        else:
            is_folder = isinstance(run, (RunFolder, str, os.PathLike))
            checks.expect(is_folder, "runs", "results, pools or run folders", type(run).__name__)
            folder = (run if isinstance(run, RunFolder) else RunFolder(run)).must_hold_run()
            seeds = folder.read_config().seeds
            table, by_seed = folder.read_metrics(), [folder.read_archive(seed) for seed in seeds]
        fix = "Wait for the first logged iteration, or leave the run out."
        checks.expect(len(table) > 0, argument, "a run with rows of metrics", "none", fix)
        missing = sorted(_NEEDED - set(table.columns))
        fix = "The first line of its metrics.csv is damaged: restore the file from a copy."
        checks.expect(not missing, argument, "all columns", f"none of {missing}", fix)
        yield table, by_seed


def _check_cells(runs_by_name: Mapping[str, list[tuple[pd.DataFrame, list[Elites]]]]) -> None:
    """Check that all runs have the same cells; otherwise scores and coverages do not compare."""
    archives = [
        (name, by_seed[0].archive)  # the seeds of a run share their archive
        for name, tables_and_elites in runs_by_name.items()
        for _, by_seed in tables_and_elites
    ]
    first, archive = archives[0]
    for name, other in archives[1:]:
        got = " and ".join(
            f"'{label}' with {type(cells).__name__} of {cells.num_cells:,} cells"
            for label, cells in ((first, archive), (name, other))
        )
        fix = "Run all algorithms with the same archive: the same shape, bounds or centroids."
        expected = "archives with the same cells"
        checks.expect(archive.has_cells_of(other), "runs", expected, got, fix)


def hedges_g(one: np.ndarray, other: np.ndarray) -> float:
    """Return Hedges' g, the difference of means in pooled standard deviations.

    >>> round(hedges_g(np.array([1.0, 2.0, 3.0]), np.array([2.0, 3.0, 4.0])), 3)
    -0.8
    """
    for name, values in (("one", one), ("other", other)):
        array = np.asarray(values)
        got = f"{array.dtype} of shape {array.shape}"
        is_row = array.ndim == 1 and array.dtype.kind in "biuf"
        checks.expect(is_row, name, "a vector of numbers", got)
    freedom = len(one) + len(other) - 2
    squares = (len(one) - 1) * np.var(one, ddof=1) + (len(other) - 1) * np.var(other, ddof=1)
    difference = float(np.mean(one) - np.mean(other))
    pooled = float(np.sqrt(squares / freedom))
    correction = 1 - 3 / (4 * freedom - 1)
    return correction * difference / pooled if pooled > 0 else float(np.sign(difference)) * np.inf


class PairwiseTest(NamedTuple):
    """Games-Howell comparison of one group with another."""

    difference: float
    p: float

    @property
    def sign(self) -> str:
        """``>`` or ``<`` if the means differ significantly (p < 0.05), else ``-``."""
        if not self.p < 0.05:
            return "-"
        return ">" if self.difference > 0 else "<"


def games_howell(groups: Mapping[str, np.ndarray]) -> dict[tuple[str, str], PairwiseTest]:
    """Compare every ordered pair of groups by the Games-Howell test.

    If the values within both groups are all equal, the comparison is exact: p is 0 or 1.
    """
    from scipy import stats  # lazily: it takes a second to import

    values = checked_values(groups)
    constant = [group.var() == 0 for group in values]
    with np.errstate(divide="ignore", invalid="ignore"):  # pairs of constant groups
        tests = stats.tukey_hsd(*values, equal_var=False)
    result = {}
    for (i, first), (j, second) in itertools.permutations(enumerate(groups), 2):
        difference, p = float(tests.statistic[i, j]), float(np.clip(tests.pvalue[i, j], 0, 1))
        if constant[i] and constant[j]:
            p = float(difference == 0)
        result[first, second] = PairwiseTest(difference, p)
    return result


def checked_values(groups: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return the values of groups, of which a test needs two with two values each."""
    values = [np.asarray(group, dtype=np.float64) for group in groups.values()]
    sizes = {name: len(group) for name, group in groups.items()}
    is_enough = len(values) > 1 and min(sizes.values()) > 1
    checks.expect(is_enough, "groups", "at least two groups of at least two values", sizes)
    return values
