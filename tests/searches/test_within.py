"""Solutions that count only near their items: the distance as a constraint, wherever rows enter."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gloam
from gloam import step
from gloam.archives import CVTArchive
from gloam.datasets import Dataset
from gloam.datasets.matches import distances
from gloam.discounts import NoDiscount
from gloam.formats import objects
from gloam.interop import elites_from_arrays
from tests.helpers import assert_same_bits, refused
from tests.problems import BATCH, evaluate

pytestmark = pytest.mark.slow  # searches of its own are compiled

QUIET = {"progress": False}
NEAR = 0.5
ITEMS = np.random.default_rng(0).uniform(-2, 2, (15, 2)).astype(np.float32)
DATA = Dataset(ITEMS)
METRICS = pytest.mark.parametrize("metric", ["euclidean", "cosine"])


def algorithm(archive=None):
    archive = DATA.archive(within=NEAR) if archive is None else archive
    return gloam.MAPElitesLine(archive, np.zeros(5), 0.5, 0.2, batch_size=BATCH)


class Recorder:
    """`evaluate`, which remembers what it returned."""

    def __init__(self):
        self.rows = []

    def __call__(self, solutions):
        objectives, measures = evaluate(solutions)
        self.rows.append((np.copy(solutions), objectives, measures))
        return objectives, measures


def distance_to_items(measures, metric="euclidean"):
    """Distances to the nearest items, by another implementation."""
    rows = np.asarray(measures, np.float64)
    every = [distances(metric, rows, ITEMS, np.full(len(rows), item)) for item in range(len(ITEMS))]
    return np.min(every, axis=0)


def masked(archive, measures, objectives=0.0, **fields):
    number = len(measures)
    rows = jnp.broadcast_to(jnp.asarray(objectives, jnp.float32), (number,))
    fields = {name: jnp.asarray(values, jnp.float32) for name, values in fields.items()}
    results = rows, jnp.asarray(measures, jnp.float32), fields
    return step.masked_batch(algorithm(archive), jnp.zeros((number, 5)), results, None)


@METRICS
@given(seed=st.integers(0, 2**31), has_violations=st.booleans())
def test_the_excess_of_the_distance_is_a_violation(metric, seed, has_violations):
    random = np.random.default_rng(seed)
    measures = random.uniform(-3, 3, (20, 2)).astype(np.float32)
    near = random.choice([1e-3, 0.05, 0.5])
    nearest = distance_to_items(measures, metric)
    measures = measures[np.abs(nearest - near) > 1e-5]
    excess = np.maximum(distance_to_items(measures, metric) - near, 0)
    given = random.choice([-1.0, 0.0, 2.0], len(measures)) if has_violations else 0 * excess
    more = {"violation": given} if has_violations else {}
    batch = masked(DATA.archive(metric, within=near), measures, 7.0, **more)
    total = excess + np.maximum(given, 0)
    np.testing.assert_allclose(batch.violations, total, atol=1e-5)
    np.testing.assert_array_equal(batch.valid, total == 0)
    np.testing.assert_array_equal(batch.is_far, (excess > 0) & (given <= 0))
    np.testing.assert_array_equal(batch.objectives, np.where(total == 0, 7, 0))
    kept = (given <= 0)[:, None]
    np.testing.assert_array_equal(batch.measures, np.where(kept, measures, 0))


def test_failed_rows_stay_failed_and_infeasible_ones_need_no_measures():
    measures = [[9, 9], [9, 9], [9, np.nan], [9, np.nan], [9, 9]]
    violations = [0, np.nan, 0, 3, 3]
    batch = masked(
        DATA.archive(within=NEAR), measures, [np.nan, 0, 0, 0, np.nan], violation=violations
    )
    assert not batch.valid.any()
    assert not batch.is_far.any()
    assert batch.violations.tolist() == [0, 0, 0, 3, 3]


@pytest.mark.parametrize("driver", ["fused", "ask-tell", "asynchronous"])
def test_no_elite_is_farther_and_the_others_are_those_of_filtered_rows(driver):
    recorder = Recorder()
    if driver == "fused":
        result = gloam.run(evaluate, algorithm(), 8, **QUIET)
    else:
        is_asynchronous = driver == "asynchronous"
        result = gloam.optimize(recorder, algorithm(), 8, asynchronous=is_asynchronous, **QUIET)
    elites, last = result.elites, result.metrics.iloc[-1]
    assert len(elites) > 5
    assert distance_to_items(elites.measures).max() <= NEAR + 1e-6
    assert 0 < last["infeasible_total"] < last["evaluations"]
    assert last["failed_total"] == 0
    if driver == "fused":
        return
    solutions, objectives, measures = map(np.concatenate, zip(*recorder.rows, strict=True))
    is_near = distance_to_items(measures) <= NEAR
    assert last["infeasible_total"] == (~is_near).sum()
    rows = solutions[is_near], objectives[is_near], measures[is_near]
    assert_same_bits(elites.store, elites_from_arrays(DATA.archive(), *rows).store)


def test_a_large_distance_changes_nothing():
    for told in (evaluate, lambda solutions: evaluate(solutions)[1]):
        some, every = (
            gloam.optimize(told, algorithm(DATA.archive(**options)), 4, **QUIET).elites
            for options in ({}, {"within": 1e6})
        )
        assert_same_bits(some.store, every.store)


@METRICS
def test_cells_from_outside_count_by_the_same_distance(metric):
    pytest.importorskip("faiss", reason="faiss-cpu is not installed: pip install 'gloam[faiss]'")
    exact, flat = (
        gloam.optimize(
            evaluate, algorithm(DATA.archive(metric, within=0.2, index=index)), 4, **QUIET
        ).elites
        for index in ("exact", "flat")
    )
    assert flat.archive.index is not None
    assert_same_bits(exact.store, flat.store)
    assert distance_to_items(flat.measures, metric).max() <= 0.2 + 1e-6
    # Cells that a user gives are not always the nearest ones.
    search = gloam.Search(algorithm())
    objectives, measures = evaluate(search.ask())
    search.tell(objectives, measures, cells=np.zeros(BATCH, int))
    is_near = np.linalg.norm(measures - ITEMS[0], axis=1) <= NEAR
    assert search.metrics()["infeasible"] == (~is_near).sum()


def test_files_keep_the_distance(tmp_path):
    arrays = {}
    content = objects.encode(DATA.archive("cosine", within=1), arrays)
    assert objects.decode(content, arrays).within == 1.0
    whole = gloam.run(evaluate, algorithm(), 6, run_dir=tmp_path / "whole", **QUIET)
    gloam.run(evaluate, algorithm(), 3, run_dir=tmp_path / "parts", **QUIET)
    parts = gloam.run(evaluate, algorithm(), 6, run_dir=tmp_path / "parts", resume=True, **QUIET)
    assert_same_bits(whole.elites.store, parts.elites.store)
    assert gloam.RunFolder(tmp_path / "whole").read_archive().archive.within == NEAR
    search = gloam.Search(algorithm())
    search.tell(*evaluate(search.ask()))
    search.save(tmp_path / "search")
    again = gloam.Search.load(tmp_path / "search")
    for each in (search, again):
        each.tell(*evaluate(each.ask()))
    assert_same_bits(search.state, again.state)
    assert again.metrics()["infeasible_total"] > 0


def test_elites_of_another_archive_enter_if_they_are_near():
    everywhere = gloam.optimize(evaluate, algorithm(DATA.archive()), 8, **QUIET).elites
    is_near = distance_to_items(everywhere.measures) <= NEAR
    assert 0 < is_near.sum() < len(everywhere)
    near = everywhere.into(DATA.archive(within=NEAR))
    np.testing.assert_array_equal(near.cells, everywhere.cells[is_near])
    np.testing.assert_array_equal(near.solutions, everywhere.solutions[is_near])
    from_table = gloam.interop.elites_from_pandas(near.archive, everywhere.to_pandas())
    assert_same_bits(from_table.store, near.store)
    search = gloam.Search(algorithm(), start_from=everywhere)
    assert search.metrics()["started_from"] == is_near.sum()
    assert_same_bits(search.elites().store, near.store)
    with refused("others"):
        near.merged(everywhere)


def test_elites_whose_mean_is_too_far_are_not_corrected():
    def shifted(solutions, *, seeds):
        # The search sees measures in which noise hides that they are all shifted.
        objectives, measures = evaluate(solutions)
        return objectives, measures + np.random.default_rng(seeds[0]).normal(0, 0.3, (BATCH, 2))

    result = gloam.optimize(shifted, algorithm(), 5, **QUIET)
    assert distance_to_items(result.elites.measures).max() <= NEAR + 1e-6
    again = result.reevaluated(20)
    assert 0 < len(again.elites) < len(result.elites)
    assert distance_to_items(again.elites.measures).max() <= NEAR + 1e-6


def test_emitters_that_aim_are_led_by_far_solutions():
    # Items far apart: the way from one to the next is infeasible.
    items = np.array([[-2, -2], [-2, 2], [2, -2], [2, 2], [0, 0]], np.float32)
    archive = CVTArchive(items, within=0.05)
    ascent = gloam.emitters.GradientAscent(np.zeros(5), 0.3, goal="target", batch_size=8)
    cma = gloam.emitters.AimedCmaEmitters(np.zeros(5), 0.3, num_emitters=2, batch_size=8)
    for emitter in (ascent, cma):
        aimed = gloam.Algorithm(emitter, archive, NoDiscount())
        result = gloam.run(evaluate, aimed, 150, seeds=[0], **QUIET)
        assert result.elites.coverage == 1


@pytest.mark.parametrize("within", [0, -1, np.nan, np.inf, "near", True])
def test_a_distance_is_a_positive_number(within):
    with refused("within"):
        DATA.archive(within=within)
