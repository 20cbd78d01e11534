import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ribs.archives import CVTArchive as PyribsCVT

from gloam import devices
from gloam.archives import CVTArchive, cvt_archive, kmeans_centroids
from gloam.archives import nearest_centroids as neighbors

U = 2.0**-24  # float32 rounds by at most this share

index_of = eqx.filter_jit(lambda archive, measures: archive.index_of(measures))


def centroids_and_points(cells: int, meas: int, *, around: float = 0.0, count: int = 200):
    rng = np.random.default_rng(cells * 100 + meas)
    draw = rng.uniform(around - 1, around + 1, (cells + count, meas)).astype(np.float32)
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
    assert ((chosen >= 0) & (chosen < scores.shape[1])).all()
    row = np.arange(len(chosen))
    best = scores.argmax(axis=1)
    gap = scores[row, best] - scores[row, chosen]
    assert (gap <= margins[row, best] + margins[row, chosen]).all()
    assert (chosen == best).mean() > 0.95  # the margin is seldom needed


# Up to 2,048 centroids each has a lane of its own; beyond, lanes hold 40 or, with 60 measures, 34,
# and the last lane is not full.
SIZES = [(1, 2), (2, 1), (513, 2), (1200, 10), (2048, 3), (2049, 2), (2100, 60), (9001, 10)]


@pytest.mark.parametrize(("cells", "meas"), SIZES)
def test_indices_agree_with_float64(cells, meas):
    centroids, points = centroids_and_points(cells, meas)
    chosen = index_of(CVTArchive(centroids), jnp.asarray(points))
    assert chosen.dtype == jnp.int32
    assert_nearest(chosen, *scores_and_margins(points, centroids))


@pytest.fixture
def gpu_index_of(monkeypatch):
    """The search as it is written for a GPU, in small blocks."""
    monkeypatch.setattr(devices, "platform", lambda: "gpu")
    monkeypatch.setattr(neighbors, "_BLOCK", 64)
    return eqx.filter_jit(lambda archive, measures: archive.index_of(measures))


# One centroid, less than a block, a whole one, and a last block that overlaps the one before it.
@pytest.mark.parametrize(("cells", "meas"), [(1, 2), (63, 3), (64, 3), (65, 3), (2100, 60)])
def test_a_gpus_search_agrees_with_float64(gpu_index_of, cells, meas):
    centroids, points = centroids_and_points(cells, meas)
    archive = CVTArchive(centroids)
    assert archive.for_programs().lanes.rows.shape[0] == 1
    chosen = gpu_index_of(archive, jnp.asarray(points))
    assert_nearest(chosen, *scores_and_margins(points, centroids))


@pytest.mark.parametrize("cells", [3, 64, 700])
def test_equal_centroids_all_go_to_the_first_on_a_gpu(gpu_index_of, cells):
    archive = CVTArchive(np.ones((cells, 2)))
    assert gpu_index_of(archive, jnp.array([[1.0, 1.0], [-3.0, 0.5]])).tolist() == [0, 0]


@pytest.mark.parametrize(("cells", "meas"), [(513, 2), (1200, 10)])
def test_indices_agree_with_pyribs(cells, meas):
    centroids, points = centroids_and_points(cells, meas)
    theirs = PyribsCVT(solution_dim=1, centroids=centroids, ranges=[(-1, 1)] * meas)
    ours = np.asarray(index_of(CVTArchive(centroids), jnp.asarray(points)))
    scores, margins = scores_and_margins(points, centroids)
    second, first = np.sort(scores, axis=1)[:, -2:].T
    clear = first - second > 2 * margins.max(axis=1)
    assert clear.mean() > 0.95
    np.testing.assert_array_equal(ours[clear], theirs.index_of(points)[clear])


# Without the shift of origin, float32 would see squares of 10^6 and lose what tells cells apart.
def test_measures_far_from_zero_find_their_cells():
    centroids, points = centroids_and_points(600, 3, around=1000.0)
    chosen = index_of(CVTArchive(centroids), jnp.asarray(points))
    assert_nearest(chosen, *scores_and_margins(points, centroids))


@pytest.mark.parametrize("far", [1e6, 1e20, 1e30])
def test_points_far_outside_find_their_cells(far):
    centroids, points = centroids_and_points(600, 3)
    points = (points * far).astype(np.float32)
    chosen = index_of(CVTArchive(centroids), jnp.asarray(points))
    assert_nearest(chosen, *scores_and_margins(points, centroids))


