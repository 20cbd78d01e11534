"""Warm starts and constraints, in all drivers."""

import jax.numpy as jnp
import numpy as np
import pytest

import gloam
from gloam.errors import EvaluationError
from gloam.searches.starts import read_start
from tests.helpers import assert_same_bits
from tests.problems import ARM, evaluate, small

pytestmark = pytest.mark.slow  # searches of its own are compiled

QUIET = {"progress": False}
LINE = gloam.GridArchive((6,), -1.0, 1.0)


def one_measure(solutions):
    return 1.0 - (solutions**2).sum(axis=1) / 100.0, solutions[:, 2:3]


@pytest.fixture(scope="module")
def earlier():
    return gloam.optimize(evaluate, small("cma-mae"), 5, seeds=2, **QUIET).elites


def other(archive=LINE):
    return gloam.CMAMAE(archive, np.zeros(5), 0.3, num_emitters=3, batch_size=6)


@pytest.mark.parametrize(
    "name", ["cma-mae", "map-elites-line", pytest.param("dms", marks=pytest.mark.release)]
)
def test_a_search_starts_with_the_elites_of_another(earlier, name):
    algorithm = small(name)
    search = gloam.Search(algorithm, seed=3, start_from=earlier)
    assert search.metrics()["started_from"] == len(earlier)
    assert_same_bits(search.elites(), earlier.into(algorithm.archive))
    fresh = gloam.Search(algorithm, seed=3)
    solutions = search.ask()
    assert np.abs(solutions - fresh.ask()).max() > 0.1
    search.tell(*evaluate(solutions))
    assert search.metrics()["started_from"] == len(earlier)
    assert search.elites().qd_score_from(-9) >= earlier.into(algorithm.archive).qd_score_from(-9)


@pytest.mark.release
def test_the_discount_is_trained_on_them(earlier):
    algorithm = small("dms-paper")
    started, fresh = gloam.Search(algorithm, start_from=earlier), gloam.Search(algorithm)
    at = jnp.asarray(earlier.flat_measures)
    levels = [
        float(np.mean(algorithm.discount.discount(search.state.discount, at)))
        for search in (started, fresh)
    ]
    assert levels[0] > levels[1] + 0.01


def test_elites_tables_and_folders_give_the_same_start(earlier, tmp_path):
    algorithm = small("map-elites-line")
    gloam.run(evaluate, algorithm, 5, seeds=2, run_dir=tmp_path / "run", **QUIET)
    folder = gloam.RunFolder(tmp_path / "run")
    both = folder.read_archive(0).merged(folder.read_archive(1))
    starts = [
        read_start(source, algorithm).digest
        for source in (both, both.to_pandas(), tmp_path / "run", str(tmp_path / "run"))
    ]
    assert len(set(starts)) == 1
    assert read_start(earlier, algorithm).digest != starts[0]


_VARIANTS = [pytest.param(name, marks=pytest.mark.release) for name in ("fused", "asynchronous")]


@pytest.mark.parametrize("driver", ["ask-tell", *_VARIANTS])
def test_other_measures_are_evaluated_again_and_a_resumed_run_is_the_same(
    driver, earlier, tmp_path
):
    def go(iterations, folder, **options):
        arguments = {"run_dir": tmp_path / folder, **QUIET, **options}
        if driver == "fused":
            return gloam.run(one_measure, other(), iterations, seeds=2, **arguments)
        is_asynchronous = driver == "asynchronous"
        return gloam.optimize(
            one_measure, other(), iterations, asynchronous=is_asynchronous, **arguments
        )

    warm = {"start_from": earlier, "reevaluate_start": True}
    straight = go(4, "straight", **warm)
    go(2, "stopped", **warm)
    longer = go(4, "stopped", resume=True)
    assert_same_bits(longer.elites, straight.elites)
    assert set(straight.metrics["started_from"]) == {len(earlier)}
    with pytest.raises(ValueError, match="start_from has other solutions than those"):
        go(5, "stopped", resume=True, start_from=longer.elites)


@pytest.mark.release
def test_a_run_of_a_domain_is_resumed_from_its_folder(earlier, tmp_path):
    algorithm = gloam.DMS(
        gloam.GridArchive((8, 8), -2.0, 2.0), np.zeros(5), 0.3, num_emitters=3, batch_size=6
    )
    options = {"start_from": earlier, "reevaluate_start": True, **QUIET}
    gloam.run(ARM, algorithm, 2, run_dir=tmp_path / "run", **options)
    longer = gloam.resume(tmp_path / "run", iterations=4, progress=False)
    straight = gloam.run(ARM, algorithm, 4, **options)
    assert_same_bits(longer.elites, straight.elites)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_failures_among_them_are_kept_and_a_function_that_always_fails_is_named(
    earlier, asynchronous, tmp_path
):
    def fails(solutions):
        raise RuntimeError("no licence")

    def fails_at_times(solutions):
        objectives, measures = evaluate(solutions)
        return np.where(solutions[:, 0] > 0, np.nan, objectives), measures

    options = {
        "start_from": earlier,
        "reevaluate_start": True,
        "asynchronous": asynchronous,
        **QUIET,
    }
    with pytest.raises(EvaluationError, match="The first was RuntimeError: no licence"):
        gloam.optimize(fails, small("map-elites-line"), 2, **options)
    algorithm = small("map-elites-line")
    result = gloam.optimize(fails_at_times, algorithm, 1, run_dir=tmp_path, **options)
    bad = earlier.solutions[:, 0] > 0
    assert result.metrics["started_from"].tolist() == [int((~bad).sum())]
    failed = gloam.RunFolder(tmp_path).read_failures().query("iteration == 0")
    np.testing.assert_array_equal(failed["row"], np.flatnonzero(bad))


