"""Items beside their nearest elites: distances, explained variance and coverage by hand, orders."""

import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import gloam
from gloam.archives.store import Store
from gloam.datasets import Dataset, Matches, matches
from tests.helpers import refused


def elites_of(archive, cells, objectives, measures):
    """A filled archive, put together without a search."""
    everywhere = np.full(archive.num_cells, -np.inf, np.float32)
    points = np.zeros((archive.num_cells, archive.measure_dim), np.float32)
    everywhere[cells], points[cells] = objectives, measures
    solutions = np.zeros((archive.num_cells, 1), np.float32)
    return gloam.Elites(archive, Store(solutions, everywhere, points, {}))


@pytest.fixture(scope="module")
def corners():
    """Items at the corners of a 3 x 4 rectangle; that at (3, 4) has no elite."""
    data = Dataset(
        np.array([[0.0, 0], [3, 0], [0, 4], [3, 4]]),
        labels=["b", "a", "b", "c"],
        names=["w", "x", "y", "z"],
    )
    found = elites_of(data.archive(), [0, 1, 2], [0.5, 0.9, 0.7], [[0.3, 0.4], [3, 1], [0, 4]])
    return Matches(found, data)


def test_the_examples_hold():
    found = doctest.testmod(matches, extraglobs={"np": np})
    assert found.attempted > 0
    assert found.failed == 0


def test_every_item_has_the_distance_to_its_nearest_elite(corners):
    # (3, 4) has no elite of its own; those at (3, 1) and (0, 4) are equally near, the first counts.
    np.testing.assert_allclose(corners.distances, [0.5, 1.0, 0.0, 3.0], atol=1e-6)
    assert corners.rows.tolist() == [0, 1, 2, 1]
    assert corners.filled.tolist() == [True, True, True, False]


def test_the_nearest_elite_may_be_that_of_another_cell():
    data = Dataset(np.array([[0.0], [1.0]]))
    found = Matches(elites_of(data.archive(), [0, 1], [1, 1], [[0.45], [3.0]]), data)
    assert found.rows.tolist() == [0, 0]
    np.testing.assert_allclose(found.distances, [0.45, 0.55], rtol=1e-6)


def test_a_cosine_distance_is_one_minus_the_cosine():
    data = Dataset(np.array([[2.0, 0], [0, 5]]))
    measures = [[4, 3], [0, 0.1]]  # the first at a cosine of 0.8 to its item, the second in line
    found = Matches(elites_of(data.archive("cosine"), [0, 1], [1, 1], measures), data)
    np.testing.assert_allclose(found.distances, [0.2, 0.0], atol=1e-6)
    assert found.coverage(0.1) == 0.5
    # The mean direction is at a cosine of sqrt(1/2) to both items.
    spread = 1 - np.sqrt(0.5)
    np.testing.assert_allclose(found.explained_by_item, [1 - 0.2 / spread, 1.0], rtol=1e-5)
    assert found.explained == pytest.approx(1 - 0.2 / (2 * spread), rel=1e-5)


_POINTS = arrays(np.float32, (5, 3), elements=st.floats(-1e4, 1e4, width=32))


@given(_POINTS, st.sampled_from(["euclidean", "cosine"]))
def test_no_elite_is_nearer_than_the_nearest(measures, metric):
    data = Dataset(np.random.default_rng(0).normal(size=(12, 3)))
    measures[0] = [0.5, 1, 2]  # rows of zeros have no direction
    found = Matches(elites_of(data.archive(metric), np.arange(5), np.ones(5), measures), data)
    items, points = data.items.astype(float), measures.astype(float)
    if metric == "euclidean":
        brute = np.linalg.norm(items[:, None] - points, axis=2)
    else:
        items /= np.linalg.norm(items, axis=1, keepdims=True)
        points = points[np.linalg.norm(points, axis=1) > 0]
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        brute = 1 - items @ points.T
    np.testing.assert_allclose(found.distances, brute.min(axis=1), rtol=1e-5, atol=1e-6)
    assert (found.reached == (found.explained_by_item > 0)).all()
    assert found.coverage(within=brute.max() + 1) == 1.0


def test_blocks_give_what_all_at_once_gives(monkeypatch):
    rng = np.random.default_rng(0)
    data, measures = Dataset(rng.normal(size=(30, 3))), rng.normal(size=(20, 3))
    elites = elites_of(data.archive(), np.arange(20), np.ones(20), measures)
    whole = Matches(elites, data).rows
    monkeypatch.setattr(matches, "_QUERIES", 7)
    monkeypatch.setattr(matches, "_POINTS", 3)
    np.testing.assert_array_equal(Matches(elites, data).rows, whole)


