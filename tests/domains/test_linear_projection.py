"""Linear projection: values worked by hand, a NumPy oracle, and the archives that come with it.

pyribs ships no such function (only its tutorials have one), so the oracle is written anew from
the paper, in float64.
"""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import gloam
from gloam.archives import CVTArchive, GridArchive, kmeans_centroids
from gloam.domains import LinearProjection, linear_projection


def oracle(solutions, measures, objective):
    """Objectives and measures, one number at a time."""

    def clip(t):
        return t if abs(t) <= 5.12 else 5.12 / t

    def raw(solution):
        total = 0.0
        for t in solution:
            d = t - 2.048
            total += d**2
            if objective == "rastrigin":
                total += 10 - 10 * math.cos(2 * math.pi * d)
        return total

    size = solutions.shape[1] // measures
    objectives, places = [], []
    for solution in solutions.astype(np.float64):
        worst = raw([-5.12] * len(solution))
        objectives.append(1.0 if objective == "flat" else 1 - raw(solution) / worst)
        clipped = [clip(t) for t in solution]
        places.append([sum(clipped[j * size : (j + 1) * size]) for j in range(measures)])
    return np.array(objectives), np.array(places)


@eqx.filter_jit
def compiled(domain, solutions):
    return domain(solutions)


def values(domain, solutions):
    objectives, measures = compiled(domain, np.asarray(solutions, np.float32))
    return np.asarray(objectives), np.asarray(measures)


def constant(value, **options):
    domain = LinearProjection(**options)
    objectives, measures = values(domain, np.full((1, domain.solution_dim), value))
    return objectives[0], measures[0]


# Values


@pytest.mark.parametrize(
    ("value", "objective", "measure"),
    [
        (2.048, 1.0, 102.4),
        (-5.12, 0.0, -256.0),
        # The optimum lies 2/7 of the way from 0 to -5.12 beyond it: (2.048 / 7.168)^2 = 4/49.
        (0.0, 45 / 49, 0.0),
        (5.12, 1 - (3 / 7) ** 2, 256.0),
    ],
)
def test_sphere_worked_by_hand(value, objective, measure):
    got, measures = constant(value, measure_dim=2, objective="sphere")
    # A hundred squares near 50 add up in float32, then are divided.
    assert got == pytest.approx(objective, abs=1e-5)
    np.testing.assert_allclose(measures, [measure, measure], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (2.048, 0.0),
        # One unit off the optimum the cosine is back at 1, half a unit off it is at -1.
        (3.048, 1.0),
        (1.048, 1.0),
        (2.548, 20.25),
        (-5.12, 7.168**2 - 10 * math.cos(2 * math.pi * 7.168) + 10),
    ],
)
def test_rastrigin_worked_by_hand(value, raw):
    worst = 7.168**2 - 10 * math.cos(2 * math.pi * 7.168) + 10
    got, _ = constant(value, measure_dim=2, objective="rastrigin")
    # The slope of the cosine, 63, carries the rounding of the value; a hundred terms add up.
    assert got == pytest.approx(1 - raw / worst, abs=2e-5)


@pytest.mark.parametrize("value", [0.0, -5.12, 2.048, 1000.0])
def test_flat_is_one_everywhere(value):
    assert constant(value, measure_dim=10, objective="flat")[0] == 1.0


def test_beyond_the_edge_a_number_counts_for_its_inverse():
    row = [10.24, 0.0, -10.24, 0.0, 51.2, 1.0, -5.12, 5.12]
    _, measures = values(LinearProjection(4, solution_dim=8), [row])
    # At the edge itself a number still counts for itself.
    np.testing.assert_allclose(measures, [[0.5, -0.5, 1.1, 0.0]], rtol=1e-6)


def test_each_measure_sums_its_own_block():
    _, measures = values(LinearProjection(2, solution_dim=6), [[1.0, 2.0, 3.0, -1.0, 0.5, 0.0]])
    np.testing.assert_array_equal(measures, [[6.0, -0.5]])


@pytest.mark.parametrize("objective", ["sphere", "rastrigin", "flat"])
@pytest.mark.parametrize("measures", [2, 10, 50])
def test_values_are_those_of_the_oracle(measures, objective):
    # Spread so that about every third number is beyond the edge.
    solutions = np.random.default_rng(measures).normal(0, 5, (20, 100)).astype(np.float32)
    got_objectives, got_measures = values(LinearProjection(measures, objective), solutions)
    objectives, places = oracle(solutions, measures, objective)
    # Float32 sums of 100 terms and of up to 50 numbers below 5.12.
    np.testing.assert_allclose(got_objectives, objectives, rtol=0, atol=2e-5)
    np.testing.assert_allclose(got_measures, places, rtol=0, atol=5e-5)


@given(arrays(np.float32, (3, 20), elements=st.floats(-1e6, 1e6, width=32)))
def test_measures_stay_within_the_bounds_and_no_objective_is_above_one(solutions):
    domain = LinearProjection(4, "rastrigin", solution_dim=20)
    objectives, measures = values(domain, solutions)
    # Five numbers of at most 5.12 each, rounded.
    assert (np.abs(measures) <= domain.edge * (1 + 1e-6)).all()
    assert (objectives <= 1).all()


