"""Contenders: the same domain in NumPy, and the same amount of work."""

import jax.numpy as jnp
import numpy as np
import pytest

from gloam_lab.contenders import (
    COMPARED_ALGORITHMS,
    GloamAskTell,
    GloamFused,
    Problem,
    Pyribs,
)


def test_the_domain_in_numpy_is_the_domain():
    problem = Problem("map-elites-line", 2)
    solutions = 4 * np.random.default_rng(0).standard_normal((500, 100))
    objectives, measures = problem.evaluate(solutions)
    ours = problem.domain(jnp.asarray(solutions, jnp.float32))
    np.testing.assert_allclose(objectives, ours[0], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(measures, ours[1], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("kind", [GloamFused, GloamAskTell])
def test_contenders_of_gloam_count_their_work(kind):
    contender = kind(Problem("map-elites-line", 2), 0)
    contender.advance(3)
    assert contender.evaluations == 3 * 540
    assert contender.num_cells == 10_000
    assert contender.outcome()[0] > 0


@pytest.mark.parametrize("algorithm", COMPARED_ALGORITHMS)
def test_pyribs_does_the_work_of_our_settings(algorithm):
    pytest.importorskip("ribs", reason="pyribs is not installed: pip install 'gloam[bench]'")
    pytest.importorskip("torch", reason="pyribs' discount model needs PyTorch")
    contender = Pyribs(Problem(algorithm, 2), seed=0)
    contender.advance(2)
    assert contender.evaluations == 2 * 540
    assert contender.num_cells == 10_000
    score, epochs = contender.outcome()
    assert score > 0
    # Only DMS trains, for up to five epochs.
    assert (1 <= epochs <= 5) == (algorithm == "dms-paper")


def test_unknown_algorithms_are_refused():
    with pytest.raises(ValueError, match=r"^algorithm:.*'ga'"):
        Problem("ga", 2)
