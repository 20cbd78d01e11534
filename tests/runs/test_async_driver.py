"""Asynchronous runs: an executor, results as they come, folders, failures."""

import pickle
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

import gloam
from gloam.errors import WorkerError
from gloam.explorer import write_html
from gloam.explorer.archive_view import packed_discount
from gloam.explorer.cell_view import discount_at
from gloam.explorer.library import OpenedRun
from tests.explorer.unpacking import unpacked
from tests.helpers import assert_same_bits, refused
from tests.run_folders import small_dms

pytestmark = pytest.mark.slow  # searches of its own are compiled

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
    # Each seed ends with at most 8 solutions, two for each worker, that it does not wait for.
    assert 5 * BATCH * len(seeds) <= len(solutions) <= (5 * BATCH + 8) * len(seeds)
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


def test_all_readers_of_run_folders_know_asynchronous_runs(tmp_path):
    archive = gloam.GridArchive((6, 6), -1, 1, f_min=-10)
    emitter = gloam.emitters.Variation(np.zeros(3), 0.4, batch_size=BATCH)
    algorithm = gloam.Algorithm(emitter, archive, small_dms(archive, np.zeros(3)).discount)
    options = {"seeds": [7, 3], "asynchronous": True, "progress": False, "log_every": 1}
    gloam.optimize(evaluate, algorithm, 2, run_dir=tmp_path, **options)
    names = [path.name for path in gloam.plots.plot_run(tmp_path)]
    assert names == ["curves.png", "archive.png", "discount.png"]
    opened = OpenedRun(tmp_path)
    values, about = unpacked(packed_discount(opened, None))
    assert about["iteration"] == 2
    assert np.isfinite(values["values"]).all()
    cell = int(opened.elites(7).cells[0])
    assert np.isfinite(discount_at(opened, 7, cell))
    assert write_html(tmp_path).is_file()
    assert gloam.compare({"ours": tmp_path}).table()["seeds"].tolist() == [2]


KINDS = ["exception", "not finite", "wrong form"]


def kind_of(x):
    """How the evaluation of a solution fails, if it does: by chance but always the same."""
    number = int(1e6 * abs(x[0])) % 5
    return KINDS[number] if number < 3 else None


def breaks(x):
    kind = kind_of(x[0])
    if kind == "exception":
        raise RuntimeError("the simulator stopped")
    objectives, measures = evaluate(x)
    if kind == "not finite":
        return np.full(1, np.nan), measures
    return (np.zeros(2), measures) if kind == "wrong form" else (objectives, measures)


def breaks_for_one(x):
    objectives, measures = breaks(x[None])
    return (objectives if len(objectives) == 2 else objectives[0]), measures[0]


@pytest.mark.parametrize(("function", "per_solution"), [(breaks, False), (breaks_for_one, True)])
def test_failed_evaluations_are_logged_and_the_run_goes_on(tmp_path, function, per_solution):
    result = optimize(6, function, log_every=1, run_dir=tmp_path, per_solution=per_solution)
    assert {kind_of(solution) for solution in result.elites.solutions} == {None}
    table = gloam.RunFolder(tmp_path).read_failures()
    assert [kind_of(solution) for solution in table["solution"]] == table["kind"].tolist()
    assert set(table["kind"]) == set(KINDS)
    for failure in table.itertuples():
        if failure.kind == "exception":
            assert failure.error == "RuntimeError: the simulator stopped"
            assert f"in {function.__name__}" in failure.traceback
    assert not table.duplicated(["seed", "iteration", "row"]).any()
    assert table["row"].between(0, BATCH - 1).all()
    metrics = result.metrics
    counts = table.groupby("iteration").size().reindex(metrics["iteration"], fill_value=0)
    assert counts.tolist() == metrics["failed"].tolist()
    assert metrics["failed_total"].tolist() == metrics["failed"].cumsum().tolist()


