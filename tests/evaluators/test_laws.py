"""Laws of all evaluators in runs: the archive, failing rows and lost workers, on real engines."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest

import gloam
from gloam.evaluators import Dask, InProcess, PerSolution, Processes, Ray, ResultSpec, Submitit
from tests.evaluators import functions
from tests.helpers import assert_same_bits
from tests.problems import small

pytestmark = [
    # Of clusters' own clients and servers when they close.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

X = np.random.default_rng(0).normal(0, 0.3, (4, 3)).astype(np.float32)
X_BAD = X.copy()
X_BAD[2, 0] = 2.0
GOOD = [0, 1, 3]


@contextmanager
def in_process(folder):
    yield InProcess()


@contextmanager
def threads(folder):
    with ThreadPoolExecutor(2) as pool:
        yield gloam.evaluators.Executors(pool)


@contextmanager
def executor(folder):
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield gloam.evaluators.Executors(pool)


@contextmanager
def processes(folder):
    yield Processes(2)


@contextmanager
def dask_threads(folder):
    distributed = pytest.importorskip("distributed", reason="needs gloam[dask]")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
    ) as cluster:
        yield Dask(cluster)


@contextmanager
def dask(folder):
    distributed = pytest.importorskip("distributed", reason="needs gloam[dask]")
    dask = pytest.importorskip("dask", reason="needs gloam[dask]")
    with (
        dask.config.set(
            {
                # All solutions of a worker that ends are given up at once.
                "distributed.scheduler.allowed-failures": 0,
                # Workers that restart slowly are not closed for good.
                "distributed.deploy.lost-worker-timeout": "1 day",
            }
        ),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0"
        ) as cluster,
    ):
        yield Dask(cluster)


@contextmanager
def ray(folder):
    ray = pytest.importorskip("ray", reason="needs gloam[ray]")
    ray.init(
        num_cpus=2, include_dashboard=False, object_store_memory=80_000_000, log_to_driver=False
    )
    try:
        yield Ray()
    finally:
        ray.shutdown()


@contextmanager
def submitit_debug(folder):
    submitit = pytest.importorskip("submitit", reason="needs gloam[submitit]")
    yield Submitit(submitit.AutoExecutor(folder, cluster="debug"), jobs=2)


@contextmanager
def submitit_local(folder):
    submitit = pytest.importorskip("submitit", reason="needs gloam[submitit]")
    executor = submitit.AutoExecutor(folder, cluster="local")
    executor.update_parameters(timeout_min=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gloam.evaluators.submitit_jobs._SECONDS_TO_WRITE", 0.5)
        yield Submitit(executor, jobs=2, retries=0)


QUICK = [in_process, threads, dask_threads, submitit_debug]
# Their workers are processes, which take seconds to start.
ENGINES = [processes, executor, dask]
# They take a minute and more.
CLUSTERS = [ray, submitit_local]
REPLACED = [processes, dask, ray, submitit_local]


@pytest.fixture(
    scope="module",
    params=[
        *QUICK,
        *(pytest.param(one, marks=pytest.mark.slow) for one in ENGINES),
        *(pytest.param(one, marks=pytest.mark.release) for one in CLUSTERS),
    ],
    ids=lambda engine: engine.__name__,
)
def engine(request, tmp_path_factory):
    """The name of an engine and its evaluator, entered once for all tests."""
    folder = tmp_path_factory.mktemp("jobs")
    with request.param(folder) as evaluator, evaluator:
        yield request.param, evaluator
    assert not any(folder.rglob("*_result.pkl"))


def optimize(evaluator, algorithm, iterations, **options):
    options = {"per_solution": True, "progress": False, "log_every": 1} | options
    return gloam.optimize(functions.one, algorithm, iterations, evaluator=evaluator, **options)


@pytest.fixture(scope="module")
def plain():
    return optimize(None, small("map-elites-line"), 2).elites


def test_the_archive_is_that_of_one_process(engine, plain):
    assert_same_bits(optimize(engine[1], small("map-elites-line"), 2).elites, plain)


def test_asynchronous_runs_tell_every_result(engine):
    archive = gloam.GridArchive((6, 6), -1, 1, f_min=-10)
    algorithm = gloam.MAPElites(archive, np.zeros(3), 0.3, batch_size=4)
    settings = gloam.Asynchronous(in_flight=3)
    found = optimize(engine[1], algorithm, 2, asynchronous=settings)
    assert found.metrics["evaluations"].tolist() == [4, 8]
    assert not found.metrics["failed"].any()
    elites = found.elites
    assert len(elites) > 2
    expected = [functions.one(solution) for solution in elites.solutions]
    np.testing.assert_allclose(elites.objectives, [one[0] for one in expected], rtol=1e-5)
    np.testing.assert_allclose(elites.measures, [one[1] for one in expected], rtol=1e-5)


def test_a_row_that_raises_is_one_failed_row(engine):
    _, evaluator = engine
    for function in (functions.raises, PerSolution(functions.raises_alone)):
        found = evaluator.evaluate(function, X_BAD)
        assert [(one.row, one.kind) for one in found.failures] == [(2, "exception")]
        assert found.failures[0].error == "RuntimeError: too far"
        np.testing.assert_array_equal(found.measures[GOOD], X_BAD[GOOD, :2])


@pytest.mark.slow
def test_a_worker_that_is_lost_costs_no_other_row(engine):
    make, evaluator = engine
    if make not in REPLACED:
        pytest.skip("its workers are not replaced")
    found = evaluator.evaluate(PerSolution(functions.crashes), X_BAD)
    assert [(one.row, one.kind) for one in found.failures] == [(2, "lost worker")]
    np.testing.assert_array_equal(found.measures[GOOD], X_BAD[GOOD, :2])


@pytest.mark.slow
def test_a_worker_that_is_lost_costs_no_other_result_of_a_stream(engine):
    make, evaluator = engine
    if make not in REPLACED:
        pytest.skip("its workers are not replaced")
    stream = evaluator.stream(PerSolution(functions.crashes), ResultSpec((2,)))
    numbers = [stream.submit(X_BAD[row : row + 1]) for row in range(len(X))]
    found = dict(stream.take() for _ in numbers)
    assert found[numbers[2]].failure.kind == "lost worker"
    for row in GOOD:
        np.testing.assert_array_equal(found[numbers[row]].results[1], X_BAD[row : row + 1, :2])
    assert stream.take(0.0) is None
