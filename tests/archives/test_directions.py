"""Cosine archives: one space for centres and discounts, and rows without a direction fail."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gloam
from gloam import step
from gloam.archives.cvt_archive import has_direction, scaled_rows, unit_rows
from gloam.datasets import Dataset

BATCH = 12


def pictures(number=40, side=6, seed=0):
    return np.random.default_rng(seed).random((number, side, side), dtype=np.float32)


def archive_of(index="exact"):
    return gloam.CVTArchive(pictures(), metric="cosine", f_min=-1.0, index=index)


def algorithms():
    cma = {"num_emitters": 2, "batch_size": BATCH // 2}
    small = {"num_init_points": 30, "num_empty_points": 10}
    return {
        "dms": lambda archive: gloam.DMS.paper(archive, np.zeros(36), 0.3, **cma, **small),
        "cma-mae": lambda archive: gloam.CMAMAE(archive, np.zeros(36), 0.3, **cma),
        "dds": lambda archive: gloam.DDS(
            archive, np.zeros(36), 0.3, bandwidth=0.1, buffer_size=50, **cma
        ),
    }


@eqx.filter_jit
def told(algorithm, measures):
    state = step.init(algorithm, jax.random.key(3))
    proposal = step.ask(algorithm, state)
    return step.tell(algorithm, state, proposal, (jnp.linspace(0, 1, BATCH), measures, {}), None)


# Rows of length one


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


def test_cells_do_not_depend_on_the_length_of_measures():
    archive = archive_of()
    rows = pictures(50, seed=1).reshape(50, -1) - 0.3
    cells = np.asarray(archive.index_of(jnp.asarray(rows)))
    for factor in (1e-34, 1e-3, 1e30):
        np.testing.assert_array_equal(
            archive.index_of(jnp.asarray(rows * np.float32(factor))), cells
        )
    huge = gloam.CVTArchive(pictures() * np.float32(1e30), metric="cosine")
    np.testing.assert_allclose(huge.centroids, archive.centroids, rtol=1e-6)


# One space


@pytest.mark.parametrize("name", [pytest.param("dms", marks=pytest.mark.slow), "cma-mae", "dds"])
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


# Rows without a direction


@pytest.mark.parametrize("with_cells", [False, True])
@pytest.mark.parametrize("with_objectives", [False, True])
def test_a_row_without_a_direction_is_a_failed_row(with_cells, with_objectives):
    # The discount model, which must not be trained on such rows, once; where cells and objectives
    # come from does not concern it.
    plain = not (with_cells or with_objectives)
    algorithm = algorithms()["dms" if plain else "cma-mae"](archive_of())
    rows = pictures(BATCH, seed=1).reshape(BATCH, -1).copy()
    rows[5:9] = np.float32([0.0, 1e-40, np.inf, np.nan])[:, None]
    objectives = np.full(BATCH, 0.5, np.float32) if with_objectives else None
    cells = np.zeros(BATCH, np.int32) if with_cells else None
    search = gloam.Search(algorithm, seed=2)
    solutions = search.ask()
    search.tell(objectives, rows, cells=cells)
    assert search.metrics()["failed"] == 4
    bad = {row.tobytes() for row in solutions[5:9]}
    assert not bad & {row.tobytes() for row in search.elites().solutions}
    assert np.isfinite(search.elites().flat_measures).all()


def test_both_drivers_and_faiss_fail_zero_rows():
    def evaluate(solutions):
        measures = solutions * (abs(solutions[:, :1]) > 0.1)
        return solutions[:, 0] * 0 + 1, measures

    failed = []
    for index in ("exact", "flat"):
        algorithm = gloam.MAPElites(archive_of(index), np.zeros(36), 0.3, batch_size=BATCH)
        for run in (
            lambda a: gloam.run(evaluate, a, seeds=[1], iterations=1, progress=False),
            lambda a: gloam.optimize(evaluate, a, 1, seeds=[1], progress=False),
        ):
            failed.append(run(algorithm).metrics["failed"].iloc[-1])
    assert failed == [failed[0]] * 4
    assert 0 < failed[0] < BATCH


def test_a_batch_of_zero_rows_is_an_error():
    search = gloam.Search(algorithms()["dms"](archive_of()), seed=2)
    search.ask()
    with pytest.raises(gloam.EvaluationError, match="measures of zero"):
        search.tell(np.ones(BATCH), np.zeros((BATCH, 36)))
