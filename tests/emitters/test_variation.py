"""MAP-Elites' operators: what they draw, from whom, and inside which box."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gloam.emitters import Variation

KEY = jax.random.key(3)


@eqx.filter_jit
def asked(emitter, elites):
    return emitter.ask(None, elites, key=KEY).solutions


def test_gaussian_noise_around_each_elite():
    emitter = Variation(np.zeros(3), 0.1, batch_size=4000)
    elites = jnp.tile(jnp.array([1.0, -2.0, 5.0]), (4000, 1))
    noise = np.asarray(asked(emitter, elites) - elites)
    # Standard errors for 4,000 draws: 0.0016 of the mean, 0.0011 of the deviation.
    assert abs(noise.mean(axis=0)).max() < 0.008
    assert abs(noise.std(axis=0) - 0.1).max() < 0.006


def test_line_noise_points_to_the_second_elite():
    emitter = Variation(np.zeros(2), 1e-6, line_sigma=0.2, batch_size=4000)
    first, second = jnp.zeros((4000, 2)), jnp.tile(jnp.array([3.0, 4.0]), (4000, 1))
    moved = np.asarray(asked(emitter, jnp.concatenate([first, second])))
    np.testing.assert_allclose(moved[:, 0] * 4, moved[:, 1] * 3, atol=1e-4)
    assert abs((moved / [3.0, 4.0])[:, 0].std() - 0.2) < 0.012


def test_it_asks_for_the_elites_it_uses():
    assert Variation(np.zeros(2), 0.1, batch_size=7).elites_to_ask == ((7, 1),)
    lines = Variation(np.zeros(2), 0.1, line_sigma=0.2, batch_size=7)
    assert lines.elites_to_ask == ((14, 1),)
    chosen = Variation(np.zeros(2), 0.1, line_sigma=0.2, batch_size=7, best_of=3)
    assert chosen.elites_to_ask == ((7, 3), (7, 1))


def test_solutions_stay_in_the_box():
    emitter = Variation(np.zeros(2), 1.0, batch_size=100, bounds=(-1, [1, 2]))
    solutions = np.asarray(asked(emitter, jnp.zeros((100, 2))))
    assert (solutions >= -1).all()
    assert (solutions <= [1, 2]).all()
    assert (solutions[:, 1] > 1).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sigma0": 0.0}, "sigma0: expected a finite number > 0"),
        ({"line_sigma": -1.0}, "line_sigma: expected"),
        ({"batch_size": 0}, "batch_size: expected a whole number >= 1"),
        ({"bounds": (1.0, None)}, "x0: expected a point within"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Variation(np.zeros(2), **({"sigma0": 0.1} | arguments))