# Explained variance


def discs():
    """A disc that is a little lighter than its background, and one that is a little darker."""
    y, x = np.mgrid[-3.5:4, -3.5:4]
    light = np.where(x**2 + y**2 < 9, 0.6, 0.4)
    return Dataset(np.stack([light, 1 - light]))


def test_a_flat_color_explains_nothing_of_a_disc():
    data = discs()
    flat = np.full((1, 64), 0.5)
    # Every pixel is off by 0.1, so that 1 - MSE is 0.99; but the mean item is this flat color.
    assert 1 - np.square(data.items - flat).mean() == pytest.approx(0.99)
    found = Matches(elites_of(data.archive(), [0], [0.99], flat), data)
    assert found.explained == pytest.approx(0.0, abs=1e-6)
    np.testing.assert_allclose(found.explained_by_item, [0.0, 0.0], atol=1e-6)
    worse = Matches(elites_of(data.archive(), [0], [0.96], flat + 0.1), data)
    # 0.04 and 0 against 0.01 for pixels of 0.4 and 0.6: the light disc has 32 pixels of 64.
    assert (data.items[0] > 0.5).sum() == 32
    np.testing.assert_allclose(worse.explained_by_item, [-1.0, -1.0], atol=1e-5)
    assert not worse.reached.any()


def test_half_of_the_discs_is_half_of_the_variance():
    data = discs()
    measures = np.stack([data.items[0], np.full(64, 0.5)])
    found = Matches(elites_of(data.archive(), [0, 1], [1.0, 0.99], measures), data)
    np.testing.assert_allclose(found.explained_by_item, [1.0, 0.0], atol=1e-6)
    assert found.explained == pytest.approx(0.5, abs=1e-6)


def test_items_that_are_not_reached_are_farther_than_the_mean_item(corners):
    # Every corner is 2.5 from the mean (1.5, 2).
    np.testing.assert_allclose(corners.explained_by_item, [0.96, 0.84, 1.0, -0.44], atol=1e-6)
    assert corners.reached.tolist() == [True, True, True, False]
    assert corners.explained == pytest.approx(1 - (0.25 + 1 + 0 + 9) / (4 * 6.25))


def test_an_item_that_is_the_mean_is_explained_by_itself_only():
    data = Dataset(np.array([[-1.0], [0.0], [1.0]]))
    own = Matches(elites_of(data.archive(), [1], [1.0], [[0.0]]), data)
    assert own.explained_by_item.tolist() == [0.0, 1.0, 0.0]
    near = Matches(elites_of(data.archive(), [1], [1.0], [[0.25]]), data)
    assert near.explained_by_item[1] == -np.inf
    assert near.explained == pytest.approx(1 - (1.25**2 + 0.25**2 + 0.75**2) / 2)


# Coverage


def test_coverage_counts_items_with_an_elite_near_enough(corners):
    assert corners.coverage() == corners.elites.coverage == 0.75
    assert [corners.coverage(within) for within in (0.0, 0.4, 0.5, 1.0, 9.0)] == [
        0.25,
        0.25,
        0.5,
        0.75,
        1.0,  # an elite of another cell is 3 from the item without one
    ]


def test_coverage_is_told_for_each_label(corners):
    plain = corners.coverage_by_label()
    counts = ["label", "items", "filled", "coverage"]
    assert list(plain.columns) == [*counts, "explained"]
    assert plain[counts].values.tolist() == [["a", 1, 1, 1.0], ["b", 2, 2, 1.0], ["c", 1, 0, 0.0]]
    np.testing.assert_allclose(plain["explained"], [0.84, 0.98, -0.44], atol=1e-6)
    near = corners.coverage_by_label(within=0.5)
    assert near["coverage"].tolist() == [0.0, 1.0, 0.0]


@given(st.lists(st.floats(0, 2, width=32), min_size=3, max_size=3), st.floats(0, 3))
def test_labels_make_up_the_coverage_of_all(offsets, within):
    data = Dataset(np.arange(4.0)[:, None] * [1, 0], labels=list("aabb"))
    measures = data.items[:3] + np.array(offsets, np.float32)[:, None] * [0, 1]
    found = Matches(elites_of(data.archive(), np.arange(3), np.ones(3), measures), data)
    table = found.coverage_by_label(within)
    assert table["items"].sum() == len(data)
    assert table["filled"].sum() / len(data) == pytest.approx(found.coverage(within))
    assert found.coverage(within) <= found.coverage(within + 0.5)
    assert found.coverage(within) == (found.table()["distance"] <= within).mean()


