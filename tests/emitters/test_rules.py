"""Restart rules, one iteration after another."""

import equinox as eqx
import jax.numpy as jnp
from hypothesis import given
from hypothesis import strategies as st

from gloam.emitters import RestartWhenIdle
from gloam.emitters.rules import Progress
from tests.helpers import refused


@eqx.filter_jit
def after(rule, state, progress):
    due, state = rule.due(state, progress)
    return due, rule.restarted(state, due)


def restarts(rule, improved, filled):
    """Which emitters restart after each iteration, given what they bring."""
    state, found = rule.init(len(improved[0])), []
    for iteration, rows in enumerate(zip(improved, filled, strict=True), 1):
        progress = Progress(jnp.asarray(iteration), *(jnp.asarray(row) for row in rows))
        due, state = after(rule, state, progress)
        found.append(due.tolist())
    return found, state


def test_the_wait_is_what_restarts_take_to_pay():
    # The first emitter fills a cell in iteration 10, the second in iteration 30: (10 + 30) / 2.
    filled = [[int(i == 10), int(i == 30)] for i in range(1, 71)]
    improved = [[1, 1]] * 30 + [[0, 1]] * 40
    found, state = restarts(RestartWhenIdle(window=1e30), improved, filled)
    assert (state.waited.item(), state.ended.item()) == (10 + 30 + 20, 2)  # 20 of a new wait
    # Idle since iteration 30; it restarts 20 iterations later, and then waits for a cell itself.
    assert [i for i, row in enumerate(found, 1) if row[0]] == [50]
    assert not any(row[1] for row in found)


def test_the_estimate_forgets():
    rule = RestartWhenIdle(window=10.0)
    _, state = restarts(rule, [[1]] * 200, [[1]] + [[0]] * 199)
    assert state.ended.item() < 1e-6  # nothing is waited for, nothing is found
    _, state = restarts(rule, [[1]] * 200, [[0]] * 200)
    assert state.waited.item() / max(state.ended.item(), 1e-6) > 1e6  # nothing pays: a long wait


@given(st.lists(st.lists(st.booleans(), min_size=2, max_size=2), min_size=1, max_size=40))
def test_an_emitter_restarts_exactly_when_it_was_idle_for_long(improved):
    numbers = [[int(one) for one in row] for row in improved]
    # With so small a factor every wait is the shortest: five iterations.
    found, _ = restarts(RestartWhenIdle(1e-9), numbers, numbers)
    for emitter in range(2):
        idle = 0
        for row, due in zip(improved, found, strict=True):
            idle = 0 if row[emitter] else idle + 1
            assert due[emitter] == (idle == 5)
            idle = 0 if due[emitter] else idle


def test_wrong_settings_are_refused():
    with refused("factor: expected a finite number > 0"):
        RestartWhenIdle(0.0)
    with refused("window: expected a finite number > 1"):
        RestartWhenIdle(window=1.0)