def test_a_table_of_a_space_starts_a_search_of_another_space():
    narrow = gloam.Space(x=gloam.Real(0, 1), kind=gloam.Categorical(["a", "b"]))
    wide = gloam.Space(kind=gloam.Categorical(["b", "c", "a"]), x=gloam.Real(-1, 2))
    first, second = (gloam.MAPElites(LINE, one, batch_size=12) for one in (narrow, wide))
    search = gloam.Search(first)
    values = search.ask()
    search.tell(values["x"], values["x"][:, None])
    for source in (search.elites(), search.elites().to_pandas()):
        again = gloam.Search(second, start_from=source).elites().values()
        np.testing.assert_array_equal(again["kind"], search.elites().values()["kind"])
        np.testing.assert_allclose(again["x"], search.elites().values()["x"])


# Constraints


def constrained(solutions):
    """Feasible where the first number is between 0.3 and 0.7."""
    return *evaluate(solutions), {"violation": abs(solutions[:, 0] - 0.5) - 0.2}


@pytest.mark.parametrize("driver", ["fused", "ask-tell", "asynchronous"])
def test_infeasible_solutions_are_counted_and_never_elites(driver):
    if driver == "fused":
        result = gloam.run(constrained, small("cma-mae"), 6, **QUIET)
    else:
        is_asynchronous = driver == "asynchronous"
        result = gloam.optimize(
            constrained, small("cma-mae"), 6, asynchronous=is_asynchronous, **QUIET
        )
    last = result.metrics.iloc[-1]
    assert len(result.elites) > 0
    assert (np.abs(result.elites.solutions[:, 0] - 0.5) <= 0.2 + 1e-6).all()
    assert 0 < last["infeasible_total"] < last["evaluations"]
    assert last["failed_total"] == 0


@pytest.mark.release
def test_a_search_finds_its_way_to_the_feasible_region():
    # Nothing is known outside of a ball that is far from x0 but how far away it is.
    def far(solutions):
        distance = np.linalg.norm(solutions - 3, axis=1)
        measures = np.where(distance[:, None] < 1, solutions[:, :2], np.nan)
        return 1 - distance, measures, {"violation": distance - 1}

    archive = gloam.GridArchive((5, 5), 2.0, 4.0)
    for algorithm in (other(archive), gloam.DMS(archive, np.zeros(5), 0.3, num_emitters=3)):
        result = gloam.optimize(far, algorithm, 60, log_every=5, **QUIET)
        rows = result.metrics
        assert rows["infeasible"].iloc[0] == rows["evaluations"].iloc[0] / 5
        assert rows["num_elites"].iloc[0] == 0
        assert len(result.elites) > 5


def test_infeasible_rows_rank_below_all_others_by_their_violation():
    emitter = gloam.emitters.CmaEmitters(np.zeros(3), 0.3, num_emitters=1, batch_size=6)
    algorithm = gloam.Algorithm(
        emitter, gloam.GridArchive((4,), -1, 1), gloam.discounts.NoDiscount()
    )
    violations = np.array([0.0, 2.0, np.nan, 1.0, -1.0, 3.0])
    objectives = np.array([1.0, 9.0, 9.0, 9.0, 2.0, 9.0])
    search, plain = gloam.Search(algorithm), gloam.Search(algorithm)
    for one, values, fields in (
        (search, objectives, {"violation": violations}),
        (plain, [5.0, 3.0, np.nan, 4.0, 6.0, 2.0], {}),
    ):
        one.tell(values, one.ask()[:, :1], **fields)
    # The same ranks give the same Gaussian.
    assert_same_bits(search.state.emitter.gaussians, plain.state.emitter.gaussians)
    assert search.metrics()["infeasible"] == 3
    assert search.metrics()["failed"] == 1
    assert sorted(search.elites().objectives.tolist())[-1] == 2.0


def test_booleans_are_violations_too():
    search = gloam.Search(small("cma-mae"))
    solutions = search.ask()
    search.tell(*evaluate(solutions), violation=solutions[:, 0] > 0)
    assert (search.elites().solutions[:, 0] <= 0).all()
    assert search.metrics()["infeasible"] == (solutions[:, 0] > 0).sum()
