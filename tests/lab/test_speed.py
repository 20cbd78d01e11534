"""The comparison: equal warm-up, timing in turns, differences in the work, missing libraries."""

import dataclasses
import typing

import numpy as np
import pandas as pd
import pytest

from gloam_lab import speed as module
from gloam_lab.contenders import PEERS, Contender, Problem
from gloam_lab.figures import speed_figure
from gloam_lab.speed import Line, SpeedComparison, compare_speed


class Fake(Contender):
    """Counts its calls."""

    name = "pyribs"
    install = "pip install it"
    num_cells = 10_000
    score = 1000.0
    calls: typing.ClassVar[list] = []

    def __init__(self, problem, seed):
        pass

    def advance(self, iterations):
        self.calls.append((self.name, iterations))
        self.evaluations += 540 * iterations

    def outcome(self):
        return self.score, 0


class Idle(Fake):
    name = "gloam fused"


class Missing(Fake):
    def __init__(self, problem, seed):
        raise ImportError("No module named 'ribs'")


@pytest.fixture
def fakes(monkeypatch):
    monkeypatch.setitem(PEERS, "dms-paper", (Fake,))
    monkeypatch.setattr(module, "GloamFused", Idle)
    monkeypatch.setattr(module, "GloamAskTell", type("AskTell", (Idle,), {"name": "ask-tell"}))


def test_contenders_are_warmed_up_alike_and_timed_in_turns(fakes):
    Fake.calls.clear()
    result = compare_speed([Problem("dms-paper", 2)], repeats=3, seconds=1e-6, warm_up=7)
    names = [name for name, _ in Fake.calls]
    everyone = ["pyribs", "gloam fused", "ask-tell"]
    assert names[:21] == [name for name in everyone for _ in range(7)]  # the warm-up
    assert names[21:24] == everyone  # to choose the length of the periods
    assert names[24:] == everyone * 3  # the periods, in turns
    assert [line.contender for line in result.lines] == ["pyribs", "gloam fused", "ask-tell"]
    assert all(len(line.stretches_ms) == 3 for line in result.lines)
    assert all(line.evaluations_per_iteration == 540 for line in result.lines)
    assert result.differences == []
    frame = result.frame()
    assert frame["times_pyribs"][0] == 1.0
    ratio = frame["median_ms"][0] / frame["median_ms"][1]
    assert frame["times_pyribs"][1] == pytest.approx(ratio)


@pytest.mark.parametrize(("score", "differs"), [(1140.0, False), (1160.0, True), (np.nan, True)])
def test_scores_that_differ_too_much_are_reported(fakes, monkeypatch, score, differs):
    monkeypatch.setattr(Idle, "score", score)
    found = compare_speed([Problem("dms-paper", 2)], repeats=1, seconds=1e-6, warm_up=2).differences
    assert bool(found) == differs
    assert all("qd_score" in text for text in found)


def test_a_missing_library_is_named_and_the_others_are_timed(monkeypatch, fakes):
    monkeypatch.setitem(PEERS, "dms-paper", (Missing,))
    told = []
    result = compare_speed(
        [Problem("dms-paper", 2)], repeats=1, seconds=1e-6, warm_up=1, tell=told.append
    )
    assert "pyribs is missing" in result.missing[0]
    assert "pip install it" in result.missing[0]
    assert result.missing[0] in told
    assert [line.contender for line in result.lines] == ["gloam fused", "ask-tell"]
    assert result.frame()["times_pyribs"].isna().all()


def test_wrong_arguments_are_explained():
    with pytest.raises(ValueError, match="repeats"):
        compare_speed([], repeats=0)


def test_the_picture_has_a_bar_for_every_contender():
    line = Line("dms-paper", 2, "pyribs", 10, 5, 1, 1.0, 1.0, [3.0, 5.0, 4.0])
    lines = [line, dataclasses.replace(line, contender="gloam fused", stretches_ms=[0.5])]
    lines += [
        dataclasses.replace(line, measure_dim=10),
        dataclasses.replace(lines[1], measure_dim=10),
    ]
    table: pd.DataFrame = SpeedComparison(lines, [], []).frame()
    axes = speed_figure(table).axes[0]
    heights = sorted(bar.get_height() for bar in axes.patches)
    assert heights == [0.5, 0.5, 4.0, 4.0]
