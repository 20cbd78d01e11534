"""Evaluation by actors of a Ray on this machine."""

import numpy as np
import pytest

import gloam
from gloam.errors import WorkerError
from gloam.evaluators import PerSolution, Ray
from tests.evaluators import functions
from tests.helpers import refused

ray = pytest.importorskip("ray", reason="needs gloam[ray]")
pytestmark = [
    # Of Ray's own clients and servers when they close.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

X = np.random.default_rng(0).normal(0, 0.3, (5, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def cluster():
    ray.init(
        num_cpus=2, include_dashboard=False, object_store_memory=80_000_000, log_to_driver=False
    )
    yield
    ray.shutdown()


@pytest.mark.parametrize(
    "arguments",
    [
        {"address": 8},
        {"workers": 0},
        {"num_cpus": -1.0},
        {"num_gpus": "one"},
        {"resources": 3},
        {"initargs": 5},
        {"initializer": 5},
        {"timeout": 0.0},
        {"patience": 0.0},
        {"retries": -1},
    ],
)
def test_bad_arguments_are_refused(arguments):
    with refused(f"{next(iter(arguments))}: expected"):
        Ray(**arguments)


@pytest.mark.slow
def test_actors_are_initialised_and_those_that_hang_are_replaced(cluster):
    x = X.copy()
    x[2, 0] = 2.0
    start = {"initializer": functions.set_factor, "initargs": (3.0,)}
    with Ray(workers=1, timeout=2.0, **start) as workers:
        for _ in range(2):
            found = workers.evaluate(functions.scaled, X)
            np.testing.assert_allclose(found.objectives, 3 * X[:, 0], rtol=1e-6)
            # The actor is replaced, and the new one is initialised as well.
            found = workers.evaluate(PerSolution(functions.hangs), x)
            assert [(one.row, one.kind) for one in found.failures] == [(2, "timeout")]
    # Another Ray of the program stays open, and its actors have ended.
    assert ray.is_initialized()
    assert not workers._idle


@pytest.mark.slow
def test_what_cannot_start_is_an_error_of_the_evaluator(cluster):
    broken = Ray(initializer=functions.broken_start)
    with pytest.raises(WorkerError, match="RuntimeError: no model file"):
        broken.evaluate(functions.batch, X)
    with pytest.raises(WorkerError, match="num_gpus"):
        Ray(num_gpus=64.0).evaluate(functions.batch, X)
    with pytest.raises(WorkerError, match=r"(?s)Ray: expected workers, got none.*resume=True"):
        Ray(num_gpus=64.0, workers=1, patience=0.5).evaluate(functions.batch, X)


@pytest.mark.slow
def test_a_signal_ends_the_wait_for_workers(cluster):
    evaluator = Ray(num_gpus=64.0, workers=1)
    evaluator.stop_requested = lambda: True
    with pytest.raises(WorkerError, match="stopped by a signal"):
        evaluator.evaluate(functions.batch, X)


@pytest.mark.slow
def test_an_asynchronous_run_has_the_time_limit_of_its_actors(cluster):
    archive = gloam.GridArchive((6, 6), -1, 1, f_min=-10)
    algorithm = gloam.MAPElites(archive, np.zeros(3), 0.3, batch_size=4)
    found = gloam.optimize(
        functions.hangs_at_some,
        algorithm,
        2,
        per_solution=True,
        progress=False,
        evaluator=Ray(workers=2, timeout=1.0),
        asynchronous=True,
        log_every=1,
    )
    assert 0 < found.metrics["failed_total"].iloc[-1] < 8
    assert len(found.elites) > 1