@pytest.mark.parametrize("extreme", [np.finfo(np.float32).max, -np.finfo(np.float32).max])
def test_the_largest_floats_still_have_a_cell(extreme):
    centroids, _ = centroids_and_points(600, 3)
    chosen = index_of(CVTArchive(100 * centroids), jnp.full((2, 3), extreme))
    assert ((chosen >= 0) & (chosen < 600)).all()


# The two of a pair lie in one block, in one lane of two blocks, or in different lanes.
@pytest.mark.parametrize("cells", [255, 512, 600])
def test_duplicate_centroids_leave_the_second_empty(cells):
    centroids, points = centroids_and_points(cells, 5)
    twice = index_of(CVTArchive(np.concatenate([centroids, centroids])), jnp.asarray(points))
    assert (twice < cells).all()
    assert_nearest(twice, *scores_and_margins(points, centroids))


@pytest.mark.parametrize("cells", [3, 512, 700])
def test_equal_centroids_all_go_to_the_first(cells):
    points = jnp.asarray([[0.0, 0.0], [3.0, -2.0], [1e6, 1e6]])
    assert index_of(CVTArchive(np.full((cells, 2), 0.5)), points).tolist() == [0, 0, 0]


def test_a_point_between_two_centroids_goes_to_the_first():
    # Whole numbers around a mean of zero: every product is exact, so the tie is.
    archive = CVTArchive([[-2.0, 0.0], [2.0, 0.0], [0.0, 2.0], [0.0, -2.0]])
    points = jnp.asarray([[0.0, 0.0], [1.0, 1.0], [0.0, 3.0], [-1.0, -1.0], [1.0, -1.0]])
    assert index_of(archive, points).tolist() == [0, 1, 2, 0, 1]


def test_a_single_point_is_indexed_like_many():
    centroids, points = centroids_and_points(513, 4, count=20)
    archive = CVTArchive(centroids)
    alone = [int(index_of(archive, jnp.asarray(point[None]))[0]) for point in points]
    assert alone == index_of(archive, jnp.asarray(points)).tolist()


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize(("cells", "meas"), [(1, 3), (513, 4)])
def test_centers_are_in_their_own_cells(metric, cells, meas):
    centroids, _ = centroids_and_points(cells, meas)
    archive = CVTArchive(centroids, metric=metric)
    centers = archive.centers_of(jnp.arange(cells))
    np.testing.assert_array_equal(index_of(archive, centers), np.arange(cells))


def test_centers_are_the_centroids():
    centroids, _ = centroids_and_points(20, 3)
    picked = [3, 0, 19, 3]
    np.testing.assert_array_equal(
        CVTArchive(centroids).centers_of(jnp.asarray(picked)), centroids[picked]
    )


# Cosine


def test_cosine_indices_agree_with_float64_whatever_the_length():
    centroids, points = centroids_and_points(700, 6)
    rng = np.random.default_rng(0)
    points = (points * 10 ** rng.uniform(-3, 3, (len(points), 1))).astype(np.float32)
    centroids = (centroids * rng.uniform(0.1, 10, (700, 1))).astype(np.float32)
    c = centroids.astype(np.float64)
    c /= np.linalg.norm(c, axis=1, keepdims=True)
    scores = points.astype(np.float64) @ c.T
    # As for the Euclidean score; a centroid's length rounds by half of k + 1, its division once.
    margins = (1.5 * 6 + 4) * U * (np.abs(points) @ np.abs(c).T)
    chosen = index_of(CVTArchive(centroids, metric="cosine"), jnp.asarray(points))
    assert_nearest(chosen, scores, margins)


def test_cosine_indices_agree_with_pyribs():
    centroids, points = centroids_and_points(300, 8)
    theirs = PyribsCVT(
        solution_dim=1,
        centroids=centroids,
        ranges=[(-1, 1)] * 8,
        nearest_neighbors="sklearn_nn",
        sklearn_nn_kwargs={"metric": "cosine"},
    )
    ours = index_of(CVTArchive(centroids, metric="cosine"), jnp.asarray(points))
    euclidean = index_of(CVTArchive(centroids), jnp.asarray(points))
    # No two of these 300 centroids are within rounding of each other for any of the points.
    np.testing.assert_array_equal(ours, theirs.index_of(points))
    assert (np.asarray(ours) != np.asarray(euclidean)).any()


