"""Elites beside items: distances and coverage computed by hand, orders, held-out items."""

import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_distances_go_from_measures_to_items(corners):
    np.testing.assert_allclose(corners.distances, [0.5, 1.0, 0.0], atol=1e-6)


def test_a_cosine_distance_is_one_minus_the_cosine():
    data = Dataset(np.array([[2.0, 0], [0, 5]]))
    measures = [[3, 4], [0, 0.1]]  # the first at a cosine of 0.6, the second in line
    found = Matches(elites_of(data.archive("cosine"), [0, 1], [1, 1], measures), data)
    np.testing.assert_allclose(found.distances, [0.4, 0.0], atol=1e-6)
    assert found.coverage(0.3) == 0.5


def test_coverage_counts_items_with_an_elite_near_enough(corners):
    assert corners.coverage() == corners.elites.coverage == 0.75
    assert [corners.coverage(within) for within in (0.0, 0.4, 0.5, 1.0, 9.0)] == [
        0.25,
        0.25,
        0.5,
        0.75,
        0.75,
    ]


def test_coverage_is_told_for_each_label(corners):
    plain = corners.coverage_by_label()
    assert plain.values.tolist() == [["a", 1, 1, 1.0], ["b", 2, 2, 1.0], ["c", 1, 0, 0.0]]
    assert list(plain.columns) == ["label", "items", "filled", "coverage"]
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
    assert found.coverage(within) <= found.coverage()


def test_the_table_has_what_is_known_of_each_pair(corners):
    table = corners.table("item")
    assert table[["row", "item", "name", "label"]].values.tolist() == [
        [0, 0, "w", "b"],
        [1, 1, "x", "a"],
        [2, 2, "y", "b"],
    ]
    np.testing.assert_allclose(table["objective"], [0.5, 0.9, 0.7])
    np.testing.assert_array_equal(table["distance"], corners.distances)


@pytest.mark.parametrize(
    ("by", "items"),
    [("objective", [1, 2, 0]), ("distance", [2, 0, 1]), ("label", [1, 2, 0]), ("item", [0, 1, 2])],
)
def test_the_table_is_ordered_the_best_first(corners, by, items):
    assert corners.table(by)["item"].tolist() == items


@pytest.mark.parametrize("by", ["objective", "distance", "label", "item"])
def test_equals_stay_in_the_order_of_the_items(by):
    data = Dataset(np.arange(40.0)[:, None], labels=["same"] * 40)
    found = Matches(elites_of(data.archive(), np.arange(40), np.ones(40), data.items), data)
    assert found.table(by)["row"].tolist() == list(range(40))


def test_rows_are_places_among_the_elites():
    data = Dataset(np.arange(40.0)[:, None])
    found = Matches(elites_of(data.archive(), [5, 2, 3], [0.1, 0.3, 0.2], [[5], [2], [3]]), data)
    table = found.table()
    assert table["item"].tolist() == [2, 3, 5]
    np.testing.assert_array_equal(found.elites.cells[table["row"]], table["item"])
    np.testing.assert_array_equal(found.elites.objectives[table["row"]], table["objective"])
    assert table["label"].tolist() == [None] * 3


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
    with refused("elites: expected Elites, got CVTArchive"):
        Matches(corners.elites.archive, corners.dataset)
    grid = gloam.GridArchive((2, 2), 0, 1)
    with refused("archive: expected CVTArchive, got GridArchive"):
        Matches(elites_of(grid, [0], [1.0], [[0, 0]]), corners.dataset)
    with refused("by: expected one of objective, distance, label, item, got 'size'."):
        corners.table("size")
    with refused("others: expected items of shape (2,), got shape (3,)."):
        corners.held_out(Dataset(np.eye(3)))


def test_what_is_not_there_is_refused(corners):
    empty = Matches(elites_of(corners.dataset.archive(), [], [], np.zeros((0, 2))), corners.dataset)
    assert empty.coverage() == empty.coverage(1.0) == 0.0
    assert len(empty.table()) == 0
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
    others = Dataset(np.array([[0.0, 2.0], [2.0, 0.0]]))
    assert matches.held_out(others)["row"].tolist() == [1, 1]


def test_file_names_that_are_not_utf8_can_be_shown():
    data = Dataset(np.eye(2), names=["caf\udce9.png", "b.png"])
    assert data.names == ["caf?.png", "b.png"]
