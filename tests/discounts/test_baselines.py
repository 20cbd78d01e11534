"""The baselines' discounts against pyribs, scikit-learn and answers worked by hand."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.neighbors import KernelDensity as SklearnDensity

from gloam.discounts import NoDiscount, Thresholds
from gloam.discounts.discount import discount_metrics, spearman
from gloam.records import Batch
from gloam_lab import KeepLast, KernelDensity, Reservoir

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from ribs.archives import GridArchive as RibsGrid

KEY = jax.random.key(0)


def batch_of(objectives, cells, measures=None, valid=None):
    n = len(objectives)
    measures = np.zeros((n, 2)) if measures is None else measures
    return Batch(
        jnp.zeros((n, 1)),
        jnp.asarray(objectives, jnp.float32),
        jnp.asarray(measures, jnp.float32),
        jnp.asarray(cells, jnp.int32),
        jnp.ones(n, bool) if valid is None else jnp.asarray(valid),
        {},
    )


@eqx.filter_jit
def trained(discount, state, batch, key=KEY):
    nothing = jnp.zeros((0, batch.measures.shape[1])), jnp.zeros(0, bool)
    scored = discount.score(state, batch)
    return scored, discount.train(state, batch, scored, *nothing, key=key)[0]


@eqx.filter_jit
def fresh(discount, measures=2):
    return discount.init(jnp.zeros((0, measures)), jnp.zeros(0, bool), key=KEY)


@eqx.filter_jit
def density(discount, state, measures):
    return discount.density(state, measures)


@given(st.data())
def test_thresholds_follow_pyribs_batch_rule(data):
    alpha = data.draw(st.sampled_from([0.0, 0.01, 0.3, 1.0]))
    theirs = RibsGrid(
        solution_dim=1, dims=(4,), ranges=[(0, 4)], learning_rate=alpha, threshold_min=0.0
    )
    ours = Thresholds(num_cells=4, floor=0.0, alpha=alpha)
    state = fresh(ours, 1)
    for _ in range(3):
        cells = data.draw(st.lists(st.integers(0, 3), min_size=6, max_size=6))
        values = data.draw(st.lists(st.floats(0.015625, 1, width=32), min_size=6, max_size=6))
        measures = np.asarray(cells)[:, None] + 0.5
        info = theirs.add(np.zeros((6, 1)), values, measures)
        scored, state = trained(ours, state, batch_of(values, cells, measures))
        np.testing.assert_allclose(scored.improvements, info["value"], atol=1e-5)
        occupied = theirs.data("index")
        np.testing.assert_allclose(np.asarray(state)[occupied], theirs.data("threshold"), atol=1e-5)


def test_thresholds_by_hand():
    ours = Thresholds(num_cells=3, alpha=0.1, floor=0.0)
    _, state = trained(ours, fresh(ours), batch_of([0.9, 0.5, 0.7], [1, 2, 2]))
    # Cell 1: 0.1 * 0.9. Cell 2: twice the mean 0.6, (1 - 0.9^2) * 0.6.
    np.testing.assert_allclose(state, [0.0, 0.09, 0.19 * 0.6], rtol=1e-6)
    _, state = trained(ours, state, batch_of([0.05, 0.9], [1, 1], valid=[True, False]))
    np.testing.assert_allclose(state[1], 0.09, rtol=1e-6)  # worse, and failed: unchanged


def test_density_equals_scikit_learns():
    rng = np.random.default_rng(1)
    seen, points = rng.normal(size=(300, 3)), rng.normal(size=(40, 3)) * 2
    ours = KernelDensity(bandwidth=0.7, buffer_size=500)
    state = fresh(ours, 3)
    for part in np.split(seen, 3):
        _, state = trained(ours, state, batch_of(np.zeros(100), np.zeros(100), part))
    theirs = SklearnDensity(bandwidth=0.7).fit(seen)
    np.testing.assert_allclose(
        np.log(density(ours, state, jnp.asarray(points, jnp.float32))),
        theirs.score_samples(points),
        atol=2e-4,
    )


def test_an_empty_buffer_has_density_zero():
    ours = KernelDensity(bandwidth=1.0)
    assert (density(ours, fresh(ours), jnp.ones((3, 2))) == 0).all()


def test_density_ranks_far_points_first():
    ours = KernelDensity(bandwidth=1.0, buffer_size=10)
    _, state = trained(ours, fresh(ours), batch_of([0.0], [0], [[0.0, 0.0]]))
    scored, _ = trained(ours, state, batch_of([0.0] * 2, [0] * 2, [[0.1, 0.0], [3.0, 0.0]]))
    assert scored.improvements[1] > scored.improvements[0]


@pytest.mark.parametrize("policy", [KeepLast(), Reservoir()])
def test_buffers_fill_up_in_order_and_skip_failed_rows(policy):
    ours = KernelDensity(bandwidth=1.0, buffer_size=4, policy=policy)
    rows = batch_of(np.zeros(4), np.zeros(4), [[1.0], [2.0], [9.0], [3.0]], [1, 1, 0, 1])
    _, state = trained(ours, fresh(ours, 1), rows)
    assert int(state.seen) == 3
    assert state.buffer[:3, 0].tolist() == [1.0, 2.0, 3.0]


def test_keep_last_keeps_the_last():
    ours = KernelDensity(bandwidth=1.0, buffer_size=5, policy=KeepLast())
    state = fresh(ours, 1)
    for start in range(0, 21, 7):  # a batch longer than the buffer
        rows = np.arange(start, start + 7, dtype=float)[:, None]
        _, state = trained(ours, state, batch_of(np.zeros(7), np.zeros(7), rows))
    assert sorted(state.buffer[:, 0].tolist()) == [16, 17, 18, 19, 20]


def test_a_reservoir_is_a_uniform_sample():
    size, batches, each = 200, 40, 50
    ours = KernelDensity(bandwidth=1.0, buffer_size=size)
    state = fresh(ours, 1)
    step = jax.jit(
        lambda state, rows, key: trained(
            ours, state, batch_of(np.zeros(each), np.zeros(each), rows), key
        )[1]
    )
    for i in range(batches):
        rows = jnp.arange(i * each, (i + 1) * each, dtype=jnp.float32)[:, None]
        state = step(state, rows, jax.random.key(i))
    kept = np.asarray(state.buffer[:, 0])
    # The mean of 200 of 0..1999 without replacement has standard deviation 38.7: within four.
    assert abs(kept.mean() - 999.5) < 160
    quarters = np.histogram(kept, bins=4, range=(0, 2000))[0]
    assert quarters.min() > 25  # expected 50 each


def test_no_discount_scores_by_objective():
    ours = NoDiscount()
    scored, state = trained(ours, None, batch_of([0.3, -2.0], [0, 1]))
    assert scored.improvements.tolist() == pytest.approx([0.3, -2.0])
    assert state is None


# Each length is a program of its own.
LISTS = [st.lists(st.integers(0, 5), min_size=n, max_size=n) for n in (5, 8, 30)]


@given(st.one_of(LISTS), st.integers(0, 100))
def test_spearman_equals_scipys_with_ties(values, seed):
    other = np.random.default_rng(seed).integers(0, 4, len(values))
    ours = float(
        jax.jit(spearman)(jnp.asarray(values, jnp.float32), jnp.asarray(other, jnp.float32))
    )
    if len(set(values)) == 1 or len(set(other.tolist())) == 1:
        assert np.isnan(ours)
    else:
        assert np.isclose(ours, spearmanr(values, other).statistic, atol=1e-4)


def test_diagnosis_by_hand():
    found = jax.jit(discount_metrics)(
        jnp.array([0.1, 0.3, 0.5, 0.9]),
        jnp.array([-jnp.inf, -jnp.inf, 0.4, 0.8]),
        jnp.array([False, False, True, True]),
        0.0,
    )
    assert np.isclose(found.empty_discount, 0.2)
    # Ranks 1 2 3 4 against 1.5 1.5 3 4.
    assert np.isclose(found.rank_correlation, 0.9486833, atol=1e-5)
