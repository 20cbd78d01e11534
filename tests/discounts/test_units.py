"""Units that are estimated: a search does not depend on the scale of what it is told."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gloam
from gloam.discounts import CNN, MLP, DiscountModel, Units
from gloam.discounts.units import estimated_units, first_units, in_new_units, renewed
from gloam.records import Batch
from tests.helpers import assert_same_bits

NUMBERS = st.floats(-100, 100, width=32)


def units(low, scale, *, known=True):
    return Units(jnp.float32(low), jnp.float32(scale), jnp.asarray(known))


def elites(*objectives):
    return jnp.asarray([*objectives, -jnp.inf], jnp.float32)


def numbers(found):
    return found.low.item(), found.scale.item(), found.is_known.item()


def test_known_answers():
    # Mean 3, standard deviation 1, highest 4.
    assert numbers(estimated_units(elites(2, 4))) == (-9.0, 13.0, True)
    assert numbers(estimated_units(elites(2, 4), f_min=0.0)) == (0.0, 4.0, True)
    assert numbers(estimated_units(elites(2, 4), f_max=11.0)) == (-9.0, 20.0, True)


@pytest.mark.parametrize(("objective", "low"), [(5, 0), (-5, -10), (0, -1)])
def test_equal_objectives_are_one_unit_above_the_floor(objective, low):
    size = abs(objective) or 1
    assert numbers(estimated_units(elites(objective, objective))) == (low, size, False)


def test_without_elites_nothing_is_known():
    assert numbers(estimated_units(elites())) == (-1.0, 1.0, False)


def test_units_stay_while_they_fit():
    old = units(0, 10)
    for near in (units(1, 14), units(-2, 7)):
        assert numbers(renewed(old, near)) == (0, 10, True)
    for far in (units(0, 16), units(0, 6), units(3, 10)):
        assert numbers(renewed(old, far)) == numbers(far)
    assert numbers(renewed(first_units(), units(2, 1))) == (2, 1, True)
    # Elites that have become equal say nothing of the scale.
    assert numbers(renewed(old, units(4, 5, known=False))) == (0, 10, True)


@given(NUMBERS, st.floats(0.01, 100, width=32), NUMBERS, st.floats(0.01, 100, width=32))
def test_a_network_says_the_same_in_other_units(low, scale, new_low, new_scale):
    rows = jax.random.normal(jax.random.key(1), (5, 4, 4))
    for network in (MLP(16, (8,), key=jax.random.key(0)), CNN((4, 4), key=jax.random.key(0))):
        old, new = units(low, scale), units(new_low, new_scale)
        changed = in_new_units(network, old, new)
        before, after = (
            np.asarray(u.raw(jax.vmap(n)(rows))) for u, n in ((old, network), (new, changed))
        )
        largest = max(abs(low), abs(new_low), scale, new_scale)
        np.testing.assert_allclose(after, before, atol=1e-5 * largest)


def test_a_guess_is_not_kept():
    network = MLP(2, (8,), key=jax.random.key(0))
    assert_same_bits(in_new_units(network, first_units(), units(7, 9)), network)


def test_networks_of_others_keep_their_weights():
    network = eqx.nn.Linear(2, 1, key=jax.random.key(0))
    assert in_new_units(network, units(0, 1), units(7, 9)) is network


def test_improvements_and_discounts_are_in_their_units():
    model = DiscountModel([-1.0] * 2, [1.0] * 2, f_min=None, f_max=None, num_init_points=4)
    key = jax.random.key(0)
    state = model.init(jnp.zeros((4, 2)), jnp.ones(4, bool), key=key)
    state = model.in_units_of(state, elites(100, 300))  # mean 200, deviation 100
    measures = jax.random.uniform(key, (3, 2))
    batch = Batch(jnp.zeros((3, 1)), jnp.full(3, 250.0), measures, jnp.zeros(3, int), None, {})
    scored = model.score(state, batch)
    np.testing.assert_allclose(scored.discounts, model.discount(state, measures), rtol=1e-6)
    improvements = (250 - np.asarray(scored.discounts)) / state.units.scale
    np.testing.assert_allclose(scored.improvements, improvements, rtol=1e-4)


class Scaled(eqx.Module):
    """An evaluation whose objectives, measures and solutions have other units."""

    factor: jax.Array
    offset: jax.Array
    measure: jax.Array
    solution: jax.Array

    def __call__(self, x):
        x = x / self.solution
        objectives = 1 - jnp.mean(jnp.square(x), axis=1)
        measures = jnp.tanh(x[:, :10].mean(axis=1)), jnp.tanh(x[:, 10:].mean(axis=1))
        return self.factor * objectives + self.offset, self.measure * jnp.stack(measures, axis=1)


def scores(factor=1.0, offset=0.0, measure=1.0, solution=1.0, iterations=80):
    """Coverage and QD score of three seeds, the latter in units of the plain objective."""
    archive = gloam.GridArchive((20, 20), -measure, measure)
    algorithm = gloam.DMS(
        archive,
        np.zeros(20),
        0.3 * solution,
        num_emitters=4,
        batch_size=12,
        num_init_points=50,
        network=MLP(2, (32,)),
    )
    domain = Scaled(*(jnp.float32(one) for one in (factor, offset, measure, solution)))
    result = gloam.run(domain, algorithm, iterations, seeds=3, progress=False)
    found = [seed.store.objectives for seed in result.elites_by_seed.values()]
    normalised = [np.sum((one[np.isfinite(one)] - offset) / factor) for one in found]
    return [np.isfinite(one).mean() for one in found], normalised, result


def test_powers_of_two_change_no_bit():
    plain, scaled = scores()[2], scores(factor=1024.0)[2]
    for one, other in zip(
        plain.elites_by_seed.values(), scaled.elites_by_seed.values(), strict=True
    ):
        np.testing.assert_array_equal(one.store.solutions, other.store.solutions)
        np.testing.assert_array_equal(1024 * one.store.objectives, other.store.objectives)


UNITS = [
    {"factor": a, "offset": b} for a in (0.01, 1.0, 1000.0) for b in (-1000.0, -1.0, 0.0, 10.0)
]
UNITS += [{"measure": 1000.0}, {"solution": 0.001}, {"solution": 50.0}]


@pytest.mark.parametrize("changed", UNITS, ids=str)
def test_a_search_does_not_depend_on_units(changed):
    coverage, score, _ = scores()
    other_coverage, other_score, _ = scores(**changed)
    assert abs(np.mean(other_coverage) - np.mean(coverage)) < COVERAGE_BOUND
    assert abs(np.mean(other_score) / np.mean(score) - 1) < SCORE_BOUND
