"""Targets: which cells are drawn, and their nearest elites against a search in NumPy."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gloam
from gloam.archives import targets
from gloam.archives.store import empty_store, filled_store, running_counts

SOL = 3
X0 = jnp.asarray([7.0, 8.0, 9.0])
RANDOM = np.random.default_rng(3)
# The widths of the cells of the grid differ by a factor of 32.
GRID = gloam.GridArchive((5, 8), [0.0, -4.0], [0.5, 20.0])
CENTROIDS = RANDOM.normal(size=(40, 3))
ARCHIVES = {
    "grid": GRID,
    "cvt": gloam.CVTArchive(CENTROIDS),
    "cosine": gloam.CVTArchive(CENTROIDS, metric="cosine"),
    "large": gloam.CVTArchive(RANDOM.normal(size=(900, 2))),
}
SMALL = ["grid", "cvt", "cosine"]
COUNT, NEAR = 60, 4


def draw(archive, store, number, *, key, **options):
    counts = running_counts(store.occupied)
    return targets.draw_targets(archive, store, counts, X0, number, key=key, **options)


@eqx.filter_jit
def drawn(archive, store, key, number=COUNT, num_near=NEAR, near_elites=False):
    options = {"num_near": num_near, "near_elites": near_elites}
    return draw(archive, store, number, key=key, **options)


@functools.cache
def store_of(name: str, number: int):
    """A store with elites in random cells. Some measures are outside of the bounds."""
    archive = ARCHIVES[name]
    random = np.random.default_rng(number)
    if name == "grid":
        measures = np.asarray([0.25, 8.0]) + random.normal(size=(number, 2)) * [0.2, 9.0]
    else:
        measures = random.normal(size=(number, archive.measure_dim))
    measures = jnp.asarray(measures, jnp.float32)
    solutions = jnp.asarray(random.normal(size=(number, SOL)), jnp.float32)

    @jax.jit
    def filled(measures, solutions):
        cells = archive.index_of(measures)
        return filled_store(archive, solutions, jnp.ones(number), measures, cells, {})

    return filled(measures, solutions)


def seen_by_discounts(name, rows) -> np.ndarray:
    """Rows of measures or centers in the units in which distances count, in float64."""
    rows = np.asarray(rows, float)
    if name == "grid":
        return rows / [0.1, 3.0]  # the widths of a cell
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True) if name == "cosine" else rows


@pytest.mark.parametrize("name", SMALL)
def test_the_nearest_elites_are_those_of_a_search_in_numpy(name):
    archive = ARCHIVES[name]
    store = store_of(name, 30)
    found = drawn(archive, store, jax.random.key(1))
    elites = np.flatnonzero(store.occupied)
    assert NEAR < len(elites) < archive.num_cells
    measures = seen_by_discounts(name, store.measures[elites])
    centers = seen_by_discounts(name, archive.centers_of(found.cells))
    np.testing.assert_allclose(found.centers, centers, rtol=1e-5, atol=1e-6)
    distances = np.linalg.norm(centers[:, None] - measures, axis=2)
    nearest = elites[np.argsort(distances, axis=1)[:, :NEAR]]
    np.testing.assert_array_equal(found.solutions, store.solutions[nearest])
    wanted = seen_by_discounts(name, store.measures[nearest])
    np.testing.assert_allclose(found.measures, wanted, rtol=1e-5, atol=1e-6)
    assert found.are_elites.all()
    assert found.are_empty.all()
    assert not np.isin(found.cells, elites).any()
    if name == "grid":  # one alone is the first of several
        alone = drawn(archive, store, jax.random.key(1), num_near=1)
        np.testing.assert_array_equal(alone.solutions[:, 0], found.solutions[:, 0])


@pytest.mark.parametrize("name", SMALL)
def test_targets_near_elites_are_the_empty_cells_nearest_to_one(name):
    archive = ARCHIVES[name]
    store = store_of(name, 30)
    found = drawn(archive, store, jax.random.key(1), near_elites=True)
    elites, empty = np.flatnonzero(store.occupied), np.flatnonzero(~store.occupied)
    measures = seen_by_discounts(name, store.measures[elites])
    centers = seen_by_discounts(name, archive.centers_of(jnp.asarray(empty)))
    nearest = empty[np.argmin(np.linalg.norm(measures[:, None] - centers, axis=2), axis=1)]
    # Of the empty cells that are nearest to some elite, 60 draws hit several.
    assert len(np.unique(found.cells)) > 3
    assert np.isin(found.cells, nearest).all()
    assert found.are_empty.all()


@pytest.mark.parametrize("num_counts", [GRID.num_cells, 7])
def test_targets_that_were_tried_least_are_drawn_uniformly(num_counts):
    store = store_of("grid", 30)
    empty = np.flatnonzero(~store.occupied)
    # Cells share a count if there are fewer of these.
    tried = np.full(num_counts, 3)
    tried[empty[:2] % num_counts] = 1
    least = empty[tried[empty % num_counts] == 1]
    number, tried = 100 * len(least), jnp.asarray(tried)
    found = eqx.filter_jit(draw)(GRID, store, number, tried=tried, key=jax.random.key(4))
    counts = np.bincount(found.cells, minlength=GRID.num_cells)
    assert counts.sum() == counts[least].sum()
    assert counts[least].min() > 60


@pytest.mark.parametrize("is_full", [False, True])
def test_cells_are_drawn_uniformly_of_the_empty_ones_while_there_are_some(is_full):
    store = store_of("grid", 30)
    wanted = np.flatnonzero(~store.occupied)
    if is_full:
        wanted = np.arange(GRID.num_cells)
        store = eqx.tree_at(lambda s: s.objectives, store, jnp.ones(GRID.num_cells))
    number = 100 * len(wanted)
    found = drawn(GRID, store, jax.random.key(5), number=number, num_near=1)
    assert (np.asarray(found.are_empty) == (not is_full)).all()
    counts = np.bincount(found.cells, minlength=GRID.num_cells)
    assert counts.sum() == counts[wanted].sum()
    # The statistic has a mean of n - 1 and a standard deviation of sqrt(2 (n - 1)).
    statistic, freedom = ((counts[wanted] - 100) ** 2 / 100).sum(), len(wanted) - 1
    assert abs(statistic - freedom) < 4 * np.sqrt(2 * freedom)


@pytest.mark.parametrize("near_elites", [False, True])
def test_without_elites_x0_stands_in_for_them(near_elites):
    store = empty_store(GRID.num_cells, SOL, 2, {})
    found = drawn(GRID, store, jax.random.key(5), near_elites=near_elites)
    np.testing.assert_array_equal(found.solutions, np.broadcast_to(X0, (COUNT, NEAR, SOL)))
    assert found.are_empty.all()
    assert not found.are_elites.any()
    assert np.isfinite(found.measures).all()


def test_x0_stands_in_for_elites_that_are_missing():
    store = store_of("grid", 2)
    found = drawn(GRID, store, jax.random.key(5))
    assert found.are_elites.tolist() == [[True, True, False, False]] * COUNT
    np.testing.assert_array_equal(found.solutions[:, 2:], np.broadcast_to(X0, (COUNT, 2, SOL)))
    elites = np.asarray(store.solutions)[np.asarray(store.occupied)]
    for solution in np.asarray(found.solutions)[:, :2].reshape(-1, SOL):
        assert (solution == elites).all(axis=1).any()


@pytest.mark.parametrize("limit", [{"_MOST_CELLS": 8}, {"_MOST_DISTANCES": 8 * COUNT + 1}])
@pytest.mark.parametrize("near_elites", [False, True])
def test_of_a_large_archive_random_cells_are_searched(monkeypatch, near_elites, limit):
    store = store_of("grid", 30)
    for name, most in limit.items():
        monkeypatch.setattr(targets, name, most)
    # Compiled anew, because the number is not an argument.
    few = jax.jit(
        lambda store, key: draw(GRID, store, COUNT, num_near=2, near_elites=near_elites, key=key)
    )
    found = few(store, jax.random.key(2))
    assert found.are_elites.all()
    assert found.are_empty.all()
    elites = np.asarray(store.solutions)[np.asarray(store.occupied)]
    chosen = np.unique(np.asarray(found.solutions).reshape(-1, SOL), axis=0)
    assert 1 < len(chosen) <= 8
    assert all((solution == elites).all(axis=1).any() for solution in chosen)
    # Empty cells are in the sample even if there is one only.
    cells = jnp.arange(GRID.num_cells)
    last = eqx.tree_at(lambda s: s.objectives, store, jnp.where(cells == 7, -jnp.inf, 1.0))
    assert set(few(last, jax.random.key(2)).cells.tolist()) == {7}
    nothing = few(empty_store(GRID.num_cells, SOL, 2, {}), jax.random.key(2))
    np.testing.assert_array_equal(nothing.solutions, np.broadcast_to(X0, (COUNT, 2, SOL)))


@pytest.mark.parametrize(
    ("number", "searched"), [(1, 16_384), (8, 16_384), (15, 8_738), (108, 1_213), (540, 242)]
)
def test_a_draw_of_more_targets_searches_fewer_cells(monkeypatch, number, searched):
    archive, sizes = gloam.GridArchive((150, 150), -1, 1), []

    def nearest(points, rows, is_row, num_near):
        sizes.append((len(points), len(rows), len(is_row)))
        return found(points, rows, is_row, num_near)

    found = targets.nearest
    monkeypatch.setattr(targets, "nearest", nearest)
    store = empty_store(archive.num_cells, SOL, 2, {})
    options = {"key": jax.random.key(0), "num_near": 32, "near_elites": True}
    drawn = jax.eval_shape(lambda: draw(archive, store, number, **options))
    assert drawn.solutions.shape == (number, 32, SOL)
    # First the cells near to elites, then the elites near to cells.
    assert sizes == [(number, searched, searched)] * 2


def test_of_many_elites_the_nearest_is_among_those_found():
    archive, store = ARCHIVES["large"], store_of("large", 1000)
    elites = np.flatnonzero(store.occupied)
    assert len(elites) > targets._GROUPS
    found = drawn(archive, store, jax.random.key(1), num_near=8)
    centers, measures = np.asarray(found.centers, float), np.asarray(store.measures, float)[elites]
    distances = np.linalg.norm(centers[:, None] - measures, axis=2)
    nearest = np.argsort(distances, axis=1)[:, :8]
    np.testing.assert_array_equal(found.solutions[:, 0], store.solutions[elites[nearest[:, 0]]])
    # In order, and nearly all of the nearest: two of 8 seldom are in one of 320 groups.
    of_found = np.linalg.norm(np.asarray(found.measures) - centers[:, None], axis=2)
    assert (np.diff(of_found, axis=1) >= -1e-4).all()
    is_same = np.isin(np.asarray(found.solutions)[..., 0], store.solutions[elites[nearest], 0])
    assert is_same.mean() > 0.9
