"""Asynchronous runs: an executor, results as they come, folders, failures."""

import pickle
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import gloam
from gloam.drivers.async_driver import Failed, evaluate_one
from tests.helpers import assert_same_bits, refused

BATCH = 12


def evaluate(x):
    return 1 - np.square(x).sum(axis=1), x[:, :2]


def algorithm():
    archive = gloam.GridArchive((6, 6), -1, 1)
    return gloam.CMAMAE(archive, np.zeros(3), 0.3, num_emitters=3, batch_size=4)


def optimize(iterations, function=evaluate, **options):
    options = {"seeds": [7], "log_every": 2, "asynchronous": True} | options
    return gloam.optimize(function, algorithm(), iterations, progress=False, **options)


class Uneven:
    """Evaluates in times that depend on the solution, and remembers what it evaluated."""

    def __init__(self):
        self.solutions = []

    def __call__(self, x):
        time.sleep(0.002 * float(np.random.default_rng(int(1e6 * abs(x[0, 0]))).random()))
        self.solutions.append(x[0].copy())
        return evaluate(x)


@pytest.mark.parametrize("seeds", [[7], [7, 3]])
def test_a_pool_of_threads_fills_archives(seeds):
    function = Uneven()
    with ThreadPoolExecutor(4) as pool:
        result = optimize(5, function, seeds=seeds, evaluator=pool)
    assert list(result.metrics["iteration"]) == [it for it in (2, 4, 5) for _ in seeds]
    assert list(result.metrics["evaluations"]) == [BATCH * it for it in (2, 4, 5) for _ in seeds]
    assert not result.metrics["failed"].any()
    solutions = np.stack(function.solutions)
    assert 5 * BATCH * len(seeds) <= len(solutions) <= 5 * BATCH * len(seeds) + 8
    for elites in result.elites_by_seed.values():
        assert len(elites) > 5
        found = (elites.solutions[:, None] == solutions).all(axis=2).any(axis=1)
        assert found.all()
        np.testing.assert_allclose(elites.objectives, evaluate(elites.solutions)[0], rtol=1e-5)


def test_one_worker_gives_the_same_bits_also_when_resumed(tmp_path):
    whole = optimize(6)
    with ThreadPoolExecutor(1) as pool:
        again = optimize(6, Uneven(), evaluator=pool)
    assert_same_bits(again.elites, whole.elites)
    optimize(2, run_dir=tmp_path)
    optimize(3, run_dir=tmp_path, resume=True)
    resumed = optimize(6, run_dir=tmp_path, resume=True)
    assert_same_bits(resumed.elites, whole.elites)
    folder = gloam.RunFolder(tmp_path)
    assert_same_bits(folder.read_archive(), whole.elites)
    assert folder.read_metrics()["evaluations"].tolist() == [24, 36, 48, 72]


def test_a_run_is_resumed_only_as_it_was_started(tmp_path):
    optimize(2, run_dir=tmp_path)
    with refused("The run in"):
        optimize(3, run_dir=tmp_path, resume=True, asynchronous=False)
    with refused("run_dir: expected a run that is not asynchronous"):
        gloam.resume(tmp_path)


def test_failed_evaluations_are_counted_and_the_run_goes_on():
    def breaks(x):
        kind = int(1e6 * abs(x[0, 0])) % 4
        if kind == 0:
            raise RuntimeError("the simulator stopped")
        if kind == 1:
            return np.full(1, np.nan), x[:, :2]
        if kind == 2 and done:
            return np.zeros(2), x[:, :2]
        done.append(True)
        return evaluate(x)

    done = []
    result = optimize(4, breaks, log_every=1)
    assert (result.metrics["failed"] > 0).all()
    assert (result.metrics["failed"] < BATCH).all()
    for solution in result.elites.solutions:
        assert int(1e6 * abs(solution[0])) % 4 >= 2


def test_a_run_in_which_everything_fails_is_saved_and_stops(tmp_path):
    calls = []

    def breaks(x):
        calls.append(x)
        if len(calls) > 2 * BATCH:
            raise RuntimeError("the licence has expired")
        return evaluate(x)

    with pytest.raises(gloam.EvaluationError, match="RuntimeError: the licence has expired"):
        optimize(9, breaks, run_dir=tmp_path)
    assert gloam.RunFolder(tmp_path).read_checkpoint_iteration() == 3
    assert len(gloam.RunFolder(tmp_path).read_archive()) > 0


