"""Evaluation in jobs of submitit, on this machine."""

import numpy as np
import pytest

from gloam.errors import WorkerError
from gloam.evaluators import PerSolution, Submitit
from tests.evaluators import functions
from tests.helpers import refused

submitit = pytest.importorskip("submitit", reason="needs gloam[submitit]")
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

X = np.random.default_rng(0).normal(0, 0.3, (5, 3)).astype(np.float32)
X_BAD = X.copy()
X_BAD[1, 0] = 2.0


@pytest.fixture
def debug(tmp_path):
    return submitit.AutoExecutor(tmp_path, cluster="debug")


@pytest.mark.parametrize(
    "arguments", [{"executor": 8}, {"jobs": 0}, {"chunk": 0}, {"timeout": 0.0}, {"retries": -1}]
)
def test_bad_arguments_are_refused(debug, arguments):
    with refused(f"{next(iter(arguments))}: expected"):
        Submitit(**({"executor": debug, "jobs": 1} | arguments))


@pytest.mark.parametrize(("jobs", "chunk", "sizes"), [(2, None, [3, 2]), (3, 1, [1] * 5)])
def test_a_batch_is_divided_among_jobs(debug, monkeypatch, jobs, chunk, sizes):
    arrays = []
    submit = submitit.AutoExecutor._internal_process_submissions

    def noted(self, submissions):
        arrays.append([len(task.args[1]) for task in submissions])
        return submit(self, submissions)

    monkeypatch.setattr(submitit.AutoExecutor, "_internal_process_submissions", noted)
    found = Submitit(debug, jobs=jobs, chunk=chunk).evaluate(functions.batch, X)
    np.testing.assert_array_equal(found.measures, X[:, :2])
    assert [size for array in arrays for size in array] == sizes
    assert max(len(array) for array in arrays) <= jobs


def test_an_evaluation_beyond_its_limit_is_one_failed_row(debug):
    evaluator = Submitit(debug, jobs=2, timeout=0.3)
    found = evaluator.evaluate(PerSolution(functions.hangs), X_BAD)
    assert [(one.row, one.kind) for one in found.failures] == [(1, "timeout")]
    good = [0, 2, 3, 4]
    np.testing.assert_array_equal(found.measures[good], X_BAD[good, :2])


def test_jobs_that_cannot_be_submitted_are_an_error_of_the_evaluator(debug, monkeypatch):
    def refuses(self, submissions):
        raise OSError("sbatch: no such partition")

    monkeypatch.setattr(submitit.AutoExecutor, "_internal_process_submissions", refuses)
    with pytest.raises(WorkerError, match="no such partition"):
        Submitit(debug, jobs=2).evaluate(functions.batch, X)


def test_a_signal_ends_the_wait_for_queued_jobs(debug, monkeypatch):
    class Queued:
        state, cancelled = "PENDING", False

        def done(self):
            return False

        def cancel(self, check):
            Queued.cancelled = True

    evaluator = Submitit(debug, jobs=1)
    monkeypatch.setattr(Submitit, "_submit", lambda self, work, chunks: [Queued() for _ in chunks])
    evaluator.stop_requested = lambda: True
    with pytest.raises(WorkerError, match="stopped by a signal"):
        evaluator.evaluate(functions.batch, X)
    assert Queued.cancelled


@pytest.mark.slow
def test_a_job_at_its_time_limit_returns_what_it_has(tmp_path):
    executor = submitit.LocalExecutor(tmp_path)
    executor.update_parameters(timeout_min=0.5, signal_delay_s=18)  # a signal after 12 s
    evaluator = Submitit(executor, jobs=1, retries=0)
    found = evaluator.evaluate(PerSolution(functions.hangs), X_BAD[:2])
    assert [(one.row, one.kind) for one in found.failures] == [(1, "lost worker")]
    assert "at its time limit" in found.failures[0].error
    np.testing.assert_array_equal(found.measures[0], X_BAD[0, :2])
