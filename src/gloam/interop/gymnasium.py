"""Environments as evaluations: solutions are policies, and measures come from episodes.

`Rollouts` plays environments of gymnasium; `episodes_in_jax` those in JAX, such as Brax's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gloam._tools import checks


@dataclass(frozen=True)
class Episode:
    """Observations, actions and rewards of one episode."""

    observations: np.ndarray
    """``(steps + 1, ...)`` observations, with the first and the last."""
    actions: np.ndarray
    """``(steps, ...)`` actions."""
    rewards: np.ndarray
    """``(steps,)`` rewards."""
    has_terminated: bool
    """Whether the environment ended the episode, and not the step limit."""


class Rollouts:
    """An evaluation for `gloam.optimize` that plays episodes with each solution as the policy.

    The objective is the mean return. All solutions are evaluated on the same episodes (seeds
    ``seed``, ``seed + 1``, ...), so evaluations are deterministic. Can be pickled for
    `gloam.evaluators.Processes`; each process builds its own environment.

    Args:
        make: Builds an environment: a function, or an id for ``gymnasium.make``.
        policy: Maps weights and an observation to an action, for instance `MLPPolicy`.
        measures: Maps an `Episode` to measures.
        episodes: Number of episodes for each solution; objectives and measures are means.
        max_steps: Largest number of steps of an episode.
        seed: Seed of the first episode.
    """

    def __init__(
        self,
        make: str | Callable[[], Any],
        policy: Callable[[np.ndarray, np.ndarray], Any],
        measures: Callable[[Episode], Any],
        *,
        episodes: int = 1,
        max_steps: int = 1000,
        seed: int = 0,
    ):
        self._make, self._policy, self._measures = make, policy, measures
        self._episodes = checks.integer("episodes", episodes, minimum=1)
        self._max_steps = checks.integer("max_steps", max_steps, minimum=1)
        self._seed = checks.seed("seed", seed)
        self._environment: Any = None

    def __call__(self, solutions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the objectives and measures of a batch of solutions."""
        objectives, measures = [], []
        for solution in solutions:
            seeds = range(self._seed, self._seed + self._episodes)
            played = [self.play(solution, seed) for seed in seeds]
            objectives.append(np.mean([episode.rewards.sum() for episode in played]))
            measured = [np.asarray(self._measures(episode), float) for episode in played]
            measures.append(np.mean(measured, axis=0))
        return np.asarray(objectives), np.stack(measures)

    def play(self, weights: np.ndarray, seed: int) -> Episode:
        """Play one episode."""
        if self._environment is None:
            self._environment = self._build()
        environment, terminated = self._environment, False
        observation, _ = environment.reset(seed=seed)
        observations, actions, rewards = [observation], [], []
        while len(rewards) < self._max_steps:
            action = self._policy(weights, observation)
            observation, reward, terminated, truncated, _ = environment.step(action)
            observations.append(observation)
            actions.append(action)
            rewards.append(float(reward))
            if terminated or truncated:
                break
        parts = np.asarray(observations), np.asarray(actions), np.asarray(rewards)
        return Episode(*parts, bool(terminated))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_environment": None}

    def _build(self) -> Any:
        if not isinstance(self._make, str):
            return self._make()
        try:
            import gymnasium  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            message = f"'{self._make}' needs gymnasium ({error})."
            raise ImportError(f"{message} Run: pip install 'gloam[gymnasium]'") from error
        return gymnasium.make(self._make)


