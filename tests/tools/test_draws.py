"""Normal numbers: their distribution, their independence, their keys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import threefry_2x32
from scipy import stats

from gloam._tools.draws import _sine_and_cosine, normals, uniforms

draw = jax.jit(normals, static_argnums=1)


def test_they_are_standard_normal():
    x = np.asarray(draw(jax.random.key(0), (400_000,)), np.float64)
    # Fixed seed. The 1% limit of Kolmogorov and Smirnov is 1.63 / sqrt(n) = 0.0026.
    assert stats.kstest(x, "norm").statistic < 0.0026
    # Four standard errors of the first four moments.
    error = 4 / np.sqrt(x.size)
    assert abs(x.mean()) < error
    assert abs((x**2).mean() - 1) < error * np.sqrt(2)
    assert abs((x**3).mean()) < error * np.sqrt(15)
    assert abs((x**4).mean() - 3) < error * np.sqrt(96)


def test_tails_are_as_heavy_as_they_should_be():
    x = np.abs(np.asarray(draw(jax.random.key(1), (1_000_000,))))
    for limit in (2.0, 3.0, 4.0):
        expected = 2 * stats.norm.sf(limit) * x.size
        assert abs((x > limit).sum() - expected) < 4 * np.sqrt(expected)
    assert x.max() < 5.8


def test_both_numbers_of_a_pair_are_independent():
    x = np.asarray(draw(jax.random.key(2), (2, 200_000)), np.float64)
    error = 4 / np.sqrt(x.shape[1])
    assert abs((x[0] * x[1]).mean()) < error
    assert abs((x[0] ** 2 * x[1] ** 2).mean() - 1) < error * np.sqrt(8)
    # All directions of the plane are equally likely.
    angles = np.arctan2(x[0], x[1]) / (2 * np.pi) + 0.5
    assert stats.kstest(angles, "uniform").statistic < 1.63 / np.sqrt(x.shape[1])


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (2, 0)])
def test_any_shape(shape):
    x = draw(jax.random.key(3), shape)
    assert x.shape == shape
    assert np.isfinite(x).all()


def test_a_key_gives_the_same_numbers_alone_and_in_a_batch():
    keys = jax.random.split(jax.random.key(4), 3)
    together = jax.vmap(lambda key: normals(key, (4, 5)))(keys)
    for key, mine in zip(keys, together, strict=True):
        np.testing.assert_allclose(draw(key, (4, 5)), mine, rtol=1e-6, atol=1e-7)
    assert np.unique(together).size == together.size


@pytest.mark.parametrize("size", [0, 1, 7, 10_000])
def test_uniforms_are_those_of_jax(size):
    for seed in (0, 2**31):
        key = jax.random.key(seed)
        want = jax.random.uniform(key, (size,))
        np.testing.assert_array_equal(jax.jit(uniforms, static_argnums=1)(key, size), want)


def test_normals_are_made_of_threefry_as_jax_has_it():
    # Box and Muller's method written again, on words of JAX's own.
    key = jax.random.key(5)
    words = np.asarray(threefry_2x32(jax.random.key_data(key), np.arange(2_000, dtype=np.uint32)))
    first, second = words[:1000], words[1000:]
    radius = np.sqrt(-2 * np.log(((first >> 8) + 1.0) / 2**24))
    turn = np.pi / 4 * ((second >> 8) / 2.0**23 - 1)
    pair = np.where(second & 1, [np.sin(turn), np.cos(turn)], [np.cos(turn), np.sin(turn)])
    want = (np.where(second & 2, -radius, radius) * pair).reshape(-1)
    np.testing.assert_allclose(draw(key, (2_000,)), want, rtol=2e-6, atol=2e-6)


def test_errors_of_sine_and_cosine_are_as_large_as_their_docstring_says():
    # Angles as `normals` makes them, a part of all, with the largest ones.
    numbers = np.concatenate([np.arange(0, 2**24, 1009), np.arange(2**24 - 9999, 2**24)])
    angle = (numbers.astype(np.float32) * np.float32(2.0**-23) - 1) * np.float32(np.pi / 4)
    pairs = zip(_sine_and_cosine(jnp.asarray(angle)), (np.sin, np.cos), strict=True)
    limits = ((4e-7, 7), (1e-7, 2))
    for (given, function), (largest, units) in zip(pairs, limits, strict=True):
        exact = function(angle.astype(np.float64))
        error = np.abs(np.asarray(given, np.float64) - exact)
        assert largest / 2 < error.max() < largest
        error /= np.spacing(np.abs(exact).astype(np.float32))
        assert units - 1 < error.max() < units