# Construction


@pytest.mark.parametrize(("measures", "solution"), [(3, 100), (7, 100), (2, 5)])
def test_a_solution_that_does_not_divide_into_blocks_is_refused(measures, solution):
    expected = rf"solution_dim: expected a multiple of the {measures} measures, got {solution}"
    with pytest.raises(ValueError, match=expected):
        LinearProjection(measures, solution_dim=solution)


def test_an_unknown_objective_is_refused():
    with pytest.raises(ValueError, match=r"^objective:.*'sphere'.*'ackley'"):
        LinearProjection(2, "ackley")


@pytest.mark.parametrize("measures", [2, 10])
def test_name_start_and_edge_are_the_papers(measures):
    domain = LinearProjection(measures, "rastrigin")
    assert domain.name == f"{measures}d-lp-rastrigin"
    np.testing.assert_array_equal(domain.x0, np.zeros(100))
    assert domain.edge == pytest.approx(512 / measures)


# Archives


def test_two_measures_have_a_grid_of_100_by_100():
    archive = LinearProjection(2).archive()
    assert isinstance(archive, GridArchive)
    assert archive.shape == (100, 100)
    np.testing.assert_array_equal(archive.lower, [-256, -256])
    np.testing.assert_array_equal(archive.upper, [256, 256])


def test_centroids_are_read_from_a_file(tmp_path):
    points = np.random.default_rng(0).uniform(-50, 50, (30, 10)).astype(np.float32)
    np.save(tmp_path / "points.npy", points)
    archive = LinearProjection(10, centroids=tmp_path / "points.npy").archive()
    assert isinstance(archive, CVTArchive)
    np.testing.assert_array_equal(archive.centroids, points)
    # The bounds are the domain's, not the extremes of the centroids.
    np.testing.assert_allclose(archive.lower, np.full(10, -51.2), rtol=1e-6)
    np.testing.assert_allclose(archive.upper, np.full(10, 51.2), rtol=1e-6)


def test_a_file_of_centroids_serves_two_measures_as_well(tmp_path):
    np.save(tmp_path / "points.npy", np.eye(2, dtype=np.float32))
    archive = LinearProjection(2, centroids=str(tmp_path / "points.npy")).archive()
    assert isinstance(archive, CVTArchive)
    assert archive.num_cells == 2


def test_centroids_of_other_measures_are_refused(tmp_path):
    np.save(tmp_path / "points.npy", np.zeros((30, 9), np.float32))
    domain = LinearProjection(10, centroids=tmp_path / "points.npy")
    with pytest.raises(ValueError, match=r"^centroids:.*10.*shape \(30, 9\)"):
        domain.archive()


def test_a_missing_file_of_centroids_is_refused_at_once(tmp_path):
    with pytest.raises(ValueError, match=r"^centroids:"):
        LinearProjection(10, centroids=tmp_path / "none.npy")


def test_centroids_are_made_once_and_cached(tmp_path, monkeypatch):
    asked = []

    def fewer(cells, lower, upper, dimensions, *, cache):
        asked.append((cells, lower, upper, dimensions))
        # 10,000 of them take half a minute.
        return kmeans_centroids(20, lower, upper, dimensions, cache=cache)

    monkeypatch.setenv("GLOAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(linear_projection, "kmeans_centroids", fewer)
    domain = LinearProjection(10)
    archive = domain.archive()
    assert asked == [(10_000, -domain.edge, domain.edge, 10)]
    assert isinstance(archive, CVTArchive)
    made = np.asarray(archive.centroids)
    assert np.abs(made).max() < domain.edge

    (cached,) = (tmp_path / "cache").iterdir()
    np.testing.assert_array_equal(np.load(cached), made)
    np.save(cached, made / 2)
    np.testing.assert_array_equal(domain.archive().centroids, made / 2)
    # Another solution size has other bounds, so other centroids.
    LinearProjection(10, solution_dim=50).archive()
    assert len(list((tmp_path / "cache").iterdir())) == 2


SLOW = [pytest.param(measures, marks=pytest.mark.slow) for measures in (20, 50)]


@pytest.mark.parametrize("measures", [10, *SLOW])
def test_the_authors_centroids_make_an_archive(measures, shared_data):
    file = shared_data / "centroids" / f"lp_{measures}d.npy"
    if not file.is_file():
        pytest.skip(f"no '{file}': the authors' centroids are not here")
    domain = LinearProjection(measures, centroids=file)
    archive = domain.archive()
    assert archive.num_cells == 10_000
    centroids = np.asarray(archive.centroids)
    assert np.abs(centroids).max() <= domain.edge
    # A point a little way off a centroid lies in its cell.
    cells = np.arange(0, 10_000, 37)
    nearby = jnp.asarray(centroids[cells] + 1e-3)
    np.testing.assert_array_equal(archive.index_of(nearby), cells)


@pytest.mark.parametrize("domain", [LinearProjection(2), gloam.domains.Arm(3)])
def test_qd_scores_are_counted_from_zero_as_in_the_paper(domain):
    assert domain.archive().f_min == 0.0
