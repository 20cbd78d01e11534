"""Random keys and seeds of evaluations, and the corrected archives of runs with noise."""

import pickle
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gloam
from gloam._tools.draws import evaluation_seeds, root_key
from tests.problems import BATCH, evaluate, small

pytestmark = pytest.mark.slow  # searches of its own are compiled

NOISE, SHAKE = 0.1, 0.05
FEW = "map-elites-line"
"""An algorithm that compiles in few seconds."""


def noisy(solutions, *, key):
    """Noise on objectives and measures, by a key."""
    objectives, measures = evaluate(solutions)
    of_objectives, of_measures = jax.random.split(key)
    return (
        objectives + NOISE * jax.random.normal(of_objectives, objectives.shape),
        measures + SHAKE * jax.random.normal(of_measures, measures.shape),
    )


def noisy_objectives(solutions, *, key):
    objectives, measures = evaluate(solutions)
    return objectives + NOISE * jax.random.normal(key, objectives.shape), measures


def noisy_rows(solutions, *, seeds):
    """Noise on objectives, by a seed for each solution."""
    assert len(seeds) == len(solutions)
    assert seeds.dtype == np.int64
    objectives, measures = evaluate(solutions)
    draws = [np.random.default_rng(seed).normal() for seed in seeds]
    return objectives + NOISE * np.array(draws), measures


def noisy_row(solution, *, seed):
    assert isinstance(seed, int)
    objectives, measures = noisy_rows(solution[None], seeds=np.array([seed]))
    return objectives[0], measures[0]


def noisy_measures(solutions, *, key):
    """Measures alone: closeness is the objective."""
    return evaluate(solutions)[1] + SHAKE * jax.random.normal(key, (len(solutions), 2))


run = partial(gloam.run, progress=False, log_every=5)
optimize = partial(gloam.optimize, progress=False, log_every=5)


def assert_same(one, other):
    assert one.seeds == other.seeds
    for seed in one.seeds:
        stores = one.elites_by_seed[seed].store, other.elites_by_seed[seed].store
        jax.tree.map(np.testing.assert_array_equal, *stores)


@pytest.fixture(scope="module")
def found():
    return run(noisy, small(FEW), 20, seeds=4)


@pytest.mark.parametrize("name", [FEW, pytest.param("climbing", marks=pytest.mark.release)])
def test_a_run_with_keys_resumes_to_the_same_bits(tmp_path, name):
    whole = run(noisy, small(name), 6, seeds=2)
    run(noisy, small(name), 3, seeds=2, run_dir=tmp_path)
    assert_same(whole, run(noisy, small(name), 6, seeds=2, run_dir=tmp_path, resume=True))


def test_every_iteration_and_seed_has_its_own_seeds():
    searches, seen = [gloam.Search(small(FEW), seed) for seed in (0, 1)], []
    for search in searches * 2:
        seen += search.seeds().tolist()
        search.tell(*evaluate(search.ask()))
    assert len(set(seen)) == 4 * BATCH


def test_a_key_that_is_ignored_changes_nothing():
    def ignoring(solutions, *, key):
        return evaluate(solutions)

    assert_same(run(evaluate, small(FEW), 5), run(ignoring, small(FEW), 5))


def test_seeds_that_are_ignored_change_nothing():
    def ignoring_seeds(solutions, *, seeds):
        return evaluate(solutions)

    assert_same(optimize(evaluate, small(FEW), 5), optimize(ignoring_seeds, small(FEW), 5))


def test_a_run_and_a_search_have_the_same_random_numbers():
    def by_key(solutions, *, key):
        objectives, measures = evaluate(solutions)
        return objectives + (jax.random.bits(key, objectives.shape) >> 1) * 2.0**-31, measures

    def by_seeds(solutions, *, seeds):
        objectives, measures = evaluate(solutions)
        return objectives + seeds * 2.0**-31, measures

    one, other = run(by_key, small(FEW), 3), optimize(by_seeds, small(FEW), 3)
    np.testing.assert_array_equal(one.elites.cells, other.elites.cells)
    np.testing.assert_allclose(one.elites.objectives, other.elites.objectives, atol=1e-5)


