"""Moves between elites: where they lead, for lines, differences, swaps and changes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gloam.emitters import Recombination, Refinement
from tests.helpers import refused

NUMBER, SOL = 600, 8
KEY = jax.random.key(5)


def moves(emitter):
    """The elites, and how far each solution is from the elite that it starts at."""
    total = sum(draw.number for draw in emitter.elites_to_ask)
    elites = np.random.default_rng(1).normal(size=(total, SOL)).astype(np.float32)
    proposal = emitter.ask(emitter.init(), jnp.asarray(elites), key=KEY)
    return elites, np.asarray(proposal.solutions) - elites[:NUMBER]


def test_they_ask_for_two_elites_for_each_solution_and_three_for_a_difference():
    assert Recombination(np.zeros(2), 0.1, batch_size=7).elites_to_ask == ((7, 4), (10, 1))
    assert Refinement(np.zeros(2), 0.1, batch_size=7).elites_to_ask == ((14, 1),)


def test_lines_and_differences_go_along_their_directions():
    emitter = Recombination(np.zeros(SOL), 1.0, iso_sigma=1e-7, batch_size=NUMBER)
    elites, moved = moves(emitter)
    first, second, half = elites[:NUMBER], elites[NUMBER : 2 * NUMBER], NUMBER // 2
    direction = second - np.concatenate([first[:half], elites[2 * NUMBER :]])
    steps = np.sum(moved * direction, axis=1) / np.sum(direction**2, axis=1)
    np.testing.assert_allclose(moved, steps[:, None] * direction, rtol=1e-3, atol=2e-5)
    # Standard error for 600 steps: 0.015.
    assert abs(steps.std() - 0.5) < 0.06


def test_swaps_move_some_variables_towards_another_elite_and_changes_all():
    emitter = Refinement(np.zeros(SOL), 1e-3, iso_sigma=(1e-4, 1e-4), batch_size=NUMBER)
    elites, moved = moves(emitter)
    direction = elites[NUMBER:] - elites[:NUMBER]
    is_moved = np.abs(moved) > 2e-6
    ratios = np.where(is_moved, moved / direction, np.nan)
    steps = np.nanmean(ratios, axis=1)
    spread = np.nanmax(ratios, axis=1) - np.nanmin(ratios, axis=1)
    assert np.nanmax(spread / np.maximum(np.abs(steps), 1e-2)) < 0.01
    swaps, changes = np.arange(0, NUMBER, 2), np.arange(1, NUMBER, 2)
    # Standard errors for 300 steps: 4%.
    assert abs(steps[swaps].std() - 0.5) < 0.1
    assert abs(steps[changes].std() - 0.2) < 0.04
    number = is_moved.sum(axis=1)
    # A log-uniform share of 8 variables, and one at least: few swaps change half of them or more.
    assert number[swaps].min() >= 1
    assert number[swaps].max() == SOL
    assert (number[swaps] == 1).mean() > 0.2
    assert (number[changes] == SOL).mean() > 0.99


def test_changes_have_more_noise_than_swaps():
    emitter = Refinement(np.zeros(SOL), 2.0, line_sigma=(1e-9, 1e-9), batch_size=NUMBER)
    _, moved = moves(emitter)
    # Standard errors for 2,400 numbers: 1.4%.
    assert abs(moved[::2].std() / 0.08 - 1) < 0.06
    assert abs(moved[1::2].std() / 0.2 - 1) < 0.06


@pytest.mark.parametrize(
    "emitter",
    [
        Recombination(np.zeros(2), iso_sigma=1.0, batch_size=100, bounds=(-1, [1, 2])),
        Refinement(np.zeros(2), iso_sigma=(5.0, 5.0), batch_size=100, bounds=(-1, [1, 2])),
    ],
)
def test_solutions_stay_in_the_box(emitter):
    number = sum(draw.number for draw in emitter.elites_to_ask)
    solutions = np.asarray(emitter.ask(None, jnp.zeros((number, 2)), key=KEY).solutions)
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
        (Refinement, {"iso_sigma": 0.1}, "iso_sigma: expected two numbers, got 0.1"),
        (Refinement, {"line_sigma": (0.5, 0.0)}, "line_sigma: expected a finite number > 0"),
        (Refinement, {"batch_size": 0}, "batch_size: expected a whole number >= 1"),
    ],
)
def test_wrong_arguments_are_refused(emitter, arguments, message):
    with refused(message):
        emitter(np.zeros(2), **({"sigma0": 0.1} | arguments))
