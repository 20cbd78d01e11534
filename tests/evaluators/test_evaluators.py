"""Laws of all evaluators: the results of the function in order, and failures by row."""

import multiprocessing
import os
import pickle
import signal
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import jax
import numpy as np
import pytest

import gloam
from gloam.errors import EvaluationError
from gloam.evaluators import (
    InProcess,
    PerSolution,
    Processes,
    ResultSpec,
    as_evaluator,
    processes,
)
from gloam.evaluators.results import Block, evaluated_blocks
from gloam.evaluators.row_queue import Pace, RowQueue
from tests.evaluators import functions
from tests.helpers import assert_same_bits, refused
from tests.problems import small

X = np.random.default_rng(0).normal(0, 0.3, (23, 3)).astype(np.float32)
BAD = [4, 11, 17]
X_BAD = X.copy()
X_BAD[BAD, 0] = 2.0


SPAWN = multiprocessing.get_context("spawn")
KINDS = ["in process", "threads", "processes"]


@pytest.fixture(scope="module")
def mark(tmp_path_factory):
    return tmp_path_factory.mktemp("marks") / "mark"


@pytest.fixture(scope="module")
def evaluators(mark):
    """One of each kind for all tests: worker processes take seconds to start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOAM_TEST_MARK", str(mark))  # workers have the environment of their start
        start = {"initializer": functions.set_factor, "initargs": (3.0,)}
        with (
            ThreadPoolExecutor(3) as threads,
            Processes(2, timeout=3.0, **start) as two,
        ):
            yield {
                "in process": InProcess(),
                "threads": as_evaluator(threads),
                "processes": two,
            }
    assert two._workers == []


@pytest.mark.parametrize("kind", KINDS)
def test_results_are_those_of_the_function_in_order(evaluators, kind):
    for function in (functions.batch, PerSolution(functions.one)):
        found = evaluators[kind].evaluate(function, X)
        np.testing.assert_array_equal(found.measures, X[:, :2])
        np.testing.assert_allclose(found.objectives, 1 - np.square(X).sum(axis=1), rtol=1e-6)
        assert found.failures == []
        assert found.fields == {}
    assert evaluators[kind].evaluate(functions.measures_alone, X).objectives is None
    fields = evaluators[kind].evaluate(functions.with_field, X).fields
    np.testing.assert_array_equal(fields["third"], X[:, 2])


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_raises_loses_only_its_bad_rows(evaluators, kind):
    found = evaluators[kind].evaluate(functions.raises, X_BAD)
    assert [failure.row for failure in found.failures] == BAD
    assert {failure.error for failure in found.failures} == {"RuntimeError: too far"}
    assert all("in raises" in failure.traceback for failure in found.failures)
    good = np.setdiff1d(np.arange(len(X)), BAD)
    np.testing.assert_array_equal(found.measures[good], X_BAD[good, :2])
    assert np.isnan(found.measures[BAD]).all()
    assert np.isnan(found.objectives[BAD]).all()


@pytest.mark.slow
def test_crashes_and_hangs_lose_only_their_rows(evaluators):
    x = X[:6].copy()
    x[3, 0] = 2.0
    for function, kind in ((functions.crashes, "lost worker"), (functions.hangs, "timeout")):
        found = evaluators["processes"].evaluate(PerSolution(function), x)
        assert [(failure.row, failure.kind) for failure in found.failures] == [(3, kind)]
        np.testing.assert_array_equal(np.delete(found.measures, 3, 0), np.delete(x, 3, 0)[:, :2])


@pytest.mark.slow
def test_a_worker_that_ends_by_chance_costs_nothing(evaluators, mark):
    processes = evaluators["processes"]
    found = processes.evaluate(PerSolution(functions.crashes_once), X_BAD)
    assert mark.exists()
    assert found.failures == []
    np.testing.assert_array_equal(found.measures, X_BAD[:, :2])
    # Also when it ends between two batches.
    pids = [worker._process.pid for worker in processes._workers]
    ready = next(worker for worker in processes._workers if worker.is_idle)
    os.kill(ready._process.pid, signal.SIGKILL)
    ready._process.join()
    assert processes.evaluate(functions.batch, X).failures == []
    assert sum(worker._process.pid in pids for worker in processes._workers) <= 1


def test_workers_are_initialised_and_kept_between_batches(evaluators):
    processes = evaluators["processes"]
    with processes:  # leaving an inner block does not end them
        np.testing.assert_allclose(
            processes.evaluate(functions.scaled, X).objectives, 3 * X[:, 0], rtol=1e-6
        )
    pids = {worker._process.pid for worker in processes._workers}
    found = {int(pid) for pid in processes.evaluate(functions.process_number, X).objectives}
    assert found <= {pid % 100_000 for pid in pids}


@pytest.mark.slow
def test_an_initializer_that_raises_is_an_error_of_the_evaluator():
    processes = Processes(1, initializer=functions.broken_start)
    with pytest.raises(gloam.errors.WorkerError, match="RuntimeError: no model file"):
        processes.evaluate(functions.batch, X)
    assert processes._workers == []


def test_functions_that_workers_cannot_import_are_refused_before_they_start(dms):
    def local(x):
        return x

    for function in (lambda x: x, local, PerSolution(local)):
        with refused("evaluate: expected a function that worker processes can import, got "):
            gloam.optimize(function, dms, 5, evaluator=Processes(2))


def test_functions_of_a_notebook_are_refused(monkeypatch):
    monkeypatch.setattr(functions.batch, "__module__", "__main__")
    monkeypatch.delattr("__main__.__file__", raising=False)
    with refused(
        "evaluate: expected a function that worker processes can import, got 'batch' of an "
        "interactive session. Define it with def in a module"
    ):
        Processes(2).check(functions.batch)


def test_an_executor_that_breaks_is_an_error_of_the_evaluator():
    class Broken(ProcessPoolExecutor):
        def submit(self, *arguments, **options):
            raise pickle.PicklingError("cannot be sent")

    with (
        Broken(1, SPAWN) as executor,
        pytest.raises(gloam.errors.WorkerError, match="cannot be sent"),
    ):
        as_evaluator(executor).evaluate(functions.batch, X)


def test_forked_processes_are_refused():
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(1, context) as executor, refused("executor: expected processes that"):
        as_evaluator(executor)


def test_other_things_are_no_evaluators():
    with pytest.raises(ValueError, match=r"^evaluator:.*int 8.*Processes"):
        as_evaluator(8)


@pytest.mark.parametrize(
    "arguments",
    [
        {"workers": 0},
        {"workers": 99_999},
        {"chunk": 0},
        {"timeout": 0.0},
        {"retries": -1},
        {"initargs": None},
        {"initargs": 5},
        {"initializer": 5},
    ],
)
def test_bad_arguments_are_refused(arguments):
    with refused(f"{next(iter(arguments))}: expected"):
        Processes(**arguments)


def test_no_more_workers_start_than_there_are_processors_or_rows(monkeypatch):
    class Started:
        is_idle, rows, count = False, (), 0

        def __init__(self, *start):
            Started.count += 1

        def kill(self):
            pass

    def evaluated(*parts):
        raise RuntimeError("as if a worker were lost")

    monkeypatch.setattr(processes, "Worker", Started)
    monkeypatch.setattr(Processes, "_give_out", evaluated)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    with Processes(40) as workers:
        assert Started.count == 2
        with pytest.raises(RuntimeError, match="as if"):
            workers.evaluate(functions.batch, X[:5])
        assert Started.count == 5


@pytest.mark.parametrize("chunk", [None, 1, 4, 100])
def test_every_row_is_given_out_once_whatever_is_lost(chunk):
    """A queue against a random schedule of losses, in which no row is lost twice alone."""
    spec = ResultSpec((2,), {})
    num_losses = 0
    for seed in range(5):
        random = np.random.default_rng(seed)
        queue, seen, lost = RowQueue(len(X), Pace(chunk), retries=1), [], set()
        while not queue.is_done:
            rows = queue.take(3)
            alone = len(rows) == 1 and rows[0] in lost
            if random.random() < 0.4 and not alone:
                lost |= set(rows) if len(rows) == 1 else set()
                num_losses += 1
                queue.lose(rows, "lost worker", "gone")
                continue
            seen += rows
            for block in evaluated_blocks(functions.batch, X[rows], spec):
                queue.put(rows, block)
        assert sorted(seen) == list(range(len(X)))
        np.testing.assert_array_equal(queue.result(spec).measures, X[:, :2])
    assert num_losses > 0


def test_what_fails_alone_is_given_up():
    queue = RowQueue(4, Pace(4), retries=1)
    queue.lose(queue.take(1), "timeout", "late")  # a whole chunk: each row is tried alone
    for _ in range(4):
        (row,) = queue.take(1)
        queue.lose([row], "timeout", "late")
    assert queue.is_done
    queue = RowQueue(1, Pace(None), retries=1)
    for tries in (1, 2):
        assert queue.take(1) == [0], tries
        queue.lose([0], "lost worker", "gone")
    assert queue.is_done
    assert queue.take(1) == []


def test_chunks_follow_the_measured_time():
    def sizes(seconds):
        pace = Pace(None)
        assert pace.size(1000, 4) == 1  # nothing is known yet
        block = Block(0, (None, X[:, :2], {}), None, seconds * len(X))
        pace.note(block)
        return [pace.size(left, 4) for left in (1000, 40, 3)]

    assert sizes(3600.0) == [1, 1, 1]
    assert sizes(0.02) == [5, 5, 1]
    assert sizes(1e-5) == [125, 5, 1]  # the last ones are small


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((np.zeros(3), np.zeros((2, 2))), "objectives: expected shape (2,)"),
        ((np.zeros(2), np.zeros((2, 3))), "measures: expected shape (2, 2)"),
        ((np.zeros(2), [[1.0], [1.0, 2.0]]), "measures: expected numbers"),
        (np.zeros((2, 2)), "objectives: expected objectives for every solution or for none"),
        ("far", "evaluate: expected measures, (objectives, measures)"),
        ((np.zeros(2), np.zeros((2, 2)), [3.0]), "fields: expected a dict, got list [3.0]"),
        ((np.zeros(2), np.zeros((2, 2))), "fields: expected the fields ['third']"),
        ((np.zeros(2), np.zeros((2, 2)), {"third": np.array([1.5, 2])}), "third: expected whole"),
    ],
)
def test_answers_of_another_form_are_told_apart(answer, message):
    fields = {"third": jax.ShapeDtypeStruct((), np.int32)} if "third" in message else {}
    with refused(message):
        ResultSpec((2,), fields, has_objectives=True).of_batch(answer, 2)


class Unreadable:
    def __array__(self, *parts, **options):
        raise RuntimeError("no array")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ([1.0, 2.0, 3.0], "ValueError: fields: expected a dict, got float 3.0"),
        ((1.0, np.zeros(2), [3.0]), "ValueError: fields: expected a dict, got list [3.0]"),
        ((np.zeros(3), np.zeros(2)), "ValueError: objective: expected one number, got shape (3,)"),
        ((1.0, Unreadable()), "RuntimeError: no array"),
    ],
    ids=["fields are a number", "fields are a list", "three objectives", "no array"],
)
def test_an_answer_for_one_solution_that_does_not_fit_is_a_failed_row(answer, error):
    found = InProcess().evaluate(PerSolution(lambda x: answer if x[0] > 1 else (1.0, x[:2])), X_BAD)
    assert [failure.row for failure in found.failures] == sorted(BAD)
    assert {failure.kind for failure in found.failures} == {"wrong form"}
    assert all(failure.error.startswith(error) for failure in found.failures)


def test_wrong_measures_of_one_solution_have_the_shape_that_was_returned():
    with pytest.raises(ValueError, match=r"^measures:.*\(2,\).*\(3,\)"):
        ResultSpec((2,)).of_one((1.0, np.zeros(3)))
    assert ResultSpec((2, 3)).of_one((1.0, np.zeros(6)))[1].shape == (1, 6)


def test_tensors_that_require_gradients_are_results():
    torch = pytest.importorskip("torch")

    def batch(x):
        tensor = torch.tensor(x, requires_grad=True)
        return tensor[:, 0] * 2, tensor[:, :2], {"third": tensor[:, 2]}

    def single(x):
        tensor = torch.tensor(x, requires_grad=True)
        return tensor[0] * 2, tensor[:2], {"third": tensor[2]}

    for function in (batch, PerSolution(single)):
        found = InProcess().evaluate(function, X)
        assert found.failures == []
        np.testing.assert_array_equal(found.objectives, X[:, 0] * 2)
        np.testing.assert_array_equal(found.measures, X[:, :2])
        np.testing.assert_array_equal(found.fields["third"], X[:, 2])


def test_a_function_may_return_the_same_array_at_each_call():
    buffer = np.zeros(2)

    def reuses(x):
        buffer[:] = x[:2]
        return x[0], buffer

    found = InProcess().evaluate(PerSolution(reuses), X)
    np.testing.assert_array_equal(found.measures, X[:, :2])


def test_without_a_form_the_rows_that_differ_from_most_fail():
    def odd(x):
        return x[0], x[:3] if x[0] > 1 else x[:2]

    found = InProcess().evaluate(PerSolution(odd), X_BAD)
    assert [failure.row for failure in found.failures] == BAD
    with pytest.raises(EvaluationError, match="RuntimeError: too far"):
        InProcess().evaluate(functions.raises, X_BAD[BAD])


@pytest.mark.parametrize("per_solution", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_archive_does_not_depend_on_the_evaluator(evaluators, per_solution):
    function = functions.one if per_solution else functions.batch
    options = {"seeds": [3], "per_solution": per_solution, "progress": False}
    found = [
        gloam.optimize(function, small("map-elites-line"), 6, evaluator=evaluator, **options).elites
        for evaluator in evaluators.values()
    ]
    assert len(found[0]) > 5
    for other in found[1:]:
        assert_same_bits(other, found[0])


@pytest.mark.slow
def test_a_search_of_your_own_can_use_an_evaluator(evaluators):
    algorithm = small("map-elites-line")
    search = gloam.Search(algorithm, seed=3)
    for _ in range(3):
        done = evaluators["processes"].evaluate(functions.batch, search.ask(), search.result_spec)
        search.tell(done.objectives, done.measures, **done.fields)
    whole = gloam.optimize(functions.batch, algorithm, 3, seeds=[3], progress=False)
    assert_same_bits(search.elites(), whole.elites)


def test_a_batch_has_solutions():
    with pytest.raises(ValueError, match=r"^solutions:.*at least one"):
        InProcess().evaluate(PerSolution(functions.one), X[:0])
