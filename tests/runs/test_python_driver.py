"""Several seeds around an evaluation in Python: each is what it would be alone."""

import inspect

import numpy as np
import pytest

import gloam
from gloam.formats.checkpoints import state_arrays


def evaluate(x):
    return 1 - np.square(x).sum(axis=1), x[:, :2]


def algorithm():
    archive = gloam.GridArchive((6, 6), -1, 1)
    return gloam.CMAMAE(archive, np.zeros(3), 0.3, num_emitters=2, batch_size=4)


def optimize(iterations, seeds, function=evaluate, **options):
    return gloam.optimize(
        function, algorithm(), iterations, seeds=seeds, log_every=2, progress=False, **options
    )


def assert_same(one, other):
    one, other = state_arrays(one.store), state_arrays(other.store)
    assert list(one) == list(other)
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


def test_seeds_are_what_they_are_alone():
    together = optimize(5, [7, 3])
    assert together.seeds == [7, 3]
    assert list(together.metrics["seed"]) == [7, 3] * 3
    assert list(together.metrics["iteration"]) == [2, 2, 4, 4, 5, 5]
    for seed in (7, 3):
        alone = optimize(5, [seed])
        assert_same(together.elites_by_seed[seed], alone.elites)
        rows = together.metrics[together.metrics["seed"] == seed].drop(columns="seconds")
        expected = alone.metrics.drop(columns="seconds")
        assert rows.reset_index(drop=True).equals(expected)
    assert len(np.unique([elites.qd_score for elites in together.elites_by_seed.values()])) == 2


def test_resumed_seeds_are_those_of_an_uninterrupted_run(tmp_path):
    whole = optimize(6, [7, 3])
    optimize(3, [7, 3], run_dir=tmp_path)
    resumed = optimize(6, [7, 3], run_dir=tmp_path, resume=True)
    for seed in (7, 3):
        assert_same(whole.elites_by_seed[seed], resumed.elites_by_seed[seed])
        assert_same(gloam.RunFolder(tmp_path).read_archive(seed), whole.elites_by_seed[seed])


class BreaksDown(gloam.evaluators.InProcess):
    """An evaluator that is lost in its sixth call: the second seed in the third iteration."""

    calls = 0

    def evaluate(self, function, solutions, spec=None):
        self.calls += 1
        if self.calls == 6:
            raise gloam.errors.WorkerError("the cluster is gone")
        return super().evaluate(function, solutions, spec)


def test_a_lost_evaluator_leaves_all_seeds_at_the_iteration_before(tmp_path):
    with pytest.raises(gloam.errors.WorkerError, match="cluster is gone") as raised:
        optimize(5, [7, 3], run_dir=tmp_path, evaluator=BreaksDown())
    assert "saved after iteration 2" in raised.value.__notes__[0]
    assert gloam.RunFolder(tmp_path).read_checkpoint_iteration() == 2
    whole, resumed = optimize(5, [7, 3]), optimize(5, [7, 3], run_dir=tmp_path, resume=True)
    for seed in (7, 3):
        assert_same(resumed.elites_by_seed[seed], whole.elites_by_seed[seed])


def test_run_and_optimize_take_the_same_arguments():
    first, *run = inspect.signature(gloam.run).parameters.values()
    second, *optimize = inspect.signature(gloam.optimize).parameters.values()
    assert (first.name, second.name) == ("domain", "evaluate")
    # A compiled program is evaluated on the device.
    of_python = ["evaluator", "per_solution", "max_failure_rate", "asynchronous", "vjp"]
    assert [one.name for one in optimize if one not in run] == of_python
    assert [one for one in optimize if one.name not in of_python] == run
    assert [one.name for one in run[:3]] == ["algorithm", "iterations", "seeds"]
