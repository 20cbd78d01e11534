"""Evaluations that fail: what is kept of them, and when there are too many."""

import warnings
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gloam import checks
from gloam.drivers.search import Checked
from gloam.evaluators import Evaluated, Failure

if TYPE_CHECKING:
    import pandas as pd

_ROWS_KEPT = 10_000
_BYTES_KEPT = 64 << 20
_ITERATIONS = 3


class EvaluatedBatch(NamedTuple):
    """The batch of one seed: evaluated and checked."""

    solutions: np.ndarray
    checked: Checked
    failures: list[Failure]


def all_failures(answer: Evaluated, valid: np.ndarray) -> list[Failure]:
    """The failures of a batch: those of the evaluator, and rows that are not finite."""
    found = {failure.row: failure for failure in answer.failures}
    for row in np.flatnonzero(~np.asarray(valid)).tolist():
        if row not in found:
            found[row] = Failure(row, "not finite", _not_finite(answer, row))
    return [found[row] for row in sorted(found)]


def _not_finite(answer: Evaluated, row: int) -> str:
    objective = None if answer.objectives is None else float(answer.objectives[row])
    if objective is not None and not abs(objective) <= checks.LARGEST:
        return f"expected a finite objective, got {objective}"
    wrong = int(np.sum(~np.isfinite(answer.measures[row])))
    if wrong:
        return f"expected finite measures, got {wrong} numbers that are NaN or infinite"
    return "expected measures that have a direction, got zeros or numbers near to it"


def refuse_wrong_form(batches: Sequence[EvaluatedBatch]) -> None:
    """Refuse a function whose answers to the first batches all have a form that cannot be used.

    That is a mistake in the function, or in the archive, and not in some solutions.
    """
    for batch in batches:
        failures = batch.failures
        kinds = {failure.kind for failure in failures}
        if len(failures) == len(batch.solutions) and kinds == {"wrong form"}:
            error = failures[0].error.removeprefix("ValueError: ")
            raise ValueError(error) from failures[0].exception


def warn_of_failed_batch(batch: int, seed: int, iteration: int, *, stacklevel: int) -> None:
    """Warn that no solution of a batch could be evaluated."""
    warnings.warn(
        f"evaluation: expected at least one finite result in each batch, got none among the "
        f"{batch} solutions of seed {seed} in iteration {iteration}. Its emitters restart and it "
        "goes on; the metrics count its failed rows.",
        stacklevel=stacklevel + 1,
    )


class FailureLimit:
    """Stops a run in which too many evaluations fail.

    Args:
        max_rate: Largest share of failures among the evaluations of three iterations in a row. One
            allows all but iterations that fail entirely.
    """

    def __init__(self, max_rate: float):
        checks.number("max_failure_rate", max_rate)
        checks.expect(0 <= max_rate <= 1, "max_failure_rate", "a share from 0 to 1", max_rate)
        self._max_rate = max_rate
        self._last: deque[tuple[int, int]] = deque(maxlen=_ITERATIONS)

    def note(self, batches: Sequence[EvaluatedBatch], iteration: int) -> None:
        """Count the batches of all seeds in one iteration.

        Raises:
            EvaluationError: The last three iterations had too many failures.
        """
        failures = [failure for batch in batches for failure in batch.failures]
        self._last.append((len(failures), sum(len(batch.solutions) for batch in batches)))
        failed, total = map(sum, zip(*self._last, strict=True))
        if len(self._last) < _ITERATIONS or not failures:
            return
        if failed == total or failed > self._max_rate * total:
            self._last.clear()  # a resumed run has three iterations again
            allowed = "not all" if self._max_rate == 1 else f"at most {self._max_rate:.0%}"
            # The last one is known to the command line, which shows its traceback.
            last = failures[-1]
            raise checks.EvaluationError(
                f"evaluation: expected {allowed} of the evaluations of {_ITERATIONS} iterations to "
                f"fail, got {failed} of {total} up to iteration {iteration}. The last failed by "
                f"{last.kind}: {last.error.rstrip('.')}. Check the evaluation function on x0, and "
                "that x0 and sigma0 keep solutions in its domain; failures.parquet in the run "
                "folder has the failures with their tracebacks."
            ) from last.exception


class FailureLog:
    """The first failures of a run, at most 10,000 and 64 MB; the metrics count all of them."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._bytes = 0
        self.is_changed = False
        """Whether there is something that was not written yet."""

    def add(
        self, seed: int, iteration: int, solutions: np.ndarray, failures: Sequence[Failure]
    ) -> None:
        """Keep the failures of one batch."""
        for failure in failures:
            solution = np.array(solutions[failure.row], np.float32)
            size = solution.nbytes + len(failure.error) + len(failure.traceback)
            if len(self._rows) >= _ROWS_KEPT or self._bytes + size > _BYTES_KEPT:
                return
            self._bytes += size
            self.is_changed = True
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

    def restore(self, table: "pd.DataFrame", iteration: int) -> None:
        """Go on with a table that was written, up to ``iteration``."""
        rows = [row for row in table.to_dict("records") if row["iteration"] <= iteration]
        self._rows = rows  # pyright: ignore[reportAttributeAccessIssue]
        self._bytes = sum(
            row["solution"].nbytes + len(row["error"]) + len(row["traceback"]) for row in self._rows
        )
        self.is_changed = len(rows) < len(table)

    def table(self) -> "pd.DataFrame":
        """The failures as a table."""
        import pandas as pd

        return pd.DataFrame(self._rows)