class Breaking(ThreadPoolExecutor):
    """Refuses work after some submissions, as a pool whose workers crashed does."""

    def __init__(self, workers, left):
        super().__init__(workers)
        self.left = left

    def submit(self, *arguments, **options):
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("the workers crashed")
        return super().submit(*arguments, **options)


def test_each_failure_is_logged_once_also_after_a_resume(tmp_path):
    whole, part = tmp_path / "whole", tmp_path / "part"
    optimize(6, breaks, run_dir=whole)
    with Breaking(1, left=2 * BATCH + 7) as pool, pytest.raises(WorkerError):
        optimize(6, breaks, run_dir=part, evaluator=pool)
    log = gloam.RunFolder(part).read_failures()
    assert log["iteration"].max() == 3
    # Failures that the checkpoint does not know, because the process was killed before it.
    later = log.iloc[-1:].assign(row=BATCH - 1)
    gloam.RunFolder(part).write_failures(pd.concat([log, later], ignore_index=True))
    for iterations in (4, 6):
        optimize(iterations, breaks, run_dir=part, resume=True)
    mine, theirs = (gloam.RunFolder(folder).read_failures() for folder in (part, whole))
    columns = ["seed", "iteration", "row", "kind", "error", "traceback"]
    assert mine[columns].equals(theirs[columns])
    np.testing.assert_array_equal(np.stack(mine["solution"]), np.stack(theirs["solution"]))
    assert len(mine) > 10


@pytest.mark.filterwarnings("ignore:The run in .* began with other code")
@pytest.mark.filterwarnings("ignore:evaluation. expected at least one finite result")
@pytest.mark.parametrize("seeds", [[7], [7, 3]])
def test_a_run_in_which_everything_fails_is_saved_and_stops(tmp_path, seeds):
    calls = []

    def expires(x):
        calls.append(x)
        if len(calls) > 2 * BATCH * len(seeds):
            raise RuntimeError("the licence has expired")
        return evaluate(x)

    with pytest.raises(gloam.errors.EvaluationError, match="RuntimeError: the licence has expired"):
        optimize(9, expires, run_dir=tmp_path, seeds=seeds)
    folder = gloam.RunFolder(tmp_path)
    assert folder.read_checkpoint_iteration() == 5
    assert len(folder.read_failures()) == 3 * BATCH * len(seeds)
    assert len(folder.read_archive()) > 0
    found = optimize(9, run_dir=tmp_path, seeds=seeds, resume=True)  # the licence is there again
    assert found.metrics["failed_total"].tolist()[-len(seeds) :] == [3 * BATCH] * len(seeds)


def test_two_batches_in_a_row_may_fail_entirely():
    calls = []

    def expires(x):
        calls.append(x)
        objectives, measures = evaluate(x)
        return objectives * (np.nan if BATCH < len(calls) <= 3 * BATCH else 1), measures

    with pytest.warns(UserWarning, match="none among the 12 solutions of seed 7 in iteration 2"):
        found = optimize(5, expires, log_every=1)
    assert found.metrics["failed"].tolist() == [0, BATCH, BATCH, 0, 0]


def test_a_share_of_failures_may_be_too_large():
    share = optimize(6, breaks, log_every=1).metrics["failed"][:3].sum() / (3 * BATCH)
    assert 0 < share < 1
    optimize(3, breaks, max_failure_rate=share)
    with pytest.raises(gloam.errors.EvaluationError, match=r"up to iteration 3 \(at most"):
        optimize(6, breaks, max_failure_rate=share - 0.01)


def test_seeds_that_an_error_stopped_apart_go_on_where_they_were(tmp_path):
    stops = pytest.raises(WorkerError, match="the workers crashed")
    with Breaking(2, left=3 * 2 * BATCH + 5) as pool, stops:
        optimize(9, evaluator=pool, seeds=[7, 3], run_dir=tmp_path)
    before = [gloam.RunFolder(tmp_path).read_archive(seed) for seed in (7, 3)]
    result = optimize(6, seeds=[7, 3], run_dir=tmp_path, resume=True)
    assert result.metrics["evaluations"].tolist()[-2:] == [6 * BATCH] * 2
    for elites, after in zip(before, result.elites_by_seed.values(), strict=True):
        assert (after.store.objectives >= elites.store.objectives).all()


