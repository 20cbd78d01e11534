"""Early stopping, against the rows of a run that was not stopped."""

import math

import pytest

from gloam.callbacks import RunStart, StopAt, StopOnPlateau
from tests.helpers import refused

from .conftest import search


def start(earlier_rows=()):
    return RunStart("", {}, (0,), 100, 0, earlier_rows, None)


def rows(iteration, *values, metric="coverage"):
    return [
        {"seed": seed, "iteration": iteration, metric: value} for seed, value in enumerate(values)
    ]


@pytest.mark.parametrize("metric", ["coverage", "qd_score", "best_objective", "evaluations"])
def test_a_run_stops_at_the_first_row_that_reaches_the_value(metric):
    table = search(iterations=20, seeds=(3, 4)).metrics
    lowest = table.groupby("iteration")[metric].min()
    value = float(lowest.iloc[4])
    expected = lowest.index[lowest >= value][0]
    stopped = search(iterations=20, seeds=(3, 4), callbacks=[StopAt(metric, value)])
    assert stopped.metrics["iteration"].max() == expected
    assert stopped.stopped.startswith(f"{metric} reached ")


def test_every_seed_has_to_reach_the_value_and_nan_does_not():
    stop = StopAt("coverage", 0.5)
    assert stop.log(rows(1, 0.9, 0.4)) is None
    assert stop.log(rows(2, 0.9, math.nan)) is None
    assert stop.log(rows(3, math.nan, 0.9)) is None
    assert stop.log(rows(4, 0.5, 0.9)) == "coverage reached 0.5 (now 0.5)"


def test_a_plateau_ends_a_run_when_no_seed_grows():
    stop = StopOnPlateau("coverage", 10)
    stop.start(start())
    growth = [(5, 0.1, 0.1), (10, 0.2, 0.1), (15, 0.2, 0.3), (20, 0.2, 0.3)]
    for at, one, other in growth:
        assert stop.log(rows(at, one, other)) is None
    assert stop.log(rows(25, 0.2, 0.3)) == "coverage did not grow in 10 iterations"


def test_small_steps_count_together():
    stop = StopOnPlateau("qd_score", 3, min_growth=1.0)
    stop.start(start())
    for at, value in enumerate([0, 0.6, 1.2, 1.8, 2.4], start=1):
        assert stop.log(rows(at, value, metric="qd_score")) is None
    assert stop.log(rows(7, 3.4, metric="qd_score")) is None
    assert stop.log(rows(8, 3.4, metric="qd_score")) is not None


def test_a_plateau_counts_what_was_before_an_interruption():
    seen = [(2, 0.1), (4, 0.2), (6, 0.2), (8, 0.2)]
    earlier = [row for at, value in seen for row in rows(at, value)]
    stop = StopOnPlateau("coverage", 6)
    stop.start(start(earlier))
    assert stop.log(rows(10, 0.2)) is not None
    # The same object in another run begins anew.
    stop.start(start())
    assert stop.log(rows(2, 0.2)) is None
    assert stop.log(rows(6, 0.2)) is None


def test_a_search_on_a_plateau_stops(tmp_path):
    whole = search(iterations=40, callbacks=[StopOnPlateau("best_objective", 6)])
    search(iterations=4, run_dir=tmp_path)
    again = search(
        iterations=40,
        run_dir=tmp_path,
        resume=True,
        callbacks=[StopOnPlateau("best_objective", 6)],
    )
    assert whole.stopped == again.stopped == "best_objective did not grow in 6 iterations"
    assert whole.metrics["iteration"].max() == again.metrics["iteration"].max() < 40


def test_settings_are_checked():
    with refused("metric: expected"):
        StopAt("coverge", 0.5)
    with refused("metric: expected"):
        StopOnPlateau("seconds", 5)
    with refused("value: expected a finite number"):
        StopAt("coverage", math.nan)
    with refused("iterations: expected"):
        StopOnPlateau("coverage", 0)
    with refused("min_growth: expected"):
        StopOnPlateau("coverage", 5, min_growth=-1)