# Bounds and arguments


def test_bounds_are_the_extremes_of_the_centroids():
    archive = CVTArchive([[0.0, 5.0, 2.0], [3.0, -1.0, 2.0], [1.0, 0.0, 2.0]])
    assert archive.lower.tolist() == [0.0, -1.0, 2.0]
    # A measure that never varies gets an extent of one.
    assert archive.upper.tolist() == [3.0, 5.0, 3.0]


@pytest.mark.parametrize("constant", [0.0, 1e7, -1e8, 1e8, 1e20])
def test_a_constant_measure_gets_bounds_at_any_size(constant):
    archive = CVTArchive([[0.0, constant], [1.0, constant]])
    assert (archive.lower < archive.upper).all()


def test_bounds_given_are_kept():
    archive = CVTArchive([[0.0, 5.0], [3.0, -1.0]], lower=-7, upper=[8, 9])
    assert archive.lower.tolist() == [-7, -7]
    assert archive.upper.tolist() == [8, 9]
    half = CVTArchive([[0.0, 5.0], [3.0, -1.0]], upper=10)
    assert half.lower.tolist() == [0, -1]
    assert half.upper.tolist() == [10, 10]


@pytest.mark.parametrize("as_path", [str, lambda path: path], ids=["str", "Path"])
def test_centroids_are_read_from_a_file(tmp_path, as_path):
    path = tmp_path / "centroids.npy"
    centroids, _ = centroids_and_points(30, 2)
    np.save(path, centroids.astype(np.float64))
    archive = CVTArchive(as_path(path))
    assert archive.num_cells == 30
    assert archive.centroids.dtype == jnp.float32
    np.testing.assert_array_equal(archive.centroids, centroids)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"centroids": [1.0, 2.0]}, r"centroids: expected an array of 2 or more axes, got shape"),
        ({"centroids": np.zeros((0, 2))}, r"centroids: expected at least one number, got shape"),
        ({"centroids": [[0.0, np.nan]]}, "centroids: expected finite numbers, got 1 that are NaN"),
        ({"centroids": [[0.0], [1.0, 2.0]]}, "centroids: expected an array of numbers, got list"),
        ({"centroids": "nowhere.npy"}, "centroids: expected an existing file, got 'nowhere.npy'"),
        ({"metric": "manhattan"}, "metric: expected 'euclidean' or 'cosine', got 'manhattan'"),
        (
            {"metric": "cosine", "centroids": [[0.0, 0.0], [1.0, 0.0]]},
            "centroids: expected no zero rows for cosine distance, got 1",
        ),
        ({"lower": 2}, "expected lower < upper in every dimension"),
        ({"upper": [1, 2, 3]}, r"upper: expected a scalar or 2 numbers, got shape \(3,\)"),
    ],
)
def test_wrong_arguments_are_explained(arguments, message):
    with pytest.raises(ValueError, match=message):
        CVTArchive(**({"centroids": [[0.0, 0.0], [1.0, 1.0]]} | arguments))


# k-means


def test_kmeans_depends_on_its_arguments_alone():
    one, again = (kmeans_centroids(12, -1, 1, 2, seed=3) for _ in range(2))
    other = kmeans_centroids(12, -1, 1, 2, seed=4)
    assert one.shape == (12, 2)
    assert one.dtype == np.float32
    np.testing.assert_array_equal(one, again)
    assert not np.allclose(np.sort(one, axis=0), np.sort(other, axis=0))


def test_kmeans_centroids_lie_inside_the_box():
    lower, upper = np.array([-2.0, 999.0, 0.0]), np.array([-1.0, 1001.0, 1e-3])
    centroids = kmeans_centroids(40, lower, upper, 3, num_iterations=5)
    assert ((centroids >= lower) & (centroids <= upper)).all()
    assert len(np.unique(centroids, axis=0)) == 40


def test_kmeans_is_a_fixed_point_of_lloyds_step():
    # 200 rounds are more than 300 points need to settle in 5 cells.
    centroids = kmeans_centroids(5, 0, 1, 2, seed=1, num_samples=300, num_iterations=200)
    points = np.random.default_rng(1).uniform(0, 1, (300, 2))
    owner = np.square(points[:, None] - centroids).sum(axis=2).argmin(axis=1)
    means = [points[owner == cell].mean(axis=0) for cell in range(5)]
    # Means of some 60 float32 numbers in [0, 1].
    np.testing.assert_allclose(centroids, means, atol=1e-5)


