"""Environments in JAX, as Brax has them, as domains that `gloam.run` compiles."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


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
