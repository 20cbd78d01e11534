"""CVT archives: centroids, bounds and files; with the cosine metric, one space of unit vectors."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gloam
import gloam_lab
from gloam import step
from gloam.archives import CVTArchive, cvt_archive, nearest_centroids
from gloam.archives.cvt_archive import has_direction, scaled_rows, unit_rows
from gloam.datasets import Dataset

BATCH = 12


def pictures(number=40, side=6, seed=0):
    return np.random.default_rng(seed).random((number, side, side), dtype=np.float32)


def test_centers_are_the_centroids():
    centroids = pictures().reshape(40, 36)
    picked = [3, 0, 19, 3]
    np.testing.assert_array_equal(
        CVTArchive(centroids).centers_of(jnp.asarray(picked)), centroids[picked]
    )


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
    centroids = pictures().reshape(40, 36)
    np.save(path, centroids.astype(np.float64))
    archive = CVTArchive(as_path(path))
    assert archive.num_cells == 40
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
        ({"centroids": [[-1e30], [1e30]]}, "centroids: expected distances that have squares in"),
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


def test_centroids_are_laid_out_once_and_when_they_are_needed(monkeypatch):
    laid_out = []

    def lanes(*arguments, **options):
        laid_out.append(1)
        return nearest_centroids.lanes(*arguments, **options)

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


# Directions


@given(st.lists(st.floats(-1, 1, width=32), min_size=4, max_size=4), st.integers(-120, 120))
def test_unit_rows_have_the_direction_of_float64(row, exponent):
    rows = np.ldexp(np.asarray([row], np.float32), exponent)
    sound = has_direction(rows)
    units = np.asarray(unit_rows(jnp.asarray(rows)))
    if not sound.all():
        assert (units == 0).all()
        return
    wide = rows.astype(np.float64)
    # Two quotients and a root; numbers far below the largest may be taken for zero.
    np.testing.assert_allclose(units, wide / np.linalg.norm(wide), rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize("largest", [3.4e38, 1e-37, 1.0, 7.0])
def test_scaling_changes_no_digit(largest):
    rows = np.float32(largest) * np.float32([[1.0, 0.5, -0.25]])
    scaled = np.asarray(scaled_rows(jnp.asarray(rows)))
    assert 1 <= scaled.max() < 4
    np.testing.assert_array_equal(scaled * (rows[0, 0] / scaled[0, 0]), rows)


def archive_of(index="exact"):
    return CVTArchive(pictures(), metric="cosine", f_min=-1.0, index=index)


def test_cells_do_not_depend_on_the_length_of_measures():
    archive = archive_of()
    rows = pictures(50, seed=1).reshape(50, -1) - 0.3
    index_of = eqx.filter_jit(archive.index_of)
    cells = np.asarray(index_of(jnp.asarray(rows)))
    for factor in (1e-34, 1e-3, 1e30):
        np.testing.assert_array_equal(index_of(jnp.asarray(rows * np.float32(factor))), cells)
    huge = CVTArchive(pictures() * np.float32(1e30), metric="cosine")
    np.testing.assert_allclose(huge.centroids, archive.centroids, rtol=1e-6)


def test_bounds_of_a_cosine_archive_are_those_of_unit_vectors():
    data = Dataset(pictures())
    assert data.bounds == (0, 1)
    archive = data.archive("cosine")
    units = np.asarray(archive.centroids)
    np.testing.assert_array_equal(archive.lower, units.min(axis=0))
    np.testing.assert_array_equal(archive.upper, units.max(axis=0))
    assert (data.archive("cosine", lower=-1, upper=1).upper == 1).all()
    with pytest.raises(ValueError, match="bounds of unit vectors"):
        data.archive("cosine", lower=0, upper=255)


# Searches with the cosine metric


def algorithms():
    cma = {"num_emitters": 2, "batch_size": BATCH // 2}
    small = {"num_init_points": 30, "num_empty_points": 10}
    return {
        "dms": lambda archive: gloam.DMS.paper(archive, np.zeros(36), 0.3, **cma, **small),
        "cma-mae": lambda archive: gloam.CMAMAE(archive, np.zeros(36), 0.3, **cma),
        "dds": lambda archive: gloam_lab.DDS(
            archive, np.zeros(36), 0.3, bandwidth=0.1, buffer_size=50, **cma
        ),
        "map-elites": lambda archive: gloam.MAPElites(archive, np.zeros(36), 0.3, batch_size=BATCH),
    }


@eqx.filter_jit
def told(algorithm, measures):
    state = step.init(algorithm, jax.random.key(3))
    proposal = step.ask(algorithm, state)
    return step.tell(algorithm, state, proposal, (jnp.linspace(0, 1, BATCH), measures, {}), None)


@pytest.mark.parametrize(
    "name",
    [
        "dds",
        pytest.param("cma-mae", marks=pytest.mark.slow),
        pytest.param("dms", marks=pytest.mark.slow),
    ],
)
def test_a_search_does_not_depend_on_the_length_of_measures(name):
    algorithm = algorithms()[name](archive_of())
    rows = jnp.asarray(pictures(BATCH, seed=1).reshape(BATCH, -1))
    plain, plain_report = told(algorithm, rows)
    # Powers of two change no digit.
    scale = jnp.asarray(2.0 ** np.arange(BATCH), jnp.float32)[:, None]
    scaled, report = told(algorithm, rows * scale)
    for one, other in zip(
        jax.tree.leaves((plain.discount, plain.emitter, plain_report)),
        jax.tree.leaves((scaled.discount, scaled.emitter, report)),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
    lengths = np.linalg.norm(np.asarray(report.fit.points), axis=1)
    np.testing.assert_allclose(lengths, 1.0, rtol=1e-5)
    # Elites keep what was evaluated.
    kept = np.asarray(scaled.store.measures)[np.asarray(scaled.store.occupied)]
    assert {row.tobytes() for row in kept} <= {row.tobytes() for row in np.asarray(rows * scale)}


@pytest.mark.parametrize(
    ("name", "with_cells", "with_objectives"),
    [
        ("map-elites", False, False),
        pytest.param("map-elites", True, True, marks=pytest.mark.slow),
        # The discount model must not be trained on such rows.
        pytest.param("dms", False, False, marks=pytest.mark.slow),
    ],
)
def test_a_row_without_a_direction_is_a_failed_row(name, with_cells, with_objectives):
    rows = pictures(BATCH, seed=1).reshape(BATCH, -1).copy()
    rows[5:9] = np.float32([0.0, 1e-40, np.inf, np.nan])[:, None]
    objectives = np.full(BATCH, 0.5, np.float32) if with_objectives else None
    cells = np.zeros(BATCH, np.int32) if with_cells else None
    search = gloam.Search(algorithms()[name](archive_of()), seed=2)
    solutions = search.ask()
    search.tell(objectives, rows, cells=cells)
    assert search.metrics()["failed"] == 4
    bad = {row.tobytes() for row in solutions[5:9]}
    assert not bad & {row.tobytes() for row in search.elites().solutions}
    assert np.isfinite(search.elites().flat_measures).all()
    search.ask()
    with pytest.raises(gloam.errors.EvaluationError, match="measures of zero"):
        search.tell(np.ones(BATCH), np.zeros((BATCH, 36)))


@pytest.mark.slow
def test_both_drivers_and_faiss_fail_zero_rows():
    pytest.importorskip("faiss")

    def evaluate(solutions):
        measures = solutions * (abs(solutions[:, :1]) > 0.1)
        return solutions[:, 0] * 0 + 1, measures

    exact, flat = (algorithms()["map-elites"](archive_of(index)) for index in ("exact", "flat"))
    on_device = gloam.run(evaluate, exact, seeds=[1], iterations=1, progress=False)
    on_host = gloam.optimize(evaluate, flat, 1, seeds=[1], progress=False)
    failed = [int(result.metrics["failed"].iloc[-1]) for result in (on_device, on_host)]
    assert 0 < failed[0] == failed[1] < BATCH
