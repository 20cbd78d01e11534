"""Environments as evaluations: one computed by hand, and gymnasium's own."""

import pickle
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gloam
from gloam.interop import episodes_in_jax
from gloam.interop.gymnasium import MLPPolicy, Rollouts
from tests.helpers import refused


class Walk:
    """Moves by the action, from the seed; ends beyond 5."""

    def reset(self, *, seed):
        self.place = float(seed)
        return np.array([self.place]), {}

    def step(self, action):
        self.place += action
        ended = self.place > 5
        return np.array([self.place]), -abs(action), ended, False, {}


def constant(weights, observation):
    return weights[0]


def last_place(episode):
    return [episode.observations[-1, 0], float(episode.has_terminated)]


def test_returns_and_measures_by_hand():
    rollouts = Rollouts(Walk, constant, last_place, episodes=2, max_steps=4, seed=1)
    objectives, measures = rollouts(np.array([[1.0], [2.0], [-1.0]]))
    # From 1 and 2, by 1: 5 and 6 after four steps, the latter ended. By 2: 7 after 3 and 6 after 2.
    assert objectives.tolist() == [-4.0, -5.0, -4.0]
    assert measures.tolist() == [[5.5, 0.5], [6.5, 1.0], [-2.5, 0.0]]
    episode = rollouts.play(np.array([2.0]), 1)
    assert episode.observations.shape == (4, 1)
    assert episode.actions.tolist() == [2.0, 2.0, 2.0]


def test_an_evaluation_with_an_environment_can_be_sent_to_a_process():
    rollouts = Rollouts(Walk, constant, last_place)
    rows = np.array([[1.0]])
    objectives, _ = rollouts(rows)
    again = pickle.loads(pickle.dumps(rollouts))
    assert again._environment is None
    assert again(rows)[0] == objectives


def test_a_policy_is_its_formula():
    policy = MLPPolicy(2, low=[-1, 0], high=[1, 4], hidden=(3,))
    assert policy.solution_dim == 3 * 3 + 4 * 2
    weights = np.linspace(-1, 1, policy.solution_dim)
    x = np.array([0.3, -0.7])
    hidden = np.tanh(x @ weights[:6].reshape(2, 3) + weights[6:9])
    out = np.tanh(hidden @ weights[9:15].reshape(3, 2) + weights[15:])
    np.testing.assert_allclose(policy(weights, x), [0, 2] + np.array([1, 2]) * out, rtol=1e-6)
    choice = MLPPolicy(2, num_actions=2, hidden=(3,))
    scores = hidden @ weights[9:15].reshape(3, 2) + weights[15:]
    assert choice(weights, x) == int(np.argmax(scores))


def test_wrong_policies_are_refused():
    with pytest.raises(ValueError, match=r"^low, high:.*bounds"):
        MLPPolicy(3)
    with pytest.raises(ValueError, match=r"^low, high:.*finite"):
        MLPPolicy(3, low=-np.inf, high=1)
    with refused("max_steps: expected"):
        Rollouts(Walk, constant, last_place, max_steps=0)


def test_a_control_task_of_gymnasium_is_searched():
    gymnasium = pytest.importorskip("gymnasium", reason="needs gloam[gymnasium]")
    policy = MLPPolicy.of(gymnasium.make("CartPole-v1"), hidden=(4,))

    def measures(episode):
        return episode.observations[:, 0].mean(), episode.observations[:, 1].std()

    rollouts = Rollouts("CartPole-v1", policy, measures, max_steps=50)
    archive = gloam.GridArchive((5, 5), (-1, 0), (1, 2))
    x0 = np.zeros(policy.solution_dim)
    algorithm = gloam.MAPElites(archive, x0, 1.0, batch_size=10)
    elites = gloam.optimize(rollouts, algorithm, 3, progress=False).elites
    assert len(elites) > 1
    objectives, again = rollouts(elites.solutions)
    np.testing.assert_allclose(objectives, elites.objectives)
    np.testing.assert_allclose(again, elites.measures, rtol=1e-5)


class State(NamedTuple):
    obs: jax.Array
    reward: jax.Array
    done: jax.Array


class WalkInJax:
    """The same walk, from 0, as Brax would have it."""

    def reset(self, key):
        return State(jnp.zeros(1), jnp.float32(0), jnp.float32(0))

    def step(self, state, action):
        place = state.obs + action
        return State(place, -jnp.abs(action[0]), (place[0] > 5).astype(jnp.float32))


def test_an_environment_in_jax_stops_counting_at_its_end():
    def last(states, was_alive):
        steps = jnp.sum(was_alive)
        return jnp.stack([states.obs[steps - 1, 0], steps.astype(jnp.float32)])

    domain = episodes_in_jax(WalkInJax(), lambda w, obs: w[:1], last, steps=4)
    objectives, measures = jax.jit(domain)(jnp.array([[1.0], [2.0], [3.0]]))
    assert objectives.tolist() == [-4.0, -6.0, -6.0]
    assert measures.tolist() == [[4.0, 4.0], [6.0, 3.0], [6.0, 2.0]]
    archive = gloam.GridArchive((4, 4), 0, 9, f_min=-20.0)
    algorithm = gloam.MAPElites(archive, np.ones(1), 1.0, batch_size=6)
    assert len(gloam.run(domain, algorithm, 2, progress=False).elites) > 0
