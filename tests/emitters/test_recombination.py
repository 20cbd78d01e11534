"""Moves between elites: where they lead, for lines, differences and swaps."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gloam.emitters import Recombination, Swaps
from tests.helpers import refused

NUMBER, SOL = 600, 8
KEY = jax.random.key(5)


def moves(emitter):
    """The elites, and how far each solution is from the elite that it starts at."""
    total = sum(draw.number for draw in emitter.elites_to_ask)
    elites = np.random.default_rng(1).normal(size=(total, SOL)).astype(np.float32)
    proposal = eqx.filter_jit(emitter.ask)(emitter.init(), jnp.asarray(elites), key=KEY)
    return elites, np.asarray(proposal.solutions) - elites[:NUMBER]


def test_they_ask_for_two_elites_for_each_solution_and_three_for_a_difference():
    assert Recombination(np.zeros(2), 0.1, batch_size=7).elites_to_ask == ((7, 4), (10, 1))
    assert Swaps(np.zeros(2), 0.1, batch_size=7).elites_to_ask == ((14, 1),)


def test_lines_and_differences_go_along_their_directions():
    emitter = Recombination(np.zeros(SOL), 1.0, iso_sigma=1e-7, batch_size=NUMBER)
    elites, moved = moves(emitter)
    first, second, half = elites[:NUMBER], elites[NUMBER : 2 * NUMBER], NUMBER // 2
    direction = second - np.concatenate([first[:half], elites[2 * NUMBER :]])
    steps = np.sum(moved * direction, axis=1) / np.sum(direction**2, axis=1)
    np.testing.assert_allclose(moved, steps[:, None] * direction, rtol=1e-3, atol=2e-5)
    # Standard error for 600 steps: 0.015.
    assert abs(steps.std() - 0.5) < 0.06


def test_swaps_move_some_variables_towards_another_elite():
    elites, moved = moves(Swaps(np.zeros(SOL), 1.0, iso_sigma=1e-7, batch_size=NUMBER))
    direction = elites[NUMBER:] - elites[:NUMBER]
    is_moved = np.abs(moved) > 2e-6
    towards = np.where(is_moved, direction, 0)
    steps = np.sum(moved * towards, axis=1) / np.sum(towards**2, axis=1)
    np.testing.assert_allclose(moved, steps[:, None] * towards, rtol=1e-3, atol=2e-5)
    # Standard error for 600 steps: 0.015.
    assert abs(steps.std() - 0.5) < 0.06
    number = is_moved.sum(axis=1)
    # A log-uniform share of 8 variables, and one at least: few swaps change half of them or more.
    assert number.min() >= 1
    assert number.max() == SOL
    assert (number == 1).mean() > 0.2


@pytest.mark.parametrize(
    "emitter",
    [
        Recombination(np.zeros(2), iso_sigma=1.0, batch_size=100, bounds=(-1, [1, 2])),
        Swaps(np.zeros(2), iso_sigma=1.0, batch_size=100, bounds=(-1, [1, 2])),
    ],
)
def test_solutions_stay_in_the_box(emitter):
    number = sum(draw.number for draw in emitter.elites_to_ask)
    ask = eqx.filter_jit(emitter.ask)
    solutions = np.asarray(ask(None, jnp.zeros((number, 2)), key=KEY).solutions)
    assert (solutions >= -1).all()
    assert (solutions <= [1, 2]).all()
    assert (solutions[:, 1] > 1).any()


@pytest.mark.parametrize(
    ("emitter", "arguments", "message"),
    [
        (Recombination, {"iso_sigma": 0.0}, "iso_sigma: expected a finite number > 0"),
        (Recombination, {"line_sigma": 0.0}, "line_sigma: expected a finite number > 0"),
        (Recombination, {"batch_size": 0}, "batch_size: expected a whole number >= 1"),
        (Recombination, {"best_of": 0}, "best_of: expected a whole number >= 1"),
        (Recombination, {"bounds": (1.0, None)}, "x0: expected a point within"),
        (Swaps, {"iso_sigma": 0.0}, "iso_sigma: expected a finite number > 0"),
        (Swaps, {"line_sigma": 0.0}, "line_sigma: expected a finite number > 0"),
        (Swaps, {"batch_size": 0}, "batch_size: expected a whole number >= 1"),
    ],
)
def test_wrong_arguments_are_refused(emitter, arguments, message):
    with refused(message):
        emitter(np.zeros(2), **({"sigma0": 0.1} | arguments))