# Tables


def test_the_table_has_what_is_known_of_each_item(corners):
    table = corners.table("item")
    assert table[["row", "item", "name", "label", "filled", "reached"]].values.tolist() == [
        [0, 0, "w", "b", True, True],
        [1, 1, "x", "a", True, True],
        [2, 2, "y", "b", True, True],
        [1, 3, "z", "c", False, False],
    ]
    np.testing.assert_allclose(table["objective"], [0.5, 0.9, 0.7, 0.9])
    np.testing.assert_array_equal(table["distance"], corners.distances)
    np.testing.assert_array_equal(table["explained"], corners.explained_by_item)


@pytest.mark.parametrize(
    ("by", "items"),
    [
        ("explained", [2, 0, 1, 3]),
        ("distance", [2, 0, 1, 3]),
        ("objective", [1, 2, 0, 3]),  # the elite shown for 3 is that of 1, its own cell is empty
        ("label", [1, 2, 0, 3]),
        ("item", [0, 1, 2, 3]),
    ],
)
def test_the_table_is_ordered_the_best_first(corners, by, items):
    assert corners.table(by)["item"].tolist() == items


def test_items_near_the_mean_are_harder_to_explain():
    # The mean is 5; the item 5.5 is 0.5 from it, and 0.2 from its elite; 0 is 1 from its elite.
    data = Dataset(np.array([[0.0], [5.5], [9.5]]))
    found = Matches(elites_of(data.archive(), [0, 1], [1, 1], [[1.0], [5.7]]), data)
    assert found.table("distance")["item"].tolist() == [1, 0, 2]
    assert found.table("explained")["item"].tolist() == [0, 1, 2]
    by_hand = [1 - 1 / 25, 1 - 0.04 / 0.25, 1 - 3.8**2 / 4.5**2]
    np.testing.assert_allclose(found.table("item")["explained"], by_hand, rtol=1e-5)


@pytest.mark.parametrize("by", ["explained", "objective", "distance", "label", "item"])
def test_equals_stay_in_the_order_of_the_items(by):
    data = Dataset(np.arange(40.0)[:, None], labels=["same"] * 40)
    found = Matches(elites_of(data.archive(), np.arange(40), np.ones(40), data.items), data)
    assert found.table(by)["row"].tolist() == found.table(by)["item"].tolist() == list(range(40))


def test_rows_are_places_among_the_elites():
    data = Dataset(np.arange(40.0)[:, None])
    found = Matches(elites_of(data.archive(), [5, 2, 3], [0.1, 0.3, 0.2], [[5], [2], [3]]), data)
    table = found.table("objective")
    assert len(table) == 40
    assert table["item"][:3].tolist() == [2, 3, 5]
    assert table["filled"].tolist() == [True] * 3 + [False] * 37
    np.testing.assert_array_equal(found.elites.cells[table["row"]][:3], table["item"][:3])
    np.testing.assert_array_equal(found.elites.objectives[table["row"]], table["objective"])
    measures = found.elites.flat_measures[table["row"], 0]
    np.testing.assert_array_equal(np.abs(measures - table["item"]), table["distance"])
    assert table["label"].tolist() == [None] * 40


