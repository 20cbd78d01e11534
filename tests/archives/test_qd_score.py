"""The QD score: laws of its reference, known answers, and the same number wherever it is shown."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gloam
from gloam.archives.elites import scores_from_one_reference
from gloam.archives.qd_score import (
    archive_metrics,
    lowered,
    lowered_on_host,
    tables_with_one_reference,
    with_one_reference,
)
from gloam.archives.store import filled_store
from gloam.cli.options import print_metrics
from tests.problems import BATCH

CELLS = 16
on_device = jax.jit(lowered)
ARCHIVE = gloam.GridArchive((CELLS,), 0, CELLS)

magnitudes = st.builds(float, st.floats(-12, 30).map(lambda power: np.float32(10.0**power)))
objectives = st.builds(lambda size, sign: sign * size, magnitudes, st.sampled_from([-1.0, 1.0]))
# Programs are compiled for each number of elites: few numbers are enough.
archives = st.sampled_from([1, 5, CELLS]).flatmap(
    lambda number: st.lists(objectives | st.just(0.0), min_size=number, max_size=number)
)


def elites_of(values, archive=ARCHIVE, **options):
    """Elites with these objectives, in the first cells."""
    rows = len(values)
    cells, measures = np.arange(rows, dtype=np.int32), np.arange(rows)[:, None] + 0.5
    objectives = np.float32(values)
    store = eqx.filter_jit(filled_store)(
        archive, np.zeros((rows, 1)), objectives, measures, cells, {}
    )
    return gloam.Elites(archive, store, **options)


def padded(values):
    """Objectives of all cells."""
    return np.concatenate([np.float32(values), np.full(CELLS - len(values), -np.inf, np.float32)])


@pytest.mark.parametrize(
    ("values", "reference"),
    [
        ([1.0, 2.0, 3.0], 0.0),
        ([-1e30, 2.0, 3.0], 0.0),  # a wild elite
        ([-1.0, -1e30, 2.0, 3.0], 0.0),  # half of the elites
        ([-1.0, -2.0, 3.0], -10.0),  # twice the median of -1 is above -10 and below -1
        ([-0.4, -0.5, -0.3], -1.0),
        ([-50.0], -100.0),  # exactly twice
        ([-50.1], -1000.0),
        ([-1e-20], np.float32(-1e-12)),
        ([-1e30], np.float32(-1e31)),
        ([], 0.0),
    ],
)
def test_known_references(values, reference):
    assert lowered_on_host(0.0, np.float32(values)) == reference
    assert on_device(jnp.float32(0), padded(values)) == np.float32(reference)


@given(archives, archives)
def test_host_and_device_have_one_rule(before, after):
    first = lowered_on_host(0.0, np.float32(before))
    expected = lowered_on_host(first, np.float32(after))
    assert on_device(jnp.float32(first), padded(after)) == np.float32(expected)
    assert expected <= first <= 0
    # At least half of the elites count, and the reference stays while that is so.
    assert 2 * np.sum(np.float32(after) >= np.float32(expected)) >= len(after)
    assert lowered_on_host(expected, np.float32(after)) == expected


@given(archives, st.floats(1e3, 1e30))
def test_a_minority_of_wild_elites_does_not_move_it(values, wild):
    values = np.abs(values).tolist()
    some = [-wild] * (len(values) // 2)
    assert lowered_on_host(0.0, np.float32([*values, *some])) == 0.0


@given(archives)
def test_elites_below_the_reference_count_as_zero(values):
    elites = elites_of(values)
    above = np.maximum(np.float32(values).astype(np.float64) - elites.f_min, 0.0)
    assert elites.qd_score == pytest.approx(above.sum(), rel=1e-12)
    assert elites.statistics().qd_score == elites.qd_score
    found = archive_metrics(
        jax.tree.map(jnp.asarray, elites.store), jnp.float32(elites.f_min), is_given=False
    )
    assert int(found.num_counted) == np.count_nonzero(np.float32(values) > np.float32(elites.f_min))
    assert float(found.qd_score) == pytest.approx(elites.qd_score, rel=1e-5)
    assert float(found.mean_objective) == pytest.approx(np.mean(np.float64(values)), rel=1e-5)


@given(archives)
def test_a_given_f_min_is_the_plain_sum_of_pyribs(values):
    archive = gloam.GridArchive((CELLS,), 0, CELLS, f_min=-3.0)
    elites = elites_of(values, archive)
    expected = np.sum(np.float32(values).astype(np.float64) + 3.0)
    assert (elites.f_min, elites.qd_score) == (-3.0, pytest.approx(expected, rel=1e-12))
    assert elites.qd_score == elites.qd_score_from(-3.0)


def test_several_archives_are_scored_from_the_lowest_of_their_references():
    low, high = elites_of([-30.0, -40.0]), elites_of([1.0, -5.0, 2.0])
    assert (low.f_min, high.f_min) == (-100.0, 0.0)
    assert scores_from_one_reference([low, high]) == (-100.0, [130.0, 298.0])
    merged = high.merged(low)
    assert (merged.f_min, merged.qd_score) == (-100.0, 101 + 95 + 102)
    assert high.into(gloam.GridArchive((4,), 0, CELLS)).f_min == 0.0
    # A lower reference that the search has had before stays.
    assert elites_of([1.0], reference=-10.0).qd_score == 11.0


def test_rows_and_tables_are_counted_again():
    rows = [
        {"qd_score": 6.0, "num_counted": 2, "num_elites": 9, "f_min": 0.0},
        {"qd_score": 50.0, "num_counted": 1, "num_elites": 9, "f_min": -100.0},
    ]
    assert [row["qd_score"] for row in with_one_reference(rows)] == [206.0, 50.0]
    tables, f_min = tables_with_one_reference([pd.DataFrame(rows[:1]), pd.DataFrame(rows[1:])])
    assert [table["qd_score"].item() for table in tables] == [206.0, 50.0]
    assert f_min == -100.0
    assert [table["f_min"].item() for table in tables] == [-100.0] * 2
    without = pd.DataFrame({"qd_score": [3.0]})
    assert tables_with_one_reference([without])[0][0] is without


def sphere(solutions):
    """The best solution is x0, so that each new cell is lower than the ones before."""
    return -(solutions**2).sum(axis=1), solutions[:, :2]


GRID = gloam.GridArchive((8, 8), -2.0, 2.0)


@pytest.mark.parametrize("name", ["run", "optimize"])
def test_the_score_of_a_cost_never_falls_and_is_the_same_everywhere(name, tmp_path):
    algorithm = gloam.MAPElites(GRID, np.zeros(5), 0.2, batch_size=BATCH)
    options = {"log_every": 1, "progress": False, "seeds": [3, 9], "run_dir": tmp_path}
    result = getattr(gloam, name)(sphere, algorithm, 60, **options)
    metrics = result.metrics
    for seed, table in metrics.groupby("seed"):
        elites = result.elites_by_seed[seed]
        assert table["qd_score"].is_monotonic_increasing
        assert table["f_min"].is_monotonic_decreasing
        # It begins at the first elites and moves on as worse cells are filled.
        assert table["f_min"].nunique() > 1
        last = table.iloc[-1]
        assert last["f_min"] == np.float32(elites.f_min)
        assert last["qd_score"] == pytest.approx(elites.qd_score, rel=1e-5)
        assert last["num_counted"] == np.count_nonzero(elites.objectives > elites.f_min)
        folder = gloam.RunFolder(tmp_path)
        again = folder.read_metrics(f_min=-50.0)
        again = again[again["seed"] == seed]["qd_score"].iloc[-1]
        assert again == pytest.approx(elites.qd_score_from(-50.0), rel=1e-5)
        assert folder.read_archive(seed).qd_score == elites.qd_score
        for file in tmp_path.glob("archive*.npz"):
            file.unlink()  # then they are read from the checkpoint
        assert folder.read_archive(seed).qd_score == elites.qd_score
    reference = f"(from {min(e.f_min for e in result.elites_by_seed.values()):g})"
    assert reference in repr(result)
    assert reference in result._repr_html_()
    scores = gloam.compare({"a": result}).scores["qd_score"]
    assert f"QD score {scores.mean():.2f} {reference}" in repr(result)


ROWS = st.lists(objectives, min_size=BATCH, max_size=BATCH)


@given(st.lists(ROWS, min_size=2, max_size=4))
def test_whatever_the_objectives_the_score_never_falls(batches):
    search = gloam.Search(gloam.MAPElites(GRID, np.zeros(5), 0.3, batch_size=BATCH), seed=1)
    before = 0.0
    for values in batches:
        measures = search.ask()[:, :2]
        search.tell(np.float32(values), measures)
        metrics = search.metrics()
        assert metrics["qd_score"] >= before * (1 - 1e-5)  # sums of 64 numbers in float32
        assert np.isclose(metrics["qd_score"], search.elites().qd_score, rtol=1e-5)
        assert metrics["f_min"] == np.float32(search.elites().f_min)
        before = metrics["qd_score"]


def test_wild_evaluations_change_nothing():
    def told(wild):
        algorithm = gloam.MAPElites(GRID, np.zeros(5), 0.3, batch_size=BATCH)
        search = gloam.Search(algorithm, seed=1)
        for _ in range(4):
            solutions = search.ask()
            values = 1.0 - np.square(solutions).sum(axis=1) / 100
            # Wild evaluations in a cell that has a better elite.
            measures = solutions[:, :2].copy()
            values[1], measures[1] = wild, measures[0]
            search.tell(values, measures)
        return search

    tame, wild = told(0.0), told(-1e20)
    assert wild.metrics()["qd_score"] == tame.metrics()["qd_score"]
    assert wild.metrics()["f_min"] == 0.0
    assert "from" not in repr(wild)


def test_a_reference_other_than_zero_is_beside_every_score(capsys):
    elites = elites_of([-30.0, -40.0])
    assert "QD score 130.00 (from -100)" in repr(elites)
    assert "130.00 (from -100)" in elites._repr_html_()
    assert elites.statistics().f_min == -100
    assert "from" not in repr(elites_of([1.0]))
    rows = [{"iteration": 1, "seconds": 1.0, "coverage": 0.1, "best_objective": -30.0}]
    rows[0] |= {"qd_score": 130.0, "num_counted": 2, "f_min": -100.0}
    gloam.callbacks.PrintLogger().log(rows)
    assert re.search(r"QD score 130 \(from -100\)", capsys.readouterr().out)
    table = pd.DataFrame(rows).assign(seed=1)
    assert (
        gloam.plots.curves(table, columns=["qd_score"]).axes[0].get_ylabel().endswith("(from -100)")
    )


def test_the_seeds_of_a_run_are_printed_from_one_reference(capsys):
    calls = iter(range(1000))

    def costs(solutions):
        """The first seed has objectives of about -3, the second of about -300."""
        objectives, measures = sphere(solutions)
        return objectives - (300.0 if next(calls) % 2 else 3.0), measures

    algorithm = gloam.MAPElites(GRID, np.zeros(5), 0.2, batch_size=BATCH)
    result = gloam.optimize(costs, algorithm, 4, seeds=2, progress=False)
    assert [elites.f_min for elites in result.elites_by_seed.values()] == [-10.0, -1000.0]
    print_metrics(result)
    printed = capsys.readouterr().out
    scores = gloam.compare({"a": result}).scores["qd_score"]
    assert all(f"{score:,.2f}" in printed for score in scores)
    assert "from -1000" in printed
    # Also those of a re-evaluation, before and after.
    table = result.reevaluated(1).table
    assert table["f_min"].tolist() == [-1000.0, -1000.0]
    np.testing.assert_allclose(table["qd_score"], scores)
    assert "(from -1000)" in repr(result.reevaluated(1))
