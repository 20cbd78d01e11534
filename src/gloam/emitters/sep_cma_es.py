"""Separable CMA-ES (Ros and Hansen, 2008): CMA-ES with a diagonal covariance.

With only ``sol`` variances to learn, the learning rates of the covariance are ``(sol + 2) / 3``
times those of the full CMA-ES. Everything else is the same.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from gloam._tools.registry import register
from gloam.emitters.cma_es import (
    Constants,
    Strategy,
    constants,
    sound_extent,
    step_size_path,
    unless_idle,
)


class SepState(eqx.Module):
    """One Gaussian ``N(mean, sigma^2 diag(variances))`` and its evolution paths."""

    mean: Float[Array, " sol"]
    sigma: Float[Array, ""]
    variances: Float[Array, " sol"]
    path_sigma: Float[Array, " sol"]
    path_c: Float[Array, " sol"]
    generation: Int[Array, ""]
    """Updates since the last restart."""


@register
class SepCMAES(Strategy):
    """CMA-ES with a diagonal covariance.

    Its cost is linear in the size of the solution and it learns scales quickly. It cannot learn
    correlations between variables.
    """

    def start(self, mean: Float[Array, " sol"], sigma0: float | Float[Array, ""]) -> SepState:
        """Return an isotropic Gaussian around ``mean``."""
        zero = jnp.zeros_like(mean)
        return SepState(
            mean,
            jnp.asarray(sigma0, mean.dtype),
            jnp.ones_like(mean),
            zero,
            zero,
            jnp.zeros((), jnp.int32),
        )

    def steps(self, state: SepState, noise: Float[Array, "each sol"]) -> Float[Array, "each sol"]:
        """Multiply the noise by the standard deviations."""
        return noise * self.deviations(state)

    def noise_of(
        self, state: SepState, steps: Float[Array, "each sol"]
    ) -> Float[Array, "each sol"]:
        """Divide the steps by the standard deviations."""
        return steps / self.deviations(state)

    def deviations(self, state: SepState) -> Float[Array, " sol"]:
        """Return the square roots of the variances."""
        return jnp.sqrt(state.variances)

    def update(
        self,
        state: SepState,
        solutions: Float[Array, "each sol"],
        noise: Float[Array, "each sol"],
        order: Int[Array, " each"],
        parents: int | Int[Array, ""],
    ) -> SepState:
        """Return the Gaussian after one update of sep-CMA-ES."""
        each, sol = solutions.shape
        table = separable_constants(sol, each)

        def pick(column: np.ndarray) -> Array:
            return jnp.asarray(column, jnp.float32)[parents]

        c_c, c_1, c_mu, mu_eff = map(pick, (table.c_c, table.c_1, table.c_mu, table.mu_eff))
        weights = jnp.zeros(each, jnp.float32).at[order].set(pick(table.weights))
        generation = state.generation + 1
        mean_noise = weights @ noise

        path_sigma, h_sigma, growth = step_size_path(
            state.path_sigma,
            mean_noise,
            generation,
            pick(table.c_sigma),
            mu_eff,
            pick(table.damping),
        )
        path_c = (1 - c_c) * state.path_c
        path_c += h_sigma * jnp.sqrt(c_c * (2 - c_c) * mu_eff) * self.deviations(state) * mean_noise
        rank_mu = state.variances * (weights @ jnp.square(noise))
        loss_of_h = (1 - h_sigma) * c_c * (2 - c_c)
        variances = (1 - c_1 * (1 - loss_of_h) - c_mu) * state.variances
        variances += c_1 * jnp.square(path_c) + c_mu * rank_mu

        new = SepState(
            weights @ solutions, state.sigma * growth, variances, path_sigma, path_c, generation
        )
        return unless_idle(new, state, parents)

    def degenerate(self, state: SepState) -> Bool[Array, ""]:
        """Return true if the Gaussian is degenerate, with the limits of `CMAES`."""
        largest, smallest = jnp.max(state.variances), jnp.min(state.variances)
        # Written so that a NaN anywhere makes the test fail.
        sound = (largest < 1e14 * smallest) & sound_extent(state.mean, state.sigma, largest)
        return ~sound


def separable_constants(sol: int, each: int) -> Constants:
    """Return the default strategy parameters with larger learning rates of the covariance."""
    table = constants(sol, each)
    c_1 = np.minimum(1.0, table.c_1 * (sol + 2) / 3)
    c_mu = np.minimum(1 - c_1, table.c_mu * (sol + 2) / 3)
    return table._replace(c_1=c_1, c_mu=c_mu)
