"""Runs with gradients from Python: seeds, resumes, errors, and what is refused before the run."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import gloam
from tests.helpers import assert_same_bits, refused
from tests.problems import ARM, BATCH, GRADIENTS, evaluate, small, vjp

pytestmark = pytest.mark.slow  # searches of its own are compiled


@pytest.fixture(scope="module")
def algorithm():
    return small("climbing")


def optimize(algorithm, iterations, function=vjp, **options):
    settings = {"seeds": [7, 3], "log_every": 2, "progress": False, "vjp": function}
    return gloam.optimize(evaluate, algorithm, iterations, **(settings | options))


@pytest.fixture(scope="module")
def whole(algorithm):
    return optimize(algorithm, 4)


def assert_same_run(one, other):
    for seed in (7, 3):
        assert_same_bits(one.elites_by_seed[seed], other.elites_by_seed[seed])
    ours, theirs = (result.metrics.drop(columns="seconds") for result in (one, other))
    pd.testing.assert_frame_equal(ours, theirs)


def test_gradients_are_counted_and_seeds_are_searches(whole, algorithm):
    metrics = whole.metrics
    assert (metrics["evaluations"] == metrics["iteration"] * BATCH).all()
    assert (metrics["gradients"] == metrics["iteration"] * GRADIENTS).all()
    search = gloam.Search(algorithm, 3)
    for _ in range(4):
        search.tell(*evaluate(search.ask()), vjp=vjp)
    assert_same_bits(whole.elites_by_seed[3], search.elites())


def test_a_resumed_run_gives_the_same_bits(whole, algorithm, tmp_path):
    optimize(algorithm, 2, run_dir=tmp_path)
    assert_same_run(optimize(algorithm, 4, run_dir=tmp_path, resume=True), whole)


@pytest.mark.release
def test_a_resumed_run_on_the_device_gives_the_same_bits(algorithm, tmp_path):
    def run(iterations, **options):
        settings = {"seeds": [7, 3], "log_every": 2, "progress": False}
        return gloam.run(ARM, algorithm, iterations, **(settings | options))

    run(2, run_dir=tmp_path)
    assert_same_run(gloam.resume(tmp_path, iterations=4, progress=False), run(4))


def test_an_error_of_the_function_leaves_all_seeds_at_the_iteration_before(
    whole, algorithm, tmp_path
):
    calls = []

    def breaks_down(*arguments):
        calls.append(1)
        if len(calls) == 6:  # the second seed in the third iteration
            raise RuntimeError("out of memory")
        return vjp(*arguments)

    with pytest.raises(RuntimeError, match="out of memory") as raised:
        optimize(algorithm, 4, breaks_down, run_dir=tmp_path)
    notes = raised.value.__notes__
    assert notes[0] == "vjp raised it, for the gradients of 6 solutions."
    assert "saved after iteration 2" in notes[1]
    assert_same_run(optimize(algorithm, 4, run_dir=tmp_path, resume=True), whole)


def test_solutions_that_raise_are_left_out_and_single_ones_have_gradients_by_batch(algorithm):
    seen = []

    def one(solution):
        if solution[0] > 0.01:
            raise ArithmeticError
        objectives, measures = evaluate(solution[None])
        return objectives[0], measures[0]

    def by_batch(solutions, *weights):
        assert (solutions[:, 0] <= 0.01).all()
        seen.append(len(solutions))
        return vjp(solutions, *weights)

    options = {"per_solution": True, "seeds": 1, "progress": False}
    gloam.optimize(one, algorithm, 4, vjp=by_batch, **options)
    assert len(seen) == 4
    assert min(seen) < GRADIENTS


def test_what_does_not_fit_is_refused_before_anything_is_evaluated(algorithm, tmp_path):
    def never(solutions):
        raise AssertionError

    needed = "vjp: expected a function, because the emitter needs the gradients of 6 of 30"
    with refused(needed):
        gloam.optimize(never, algorithm, 2, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with refused("vjp: expected None for an emitter without gradients, got function"):
        gloam.optimize(never, small("dms"), 2, vjp=vjp)
    with refused("algorithm: expected an emitter without gradients for an asynchronous search"):
        gloam.optimize(never, algorithm, 2, asynchronous=True)
    with refused("vjp: expected None for an asynchronous run, got function"):
        gloam.optimize(never, algorithm, 2, asynchronous=True, vjp=vjp)


def test_a_folder_alone_does_not_have_the_function(algorithm, tmp_path):
    def zeros(solutions, *weights):
        return np.zeros_like(solutions)

    options = {"progress": False, "run_dir": tmp_path, "vjp": zeros}
    gloam.optimize(ARM, algorithm, 1, **options)
    with refused("run_dir: expected a run without gradients of a function of your own"):
        gloam.resume(tmp_path, iterations=2)


def test_gradients_that_are_not_finite_are_counted_on_the_device(algorithm):
    def has_edge(solutions):
        objectives, measures = evaluate(solutions)
        # To the left of the edge, the chain rule multiplies infinity by zero.
        return objectives + jnp.sqrt(jnp.maximum(solutions[:, 0], 0)), measures

    result = gloam.run(has_edge, algorithm, 3, log_every=1, progress=False)
    failed = result.metrics["ascent_gradients_failed"].to_numpy()
    assert 0 < failed[0] <= failed[1] <= failed[2] < 3 * GRADIENTS
    assert np.isfinite(result.elites.solutions).all()
