"""The comparison: same work, turns, what it says of differences and of peers that are missing."""

import dataclasses
import sys
import typing

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from gloam.experiments import comparison as compare
from gloam.experiments.comparison import (
    ALGORITHMS,
    Contender,
    GloamAskTell,
    GloamFused,
    Problem,
    measure,
)
from gloam.plots.run_figures import speed


class Fake(Contender):
    """Counts what it is asked for."""

    name = "pyribs"
    num_cells = 10_000
    score = 1000.0

    calls: typing.ClassVar[list] = []

    def __init__(self, problem, seed):
        pass

    def advance(self, iterations):
        self.calls.append((self.name, iterations))
        self.evaluations += 540 * iterations

    @property
    def qd_score(self):
        return self.score


class Idle(Fake):
    name = "gloam fused"


@pytest.fixture
def fakes(monkeypatch):
    monkeypatch.setitem(sys.modules, "gloam.experiments.pyribs", type("M", (), {"Pyribs": Fake}))
    monkeypatch.setattr(compare, "GloamFused", Idle)
    monkeypatch.setattr(compare, "GloamAskTell", type("AskTell", (Idle,), {"name": "ask-tell"}))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_domain_in_numpy_is_the_domain(algorithm):
    problem = Problem(algorithm, 2)
    solutions = 4 * np.random.default_rng(0).standard_normal((500, 100))
    objectives, measures = problem.evaluate(solutions)
    ours = problem.domain(jnp.asarray(solutions, jnp.float32))
    np.testing.assert_allclose(objectives, ours[0], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(measures, ours[1], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("kind", [GloamFused, GloamAskTell])
def test_gloams_contenders_count_their_work(kind):
    contender = kind(Problem("map-elites-line", 2), 0)
    contender.advance(3)
    assert contender.evaluations == 3 * 540
    assert contender.num_cells == 10_000
    assert contender.qd_score > 0


def test_everyone_is_warmed_up_alike_and_timed_in_turns(fakes):
    Fake.calls.clear()
    result = measure([Problem("dms", 2)], repeats=3, seconds=1e-6, warm_up=7)
    names = [name for name, _ in Fake.calls]
    everyone = ["pyribs", "gloam fused", "ask-tell"]
    assert names[:21] == [name for name in everyone for _ in range(7)]  # the warm-up
    assert names[21:24] == everyone  # how long a stretch is
    assert names[24:] == everyone * 3  # the stretches, in turns
    assert [line.contender for line in result.lines] == ["pyribs", "gloam fused", "ask-tell"]
    assert all(len(line.stretches_ms) == 3 for line in result.lines)
    assert all(line.evaluations_per_iteration == 540 for line in result.lines)
    assert result.differences == []
    frame = result.frame()
    assert frame["times_pyribs"][0] == 1.0
    ratio = frame["median_ms"][0] / frame["median_ms"][1]
    assert frame["times_pyribs"][1] == pytest.approx(ratio)


@pytest.mark.parametrize(("score", "differs"), [(1140.0, False), (1160.0, True), (np.nan, True)])
def test_scores_that_are_too_far_apart_are_told(fakes, monkeypatch, score, differs):
    monkeypatch.setattr(Idle, "score", score)
    found = measure([Problem("dms", 2)], repeats=1, seconds=1e-6, warm_up=2).differences
    assert bool(found) == differs
    assert all("qd_score" in text for text in found)


def test_a_missing_peer_is_named_and_the_rest_is_measured(monkeypatch, fakes):
    monkeypatch.setitem(sys.modules, "gloam.experiments.pyribs", None)
    told = []
    result = measure([Problem("dms", 2)], repeats=1, seconds=1e-6, warm_up=1, tell=told.append)
    assert "pyribs is missing" in result.missing[0]
    assert "pip install" in result.missing[0]
    assert result.missing[0] in told
    assert [line.contender for line in result.lines] == ["gloam fused", "ask-tell"]
    assert result.frame()["times_pyribs"].isna().all()


def test_wrong_arguments_are_explained():
    with pytest.raises(ValueError, match=r"algorithm: expected one of dms.*got 'ga'"):
        Problem("ga", 2)
    with pytest.raises(ValueError, match="repeats"):
        measure([], repeats=0)


def test_the_picture_has_a_bar_for_every_contender():
    line = compare.Line("dms", 2, "pyribs", 10, 5, 1, 1.0, 1.0, [3.0, 5.0, 4.0])
    lines = [line, dataclasses.replace(line, contender="gloam fused", stretches_ms=[0.5])]
    lines += [
        dataclasses.replace(line, measure_dim=10),
        dataclasses.replace(lines[1], measure_dim=10),
    ]
    table: pd.DataFrame = compare.Comparison(lines, [], []).frame()
    axes = speed(table).axes[0]
    heights = sorted(bar.get_height() for bar in axes.patches)
    assert heights == [0.5, 0.5, 4.0, 4.0]
