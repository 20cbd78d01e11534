"""The kernel density against float64: at any offset, in any number of measures."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import spearmanr

from gloam_lab.density_descent import DensityState, KernelDensity


def wide_log_density(buffer, points, bandwidth):
    """The logarithm of the density, in float64 and by differences."""
    p, b = points.astype(np.float64), buffer.astype(np.float64)
    squared = np.square((p[:, None] - b[None]) / bandwidth).sum(axis=2)
    peak = -p.shape[1] * np.log(np.sqrt(2 * np.pi) * bandwidth)
    return peak + logsumexp(-0.5 * squared, axis=1) - np.log(len(b))


density_at = eqx.filter_jit(lambda density, state, points: density.density(state, points))


def density_of(buffer, points, bandwidth):
    density = KernelDensity(bandwidth=bandwidth, buffer_size=len(buffer) + 20)
    padded = np.concatenate([buffer, np.zeros((20, buffer.shape[1]), np.float32)])
    state = DensityState(jnp.asarray(padded), jnp.asarray(len(buffer), jnp.int32))
    return np.asarray(density_at(density, state, jnp.asarray(points)))


@pytest.mark.parametrize("measures", [2, 10])
@pytest.mark.parametrize("offset", [0.0, 1e3, 1e4, 1e5, -1e5])
def test_the_ranking_is_that_of_float64_at_any_offset(offset, measures):
    rng = np.random.default_rng(1)
    buffer, points = (
        (offset + rng.uniform(-5, 5, (count, measures))).astype(np.float32) for count in (400, 300)
    )
    found = density_of(buffer, points, bandwidth=1.0)
    expected = wide_log_density(buffer, points, 1.0)
    assert spearmanr(found, expected).statistic > 0.999
    np.testing.assert_allclose(np.log(found), expected, atol=2e-3)


@pytest.mark.parametrize(("measures", "bandwidth"), [(784, 0.1), (784, 10.0), (300, 1e-2)])
def test_many_measures_neither_overflow_nor_lose_the_ranking(measures, bandwidth):
    rng = np.random.default_rng(2)
    buffer = rng.uniform(0, 1, (50, measures)).astype(np.float32)
    near = rng.choice(50, 80)
    shift = bandwidth * rng.uniform(0.1, 1, (80, 1)) * rng.standard_normal((80, measures))
    points = (buffer[near] + shift).astype(np.float32)
    found = density_of(buffer, points, bandwidth)
    assert np.isfinite(found).all()
    expected = wide_log_density(buffer, points, bandwidth)
    if expected.max() < -103:  # smaller than any float32: the ranking is flat, as in the paper
        assert (found == 0).all()
        return
    assert spearmanr(found, expected).statistic > 0.999


def test_an_empty_buffer_has_no_density_and_huge_measures_are_finite():
    density = KernelDensity(bandwidth=0.5, buffer_size=4)
    empty = DensityState(jnp.zeros((4, 3)), jnp.zeros((), jnp.int32))
    points = jnp.asarray([[0.0, 0.0, 0.0], [3e38, -3e38, 3e38], [1e-40, 0.0, 1.0]])
    assert density_at(density, empty, points).tolist() == [0.0, 0.0, 0.0]
    full = DensityState(
        jnp.asarray([[3e38] * 3, [-3e38] * 3, [1.0] * 3, [2.0] * 3]), jnp.asarray(4, jnp.int32)
    )
    assert np.isfinite(np.asarray(density_at(density, full, points))).all()
