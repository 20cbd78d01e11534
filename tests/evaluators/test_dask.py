"""Evaluation on a Dask cluster of this machine."""

import signal

import numpy as np
import pytest

import gloam
from gloam.errors import WorkerError
from gloam.evaluators import Dask
from tests.evaluators import functions
from tests.helpers import assert_same_bits
from tests.problems import small

distributed = pytest.importorskip("distributed", reason="needs gloam[dask]")
pytestmark = [
    # Of Dask's own clients and servers when they close.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

X = np.random.default_rng(0).normal(0, 0.3, (23, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def cluster():
    """Threads of this process: workers in processes take seconds to start."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
    ) as found:
        yield found


def test_the_archive_is_that_of_one_process(cluster):
    plain, found = (
        gloam.optimize(
            functions.one,
            small("map-elites-line"),
            3,
            per_solution=True,
            progress=False,
            evaluator=evaluator,
        ).elites
        for evaluator in (None, Dask(cluster))
    )
    assert_same_bits(found, plain)


def test_failures_are_told_by_row(cluster):
    x = X.copy()
    x[[3, 9], 0] = 2.0
    with Dask(cluster, timeout=2.0) as dask:
        for function, kind in (
            (functions.raises, "exception"),
            (gloam.evaluators.PerSolution(functions.hangs), "timeout"),
        ):
            found = dask.evaluate(function, x)
            assert [(one.row, one.kind) for one in found.failures] == [(3, kind), (9, kind)]
            good = np.delete(np.arange(len(x)), [3, 9])
            np.testing.assert_array_equal(found.measures[good], x[good, :2])
        # A function of a notebook can be sent, too.
        found = dask.evaluate(gloam.evaluators.PerSolution(lambda solution: (0.0, solution[:2])), X)
        np.testing.assert_array_equal(found.measures, X[:, :2])


def test_a_client_stays_open_and_a_lost_one_is_an_error(cluster):
    client = distributed.Client(cluster, set_as_default=False)
    dask = Dask(client)
    for _ in range(2):
        assert dask.evaluate(functions.batch, X).failures == []
    client.close()
    with pytest.raises(WorkerError, match="scheduler"):
        dask.evaluate(functions.batch, X)


def test_other_things_are_no_clusters():
    with pytest.raises(ValueError, match=r"^cluster:.*address.*Client"):
        Dask(8)


@pytest.fixture(scope="module")
def empty():
    """A cluster that has lost its workers."""
    with distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as found:
        yield found


def test_a_cluster_without_workers_is_an_error_and_the_run_is_saved(empty, tmp_path):
    dask = Dask(empty, patience=0.01)
    with pytest.raises(WorkerError, match=r"(?s)got none for .*resume=True") as error:
        gloam.optimize(
            functions.batch, small("map-elites-line"), 3, evaluator=dask, run_dir=tmp_path
        )
    assert "saved after iteration 0" in error.value.__notes__[0]
    assert gloam.RunFolder(tmp_path).holds_checkpoint


def test_the_first_signal_ends_the_wait_for_workers(empty, tmp_path, monkeypatch):
    dask = Dask(empty, patience=3600.0)
    usual = signal.signal(signal.SIGTERM, signal.default_int_handler)
    # As soon as the evaluator looks for workers, so that the run is waiting for them.
    client = distributed.Client.nthreads

    def interrupted(self, *parts):
        signal.raise_signal(signal.SIGTERM)
        return client(self, *parts)

    monkeypatch.setattr(distributed.Client, "nthreads", interrupted)
    try:
        with pytest.raises(gloam.errors.Interrupted) as stopped:
            gloam.optimize(
                functions.batch, small("map-elites-line"), 3, evaluator=dask, run_dir=tmp_path
            )
    finally:
        signal.signal(signal.SIGTERM, usual)
    assert (stopped.value.signal, stopped.value.iteration) == (signal.SIGTERM, 0)
    assert gloam.RunFolder(tmp_path).holds_checkpoint
    assert not dask.stop_requested()  # it can be used again


def test_a_signal_ends_a_batch_whose_workers_are_lost_one_after_the_other(cluster):
    with Dask(cluster) as dask:
        dask.evaluate(functions.batch, X)
        dask.stop_requested = lambda: True
        # With all workers, a batch is finished: the run stops after it.
        assert dask.evaluate(functions.batch, X).failures == []
        dask._workers, dask._counted = {"tcp://gone:1"}, -np.inf
        with pytest.raises(WorkerError, match="workers were lost"):
            dask._num_threads()


@pytest.mark.parametrize("patience", [0.0, -1.0, float("nan"), "long"])
def test_patience_is_a_time(cluster, patience):
    with pytest.raises(ValueError, match=r"^patience:.*> 0"):
        Dask(cluster, patience=patience)
    assert Dask("tcp://10.0.0.1:8786").patience > Dask(cluster).patience > 0