# More samples than one part of 4096, and a last part that is not full.
@pytest.mark.parametrize(("cells", "samples"), [(40, 5000), (600, None)])
def test_kmeans_is_better_than_random_centroids(cells, samples):
    trained = kmeans_centroids(cells, 0, 1, 2, num_samples=samples)
    rng = np.random.default_rng(7)
    points = rng.uniform(0, 1, (4000, 2))

    def mean_square(centroids: np.ndarray) -> float:
        return np.square(points[:, None] - centroids).sum(axis=2).min(axis=1).mean()

    # Random centroids have about 1 / (pi n), the best possible hexagons about 0.16 / n.
    assert mean_square(trained) < 0.75 * mean_square(rng.uniform(0, 1, (cells, 2)))


def test_kmeans_cache_is_written_then_read(tmp_path):
    path = tmp_path / "deeper" / "centroids.npy"
    first = kmeans_centroids(5, 0, 1, 2, cache=path)
    np.testing.assert_array_equal(np.load(path), first)
    assert [file.name for file in path.parent.iterdir()] == ["centroids.npy"]
    np.save(path, first + 1)  # whatever the file holds now comes back
    np.testing.assert_array_equal(kmeans_centroids(5, 0, 1, 2, cache=str(path)), first + 1)


@pytest.mark.parametrize(("cells", "dimensions"), [(4, 2), (5, 3)])
def test_kmeans_cache_of_another_shape_is_refused(tmp_path, cells, dimensions):
    path = tmp_path / "centroids.npy"
    np.save(path, np.zeros((5, 2)))
    with pytest.raises(ValueError, match=r"cache: expected shape .*, got shape \(5, 2\) in .*"):
        kmeans_centroids(cells, 0, 1, dimensions, cache=path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_cells": 0}, "num_cells: expected a whole number >= 1, got 0"),
        ({"measure_dim": 0}, "measure_dim: expected a whole number >= 1, got 0"),
        ({"num_samples": 3}, "num_samples: expected a whole number >= 4, got 3"),
        ({"lower": 1}, "expected lower < upper in every dimension"),
    ],
)
def test_kmeans_wrong_arguments_are_explained(arguments, message):
    with pytest.raises(ValueError, match=message):
        kmeans_centroids(**({"num_cells": 4, "lower": 0, "upper": 1, "measure_dim": 2} | arguments))


# The authors' centroids


@pytest.mark.parametrize("meas", [10, 20, 50])
def test_indices_agree_on_the_papers_centroids(shared_data, meas):
    path = shared_data / "centroids" / f"lp_{meas}d.npy"
    if not path.is_file():
        pytest.skip(f"no file '{path}': it is part of the data folder")
    archive = CVTArchive(path)
    centroids = np.load(path)
    assert centroids.shape == (archive.num_cells, archive.measure_dim) == (10_000, meas)
    own = np.arange(0, 10_000, 97)
    rng = np.random.default_rng(0)
    points = (rng.uniform(-0.8, 0.8, (64, meas)) * np.abs(centroids).max()).astype(np.float32)
    chosen = np.asarray(index_of(archive, jnp.asarray(np.concatenate([centroids[own], points]))))
    np.testing.assert_array_equal(chosen[: len(own)], own)
    assert_nearest(chosen[len(own) :], *scores_and_margins(points, centroids))


def test_centroids_are_laid_out_once_and_when_they_are_needed(monkeypatch):
    laid_out = []

    def lanes(*arguments, **options):
        laid_out.append(1)
        return neighbors.lanes(*arguments, **options)

    monkeypatch.setattr(cvt_archive, "lanes", lanes)
    archive = CVTArchive(np.random.default_rng(0).random((30, 2)))
    assert archive.lanes is None
    assert laid_out == []
    ready = archive.for_programs()
    again = archive.for_programs()
    points = jnp.asarray(np.random.default_rng(1).random((9, 2)), jnp.float32)
    inside = jax.jit(lambda rows: archive.index_of(rows))(points)
    assert laid_out == [1]
    assert ready.lanes.rows is again.lanes.rows
    np.testing.assert_array_equal(archive.index_of(points), inside)
    np.testing.assert_array_equal(ready.index_of(points), inside)
