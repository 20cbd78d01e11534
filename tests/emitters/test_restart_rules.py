"""Restart rules, one iteration after another."""

import jax.numpy as jnp
from hypothesis import given
from hypothesis import strategies as st

from gloam.emitters import RestartWhenIdle
from gloam.emitters.restart_rules import Progress
from tests.helpers import refused


def restarts(rule, improved):
    """Which emitters restart after each iteration, given their improvements."""
    state, found = rule.init(len(improved[0])), []
    for iteration, row in enumerate(improved, 1):
        due, state = rule.due(state, Progress(jnp.asarray(iteration), jnp.asarray(row)))
        state = rule.restarted(state, due)
        found.append(due.tolist())
    return found


def test_emitters_restart_when_their_patience_is_over():
    improved = [[1, 0], [0, 0], [0, 5], [0, 0], [0, 0]]
    found = restarts(RestartWhenIdle((2, 3)), improved)
    assert [row[0] for row in found] == [False, False, True, False, True]
    assert [row[1] for row in found] == [False, False, False, False, False]


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=30))
def test_an_emitter_restarts_exactly_when_it_was_idle_for_long(improved):
    patience = (1, 3, 4)
    found = restarts(RestartWhenIdle(patience), [[int(one) for one in row] for row in improved])
    for emitter, limit in enumerate(patience):
        idle = 0
        for row, due in zip(improved, found, strict=True):
            idle = 0 if row[emitter] else idle + 1
            assert due[emitter] == (idle == limit)
            idle = 0 if due[emitter] else idle


def test_wrong_patience_is_refused():
    with refused("patience: expected a whole number >= 1"):
        RestartWhenIdle((30, 0))
    with refused("patience: expected at least one number"):
        RestartWhenIdle(())
