"""Failed evaluations: the log of a run, and the limit at which it stops."""

import dataclasses
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gloam._tools import checks
from gloam._tools.warn import warn
from gloam.archives import Archive
from gloam.errors import DamagedFileError, EvaluationError
from gloam.evaluation import VIOLATION, succeeded_rows
from gloam.evaluators import Evaluated, Failure
from gloam.formats import RunFolder
from gloam.formats.tables import MAX_FAILURES

if TYPE_CHECKING:
    import pandas as pd

_BYTES_KEPT = 64 << 20
_ITERATIONS = 3


@dataclasses.dataclass
class Outcome:
    """Number of evaluations and failures of one seed in one iteration."""

    seed: int
    num_evaluated: int = 0
    failures: list[Failure] = dataclasses.field(default_factory=list)

    @property
    def all_failed(self) -> bool:
        """True if there were evaluations but no result."""
        return 0 < self.num_evaluated == len(self.failures)

    @property
    def kinds(self) -> set[str]:
        """Kinds of the failures."""
        return {failure.kind for failure in self.failures}


def all_failures(evaluated: Evaluated, archive: Archive) -> list[Failure]:
    """Return the failures of a batch: those of the evaluator, and rows that are not finite."""
    objectives, measures, fields, failures = evaluated
    accepted = np.asarray(archive.accepts(measures))
    by_row = {failure.row: failure for failure in failures}
    for row in np.flatnonzero(~succeeded_rows(accepted, objectives, fields)).tolist():
        if row not in by_row:
            by_row[row] = Failure(row, "not finite", _not_finite(evaluated, row))
    return [by_row[row] for row in sorted(by_row)]


def _not_finite(evaluated: Evaluated, row: int) -> str:
    objective = None if evaluated.objectives is None else float(evaluated.objectives[row])
    if objective is not None and not abs(objective) <= checks.LARGEST:
        return f"expected a finite objective, got {objective}"
    violations = evaluated.fields.get(VIOLATION)
    if violations is not None and np.isnan(violations[row]):
        return "expected a violation that is a number, got nan"
    wrong = int(np.sum(~np.isfinite(evaluated.measures[row])))
    if wrong:
        return f"expected finite measures, got {wrong} numbers that are NaN or infinite"
    return "expected measures with a direction, got a vector of (almost) zero length"


def refuse_first_batches(outcomes: Sequence[Outcome]) -> None:
    """Raise an error if all results of first batches have the wrong form, or all rows raised.

    That is a mistake in the function or in the archive, and not in some solutions.
    """
    for outcome in outcomes:
        if outcome.all_failed and outcome.kinds == {"wrong form"}:
            first = outcome.failures[0]
            raise ValueError(first.error.removeprefix("ValueError: ")) from first.exception
    if all(outcome.all_failed and outcome.kinds == {"exception"} for outcome in outcomes):
        first = outcomes[0].failures[0]
        error = EvaluationError(
            f"The evaluation raised an exception for all {len(outcomes[0].failures)} solutions of "
            f"the first batch. The first was {first.error.rstrip('.')}. Correct the function, and "
            "check it on x0."
        )
        if first.exception is None:  # it was raised in another process
            error.add_note(first.traceback)
        raise error from first.exception


def warn_of_failed_batch(
    batch: int, seed: int, iteration: int, last: Failure | None = None
) -> None:
    """Warn that no solution of a batch could be evaluated; ``last`` is the last failure."""
    reason = "" if last is None else f" The last failure was {last.kind}: {last.error.rstrip('.')}."
    warn(
        f"evaluation: expected at least one finite result in each batch, got none among the "
        f"{batch} solutions of seed {seed} in iteration {iteration}.{reason} Its emitters restart "
        "and it continues; the metrics count its failed rows."
    )