class Breaking(ThreadPoolExecutor):
    """Refuses work after some submissions, as a pool whose workers crashed does."""

    left = 3 * 2 * BATCH + 5

    def submit(self, *arguments, **options):
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("the workers crashed")
        return super().submit(*arguments, **options)


def test_seeds_that_an_error_stopped_apart_go_on_where_they_were(tmp_path):
    with Breaking(2) as pool, pytest.raises(RuntimeError, match="the workers crashed"):
        optimize(9, evaluator=pool, seeds=[7, 3], run_dir=tmp_path)
    before = [gloam.RunFolder(tmp_path).read_archive(seed) for seed in (7, 3)]
    result = optimize(6, seeds=[7, 3], run_dir=tmp_path, resume=True)
    assert result.metrics["evaluations"].tolist()[-2:] == [6 * BATCH] * 2
    for elites, after in zip(before, result.elites_by_seed.values(), strict=True):
        assert (after.store.objectives >= elites.store.objectives).all()


def test_a_function_whose_answers_do_not_fit_is_refused():
    with refused("measures: expected shape (1, 2)"):
        optimize(3, lambda x: (np.zeros(1), np.zeros((1, 5))))


def test_an_evaluation_that_hangs_counts_as_failed_and_may_come_late(monkeypatch):
    failed, came, hung = threading.Event(), threading.Event(), []
    fail = gloam.AsyncSearch.fail

    def noted(search, *tickets, **options):
        fail(search, *tickets, **options)
        failed.set()

    def hangs(x):
        if not hung:
            hung.append(x[0].copy())
            assert failed.wait(60)
            came.set()
            return np.array([100.0]), np.full((1, 2), 0.99)
        if len(calls) > 3:  # the run does not end before
            assert came.wait(60)
            time.sleep(0.001)
        calls.append(x)
        return evaluate(x)

    calls = []
    monkeypatch.setattr(gloam.AsyncSearch, "fail", noted)
    settings = gloam.Asynchronous(timeout=0.2, in_flight=2)
    with ThreadPoolExecutor(2) as pool:
        result = optimize(6, hangs, log_every=1, evaluator=pool, asynchronous=settings)
    assert result.metrics["failed"].sum() <= 2  # the other thread waited as well
    best = result.elites.objectives.argmax()
    assert result.elites.objectives[best] == 100.0
    np.testing.assert_array_equal(result.elites.solutions[best], hung[0])


def test_ctrl_c_saves_the_run(tmp_path):
    calls = []

    def interrupts(x):
        calls.append(x)
        if len(calls) == BATCH + 2:
            signal.raise_signal(signal.SIGINT)
        return evaluate(x)

    with ThreadPoolExecutor(1) as pool, pytest.raises(gloam.Interrupted):
        optimize(9, interrupts, run_dir=tmp_path, evaluator=pool)
    assert 1 <= gloam.RunFolder(tmp_path).read_checkpoint_iteration() < 9
    assert_same_bits(optimize(9, run_dir=tmp_path, resume=True).elites, optimize(9).elites)


def test_jobs_can_be_sent_to_other_processes():
    job = pickle.loads(pickle.dumps((evaluate_one, evaluate, np.ones(3))))
    objectives, measures = job[0](*job[1:])
    assert (objectives.shape, measures.shape) == ((1,), (1, 2))
    failed = evaluate_one(len, 3)
    assert isinstance(failed, Failed)
    assert "TypeError" in pickle.loads(pickle.dumps(failed)).error


def test_settings_are_checked():
    with refused("evaluator: expected"):
        optimize(1, evaluator=4)
    with gloam.Processes(1) as pool, refused("evaluator: expected Executor"):
        optimize(1, evaluator=pool)
    for wrong in ({"close_at": 0.0}, {"timeout": 0.0}, {"in_flight": 0}):
        with refused(f"{next(iter(wrong))}: expected"):
            gloam.Asynchronous(**wrong)
