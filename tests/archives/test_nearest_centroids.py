"""Exact nearest centroids wherever centroids lie: float64 and pyribs are the oracles."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ribs.archives import CVTArchive as PyribsCVT
from sklearn.neighbors import NearestNeighbors

import gloam
from gloam._tools import devices
from gloam.archives import CVTArchive, nearest_centroids
from gloam.archives.nearest_centroids import scores_collide, squared_gaps

U = 2.0**-24  # float32 rounds by at most this share
CELLS, MEASURES = 600, 3  # shared by most tests, so that one program serves them

index_of = eqx.filter_jit(lambda archive, measures: archive.index_of(measures))


def centroids_and_points(cells: int = CELLS, meas: int = MEASURES, *, around: float = 0.0):
    rng = np.random.default_rng(cells * 100 + meas)
    draw = rng.uniform(around - 1, around + 1, (cells + 200, meas)).astype(np.float32)
    return draw[:cells], draw[cells:]


def scores_and_margins(points, centroids) -> tuple[np.ndarray, np.ndarray]:
    """Float64 scores, the largest for the nearest centroid, and what float32 may get wrong.

    gloam maximises ``s = p.c - |c|^2 / 2`` with p and c taken from the centroids' mean. Rounding
    that difference changes p and c by U each; the sum of k products by k U of their absolute sum;
    the last difference by U of both its terms. The offset has the roundings of c twice and its own.
    One more U each stands for the products of these small terms.
    """
    origin = centroids.mean(axis=0, dtype=np.float64).astype(np.float32).astype(np.float64)
    p, c = points.astype(np.float64) - origin, centroids.astype(np.float64) - origin
    offset = 0.5 * np.square(c).sum(axis=1)
    k = p.shape[1]
    return p @ c.T - offset, (k + 4) * U * (np.abs(p) @ np.abs(c).T) + 5 * U * offset


def assert_nearest(chosen, scores, margins):
    """The chosen centroid is the nearest, up to the margins of the two centroids compared."""
    chosen = np.asarray(chosen)
    assert chosen.dtype == np.int32
    assert ((chosen >= 0) & (chosen < scores.shape[1])).all()
    row = np.arange(len(chosen))
    best = scores.argmax(axis=1)
    gap = scores[row, best] - scores[row, chosen]
    assert (gap <= margins[row, best] + margins[row, chosen]).all()
    assert (chosen == best).mean() > 0.95  # the margin is seldom needed


# Up to 2,048 centroids each has a lane of its own; beyond, lanes hold 40 or, with 60 measures, 34,
# and the last lane is not full.
@pytest.mark.parametrize(("cells", "meas"), [(1, 2), (CELLS, MEASURES), (2049, 2), (2100, 60)])
def test_indices_agree_with_float64(cells, meas):
    centroids, points = centroids_and_points(cells, meas)
    chosen = index_of(CVTArchive(centroids), jnp.asarray(points))
    assert_nearest(chosen, *scores_and_margins(points, centroids))


@pytest.fixture
def gpu_index_of(monkeypatch):
    """The search as it is written for a GPU, in small blocks."""
    monkeypatch.setattr(devices, "platform", lambda: "gpu")
    monkeypatch.setattr(nearest_centroids, "_BLOCK", 64)
    return eqx.filter_jit(lambda archive, measures: archive.index_of(measures))


# Less than a block, a whole one, and a last block that overlaps the one before it.
@pytest.mark.parametrize("cells", [1, 64, 65])
def test_a_gpus_search_agrees_with_float64(gpu_index_of, cells):
    centroids, points = centroids_and_points(cells)
    archive = CVTArchive(centroids)
    assert archive.for_programs().lanes.rows.shape[0] == 1
    chosen = gpu_index_of(archive, jnp.asarray(points))
    assert_nearest(chosen, *scores_and_margins(points, centroids))
    equal = gpu_index_of(CVTArchive(np.ones_like(centroids)), jnp.asarray(points))
    assert (equal == 0).all()


def test_indices_agree_with_pyribs():
    centroids, points = centroids_and_points()
    theirs = PyribsCVT(solution_dim=1, centroids=centroids, ranges=[(-1, 1)] * MEASURES)
    ours = np.asarray(index_of(CVTArchive(centroids), jnp.asarray(points)))
    scores, margins = scores_and_margins(points, centroids)
    second, first = np.sort(scores, axis=1)[:, -2:].T
    clear = first - second > 2 * margins.max(axis=1)
    assert clear.mean() > 0.95
    np.testing.assert_array_equal(ours[clear], theirs.index_of(points)[clear])


# Without the shift of origin, float32 would see squares of 10^6 and lose what tells cells apart.
def test_measures_far_from_zero_find_their_cells():
    centroids, points = centroids_and_points(around=1000.0)
    chosen = index_of(CVTArchive(centroids), jnp.asarray(points))
    assert_nearest(chosen, *scores_and_margins(points, centroids))


@pytest.mark.parametrize("far", [1e6, 1e20, 1e30])
def test_points_far_outside_find_their_cells(far):
    centroids, points = centroids_and_points()
    points = (points * far).astype(np.float32)
    chosen = index_of(CVTArchive(centroids), jnp.asarray(points))
    assert_nearest(chosen, *scores_and_margins(points, centroids))


@pytest.mark.parametrize("extreme", [np.finfo(np.float32).max, -np.finfo(np.float32).max])
def test_the_largest_floats_still_have_a_cell(extreme):
    centroids, points = centroids_and_points()
    chosen = index_of(CVTArchive(100 * centroids), jnp.full(points.shape, extreme))
    assert ((chosen >= 0) & (chosen < CELLS)).all()


# Pairs 300 rows apart lie in one lane of the search, or in different lanes.
@pytest.mark.parametrize("cells", [CELLS, 2100])
def test_duplicate_centroids_leave_the_second_empty(cells):
    centroids, points = centroids_and_points(cells // 2)
    twice = index_of(CVTArchive(np.concatenate([centroids, centroids])), jnp.asarray(points))
    assert (twice < cells // 2).all()
    assert_nearest(twice, *scores_and_margins(points, centroids))


def test_equal_centroids_all_go_to_the_first():
    _, points = centroids_and_points()
    cells = index_of(CVTArchive(np.full((CELLS, MEASURES), 0.5)), jnp.asarray(1e6 * points))
    assert (cells == 0).all()


def test_a_point_between_two_centroids_goes_to_the_first():
    # Whole numbers around a mean of zero: every product is exact, so the tie is.
    archive = CVTArchive([[-2.0, 0.0], [2.0, 0.0], [0.0, 2.0], [0.0, -2.0]])
    points = jnp.asarray([[0.0, 0.0], [1.0, 1.0], [0.0, 3.0], [-1.0, -1.0], [1.0, -1.0]])
    assert index_of(archive, points).tolist() == [0, 1, 2, 0, 1]


def test_a_single_point_is_indexed_like_many():
    centroids, points = centroids_and_points()
    archive = CVTArchive(centroids)
    alone = [int(index_of(archive, jnp.asarray(point[None]))[0]) for point in points[:20]]
    assert alone == index_of(archive, jnp.asarray(points))[:20].tolist()


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_centers_are_in_their_own_cells(metric):
    centroids, _ = centroids_and_points()
    archive = CVTArchive(centroids, metric=metric)
    cells = jnp.arange(0, CELLS, 3)
    np.testing.assert_array_equal(index_of(archive, archive.centers_of(cells)), cells)


@pytest.mark.parametrize("meas", [10, pytest.param(20, marks=pytest.mark.slow), 50])
def test_indices_agree_on_the_papers_centroids(shared_data, meas):
    path = shared_data / "centroids" / f"lp_{meas}d.npy"
    if not path.is_file():
        pytest.skip(f"no file '{path}': it is part of the data folder")
    archive = CVTArchive(path)
    assert not archive.by_differences  # they keep the fast search
    centroids = np.load(path)
    assert centroids.shape == (archive.num_cells, archive.measure_dim) == (10_000, meas)
    own = np.arange(0, 10_000, 97)
    rng = np.random.default_rng(0)
    points = (rng.uniform(-0.8, 0.8, (64, meas)) * np.abs(centroids).max()).astype(np.float32)
    chosen = np.asarray(index_of(archive, jnp.asarray(np.concatenate([centroids[own], points]))))
    np.testing.assert_array_equal(chosen[: len(own)], own)
    assert_nearest(chosen[len(own) :], *scores_and_margins(points, centroids))


# Cosine


def test_cosine_indices_agree_with_float64_whatever_the_length():
    centroids, points = centroids_and_points(CELLS, 6)
    rng = np.random.default_rng(0)
    points = (points * 10 ** rng.uniform(-3, 3, (len(points), 1))).astype(np.float32)
    centroids = (centroids * rng.uniform(0.1, 10, (CELLS, 1))).astype(np.float32)
    c = centroids.astype(np.float64)
    c /= np.linalg.norm(c, axis=1, keepdims=True)
    scores = points.astype(np.float64) @ c.T
    # As for the Euclidean score; a centroid's length rounds by half of k + 1, its division once.
    margins = (1.5 * 6 + 4) * U * (np.abs(points) @ np.abs(c).T)
    chosen = index_of(CVTArchive(centroids, metric="cosine"), jnp.asarray(points))
    assert_nearest(chosen, scores, margins)


def test_cosine_indices_agree_with_pyribs():
    centroids, points = centroids_and_points(CELLS, 6)
    theirs = PyribsCVT(
        solution_dim=1,
        centroids=centroids,
        ranges=[(-1, 1)] * 6,
        nearest_neighbors="sklearn_nn",
        sklearn_nn_kwargs={"metric": "cosine"},
    )
    ours = index_of(CVTArchive(centroids, metric="cosine"), jnp.asarray(points))
    # No two of these centroids are within rounding of each other for any of the points.
    np.testing.assert_array_equal(ours, theirs.index_of(points))


# Clusters far apart


def clusters(cells, measures, offset, spread, number, seed):
    """Centroids in clusters at +- offset, and 200 points inside of them."""
    rng = np.random.default_rng(seed)
    middles = offset * rng.choice([-1.0, 1.0], (number, measures))

    def draw(count):
        chosen = middles[rng.integers(0, number, count)]
        return (chosen + spread * rng.uniform(-1, 1, (count, measures))).astype(np.float32)

    return draw(cells), draw(200)


def nearest(centroids, points):
    wide = centroids.astype(np.float64)
    found = NearestNeighbors(n_neighbors=1, algorithm="kd_tree").fit(wide)
    return found.kneighbors(points.astype(np.float64))


# Fewer centroids than a block, and several blocks.
@pytest.mark.parametrize(("cells", "measures"), [(500, 10), (3000, 2)])
def test_clusters_far_apart_are_told_apart(cells, measures):
    centroids, points = clusters(cells, measures, 500.0, 0.1, 2, seed=1)
    archive = CVTArchive(centroids, index="exact")
    assert archive.by_differences
    expected = nearest(centroids, points)[1][:, 0]
    np.testing.assert_array_equal(archive.index_of(jnp.asarray(points)), expected)
    np.testing.assert_array_equal(index_of(archive, jnp.asarray(points)), expected)


@settings(max_examples=25)
@given(
    measures=st.sampled_from([1, 12]),
    exponent=st.floats(-3, 4),
    spread=st.floats(-2, 2),
    number=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_cells_agree_with_float64_over_offsets_and_scales(measures, exponent, spread, number, seed):
    centroids, points = clusters(300, measures, 10**exponent, 10**spread, number, seed)
    chosen = np.asarray(index_of(CVTArchive(centroids), jnp.asarray(points)))
    least, _ = nearest(centroids, points)
    got = np.linalg.norm(centroids[chosen].astype(np.float64) - points, axis=1)
    wide = centroids.astype(np.float64)
    gaps = NearestNeighbors(n_neighbors=2).fit(wide).kneighbors(wide)[0][:, 1]
    excess = np.square(got) - np.square(least[:, 0])
    # Right but for a tenth of the distance between neighbours, which scores may round away.
    allowed = 0.1 * np.median(np.square(gaps)) + 1e-6 * np.square(least[:, 0])
    assert (excess <= allowed).mean() > 0.98


def test_directions_that_are_nearly_equal_are_told_apart():
    rng = np.random.default_rng(3)
    base = rng.standard_normal(8)
    centroids = (base + 3e-4 * rng.standard_normal((400, 8))).astype(np.float32)
    points = (7.0 * (base + 3e-4 * rng.standard_normal((200, 8)))).astype(np.float32)
    archive = CVTArchive(centroids, metric="cosine")
    assert archive.by_differences
    c, p = (
        rows / np.linalg.norm(rows, axis=1, keepdims=True)
        for rows in (centroids.astype(np.float64), points.astype(np.float64))
    )
    expected = nearest(c, p)[1][:, 0]
    assert (np.asarray(archive.index_of(jnp.asarray(points))) == expected).mean() > 0.97


def test_ties_of_differences_go_to_the_lowest_row():
    centroids = np.repeat(np.float32([[500.0], [500.25], [-500.0]]), 2, axis=0)
    near = centroids + np.float32([0, 1, 0, 1, 0, 1])[:, None] * 2**-14
    archive = CVTArchive(np.concatenate([near, near]))
    assert archive.by_differences
    assert archive.index_of(jnp.asarray(near)).tolist() == [0, 1, 2, 3, 4, 5]
    between = jnp.array([[500.125]])  # row 1 is nearer than row 2 by 2^-14
    assert archive.index_of(between).tolist() == [1]


def test_a_few_near_duplicates_do_not_slow_an_archive_down():
    centroids = np.random.default_rng(0).uniform(-1, 1, (1000, 6)).astype(np.float32)
    centroids[1] = centroids[0] + 1e-6
    assert not scores_collide(centroids, centroids.mean(axis=0))
    assert not scores_collide(np.ones((5, 2)), np.zeros(2))  # equal centroids are ties


def test_gaps_are_distances_to_the_nearest_different_centroid():
    centroids = np.array([[0.0], [0.0], [3.0], [7.0]])
    gaps = squared_gaps(centroids, np.array([0, 2, 3]), np.array([2.5]))
    np.testing.assert_allclose(gaps, [9.0, 9.0, 16.0])
    assert squared_gaps(centroids[:2], np.array([1]), np.zeros(1)).tolist() == [np.inf]


@pytest.mark.slow
def test_a_search_on_far_clusters_puts_elites_into_their_cells():
    centroids, _ = clusters(60, 2, 500.0, 0.1, 2, seed=4)
    algorithm = gloam.MAPElites(CVTArchive(centroids), np.zeros(2), 0.05, batch_size=30)
    result = gloam.run(
        lambda x: (x[:, 0] * 0 + 1, jnp.where(x > 0, 500.0, -500.0) + x),
        algorithm,
        iterations=3,
        progress=False,
    )
    expected = nearest(centroids, result.elites.flat_measures)[1][:, 0]
    np.testing.assert_array_equal(result.elites.cells, expected)
