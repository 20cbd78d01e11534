"""Welch's ANOVA and Games-Howell against pingouin, on a fixed data set."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from gloam.runs.comparison import games_howell
from gloam_lab.report import welch_anova

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pingouin = pytest.importorskip("pingouin")

# Five groups of unequal sizes, means and spreads, as a domain of the paper has.
GROUPS = {
    name: np.random.default_rng(seed).normal(mean, spread, number)
    for seed, (name, mean, spread, number) in enumerate(
        [
            ("dms-paper", 70.0, 1.0, 20),
            ("cma-mae", 69.5, 4.0, 20),
            ("dds", 50.0, 9.0, 15),
            ("line", 69.8, 0.3, 20),
            ("me", 41.0, 2.0, 5),
        ]
    )
}


@pytest.fixture(scope="module")
def table():
    rows = [(name, value) for name, values in GROUPS.items() for value in values]
    return pd.DataFrame(rows, columns=["group", "value"])


def column(frame, *names):
    """pingouin renamed its columns between versions."""
    return frame[next(name for name in names if name in frame)]


def test_welch_anova_equals_pingouins(table):
    theirs = pingouin.welch_anova(data=table, dv="value", between="group")
    ours = welch_anova(GROUPS)
    assert np.isclose(ours.f, column(theirs, "F")[0], rtol=1e-9)
    assert np.isclose(ours.between, column(theirs, "ddof1")[0])
    assert np.isclose(ours.within, column(theirs, "ddof2")[0], rtol=1e-9)
    assert np.isclose(ours.p, column(theirs, "p_unc", "p-unc")[0], rtol=1e-6)


def test_games_howell_equals_pingouins(table):
    theirs = pingouin.pairwise_gameshowell(data=table, dv="value", between="group")
    ours = games_howell(GROUPS)
    assert len(theirs) == 10
    for i, row in theirs.iterrows():
        mine = ours[row["A"], row["B"]]
        assert np.isclose(mine.difference, row["diff"], rtol=1e-9)
        # SciPy integrates the studentized range numerically, to about 1e-8.
        assert np.isclose(mine.p, column(theirs, "pval", "p_tukey", "p_corr")[i], atol=1e-6)


def test_signs_are_antisymmetric_and_say_who_is_greater():
    signs = {pair: comparison.sign for pair, comparison in games_howell(GROUPS).items()}
    assert signs["dms-paper", "me"] == ">"
    assert signs["me", "dms-paper"] == "<"
    assert signs["dms-paper", "cma-mae"] == signs["cma-mae", "dms-paper"] == "-"


def test_the_paper_form_names_the_degrees_of_freedom():
    assert str(welch_anova(GROUPS)).startswith("F(4, ")
    assert str(welch_anova(GROUPS)).endswith("p < 0.001")


def test_groups_that_do_not_vary_are_compared_exactly():
    same = {"a": np.ones(3), "b": np.ones(3), "c": np.full(3, 2.0)}
    assert welch_anova(same) is None
    compared = games_howell(same)
    assert compared["a", "b"].sign == "-"
    assert compared["c", "a"].sign == ">"


def test_a_group_that_does_not_vary_is_compared_with_one_that_does():
    mixed = {"a": np.full(4, 3.0), "b": np.array([1.0, 2.0, 2.5, 1.5]), "c": np.full(3, 3.0)}
    assert welch_anova(mixed) is None
    rows = [(name, value) for name in ("a", "b") for value in mixed[name]]
    frame = pd.DataFrame(rows, columns=["group", "value"])
    theirs = pingouin.pairwise_gameshowell(data=frame, dv="value", between="group")
    ours = games_howell({name: mixed[name] for name in ("a", "b")})
    expected = column(theirs, "pval", "p_tukey", "p_corr")[0]
    assert np.isclose(ours["a", "b"].p, expected, atol=1e-6)
    assert games_howell(mixed)["a", "c"] == (0.0, 1.0)


def test_the_tests_are_scipys(monkeypatch):
    """The formulas are SciPy's own: gloam has no second copy of them."""
    asked = []
    for name in ("f_oneway", "tukey_hsd"):
        theirs = getattr(stats, name)

        def remember(*groups, name=name, theirs=theirs, equal_var):
            asked.append((name, len(groups), equal_var))
            return theirs(*groups, equal_var=equal_var)

        monkeypatch.setattr(stats, name, remember)
    welch_anova(GROUPS)
    games_howell(GROUPS)
    assert asked == [("f_oneway", 5, False), ("tukey_hsd", 5, False)]


def test_too_few_trials_are_refused():
    with pytest.raises(ValueError, match=r"^groups:"):
        welch_anova({"a": np.ones(1), "b": np.ones(4)})
