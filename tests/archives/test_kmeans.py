"""k-means: centroids that depend on their arguments alone, and their cache."""

import numpy as np
import pytest

from gloam.archives import kmeans_centroids


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


def test_kmeans_is_better_than_random_centroids():
    # More samples than one block of 2048, and a last block that is not full.
    cells = 40
    trained = kmeans_centroids(cells, 0, 1, 2, num_samples=5000)
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
    with pytest.raises(ValueError, match=r"^cache:.*shape \(5, 2\) in .*"):
        kmeans_centroids(cells, 0, 1, dimensions, cache=path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_cells": 0}, "num_cells: expected a whole number >= 1, got 0"),
        ({"measure_dim": 0}, "measure_dim: expected a whole number >= 1, got 0"),
        ({"num_samples": 3}, "num_samples: expected a whole number >= 4, got 3"),
        ({"measure_dim": 10**9}, "num_samples: expected at most the .* got 640 GB"),
        ({"num_cells": 2**31 - 1, "num_samples": 2**31 - 1, "measure_dim": 99_999}, "num_samples"),
        ({"cache": ""}, "cache: expected a path"),
        ({"lower": 1}, "expected lower < upper in every dimension"),
    ],
)
def test_kmeans_wrong_arguments_are_explained(arguments, message):
    with pytest.raises(ValueError, match=message):
        kmeans_centroids(**({"num_cells": 4, "lower": 0, "upper": 1, "measure_dim": 2} | arguments))


def test_kmeans_does_not_depend_on_where_the_box_is():
    near = kmeans_centroids(12, -1, 1, 2, seed=3)
    far = kmeans_centroids(12, 2**14 - 1, 2**14 + 1, 2, seed=3)
    # A number near 2^14 is a multiple of 2^-9.
    np.testing.assert_allclose(far - 2**14, near, rtol=0, atol=2**-9)
