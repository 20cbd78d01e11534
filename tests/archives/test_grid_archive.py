import os

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from ribs.archives import GridArchive as PyribsGrid

import gloam
from gloam.archives import GridArchive

# Shapes with bounds that are negative, lopsided, tiny, or far from zero.
GRIDS = [
    ((7,), [-3.0], [11.5]),
    ((3, 4, 5), [0.0, -10.0, 1e-3], [0.5, 90.0, 2e-3]),
    ((50, 40), [999.0, -1001.0], [1001.0, -999.0]),
    ((2, 1, 2, 3, 2), [-5.12] * 5, [5.12] * 5),
]
index_of = eqx.filter_jit(lambda archive, measures: archive.index_of(measures))
centers_of = eqx.filter_jit(lambda archive, cells: archive.centers_of(cells))

grids = pytest.mark.parametrize(("shape", "lower", "upper"), GRIDS)


def position(measures, shape, lower, upper) -> np.ndarray:
    """Places along each measure in units of cells, in float64 from the float32 numbers."""
    low, high = (np.asarray(np.float32(bound), np.float64) for bound in (lower, upper))
    return (np.asarray(measures, np.float64) - low) / (high - low) * np.asarray(shape)


def inside_cells(shape, lower, upper, count: int = 500) -> tuple[np.ndarray, np.ndarray]:
    """Points off the edges of their cells by 1% of a cell, and the places they were made for."""
    rng = np.random.default_rng(0)
    place = np.stack([rng.integers(n, size=count) for n in shape], axis=1)
    fraction = rng.uniform(0.01, 0.99, place.shape)
    low, high = np.asarray(lower), np.asarray(upper)
    points = low + (place + fraction) / np.asarray(shape) * (high - low)
    return points.astype(np.float32), place


@grids
def test_indices_agree_with_pyribs(shape, lower, upper):
    points, place = inside_cells(shape, lower, upper)
    # pyribs adds 1e-6 before it divides by the range: at most 0.1% of a cell for these bounds.
    theirs = PyribsGrid(solution_dim=1, dims=shape, ranges=list(zip(lower, upper, strict=True)))
    ours = index_of(GridArchive(shape, lower, upper), jnp.asarray(points))
    assert ours.dtype == jnp.int32
    np.testing.assert_array_equal(ours, theirs.index_of(points))
    np.testing.assert_array_equal(ours, np.ravel_multi_index(tuple(place.T), shape))


@grids
def test_indices_agree_with_float64_up_to_rounding(shape, lower, upper):
    rng = np.random.default_rng(1)
    low, high = np.asarray(lower), np.asarray(upper)
    points = rng.uniform(low, high, (500, len(shape)))
    # Half of the points are on edges of cells, as closely as float32 can say.
    edges = low + rng.integers(np.asarray(shape) + 1, size=points.shape) / shape * (high - low)
    points = np.where(rng.random(points.shape) < 0.5, points, edges).astype(np.float32)
    exact = position(points, shape, lower, upper)
    ours = index_of(GridArchive(shape, lower, upper), jnp.asarray(points))
    place = np.stack(np.unravel_index(np.asarray(ours), shape), axis=1)
    # Two differences, a division and a product: each rounds by at most a part in 2^24.
    margin = 4 * 2.0**-24 * np.maximum(np.abs(exact), 1e-6)
    least = np.clip(np.floor(exact - margin), 0, np.asarray(shape) - 1)
    most = np.clip(np.floor(exact + margin), 0, np.asarray(shape) - 1)
    assert ((least <= place) & (place <= most)).all()
    assert (least == most).mean() > 0.4  # the margin does not excuse everything


def test_an_edge_belongs_to_the_cell_above_and_the_upper_bound_to_the_last():
    archive = GridArchive((8,), 0, 8)
    points = jnp.arange(9.0)[:, None]
    assert index_of(archive, points).tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 7]


def test_cells_are_numbered_in_c_order():
    archive = GridArchive((2, 3), 0, 1)
    points = [[x, y] for x in (0.25, 0.75) for y in (0.1, 0.5, 0.9)]
    assert index_of(archive, jnp.asarray(points)).tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("far", [1.5, 1e6, 1e12, 1e30, 3.4e38, np.inf])
