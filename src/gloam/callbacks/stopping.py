"""Early stopping: at a value of a metric, or when a metric no longer grows."""

from collections.abc import Sequence

from gloam._tools import checks
from gloam.callbacks.callback import Callback, Row, RunStart

_GROWING = ("coverage", "qd_score", "best_objective")
_COUNTED = ("evaluations", "gradients", "seconds", "failed_total")


class StopAt(Callback):
    """Stops a run at the first logged iteration at which a metric of every seed reaches a value.

    A run that is resumed with the same callback stops again at its next logged iteration.

    Args:
        metric: ``coverage``, ``qd_score`` or ``best_objective``; or ``evaluations``, ``gradients``,
            ``seconds`` or ``failed_total`` as a budget.
        value: Value at or above which the run stops.

    Example:
        >>> import gloam
        >>> domain = gloam.domains.LinearProjection(measure_dim=2)
        >>> algorithm = gloam.MAPElites(domain.archive(), domain.x0, 0.5)
        >>> stop = gloam.callbacks.StopAt("evaluations", 1000)
        >>> result = gloam.run(domain, algorithm, 50, log_every=1, progress=False, callbacks=[stop])
        >>> result.stopped
        'evaluations reached 1000 (now 1080)'
    """

    def __init__(self, metric: str, value: float):
        checks.choice("metric", metric, _GROWING + _COUNTED)
        self._metric = metric
        self._value = checks.number("value", value)

    def log(self, rows: Sequence[Row]) -> str | None:
        """Return a reason to stop if every seed has reached the value."""
        values = [row[self._metric] for row in rows]
        if not all(value >= self._value for value in values):  # false for NaN
            return None
        return f"{self._metric} reached {self._value:g} (now {min(values):g})"


class StopOnPlateau(Callback):
    """Stops a run when a metric has not grown in any seed for a number of iterations.

    A resumed run takes the rows before the interruption into account, so that it stops where an
    uninterrupted run would have stopped.

    Args:
        metric: ``coverage``, ``qd_score`` or ``best_objective``.
        iterations: Number of iterations without growth, judged at logged iterations only.
        min_growth: Growth is an increase by more than this over the best value so far.
    """

    def __init__(self, metric: str, iterations: int, *, min_growth: float = 0.0):
        checks.choice("metric", metric, _GROWING)
        self._metric = metric
        self._iterations = checks.integer("iterations", iterations, minimum=1)
        self._min_growth = checks.number("min_growth", min_growth, at_least=0.0)

    def start(self, run: RunStart) -> None:
        """Forget earlier runs, and take over the rows that were logged before a resume."""
        self._best: dict[int, float] = {}
        self._grew_at = 0
        self._note_growth(run.earlier_rows)

    def log(self, rows: Sequence[Row]) -> str | None:
        """Return a reason to stop if no seed has grown recently."""
        self._note_growth(rows)
        if rows[0]["iteration"] - self._grew_at < self._iterations:
            return None
        than = f" by more than {self._min_growth:g}" if self._min_growth else ""
        return f"{self._metric} did not grow{than} in {self._iterations} iterations"

    def _note_growth(self, rows: Sequence[Row]) -> None:
        for row in rows:
            value, seed = row[self._metric], row["seed"]
            if seed not in self._best or value > self._best[seed] + self._min_growth:
                self._best[seed] = value
                self._grew_at = row["iteration"]
