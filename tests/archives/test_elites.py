"""Elites as arrays, one by one, retrieved, drawn, merged and measured; pyribs is the oracle."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ribs.archives import GridArchive as RibsGrid

import gloam
from gloam.archives import Elites, GridArchive
from gloam.archives.qd_score import archive_metrics
from gloam.archives.store import Store, add, empty_store
from gloam.records import Batch

ARCHIVE = GridArchive((4, 5), [-1, -2], [1, 2], f_min=-2.0, fields={"age": ()})
NOTHING = empty_store(20, 3, 2, ARCHIVE.fields)
FIELDS = {"score": (), "image": (3, 2)}
HAND_MADE = GridArchive((2, 4), 0, 1, f_min=-2.0, fields=FIELDS)

compiled_add = jax.jit(add)
index_of = eqx.filter_jit(lambda archive, measures: archive.index_of(measures))


@pytest.fixture
def hand_made() -> Elites:
    """Elites in cells 1, 4 and 7 of 8, each array told apart by its first digit."""
    objectives = np.full(8, -np.inf, np.float32)
    objectives[[1, 4, 7]] = [0.5, -1.25, 3.0]
    number = jnp.arange(8.0)
    store = Store(
        100 + number[:, None] + jnp.array([0.0, 0.25, 0.5]),
        jnp.asarray(objectives),
        200 + number[:, None] + jnp.array([0.0, 0.25]),
        {"score": 300 + number, "image": 400 + number[:, None, None] + jnp.ones((3, 2)) / 8},
    )
    return Elites(HAND_MADE, store)


def test_figures_worked_by_hand(hand_made):
    # (0.5 + 2) + (-1.25 + 2) + (3 + 2), all exact in float32.
    assert hand_made.qd_score == 8.25
    assert hand_made.coverage == 0.375
    assert hand_made.best_objective == 3.0
    assert len(hand_made) == 3
    assert repr(hand_made) == "Elites(3 of 8 cells, QD score 8.25 (from -2), best 3)"
    assert (
        type(hand_made.qd_score)
        is type(hand_made.coverage)
        is type(hand_made.best_objective)
        is float
    )


def test_arrays_hold_the_occupied_cells_in_order(hand_made):
    assert hand_made.occupied.tolist() == [False, True, False, False, True, False, False, True]
    assert hand_made.cells.tolist() == [1, 4, 7]
    assert hand_made.objectives.tolist() == [0.5, -1.25, 3.0]
    assert hand_made.solutions.tolist() == [
        [101, 101.25, 101.5],
        [104, 104.25, 104.5],
        [107, 107.25, 107.5],
    ]
    assert hand_made.measures.tolist() == [[201, 201.25], [204, 204.25], [207, 207.25]]
    assert hand_made.field("score").tolist() == [301, 304, 307]
    assert hand_made.field("image").shape == (3, 3, 2)
    assert hand_made.field("image")[:, 0, 0].tolist() == [401.125, 404.125, 407.125]
    assert isinstance(hand_made.solutions, np.ndarray)
    assert hand_made.solutions is hand_made.solutions  # selected once


def test_table_has_a_column_for_every_number(hand_made):
    table = hand_made.to_pandas()
    assert list(table.columns)[:7] == [
        "cell",
        "objective",
        "measures_0",
        "measures_1",
        "solution_0",
        "solution_1",
        "solution_2",
    ]
    assert sorted(table.columns[7:]) == [f"image_{i}" for i in range(6)] + ["score"]
    assert table["cell"].tolist() == [1, 4, 7]
    assert table["objective"].tolist() == [0.5, -1.25, 3.0]
    assert table["score"].tolist() == [301, 304, 307]
    assert table["measures_1"].tolist() == [201.25, 204.25, 207.25]
    assert table["solution_2"].tolist() == [101.5, 104.5, 107.5]


def test_array_fields_are_flattened_in_c_order():
    archive = GridArchive((1,), 0, 1, fields={"image": (3, 2)})
    image = jnp.arange(6.0).reshape(1, 3, 2)
    store = Store(jnp.zeros((1, 1)), jnp.zeros(1), jnp.zeros((1, 1)), {"image": image})
    table = Elites(archive, store).to_pandas()
    assert [table[f"image_{i}"].item() for i in range(6)] == [0, 1, 2, 3, 4, 5]


# Against pyribs


def evaluated(seed, number=30):
    """Solutions with objectives, measures (some outside of the bounds) and ages."""
    draws = np.random.default_rng(seed)
    solutions = draws.normal(size=(number, 3)).astype(np.float32)
    measures = draws.uniform(-1.2, 1.2, (number, 2)).astype(np.float32) * [1, 2]
    return solutions, draws.uniform(-2, 3, number).astype(np.float32), np.float32(measures)


def elites_of(seed, archive=ARCHIVE, number=30):
    solutions, objectives, measures = evaluated(seed, number)
    cells = index_of(archive, jnp.asarray(measures))
    ages = jnp.arange(number, dtype=jnp.float32)
    fields = {"age": ages} if archive.fields else {}
    nothing = empty_store(archive.num_cells, 3, 2, archive.fields)
    valid = jnp.ones(number, bool)
    batch = Batch(*map(jnp.asarray, (solutions, objectives, measures)), cells, valid, fields)
    return Elites(archive, compiled_add(nothing, batch)[0])


@pytest.fixture(scope="module")
def elites():
    return elites_of(0)


@pytest.fixture(scope="module")
def ribs():
    archive = RibsGrid(solution_dim=3, dims=[4, 5], ranges=[(-1, 1), (-2, 2)], qd_score_offset=-2.0)
    archive.add(*evaluated(0))
    return archive


def test_the_best_elite_and_statistics_are_those_of_pyribs(elites, ribs):
    best, expected = elites.best, ribs.best_elite
    assert best.objective == pytest.approx(float(expected["objective"]))
    assert best.cell == expected["index"]
    np.testing.assert_allclose(best.solution, expected["solution"], rtol=1e-6)
    np.testing.assert_allclose(best.measures, expected["measures"], rtol=1e-6)
    found, stats = elites.statistics(), ribs.stats
    assert (found.num_cells, found.num_elites) == (20, stats.num_elites)
    assert found.coverage == pytest.approx(stats.coverage)
    assert found.qd_score == pytest.approx(float(stats.qd_score), rel=1e-6)
    assert found.normalized_qd_score == pytest.approx(float(stats.norm_qd_score), rel=1e-6)
    assert found.best_objective == pytest.approx(float(stats.obj_max))
    assert found.mean_objective == pytest.approx(float(stats.obj_mean), rel=1e-6)
    assert (found.qd_score, found.coverage) == (elites.qd_score, elites.coverage)
    metrics = archive_metrics(jax.tree.map(jnp.asarray, elites.store), ARCHIVE.f_min, is_given=True)
    assert float(metrics.qd_score) == pytest.approx(elites.qd_score, rel=1e-6)
    assert float(metrics.coverage) == pytest.approx(elites.coverage)
    assert float(metrics.best_objective) == elites.best_objective


def test_elites_of_measures_are_those_of_pyribs(elites, ribs):
    measures = np.random.default_rng(3).uniform(-1, 1, (25, 2)) * [1.3, 2.6]
    found = elites.retrieve(measures)
    occupied, data = ribs.retrieve(measures)
    assert len(found) == 25
    np.testing.assert_array_equal(found.found, occupied)
    assert 0 < occupied.sum() < 25
    np.testing.assert_array_equal(found.cells[occupied], data["index"][occupied])
    np.testing.assert_allclose(found.solutions, data["solution"], rtol=1e-6)
    np.testing.assert_allclose(found.objectives, data["objective"], rtol=1e-6)
    assert np.isnan(found.fields["age"][~occupied]).all()
    for row, there in zip(measures, occupied, strict=True):
        single, (is_there, theirs) = elites.retrieve_single(row), ribs.retrieve_single(row)
        assert is_there == there == (single is not None)
        if single is not None:
            assert single.cell == theirs["index"]


def test_iteration_gives_every_elite_in_the_order_of_cells(elites, ribs):
    listed = list(elites)
    assert [elite.cell for elite in listed] == elites.cells.tolist()
    assert [elite.objective for elite in listed] == elites.objectives.tolist()
    assert [elite.fields["age"].item() for elite in listed] == elites.field("age").tolist()
    theirs = {int(elite["index"]): float(elite["objective"]) for elite in ribs}
    assert {elite.cell: elite.objective for elite in listed} == pytest.approx(theirs)


def test_an_elite_by_its_cell(elites):
    for cell in range(20):
        elite = elites.elite(cell)
        assert (elite is None) == (cell not in elites.cells)
        if elite is not None:
            assert elite.cell == int(index_of(ARCHIVE, elite.measures[None])[0])
    chosen = elites.of_cells([int(elites.cells[2]), int(elites.cells[0])])
    assert chosen.objectives.tolist() == elites.objectives[[2, 0]].tolist()
    for cells in ([20], [-1], [0.5], [[1]]):
        with pytest.raises(ValueError, match=r"^cells:.*0.*19"):
            elites.of_cells(cells)
    with pytest.raises(ValueError, match="cells"):
        elites.elite(20)


def test_measures_that_have_no_cell_are_refused(elites):
    for measures, message in (
        ([[0.0, np.nan]], "measures: expected"),
        ([[0.0, 1.0, 2.0]], r"measures: expected shape \(1, 2\), got shape \(1, 3\)"),
        ([0.0, 1.0], "measures: expected"),
    ):
        with pytest.raises(ValueError, match=message):
            elites.retrieve(measures)
    cosine = gloam.CVTArchive(np.eye(2), metric="cosine")
    empty = Elites(cosine, empty_store(2, 1, 2, {}))
    with pytest.raises(ValueError, match=r"^measures:.*1"):
        empty.retrieve([[0.0, 0.0], [1.0, 0.0]])
    assert not empty.retrieve([[1.0, 0.0]]).found.any()


def test_images_are_retrieved_in_their_shape():
    archive = gloam.CVTArchive(np.arange(8.0).reshape(2, 2, 2))
    store = Store(jnp.ones((2, 1)), jnp.array([1.0, -jnp.inf]), jnp.arange(8.0).reshape(2, 4), {})
    elites = Elites(archive, store)
    assert elites.retrieve(np.arange(8.0).reshape(2, 2, 2)).measures.shape == (2, 2, 2)
    assert elites.retrieve(np.arange(8.0).reshape(2, 4)).found.tolist() == [True, False]
    assert elites.best.measures.tolist() == [[0, 1], [2, 3]]


def test_a_sample_is_of_elites_and_repeats_with_its_seed(elites):
    one, again, other = elites.sample(200, 1), elites.sample(200, 1), elites.sample(200, 2)
    assert one.found.all()
    assert set(one.cells) == set(elites.cells)  # 200 draws of about 15
    np.testing.assert_array_equal(one.cells, again.cells)
    assert (one.cells != other.cells).any()
    every = elites.sample(len(elites), replace=False)
    assert sorted(every.cells) == elites.cells.tolist()
    with pytest.raises(ValueError, match=r"^number:"):
        elites.sample(len(elites) + 1, replace=False)


def test_an_empty_archive_has_nothing_to_give():
    empty = Elites(ARCHIVE, NOTHING)
    assert list(empty) == []
    for ask in (lambda: empty.best, lambda: empty.sample(1)):
        with pytest.raises(ValueError, match=r"^elites:.*none"):
            ask()
    assert (empty.qd_score, empty.coverage, empty.best_objective) == (0.0, 0.0, -math.inf)
    assert empty.to_pandas().shape == (0, 2 + 2 + 3 + 1)
    found = empty.statistics()
    assert (found.num_elites, found.coverage, found.qd_score) == (0, 0.0, 0.0)
    assert math.isnan(found.best_objective)


def test_statistics_of_some_cells_worked_by_hand():
    archive = GridArchive((6,), 0, 1, f_min=-1.0)
    objectives = jnp.array([0.0, 2.0, -jnp.inf, 4.0, -0.5, -jnp.inf])
    elites = Elites(archive, Store(jnp.zeros((6, 1)), objectives, jnp.zeros((6, 1)), {}))
    found = elites.statistics([1, 2, 3, 3])  # a cell counts once
    assert (found.num_cells, found.num_elites) == (3, 2)
    assert (found.qd_score, found.normalized_qd_score) == (8.0, 8 / 3)
    assert (found.best_objective, found.mean_objective, found.worst_objective) == (4.0, 3.0, 2.0)
    mask = np.array([True, True, False, False, True, False])
    assert elites.statistics(mask).median_objective == 0.0
    with pytest.raises(ValueError, match=r"^cells:"):
        elites.statistics([])


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=3, unique=True))
def test_merged_archives_hold_what_one_archive_of_everything_holds(seeds):
    parts = [elites_of(seed) for seed in seeds]
    merged = parts[0].merged(*parts[1:])
    best = np.max([part.store.objectives for part in parts], axis=0)
    np.testing.assert_array_equal(merged.store.objectives, best)
    for elite in merged:
        holders = [part.elite(elite.cell) for part in parts]
        first = next(one for one in holders if one and one.objective == elite.objective)
        np.testing.assert_array_equal(elite.solution, first.solution)
        assert elite.fields["age"] == first.fields["age"]


def test_elites_stay_corrected_where_all_of_them_are(hand_made):
    corrected = Elites(hand_made.archive, hand_made.store, is_corrected=True)
    assert corrected.merged().is_corrected
    assert corrected.merged(corrected).is_corrected
    assert not corrected.merged(hand_made).is_corrected
    assert not hand_made.merged(corrected).is_corrected


def test_elites_go_into_other_cells_by_their_measures(elites, ribs):
    coarse = GridArchive((2, 2), [-1, -2], [1, 2])
    moved = elites.into(coarse)
    assert moved.store.fields == {}
    expected = RibsGrid(solution_dim=3, dims=[2, 2], ranges=[(-1, 1), (-2, 2)])
    data = ribs.data(["solution", "objective", "measures"])
    expected.add(data["solution"], data["objective"], data["measures"])
    theirs = {int(elite["index"]): float(elite["objective"]) for elite in expected}
    assert {elite.cell: elite.objective for elite in moved} == pytest.approx(theirs)
    with pytest.raises(ValueError, match=r"^archive:.*2.*1"):
        elites.into(GridArchive((2,), 0, 1))
    fields = GridArchive((2, 2), -1, 1, fields={"image": (2, 2)})
    with pytest.raises(ValueError, match=r"field 'image':.*\(2, 2\)"):
        elites.into(fields)
    with pytest.raises(ValueError, match=r"^others:"):
        elites.merged(moved)


def test_cells_are_the_same_only_where_centres_and_metric_are():
    def grid(**changes):
        return GridArchive(**({"shape": (2, 2), "lower": 0, "upper": 1} | changes))

    assert grid().has_cells_of(grid(f_min=3.0, measure_names=("a", "b")))
    assert not grid().has_cells_of(grid(upper=2))
    assert not grid().has_cells_of(grid(shape=(4, 1)))
    points = np.eye(4)
    assert gloam.CVTArchive(points).has_cells_of(gloam.CVTArchive(points, 0, 2))
    assert not gloam.CVTArchive(points).has_cells_of(gloam.CVTArchive(points, metric="cosine"))
    near = gloam.CVTArchive(points, within=0.5)
    assert not gloam.CVTArchive(points).has_cells_of(near)
    assert near.has_cells_of(gloam.CVTArchive(points, within=0.5))
    assert not gloam.CVTArchive(points).has_cells_of(gloam.CVTArchive(points[::-1]))
    assert not grid().has_cells_of(gloam.CVTArchive(points))


def test_names_of_measures_are_columns_of_the_table():
    archive = GridArchive((2, 2), 0, 1, measure_names=("speed", "height"))
    store = Store(jnp.zeros((4, 1)), jnp.zeros(4), jnp.arange(8.0).reshape(4, 2), {})
    table = Elites(archive, store).to_pandas()
    assert list(table.columns) == ["cell", "objective", "speed", "height", "solution_0"]
    assert table["height"].tolist() == [1, 3, 5, 7]


@pytest.mark.parametrize("name", ["age", "", None, 5, []])
def test_a_field_that_the_archive_lacks_is_answered_by_its_fields(hand_made, name):
    with pytest.raises(ValueError, match=r"^name:.*\['image', 'score'\]"):
        hand_made.field(name)


def test_elites_are_of_an_archive_and_a_store(hand_made):
    with pytest.raises(ValueError, match=r"^archive:.*str"):
        Elites("grid", hand_made.store)
    with pytest.raises(ValueError, match=r"^store:.*dict"):
        Elites(HAND_MADE, {})