class FailureLimit:
    """Warns of batches that fail entirely, and stops a run in which too many evaluations fail.

    Args:
        max_rate: Largest share of failures in three consecutive iterations. With 1, a run stops
            only if all evaluations fail.
    """

    def __init__(self, max_rate: float):
        checks.number("max_failure_rate", max_rate)
        checks.expect(0 <= max_rate <= 1, "max_failure_rate", "a share from 0 to 1", max_rate)
        self._max_rate = max_rate
        self._last: deque[tuple[int, int]] = deque(maxlen=_ITERATIONS)
        self._warned: set[int] = set()  # each seed is named once

    def note(self, outcomes: Iterable[Outcome], iteration: int) -> None:
        """Count the evaluations of all seeds in one iteration.

        Raises:
            EvaluationError: The last three iterations had too many failures.
        """
        outcomes = list(outcomes)
        failures = [failure for outcome in outcomes for failure in outcome.failures]
        self._last.append((len(failures), sum(outcome.num_evaluated for outcome in outcomes)))
        failed, total = map(sum, zip(*self._last, strict=True))
        is_too_many = failed == total or failed > self._max_rate * total
        if len(self._last) == _ITERATIONS and failures and is_too_many:
            self._last.clear()  # a resumed run gets three iterations again
            what = "All" if failed == total else f"{failed} of {total}"
            limit = "" if self._max_rate == 1 else f" (at most {self._max_rate:.0%} are allowed)"
            last = failures[-1]  # the command line shows its traceback
            raise EvaluationError(
                f"{what} evaluations failed in {_ITERATIONS} consecutive iterations, up to "
                f"iteration {iteration}{limit}. The last failure was {last.kind}: "
                f"{last.error.rstrip('.')}. "
                "Check the evaluation function on x0, and that x0 and sigma0 keep solutions in its "
                "domain. With a run_dir, failures.parquet has the failures with their tracebacks."
            ) from last.exception
        for outcome in outcomes:
            if outcome.all_failed and outcome.seed not in self._warned:
                self._warned.add(outcome.seed)
                warn_of_failed_batch(
                    outcome.num_evaluated,
                    outcome.seed,
                    iteration,
                    outcome.failures[-1],
                )


class FailureLog:
    """The first failures of a run, at most 10,000 or 64 MB. The metrics count all of them."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._bytes = 0
        self._is_changed = False  # since the last write

    def add(self, seed: int, iteration: int, solution: np.ndarray, failure: Failure) -> None:
        """Add a failure."""
        solution = np.array(solution, np.float32)
        size = solution.nbytes + len(failure.error) + len(failure.traceback)
        if len(self._rows) >= MAX_FAILURES or self._bytes + size > _BYTES_KEPT:
            return
        self._bytes += size
        self._is_changed = True
        self._rows.append(
            {
                "seed": seed,
                "iteration": iteration,
                "row": failure.row,
                "kind": failure.kind,
                "error": failure.error,
                "traceback": failure.traceback,
                "solution": solution,
            }
        )

    def write(self, folder: RunFolder) -> None:
        """Write the failures to a run folder, if there are new ones."""
        if self._is_changed:
            folder.write_failures(self.table())
            self._is_changed = False

    def read(self, folder: RunFolder, batch: int, evaluations: Mapping[int, int]) -> None:
        """Read the failures of a run folder up to its checkpoint; later ones are evaluated again.

        Args:
            folder: The run folder.
            batch: Number of evaluations of a seed in an iteration.
            evaluations: Number of evaluations of each seed up to the checkpoint.
        """
        try:
            table = folder.read_failures()
        except DamagedFileError as error:
            warn(f"{error} The run continues with a new one.")
            return
        self._rows = [
            row
            for row in table.to_dict("records")
            if (row["iteration"] - 1) * batch + row["row"] < evaluations.get(row["seed"], 0)
        ]
        self._bytes = sum(
            row["solution"].nbytes + len(row["error"]) + len(row["traceback"]) for row in self._rows
        )
        self._is_changed = len(self._rows) < len(table)

    def failures_of(self, seed: int, iteration: int) -> list[Failure]:
        """Return the recorded failures of a seed in an iteration."""
        names = ("row", "kind", "error", "traceback")
        return [
            Failure(*(row[name] for name in names))
            for row in self._rows
            if (row["seed"], row["iteration"]) == (seed, iteration)
        ]

    def table(self) -> "pd.DataFrame":
        """Return the failures as a table."""
        import pandas as pd

        return pd.DataFrame(self._rows)