def test_items_never_seen_have_a_distance_and_a_floor(corners):
    # (3, 3) is 1 from the item (3, 4), which has no elite, and 2 from the elite at (3, 1).
    # (0.3, 0.4) has an elite on it; its nearest item is (0, 0).
    others = Dataset(np.array([[3.0, 3], [0.3, 0.4]]), labels=["c", "b"], names=["p", "q"])
    table = corners.held_out(others)
    assert table[["name", "label", "row"]].values.tolist() == [["p", "c", 1], ["q", "b", 0]]
    np.testing.assert_allclose(table["distance"], [2.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(table["floor"], [1.0, 0.5], atol=1e-6)


def test_where_all_items_are_met_the_floor_is_reached():
    rng = np.random.default_rng(0)
    data, others = (Dataset(rng.normal(size=(30, 3))) for _ in range(2))
    found = Matches(elites_of(data.archive(), np.arange(30), np.ones(30), data.items), data)
    table = found.held_out(others)
    np.testing.assert_array_equal(table["distance"], table["floor"])
    brute = np.linalg.norm(others.items[:, None] - data.items, axis=2)
    np.testing.assert_allclose(table["floor"], brute.min(axis=1), rtol=1e-5)
    np.testing.assert_array_equal(table["row"], brute.argmin(axis=1))


def test_one_elite_serves_all_items_never_seen(corners):
    alone = Matches(elites_of(corners.dataset.archive(), [3], [1.0], [[3, 4]]), corners.dataset)
    table = alone.held_out(corners.dataset)
    np.testing.assert_allclose(table["distance"], [5, 4, 3, 0], atol=1e-6)
    assert table["floor"].tolist() == [0.0] * 4


def test_what_does_not_belong_together_is_refused(corners):
    other = Dataset(np.zeros((3, 2)) + np.arange(3)[:, None])
    with refused("dataset: expected 4 items, one for each cell, got 3 items."):
        Matches(corners.elites, other)
    with refused("elites:", "CVTArchive"):
        Matches(corners.elites.archive, corners.dataset)
    grid = gloam.GridArchive((2, 2), 0, 1)
    with refused("archive:", "GridArchive"):
        Matches(elites_of(grid, [0], [1.0], [[0, 0]]), corners.dataset)
    with refused("by:", "'size'"):
        corners.table("size")
    with refused("others:", "shape (3,)"):
        corners.held_out(Dataset(np.eye(3)))


def test_what_is_not_there_is_refused(corners):
    empty = Matches(elites_of(corners.dataset.archive(), [], [], np.zeros((0, 2))), corners.dataset)
    assert empty.coverage() == empty.coverage(1.0) == 0.0
    table = empty.table()
    assert table["item"].tolist() == [0, 1, 2, 3]
    assert not table["filled"].any()
    assert not table["reached"].any()
    assert (table["row"] == -1).all()
    assert np.isinf(table["distance"]).all()
    assert empty.explained == -np.inf
    with refused("elites: expected at least one elite, got none."):
        empty.held_out(corners.dataset)
    plain = Dataset(np.arange(40.0)[:, None])
    found = Matches(elites_of(plain.archive(), [0], [1.0], [[0]]), plain)
    with refused("labels: expected a dataset with labels, got none."):
        found.coverage_by_label()


def test_black_pictures_are_at_a_right_angle_to_everything():
    data = Dataset(np.array([[1.0, 0.0], [0.0, 1.0]]))
    # A search makes no elite of such a picture; elites from elsewhere may have them.
    elites = elites_of(data.archive("cosine"), [0, 1], [1.0, 1.0], [[0.0, 0.0], [0.0, 3.0]])
    matches = Matches(elites, data)
    assert matches.distances.tolist() == [1.0, 0.0]
    assert matches.rows.tolist() == [1, 1]
    others = Dataset(np.array([[0.0, 2.0], [2.0, 0.0]]))
    assert matches.held_out(others)["row"].tolist() == [1, 1]


def test_file_names_that_are_not_utf8_can_be_shown():
    data = Dataset(np.eye(2), names=["caf\udce9.png", "b.png"])
    assert data.names == ["caf?.png", "b.png"]


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("within", [0.05, 0.6])
def test_within_a_distance_an_item_has_the_best_elite_and_else_the_nearest(metric, within):
    rng = np.random.default_rng(0)
    items, cells = rng.normal(size=(30, 3)), np.arange(0, 30, 2)
    data = Dataset(items)
    archive = data.archive(metric, within=within)
    measures = items[cells] + rng.normal(0, 0.02, (15, 3))
    objectives = rng.normal(size=15)
    found = Matches(elites_of(archive, cells, objectives, measures), data)
    if metric == "euclidean":
        apart = np.linalg.norm(items[:, None] - measures, axis=2)
    else:
        unit, others = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (items, measures))
        apart = 1 - unit @ others.T
    is_near = apart <= within
    expected = np.where(is_near, objectives, -np.inf).argmax(axis=1)
    expected = np.where(is_near.any(axis=1), expected, apart.argmin(axis=1))
    np.testing.assert_array_equal(found.rows, expected)
    np.testing.assert_array_equal(found.reached, is_near.any(axis=1))


def test_without_an_objective_the_nearest_elite_is_the_best_one_within_a_distance():
    data = Dataset(np.array([[0.0, 0.0], [1.0, 0.0]]))
    archive = data.archive(within=1.0)
    measures = np.array([[0.2, 0.0], [1.0, 0.0]], np.float32)
    closeness = archive.closeness(measures, np.arange(2))
    found = Matches(elites_of(archive, [0, 1], closeness, measures), data)
    assert found.rows.tolist() == [0, 1]
