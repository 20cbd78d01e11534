"""Early stopping: at a value of a metric, or when a metric no longer grows."""

from collections.abc import Sequence

from gloam import checks
from gloam.callbacks.callback import Callback, Row, RunStart

_GROWING = ("coverage", "qd_score", "best_objective")
_COUNTED = ("evaluations", "seconds", "failed_total")


class StopAt(Callback):
    """Stops a run when a metric of every seed has reached a value.

    The first logged iteration at which it has is the last of the run. A run that is resumed with
    the same callback therefore stops again at its next logged iteration.

    Args:
        metric: ``coverage``, ``qd_score`` or ``best_objective``; or ``evaluations``, ``seconds`` or
            ``failed_total`` as a budget.
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
        """Stop if the lowest value of all seeds is high enough."""
        values = [row[self._metric] for row in rows]
        if not all(value >= self._value for value in values):  # a NaN has reached nothing
            return None
        return f"{self._metric} reached {self._value:g} (now {min(values):g})"


class StopOnPlateau(Callback):
    """Stops a run when a metric of no seed has grown for a number of iterations.

    A run that is resumed counts the iterations since the last growth before it was interrupted, so
    that it stops where it would have stopped without the interruption.

    Args:
        metric: ``coverage``, ``qd_score`` or ``best_objective``.
        iterations: Number of iterations without growth. Growth is seen at logged iterations only.
        min_growth: Smallest difference to the best value so far that counts as growth.

    Example:
        >>> import gloam
        >>> domain = gloam.domains.LinearProjection(measure_dim=2)
        >>> algorithm = gloam.MAPElites(domain.archive(), domain.x0, 0.5)
        >>> stop = gloam.callbacks.StopOnPlateau("coverage", iterations=2, min_growth=1.0)
        >>> result = gloam.run(domain, algorithm, 50, log_every=1, progress=False, callbacks=[stop])
        >>> result.stopped
        'coverage did not grow by more than 1 in 2 iterations'
    """

    def __init__(self, metric: str, iterations: int, *, min_growth: float = 0.0):
        checks.choice("metric", metric, _GROWING)
        self._metric = metric
        self._iterations = checks.integer("iterations", iterations, minimum=1)
        self._min_growth = checks.number("min_growth", min_growth, at_least=0.0)
        self._best: dict[int, float] = {}
        self._grew_at = 0

    def start(self, run: RunStart) -> None:
        """Begin anew, with what was logged before the run was resumed."""
        self._best, self._grew_at = {}, 0
        for row in run.earlier_rows:
            self._look_at(row)

    def log(self, rows: Sequence[Row]) -> str | None:
        """Stop if the last growth of any seed is too long ago."""
        for row in rows:
            self._look_at(row)
        if rows[0]["iteration"] - self._grew_at < self._iterations:
            return None
        than = f" by more than {self._min_growth:g}" if self._min_growth else ""
        return f"{self._metric} did not grow{than} in {self._iterations} iterations"

    def _look_at(self, row: Row) -> None:
        value, seed = row[self._metric], row["seed"]
        if seed not in self._best or value > self._best[seed] + self._min_growth:
            self._best[seed] = value
            self._grew_at = row["iteration"]
