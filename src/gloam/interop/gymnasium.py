"""Environments in JAX, as Brax has them, as domains that `gloam.run` compiles.

Environments of gymnasium as evaluations: solutions are policies, measures come from episodes.
"""

import dataclasses
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gloam import checks


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
    """A domain that plays an episode with each solution as the policy.

    The objective is the sum of the rewards up to the first ``done``. Every solution starts from the
    same state.

    Args:
        environment: It has ``reset(key)`` and ``step(state, action)``, which give a state with
            ``obs``, ``reward`` and ``done``, as environments of Brax do.
        policy: Maps weights and an observation to an action, in operations of JAX.
        measures: Maps all states of an episode (each array with a first axis of steps) and a mask
            of those steps that were before ``done`` to measures.
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


@dataclasses.dataclass(frozen=True)
class Episode:
    """What happened in one episode."""

    observations: np.ndarray
    """``(steps + 1, ...)`` observations, the first and the last included."""
    actions: np.ndarray
    """``(steps, ...)`` actions."""
    rewards: np.ndarray
    """``(steps,)`` rewards."""
    has_terminated: bool
    """Whether the environment ended it, and not the limit of steps."""


class MLPPolicy:
    """A small network of NumPy whose weights are a solution.

    With ``num_actions`` it chooses one of several actions; otherwise it gives numbers between the
    bounds of a box of actions.

    Args:
        observation_dim: Number of observed numbers; an observation with a shape is made flat.
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
        if num_actions is None:
            fix = "Give num_actions for discrete actions, or low and high for a box."
            is_box = low is not None and high is not None
            checks.expect(is_box, "low, high", "bounds of the actions", "none", fix)
            self._low, self._high = (np.atleast_1d(np.asarray(b, float)) for b in (low, high))
            bounded = bool(np.isfinite(self._low).all() and np.isfinite(self._high).all())
            checks.expect(bounded, "low, high", "finite bounds", "infinite ones")
            # Flat, and once: a policy is called at every step.
            self._middle = ((self._high + self._low) / 2).ravel()
            self._half = ((self._high - self._low) / 2).ravel()
            outputs = self._low.size
        else:
            outputs = checks.integer("num_actions", num_actions, minimum=1)
        sizes = [checks.integer("observation_dim", observation_dim, minimum=1)]
        sizes += [*checks.integers("hidden", hidden, minimum=1), outputs]
        self._shapes = [*pairwise(sizes)]
        self.solution_dim = sum((rows + 1) * columns for rows, columns in self._shapes)
        """Number of weights."""

    @classmethod
    def of(cls, environment: Any, hidden: Sequence[int] = (16,)) -> "MLPPolicy":
        """A policy for the spaces of an environment."""
        size = int(np.prod(environment.observation_space.shape or (1,)))
        space = environment.action_space
        if hasattr(space, "n"):
            return cls(size, num_actions=int(space.n), hidden=hidden)
        fix = "Write a policy of your own: a function of weights and observation."
        name = type(space).__name__
        checks.expect(hasattr(space, "low"), "action_space", "Discrete or Box", name, fix)
        return cls(size, low=space.low, high=space.high, hidden=hidden)

    def __call__(self, weights: np.ndarray, observation: np.ndarray) -> Any:
        """The action for an observation."""
        weights, x = np.asarray(weights), np.asarray(observation, float).ravel()
        place, last = 0, len(self._shapes) - 1
        for number, (rows, columns) in enumerate(self._shapes):
            end = place + rows * columns
            x = x @ weights[place:end].reshape(rows, columns) + weights[end : end + columns]
            place = end + columns
            if number < last:
                x = np.tanh(x)
        if self._is_discrete:
            return int(x.argmax())
        action = self._middle + self._half * np.tanh(x)
        return action.reshape(self._low.shape).astype(np.float32)


class Rollouts:
    """An evaluation for `gloam.optimize`: plays episodes with each solution as the policy.

    The objective is the mean return. Every solution meets the same episodes (seeds ``seed``,
    ``seed + 1``, ...), so that an evaluation has no noise. The object can be sent to the processes
    of `gloam.Processes`; each builds its own environment.

    Args:
        make: Builds an environment: a function, or a name for ``gymnasium.make``.
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
        """Objectives and measures of a batch of solutions."""
        rows = [self._mean_of(solution) for solution in solutions]
        objectives, measures = zip(*rows, strict=True)
        return np.asarray(objectives), np.stack(measures)

    def play(self, weights: np.ndarray, seed: int) -> Episode:
        """One episode."""
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

    def _mean_of(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        played = [self.play(weights, self._seed + number) for number in range(self._episodes)]
        measured = [np.asarray(self._measures(episode), float) for episode in played]
        return float(np.mean([one.rewards.sum() for one in played])), np.mean(measured, axis=0)

    def _build(self) -> Any:
        if not isinstance(self._make, str):
            return self._make()
        try:
            import gymnasium  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise ImportError(
                f"interop: expected gymnasium, got none ({error}). "
                "Install it by: pip install 'gloam[gymnasium]'"
            ) from error
        return gymnasium.make(self._make)
