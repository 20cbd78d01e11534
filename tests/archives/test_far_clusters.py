"""Exact nearest centroids wherever centroids lie: float64 is the oracle."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors

import gloam
from gloam.archives import CVTArchive, Faiss, kmeans_centroids
from gloam.archives.nearest_centroids import scores_collide


def clusters(cells, measures, offset, spread, number, seed, points=200):
    """Centroids in clusters at +- offset, and points inside of them."""
    rng = np.random.default_rng(seed)
    middles = offset * rng.choice([-1.0, 1.0], (number, measures))

    def draw(count):
        chosen = middles[rng.integers(0, number, count)]
        return (chosen + spread * rng.uniform(-1, 1, (count, measures))).astype(np.float32)

    return draw(cells), draw(points)


def nearest(centroids, points):
    wide = centroids.astype(np.float64)
    found = NearestNeighbors(n_neighbors=1, algorithm="kd_tree").fit(wide)
    return found.kneighbors(points.astype(np.float64))


def assert_nearest(chosen, centroids, points):
    """Right but for a tenth of the distance between neighbours, which scores may round away."""
    least, _ = nearest(centroids, points)
    got = np.linalg.norm(centroids[chosen].astype(np.float64) - points, axis=1)
    wide = centroids.astype(np.float64)
    gaps = NearestNeighbors(n_neighbors=2).fit(wide).kneighbors(wide)[0][:, 1]
    excess = np.square(got) - np.square(least[:, 0])
    assert (
        excess <= 0.1 * np.median(np.square(gaps)) + 1e-6 * np.square(least[:, 0])
    ).mean() > 0.98


@pytest.mark.parametrize("measures", [2, 10])
@pytest.mark.parametrize("index", ["exact", "flat"])
@pytest.mark.parametrize("cells", [500, 3000])
def test_clusters_far_apart_are_told_apart(cells, index, measures):
    centroids, points = clusters(cells, measures, 500.0, 0.1, 2, seed=1)
    archive = CVTArchive(centroids, index=index)
    assert archive.by_differences
    expected = nearest(centroids, points)[1][:, 0]
    np.testing.assert_array_equal(archive.index_of(jnp.asarray(points)), expected)
    compiled = eqx.filter_jit(lambda archive, points: archive.index_of(points))
    np.testing.assert_array_equal(compiled(archive, jnp.asarray(points)), expected)


@settings(max_examples=25)
@given(
    cells=st.sampled_from([40, 300]),
    measures=st.sampled_from([1, 3, 12]),
    exponent=st.floats(-3, 4),
    spread=st.floats(-2, 2),
    number=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_cells_agree_with_float64_over_offsets_and_scales(
    cells, measures, exponent, spread, number, seed
):
    centroids, points = clusters(cells, measures, 10**exponent, 10**spread, number, seed)
    archive = CVTArchive(centroids)
    assert_nearest(np.asarray(archive.index_of(jnp.asarray(points))), centroids, points)


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
    expected = nearest(c.astype(np.float64), p)[1][:, 0]
    assert (np.asarray(archive.index_of(jnp.asarray(points))) == expected).mean() > 0.97


def test_ties_go_to_the_lowest_row():
    centroids = np.repeat(np.float32([[500.0], [500.25], [-500.0]]), 2, axis=0)
    near = centroids + np.float32([0, 1, 0, 1, 0, 1])[:, None] * 2**-14
    archive = CVTArchive(np.concatenate([near, near]))
    assert archive.by_differences
    assert archive.index_of(jnp.asarray(near)).tolist() == [0, 1, 2, 3, 4, 5]
    between = jnp.array([[500.125]])  # as far from row 1 as from none: row 2 is nearer by 2^-14
    assert archive.index_of(between).tolist() == [1]


@pytest.mark.parametrize("measures", [10, 50])
def test_the_papers_archives_keep_the_fast_search(shared_data, measures):
    archive = CVTArchive(np.load(shared_data / "centroids" / f"lp_{measures}d.npy"))
    assert not archive.by_differences


def test_a_few_near_duplicates_do_not_slow_an_archive_down():
    centroids = np.random.default_rng(0).uniform(-1, 1, (1000, 6)).astype(np.float32)
    centroids[1] = centroids[0] + 1e-6
    assert not scores_collide(centroids, centroids.mean(axis=0))
    assert not scores_collide(np.ones((5, 2)), np.zeros(2))  # equal centroids are ties


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


def test_kmeans_does_not_depend_on_where_the_box_is():
    near = kmeans_centroids(20, -1, 1, 2, seed=1)
    far = kmeans_centroids(20, 2**14 - 1, 2**14 + 1, 2, seed=1)
    # A number near 2^14 is a multiple of 2^-9.
    np.testing.assert_allclose(far - 2**14, near, rtol=0, atol=2**-9)


def test_an_approximate_index_is_judged_by_the_right_neighbours():
    centroids, points = clusters(4000, 4, 500.0, 0.1, 2, seed=5)
    archive = CVTArchive(centroids, index=Faiss("ivf", recall=0.9))
    assert archive.index is not None
    found = archive.index_on_host(points)
    assert (found == nearest(centroids, points)[1][:, 0]).mean() > 0.8