def test_batches_rows_and_executors_give_the_same_seeds(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    whole = optimize(noisy_rows, small(FEW), 6, seeds=[7, 3])
    assert_same(whole, optimize(noisy_row, small(FEW), 6, seeds=[7, 3], per_solution=True))
    with ThreadPoolExecutor(2) as pool:
        assert_same(whole, optimize(noisy_rows, small(FEW), 6, seeds=[7, 3], evaluator=pool))
    optimize(noisy_rows, small(FEW), 3, seeds=[7, 3], run_dir=tmp_path)
    again = optimize(noisy_rows, small(FEW), 6, seeds=[7, 3], run_dir=tmp_path, resume=True)
    assert_same(whole, again)


def test_processes_give_the_same_seeds():
    whole = optimize(noisy_rows, small(FEW), 3)
    workers = gloam.evaluators.Processes(2)
    assert_same(whole, optimize(noisy_rows, small(FEW), 3, evaluator=workers))
    assert_same(whole, optimize(noisy_row, small(FEW), 3, evaluator=workers, per_solution=True))


def test_an_asynchronous_run_has_a_seed_for_each_solution(tmp_path):
    whole = optimize(noisy_rows, small(FEW), 4, asynchronous=True)
    rows = optimize(noisy_row, small(FEW), 4, asynchronous=True, per_solution=True)
    assert_same(whole, rows)
    optimize(noisy_rows, small(FEW), 2, asynchronous=True, run_dir=tmp_path)
    again = optimize(noisy_rows, small(FEW), 4, asynchronous=True, run_dir=tmp_path, resume=True)
    assert_same(whole, again)


def test_seeds_of_tickets_differ_and_survive_a_checkpoint():
    search = gloam.AsyncSearch(small(FEW), seed=1)
    tickets = search.ask(BATCH)
    seeds = [search.seed_of(ticket) for ticket in tickets]
    assert len(set(seeds)) == BATCH
    assert seeds == [search.seed_of(ticket) for ticket in tickets]
    restored = gloam.AsyncSearch(small(FEW), seed=1)
    restored.restore(search.checkpoint())
    assert seeds == [restored.seed_of(ticket) for ticket in restored.ask(BATCH)]
    for ticket in tickets:
        search.tell(ticket, 0.0, ticket.solution[:2])
    assert not {search.seed_of(ticket) for ticket in search.ask(BATCH)} & set(seeds)


def test_evaluation_seeds_fit_in_31_bits():
    seeds = evaluation_seeds(root_key(0), 10_000)
    assert seeds.min() >= 0
    assert 0.99 * 2**31 < seeds.max() < 2**31


@pytest.mark.parametrize(
    ("start", "function"),
    [
        (run, lambda solutions, key: None),
        (run, lambda solutions, *, seeds: None),
        (optimize, lambda solutions, seeds: None),
        (optimize, lambda solutions, *, key: None),
        (optimize, lambda solutions, *, seed: None),
        (partial(optimize, per_solution=True), lambda solution, *, seeds: None),
        (partial(optimize, asynchronous=True), lambda solutions, *, key: None),
    ],
)
def test_other_declarations_are_refused(start, function):
    with pytest.raises(ValueError, match=r"expected \(solutions\), or \(solutions, \*, (key|seed)"):
        start(function, small(FEW), 3)


def test_parameters_with_a_default_are_the_users_own():
    def with_default(solutions, *, key=None, seeds=None):
        assert key is None
        assert seeds is None
        return evaluate(solutions)

    assert_same(run(evaluate, small(FEW), 3), run(with_default, small(FEW), 3))
    assert_same(optimize(evaluate, small(FEW), 3), optimize(with_default, small(FEW), 3))


def reference(elites, function, number):
    """Mean objectives and measures of elites, by a program of its own."""

    @jax.jit
    def means(key):
        keys = jax.random.split(key, number)
        found = jax.vmap(lambda key: function(jnp.asarray(elites.solutions), key=key))(keys)
        return [part.mean(axis=0) for part in found]

    return means(jax.random.key(99))


def test_the_corrected_score_agrees_with_a_reference_of_1000_evaluations(found):
    corrected = found.reevaluated(30)
    z_scores = []
    for row in corrected.table.itertuples():
        elites = found.elites_by_seed[row.seed]
        values = map(np.asarray, reference(elites, noisy, 1000))
        expected = gloam.interop.elites_from_arrays(elites.archive, elites.solutions, *values)
        for name in ("qd_score", "coverage"):
            known = expected.coverage
            if name == "qd_score":
                known = expected.qd_score_from(elites.f_min)
            error = getattr(row, f"corrected_{name}_error")
            z_scores.append((getattr(row, f"corrected_{name}") - known) / error)
            # The reported score is beyond what noise explains.
            assert getattr(row, name) > known + 2 * error
    assert np.abs(z_scores).max() < 3
    assert 0.2 < np.sqrt(np.mean(np.square(z_scores))) < 1.6


@pytest.mark.release
def test_standard_errors_are_those_of_a_sum_and_shrink():
    result = run(noisy_objectives, small(FEW), 20)
    errors = {}
    for number in (2, 8, 32, 128):
        row = result.reevaluated(number).table.iloc[0]
        errors[number] = row["corrected_qd_score_error"]
        # Elites stay in their cells, so the score is a sum of means.
        assert row["corrected_coverage"] == row["coverage"]
        assert row["corrected_coverage_error"] == 0
        expected = NOISE * np.sqrt(row["evaluated_elites"] / number)
        assert expected / 1.5 < errors[number] < 1.5 * expected
    assert errors[128] < errors[32] < errors[8] < errors[2]
    assert np.isnan(result.reevaluated(1).table["corrected_qd_score_error"][0])


@pytest.mark.parametrize("start", [run, optimize])
def test_without_noise_nothing_is_corrected(start):
    result = start(evaluate, small(FEW), 5, seeds=2)
    again = result.reevaluated(3)
    for seed in result.seeds:
        one, other = result.elites_by_seed[seed], again.elites_by_seed[seed]
        np.testing.assert_array_equal(one.cells, other.cells)
        np.testing.assert_array_equal(one.solutions, other.solutions)
        np.testing.assert_allclose(one.objectives, other.objectives, atol=1e-6)
    for name in ("corrected_qd_score_error", "corrected_coverage_error"):
        assert (again.table[name] == 0).all()
    np.testing.assert_allclose(again.table["corrected_qd_score"], again.table["qd_score"], 1e-5)


@pytest.mark.release
def test_closeness_is_corrected_for_the_cell_of_the_mean():
    result = run(noisy_measures, small(FEW), 20)
    again = result.reevaluated(400)
    elites, archive = again.elites, again.elites.archive
    # The mean of a squared distance is that of the mean measures, plus the variance.
    at_mean = archive.closeness(jnp.asarray(elites.measures), jnp.asarray(elites.cells))
    np.testing.assert_allclose(elites.objectives, np.asarray(at_mean) - SHAKE**2, atol=2e-3)


def test_failed_evaluations_do_not_count():
    calls = []

    def fails_at_times(solutions, *, seeds):
        calls.append(len(solutions))
        objectives, measures = evaluate(solutions)
        return np.where(seeds % 3 == 0, np.nan, objectives), measures

    result = optimize(fails_at_times, small(FEW), 5)
    again = result.reevaluated(30)
    row = again.table.iloc[0]
    assert 0.2 < row["failed"] / row["evaluations"] < 0.45
    assert set(calls) == {BATCH}
    np.testing.assert_array_equal(again.elites.solutions, result.elites.solutions)
    np.testing.assert_allclose(again.elites.objectives, result.elites.objectives, rtol=1e-5)


def test_infeasible_evaluations_do_not_count():
    def feasible_at_times(solutions, *, seeds):
        objectives, measures = evaluate(solutions)
        is_wrong = seeds % 3 == 0
        return np.where(is_wrong, 99.0, objectives), measures, {"violation": is_wrong}

    result = optimize(feasible_at_times, small(FEW), 5)
    again = result.reevaluated(30)
    np.testing.assert_array_equal(again.elites.solutions, result.elites.solutions)
    np.testing.assert_allclose(again.elites.objectives, result.elites.objectives, rtol=1e-5)


@pytest.mark.parametrize(
    ("start", "function", "options"),
    [
        (run, noisy_objectives, {}),
        (optimize, noisy_rows, {}),
        (optimize, noisy_row, {"per_solution": True}),
        (optimize, noisy_rows, {"asynchronous": True}),
    ],
)
def test_a_warm_start_evaluates_with_noise(start, function, options):
    earlier = optimize(evaluate, small(FEW), 3).elites
    warm = {"start_from": earlier, "reevaluate_start": True, **options}
    one, same = (start(function, small(FEW), 1, **warm) for _ in range(2))
    assert_same(one, same)
    # Elites of one cell each come back to it, with noise on their objectives.
    assert set(earlier.cells) <= set(one.elites.cells)
    kept = np.array([(row == one.elites.solutions).all(axis=1).any() for row in earlier.solutions])
    assert kept.mean() > 0.3
    values = {row.tobytes(): value for row, value in zip(*_rows(one.elites), strict=True)}
    differences = [
        values[row.tobytes()] - value
        for row, value in zip(*_rows(earlier), strict=True)
        if row.tobytes() in values
    ]
    assert 0.3 * NOISE < np.std(differences) < 2 * NOISE


def _rows(elites):
    return elites.solutions, elites.objectives


@pytest.mark.parametrize("start", [optimize, pytest.param(run, marks=pytest.mark.release)])
def test_values_of_a_space_come_with_keys_or_seeds(start):
    space = gloam.Space(x=gloam.Real(-1, 1), n=gloam.Integer(0, 3))

    def by_key(values, *, key):
        noise = NOISE * jax.random.normal(key, values["x"].shape)
        return values["n"] + noise, values["x"][:, None]

    def by_seeds(values, *, seeds):
        assert len(seeds) == BATCH
        return values["n"] + NOISE * (seeds * 2.0**-30 - 1), values["x"][:, None]

    algorithm = gloam.MAPElites(gloam.GridArchive((6,), -1, 1), space, batch_size=BATCH)
    result = start(by_key if start is run else by_seeds, algorithm, 4)
    rounded = np.rint(result.elites.objectives)
    np.testing.assert_array_equal(rounded, result.elites.values()["n"])
    assert (rounded != result.elites.objectives).all()
    again = result.reevaluated(50)
    np.testing.assert_array_equal(again.elites.cells, result.elites.cells)
    np.testing.assert_allclose(again.elites.objectives, rounded, atol=5 * NOISE / 50**0.5)


def test_a_run_folder_is_evaluated_again_with_the_function(tmp_path):
    result = run(noisy, small(FEW), 5, seeds=2, run_dir=tmp_path / "traced")
    ours = result.reevaluated(4)
    folder = gloam.RunFolder(tmp_path / "traced")
    scores, number, iteration = folder.read_corrected()
    assert (number, iteration) == (4, folder.read_checkpoint_iteration())
    assert scores["corrected_coverage"].tolist() == ours.table["corrected_coverage"].tolist()
    folders = gloam.reevaluate(tmp_path / "traced", noisy, 4)
    assert ours.table.equals(folders.table)
    python = optimize(noisy_row, small(FEW), 5, run_dir=tmp_path / "p", per_solution=True)
    folders = gloam.reevaluate(tmp_path / "p", noisy_row, 4, per_solution=True)
    assert python.reevaluated(4).table.equals(folders.table)


def test_a_result_can_be_sent_to_another_process_without_its_function():
    result = optimize(lambda solutions: evaluate(solutions), small(FEW), 2)
    sent = pickle.loads(pickle.dumps(result))
    assert_same(result, sent)
    with pytest.raises(ValueError, match=r"Use gloam\.reevaluate"):
        sent.reevaluated(2)
    with pytest.raises(ValueError, match="number"):
        result.reevaluated(0)


def test_an_archive_without_elites_stays_empty(tmp_path):
    result = run(evaluate, small(FEW), 1, run_dir=tmp_path)
    empty = gloam.archives.store.empty_store(50, 5, 2, {})
    gloam.RunFolder(tmp_path).write_archive(gloam.Elites(result.elites.archive, empty), seed=0)
    with pytest.raises(ValueError, match=r"^evaluate:.*NoneType"):
        gloam.reevaluate(tmp_path, None, 2)
    again = gloam.reevaluate(tmp_path, evaluate, 2)
    assert len(again.elites) == again.table["corrected_qd_score"][0] == 0


@pytest.mark.release
def test_corrected_archives_say_so(found):
    corrected = found.reevaluated(2)
    assert "corrected QD score" in repr(corrected)
    assert "corrected QD score" in repr(corrected.elites)
    assert "corrected QD score" in corrected.elites._repr_html_()
    figure = gloam.plots.heatmap(corrected.elites)
    assert any("corrected objective" in axes.get_ylabel() for axes in figure.axes)
    moved = corrected.elites.into(gloam.GridArchive((4, 4), -2.0, 2.0))
    assert moved.is_corrected