def test_a_function_whose_answers_do_not_fit_is_refused():
    with refused("measures: expected shape (1, 2)"):
        optimize(3, lambda x: (np.zeros(1), np.zeros((1, 5))))


def test_an_evaluation_that_hangs_counts_as_failed_and_may_come_late(tmp_path, monkeypatch):
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
    settings = gloam.Asynchronous(timeout=1.0, in_flight=2)
    with ThreadPoolExecutor(2) as pool:
        result = optimize(
            6, hangs, log_every=1, evaluator=pool, asynchronous=settings, run_dir=tmp_path
        )
    table = gloam.RunFolder(tmp_path).read_failures()
    assert set(table["kind"]) == {"timeout"}
    assert table["error"][0] == "the evaluation took longer than the time limit of 1 s"
    np.testing.assert_array_equal(table["solution"][0], hung[0])
    assert result.metrics["failed"].sum() == len(table) <= 2  # the other thread waited as well
    best = result.elites.objectives.argmax()
    assert result.elites.objectives[best] == 100.0
    np.testing.assert_array_equal(result.elites.solutions[best], hung[0])


@pytest.mark.filterwarnings("ignore:The run in .* began with other code")
def test_ctrl_c_saves_the_run(tmp_path):
    calls = []

    def interrupts(x):
        calls.append(x)
        if len(calls) == BATCH + 2:
            signal.raise_signal(signal.SIGINT)
        return evaluate(x)

    with ThreadPoolExecutor(1) as pool, pytest.raises(gloam.errors.Interrupted):
        optimize(9, interrupts, run_dir=tmp_path, evaluator=pool)
    assert 1 <= gloam.RunFolder(tmp_path).read_checkpoint_iteration() < 9
    assert_same_bits(optimize(9, run_dir=tmp_path, resume=True).elites, optimize(9).elites)


def as_in_another_process(function, arguments):
    called, given = pickle.loads(pickle.dumps((function, arguments)))
    return pickle.loads(pickle.dumps(called(*given)))


class Pickling(ThreadPoolExecutor):
    """Sends functions, arguments and results as a pool of processes does."""

    def submit(self, function, *arguments):
        return super().submit(as_in_another_process, function, arguments)


def test_jobs_can_be_sent_to_other_processes(tmp_path):
    with Pickling(1) as pool:
        found = optimize(4, breaks, evaluator=pool, run_dir=tmp_path)
        with pytest.raises(WorkerError, match="if the function cannot be sent, define it"):
            optimize(1, lambda x: evaluate(x), evaluator=pool)
    assert_same_bits(found.elites, optimize(4, breaks).elites)
    table = gloam.RunFolder(tmp_path).read_failures()
    assert set(table["kind"]) == set(KINDS)
    assert "in breaks" in "".join(table["traceback"])


def test_low_objectives_are_warned_of():
    search = gloam.AsyncSearch(algorithm(), 8)
    tickets = search.ask(BATCH)
    with pytest.warns(UserWarning, match="at or above the floor of the discount = 0, got -5"):
        search.tell(tickets, np.full(BATCH, -5.0), np.zeros((BATCH, 2)))


def test_settings_are_checked():
    with refused("evaluator: expected"):
        optimize(1, evaluator=4)
    settings = gloam.Asynchronous(timeout=1.0)
    with refused("evaluator: expected an executor"):
        optimize(1, evaluator=gloam.evaluators.Processes(1), asynchronous=settings)
    for wrong in ({"close_at": 0.0}, {"timeout": 0.0}, {"in_flight": 0}):
        with refused(f"{next(iter(wrong))}: expected"):
            gloam.Asynchronous(**wrong)
