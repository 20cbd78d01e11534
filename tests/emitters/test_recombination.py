"""Moves between elites: where they lead, and how many of each kind there are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gloam.emitters import Recombination
from gloam.emitters.recombination import RecombinationState
from gloam.records import Feedback, Proposal
from tests.helpers import refused

NUMBER, SOL = 600, 8
KEY = jax.random.key(5)


def brought(tried=(100, 100), improved=(0, 0), filled=0) -> RecombinationState:
    """Success counts of lines and differences, then of swaps."""
    arrays = (jnp.asarray(numbers, jnp.float32) for numbers in (tried, improved, filled))
    return RecombinationState(*arrays)


HALF = brought(improved=(50, 50))


def moves(state: RecombinationState | None = None, **options):
    """The elites that moves start from and are drawn by, the moves, and which are swaps."""
    emitter = Recombination(np.zeros(SOL), 1.0, iso_sigma=1e-7, batch_size=NUMBER, **options)
    total = sum(draw.number for draw in emitter.elites_to_ask)
    elites = np.random.default_rng(1).normal(size=(total, SOL)).astype(np.float32)
    proposal = emitter.ask(state or emitter.init(), jnp.asarray(elites), key=KEY)
    moved = np.asarray(proposal.solutions) - elites[:NUMBER]
    return elites, moved, np.asarray(proposal.aux)


def test_it_asks_for_two_elites_for_each_move_and_three_for_a_difference():
    assert Recombination(np.zeros(2), 0.1, batch_size=7).elites_to_ask == ((7, 4), (10, 1))


def test_lines_differences_and_swaps_go_along_their_directions():
    elites, moved, is_swap = moves(HALF)
    first, second = elites[:NUMBER], elites[NUMBER : 2 * NUMBER]
    half = NUMBER // 2
    third = np.concatenate([first[:half], elites[2 * NUMBER :]])
    third[is_swap] = first[is_swap]
    direction = second - third
    steps = np.where(is_swap, 0, np.sum(moved * direction, axis=1) / np.sum(direction**2, axis=1))
    np.testing.assert_allclose(
        moved[~is_swap], (steps[:, None] * direction)[~is_swap], rtol=1e-3, atol=2e-5
    )
    # Standard error for about 300 steps: 0.02.
    assert abs(steps[~is_swap].std() - 0.5) < 0.1

    changed = np.abs(moved[is_swap]) > 2e-6
    ratios = np.where(changed, moved[is_swap] / direction[is_swap], np.nan)
    spread = np.nanmax(ratios, axis=1) - np.nanmin(ratios, axis=1)
    assert np.nanmax(spread / np.maximum(np.abs(np.nanmean(ratios, axis=1)), 1e-2)) < 0.01
    number = changed.sum(axis=1)
    # A log-uniform share of 8 numbers, and one at least: few swaps change half of them or more.
    assert number.min() >= 1
    assert number.max() == SOL
    assert (number == 1).mean() > 0.2


def test_swaps_are_as_many_as_their_share_says():
    for state, share in [(brought(filled=5), 0.03), (HALF, 0.5), (brought(improved=(1, 50)), 0.9)]:
        _, _, is_swap = moves(state)
        # Standard errors for 600 draws: 0.007, 0.02 and 0.012.
        assert abs(is_swap.mean() - share) < 0.08


def test_the_share_worked_by_hand():
    # A cell and 200 improvements in 1,000 moves are 0.0012 cells a move; 50 in 50 swaps are 0.001.
    state = brought((1000, 50), (200, 50), 1)
    assert state.swap_share.item() == pytest.approx(1 / (1 + 1.2**2))


def test_cells_come_first_and_improvements_count_when_no_cell_is_left():
    assert brought(improved=(1, 90), filled=1).swap_share.item() == pytest.approx(0.03)
    assert brought(improved=(1, 90)).swap_share.item() == pytest.approx(0.9)
    assert brought().swap_share.item() == pytest.approx(0.03)
    assert brought(tried=(0, 0)).swap_share.item() == pytest.approx(0.03)
    assert brought(tried=(0, 9), improved=(0, 3)).swap_share.item() == pytest.approx(0.9)


rates = st.floats(0, 1)


@given(
    tried=st.tuples(st.floats(1, 1e6), st.floats(1, 1e6)),
    improved=st.tuples(rates, rates),
    filled=rates,
    more=rates,
)
def test_shares_are_within_limits_and_fall_with_what_the_others_fill(tried, improved, filled, more):
    numbers = [number * rate for number, rate in zip(tried, improved, strict=True)]
    share = brought(tried, numbers, filled * numbers[0]).swap_share.item()
    assert 0.0299 < share < 0.9001
    fuller = brought(tried, numbers, (filled + more) * numbers[0])
    assert fuller.swap_share.item() <= share
    better = brought(tried, (numbers[0], numbers[1] + more * tried[1]), filled * numbers[0])
    assert better.swap_share.item() >= share


def feedback(filled: np.ndarray, improved: np.ndarray) -> Feedback:
    valid = jnp.ones(len(filled), bool)
    values = jnp.zeros(len(filled))
    return Feedback(values, jnp.asarray(improved), jnp.asarray(filled), valid, jnp.asarray(1))


def test_moves_are_counted_by_kind_and_forgotten():
    emitter = Recombination(np.zeros(2), 0.1, batch_size=4, window=2.0)
    is_swap = jnp.asarray([True, False, True, False])
    told = feedback(np.array([True, False, False, False]), np.array([True, False, True, True]))
    before = brought((32, 64), (8, 32), 16)
    after = emitter.adapt(before, Proposal(jnp.zeros((4, 2)), is_swap), told, jnp.zeros((0, 2)))
    # Half is forgotten with each of the four moves. A swap filled a cell, which is not counted.
    assert after.tried.tolist() == [2 + 2, 4 + 2]
    assert after.accepted.tolist() == [0.5 + 1, 2 + 2]
    assert after.filled.item() == 1


def test_parts_count_together():
    emitter = Recombination(np.zeros(2), 0.1, batch_size=72)
    part = emitter.part(3)
    assert (part.num_solutions, part.window) == (24, emitter.window)
    random = np.random.default_rng(2)
    improved, is_swap = random.random((2, 72)) < 0.3
    nothing = np.zeros(72, bool)
    together = emitter.adapt(
        emitter.init(),
        Proposal(jnp.zeros((72, 2)), jnp.asarray(is_swap)),
        feedback(nothing, improved),
        jnp.zeros((0, 2)),
    )
    state = emitter.init()
    for place in range(3):
        rows = slice(24 * place, 24 * place + 24)
        own = Proposal(jnp.zeros((24, 2)), jnp.asarray(is_swap[rows]))
        one = part.adapt(
            emitter.part_state(state, jnp.asarray(place)),
            own,
            feedback(nothing[rows], improved[rows]),
            jnp.zeros((0, 2)),
        )
        state = emitter.with_part_state(state, jnp.asarray(place), one)
    # The first part is forgotten by 1% more than in one step.
    assert state.swap_share.item() == pytest.approx(together.swap_share.item(), rel=0.02)


def test_solutions_stay_in_the_box():
    emitter = Recombination(np.zeros(2), iso_sigma=1.0, batch_size=100, bounds=(-1, [1, 2]))
    solutions = np.asarray(emitter.ask(emitter.init(), jnp.zeros((250, 2)), key=KEY).solutions)
    assert (solutions >= -1).all()
    assert (solutions <= [1, 2]).all()
    assert (solutions[:, 1] > 1).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"iso_sigma": 0.0}, "iso_sigma: expected a finite number > 0"),
        ({"line_sigma": 0.0}, "line_sigma: expected a finite number > 0"),
        ({"batch_size": 0}, "batch_size: expected a whole number >= 1"),
        ({"best_of": 0}, "best_of: expected a whole number >= 1"),
        ({"window": 1.0}, "window: expected a finite number > 1"),
        ({"bounds": (1.0, None)}, "x0: expected a point within"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with refused(message):
        Recombination(np.zeros(2), **({"sigma0": 0.1} | arguments))