def test_points_out_of_bounds_go_to_the_edge_cells(far):
    archive = GridArchive((4, 5), -1, 1)
    points = jnp.asarray([[-far, -far], [-far, 0.0], [-far, far], [0.1, far], [far, far]])
    place = np.unravel_index(np.asarray(index_of(archive, points)), (4, 5))
    assert np.stack(place, axis=1).tolist() == [[0, 0], [0, 2], [0, 4], [2, 4], [3, 4]]


@grids
def test_centers_are_in_their_own_cells(shape, lower, upper):
    archive = GridArchive(shape, lower, upper)
    cells = jnp.asarray(np.linspace(0, archive.num_cells - 1, 500).astype(np.int32))
    np.testing.assert_array_equal(index_of(archive, centers_of(archive, cells)), cells)


@grids
def test_centers_are_midway_between_edges(shape, lower, upper):
    edges = [np.linspace(*span, n + 1) for *span, n in zip(lower, upper, shape, strict=True)]
    middles = [(edge[1:] + edge[:-1]) / 2 for edge in edges]
    every = np.stack(np.meshgrid(*middles, indexing="ij"), axis=-1).reshape(-1, len(shape))
    archive = GridArchive(shape, lower, upper)
    cells = np.linspace(0, archive.num_cells - 1, 500).astype(np.int32)
    ours = centers_of(archive, jnp.asarray(cells))
    # A few roundings of numbers no larger than the bounds.
    atol = 4 * 2.0**-24 * np.abs([lower, upper]).max(axis=0)
    assert (np.abs(ours - every[cells]) <= atol).all()


def test_a_scalar_bound_serves_every_measure():
    archive = GridArchive([4, 5], -1, [1, 2])
    assert (archive.num_cells, archive.measure_dim, archive.shape) == (20, 2, (4, 5))
    assert archive.lower.tolist() == [-1, -1]
    assert archive.upper.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((), 0, 1), r"shape: expected .* got \(\)"),
        ((10, 0, 1), r"shape: expected .* got 10"),
        (((10, 0), 0, 1), "shape: expected a whole number >= 1, got 0"),
        (((10, 2.5), 0, 1), r"shape: expected a whole number >= 1, got 2\.5"),
        (((2**16, 2**15), 0, 1), r"shape: expected fewer than 2\*\*31 cells, got 2147483648"),
        (((10, 10), 1, 0), "expected lower < upper in every dimension"),
        (((10, 10), 0, [1, 0]), "expected lower < upper in every dimension"),
        (((10, 10), [0, 0, 0], 1), r"lower: expected a scalar or 2 numbers, got shape \(3,\)"),
        (((10, 10), 0, np.inf), "upper: expected finite bounds, got inf"),
        (((10, 10), np.nan, 1), "lower: expected finite bounds, got nan"),
    ],
)
def test_wrong_arguments_are_explained(arguments, message):
    with pytest.raises(ValueError, match=message):
        GridArchive(*arguments)


def test_a_grid_that_does_not_fit_into_memory_is_refused_with_its_size(monkeypatch):
    with pytest.raises(ValueError, match=r"^shape:.*2.*31.*10000000000"):
        GridArchive((10,) * 10, 0, 1)
    pages = {"SC_PAGE_SIZE": 1000, "SC_PHYS_PAGES": 16_000_000}  # 16 GB
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)
    # A cell has 100 numbers of a solution, one objective and 3 measures, of four bytes each.
    message = "at most the 16 GB of memory of this machine, got 416 GB for the 1,000,000,000 cells"
    with pytest.raises(ValueError, match=f"archive: expected {message}"):
        gloam.MAPElites(GridArchive((1000, 1000, 1000), 0, 1), np.zeros(100), 0.1)
    algorithm = gloam.MAPElites(GridArchive((1000, 1000, 20), 0, 1), np.zeros(100), 0.1)
    assert algorithm.size_of_elites == 8_320_000_000
    message = "seeds: expected at most the 16 GB .* got 17 GB for the states of 2 seeds"
    with pytest.raises(ValueError, match=message):
        gloam.run(lambda x: (x[:, 0], x[:, :3]), algorithm, seeds=2, iterations=1)