class MLPPolicy:
    """A small multilayer perceptron in NumPy whose weights are a solution.

    With ``num_actions`` it chooses a discrete action; otherwise its actions lie within the bounds
    of a box.

    Args:
        observation_dim: Number of observed values; observations are flattened.
        num_actions: Number of discrete actions, or ``None``.
        low, high: Bounds of a box of actions, one number for each dimension.
        hidden: Sizes of the hidden layers, which have tanh.

    Example:
        >>> policy = MLPPolicy(4, num_actions=2, hidden=(8,))
        >>> policy.solution_dim, policy(np.zeros(policy.solution_dim), np.ones(4))
        (58, 0)
    """

    def __init__(
        self,
        observation_dim: int,
        *,
        num_actions: int | None = None,
        low: Any = None,
        high: Any = None,
        hidden: Sequence[int] = (16,),
    ):
        self._is_discrete = num_actions is not None
        if num_actions is not None:
            outputs = checks.integer("num_actions", num_actions, minimum=1)
        else:
            fix = "Give num_actions for discrete actions, or low and high for a box."
            is_box = low is not None and high is not None
            checks.expect(is_box, "low, high", "bounds of the actions", "none", fix)
            both = [np.atleast_1d(np.asarray(bound, float)) for bound in (low, high)]
            bounds = np.stack(np.broadcast_arrays(*both))
            is_finite = bool(np.isfinite(bounds).all())
            checks.expect(is_finite, "low, high", "finite bounds", "infinite ones")
            self._middle, self._half = bounds.mean(axis=0), (bounds[1] - bounds[0]) / 2
            outputs = self._middle.size
        sizes = [checks.integer("observation_dim", observation_dim, minimum=1)]
        sizes += [*checks.integers("hidden", hidden, minimum=1), outputs]
        self._shapes = [*pairwise(sizes)]
        self.solution_dim = sum((rows + 1) * columns for rows, columns in self._shapes)
        """Number of weights."""

    @classmethod
    def of(cls, environment: Any, hidden: Sequence[int] = (16,)) -> "MLPPolicy":
        """Return a policy for the spaces of an environment."""
        size = int(np.prod(environment.observation_space.shape or (1,)))
        space = environment.action_space
        if hasattr(space, "n"):
            return cls(size, num_actions=int(space.n), hidden=hidden)
        fix = "Write your own policy: a function of weights and observation."
        name = type(space).__name__
        checks.expect(hasattr(space, "low"), "action_space", "Discrete or Box", name, fix)
        return cls(size, low=space.low, high=space.high, hidden=hidden)

    def __call__(self, weights: np.ndarray, observation: np.ndarray) -> Any:
        """Return the action for an observation."""
        weights, x = np.asarray(weights), np.asarray(observation, float).ravel()
        start, last = 0, len(self._shapes) - 1
        for number, (rows, columns) in enumerate(self._shapes):
            end = start + rows * columns
            x = x @ weights[start:end].reshape(rows, columns) + weights[end : end + columns]
            start = end + columns
            if number < last:
                x = np.tanh(x)
        if self._is_discrete:
            return int(x.argmax())
        action = self._middle + self._half * np.tanh(x).reshape(self._half.shape)
        return action.astype(np.float32)


def episodes_in_jax(
    environment: Any,
    policy: Callable[[Float[Array, " sol"], Array], Array],
    measures: Callable[[Any, Any], Float[Array, " meas"]],
    *,
    steps: int,
    seed: int = 0,
) -> Callable[
    [Float[Array, "batch sol"]], tuple[Float[Array, " batch"], Float[Array, "batch meas"]]
]:
    """Return a domain for `gloam.run` that plays an episode with each solution as the policy.

    The objective is the sum of rewards up to the first ``done``. All solutions start from the same
    state.

    Args:
        environment: Has ``reset(key)`` and ``step(state, action)``, which return a state with
            ``obs``, ``reward`` and ``done``, like the environments of Brax.
        policy: Maps weights and an observation to an action, in JAX.
        measures: Maps the states of an episode (arrays with a leading axis of steps) and a mask of
            the steps before ``done`` to measures.
        steps: Number of steps of an episode.
        seed: Seed of the first state.
    """
    key = jax.random.key(seed)

    def play(weights: Float[Array, " sol"]) -> tuple[Array, Array]:
        def step(carry: tuple[Any, Array], _: None) -> Any:
            state, is_alive = carry
            state = environment.step(state, policy(weights, state.obs))
            reward = jnp.where(is_alive, state.reward, 0.0)
            # The step that ends the episode still counts.
            return (state, is_alive & (state.done == 0)), (state, reward, is_alive)

        first = environment.reset(key), jnp.asarray(True)
        _, (states, rewards, was_alive) = jax.lax.scan(step, first, None, length=steps)
        return jnp.sum(rewards), measures(states, was_alive)

    return jax.vmap(play)
