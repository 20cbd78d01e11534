"""LM-MA-ES (Loshchilov, Glasmachers and Beyer, 2018): limited-memory matrix adaptation.

Numbers in parentheses are lines of the paper's algorithm 1. Memory and time are linear in the size
of the solution.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from gloam._tools import checks
from gloam._tools.registry import register
from gloam.emitters.cma_es import Strategy, constants, sound_extent, unless_idle


class LmState(eqx.Module):
    """Mean, step size, and the directions that transform the noise."""

    mean: Float[Array, " sol"]
    sigma: Float[Array, ""]
    directions: Float[Array, "vectors sol"]
    path_sigma: Float[Array, " sol"]
    generation: Int[Array, ""]
    """Updates since the last restart."""


@register
class LMMAES(Strategy):
    """Limited-memory matrix adaptation, for solutions of thousands of numbers.

    It learns a few directions instead of a covariance. Solutions must have more than twice as many
    numbers as ``batch_size`` of the emitter.

    Args:
        vectors: Number of directions; by default ``4 + 3 ln(sol)``, as its authors recommend.
    """

    vectors: int | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        if self.vectors is not None:
            checks.count("vectors", self.vectors)

    def start(self, mean: Float[Array, " sol"], sigma0: float | Float[Array, ""]) -> LmState:
        """Return an isotropic Gaussian around ``mean``."""
        sol = mean.shape[0]
        vectors = 4 + int(3 * math.log(sol)) if self.vectors is None else self.vectors
        return LmState(
            mean,
            jnp.asarray(sigma0, mean.dtype),
            jnp.zeros((vectors, sol), jnp.float32),
            jnp.zeros_like(mean),
            jnp.zeros((), jnp.int32),
        )

    def steps(self, state: LmState, noise: Float[Array, "each sol"]) -> Float[Array, "each sol"]:
        """Turn noise into steps from the mean, in units of sigma (8-10)."""
        vectors, sol = state.directions.shape
        rates = jnp.asarray(1 / (1.5 ** np.arange(vectors) * sol), jnp.float32)

        def stretch(step: Array, one: tuple[Array, Array, Array]) -> tuple[Array, None]:
            direction, rate, number = one
            new = (1 - rate) * step + rate * jnp.outer(step @ direction, direction)
            # A direction is used after its first update.
            return jnp.where(number < state.generation, new, step), None

        numbers = jnp.arange(vectors, dtype=jnp.int32)
        return jax.lax.scan(stretch, noise, (state.directions, rates, numbers))[0]

    def noise_of(self, state: LmState, steps: Float[Array, "each sol"]) -> Float[Array, "each sol"]:
        """Turn steps into noise, direction by direction in reverse (Sherman and Morrison)."""
        vectors, sol = state.directions.shape
        rates = jnp.asarray(1 / (1.5 ** np.arange(vectors) * sol), jnp.float32)

        def shrink(step: Array, one: tuple[Array, Array, Array]) -> tuple[Array, None]:
            direction, rate, number = one
            share = rate / (1 - rate + rate * jnp.sum(jnp.square(direction)))
            new = (step - share * jnp.outer(step @ direction, direction)) / (1 - rate)
            return jnp.where(number < state.generation, new, step), None

        numbers = jnp.arange(vectors, dtype=jnp.int32)
        used = (state.directions, rates, numbers)
        return jax.lax.scan(shrink, steps, used, reverse=True)[0]

    def update(
        self,
        state: LmState,
        solutions: Float[Array, "each sol"],
        noise: Float[Array, "each sol"],
        order: Int[Array, " each"],
        parents: int | Int[Array, ""],
    ) -> LmState:
        """Return the Gaussian after one update of LM-MA-ES."""
        each, sol = solutions.shape
        vectors = state.directions.shape[0]
        table = constants(sol, each)
        by_rank = jnp.asarray(table.weights, jnp.float32)[parents]
        weights = jnp.zeros(each, jnp.float32).at[order].set(by_rank)
        mu_eff = jnp.asarray(table.mu_eff, jnp.float32)[parents]
        generation = state.generation + 1

        mean_noise = weights @ noise
        c_sigma = 2 * each / sol
        path_sigma = (1 - c_sigma) * state.path_sigma
        path_sigma += jnp.sqrt(mu_eff * c_sigma * (2 - c_sigma)) * mean_noise  # (13)
        c_c = jnp.asarray(each / (4.0 ** np.arange(vectors) * sol), jnp.float32)[:, None]
        directions = (1 - c_c) * state.directions
        directions += jnp.sqrt(mu_eff * c_c * (2 - c_c)) * mean_noise  # (15)
        growth = c_sigma / 2 * (jnp.mean(jnp.square(path_sigma)) - 1)
        sigma = state.sigma * jnp.exp(jnp.minimum(1.0, growth))  # (16), limited as in CMA-ES

        new = LmState(weights @ solutions, sigma, directions, path_sigma, generation)
        return unless_idle(new, state, parents)

    def degenerate(self, state: LmState) -> Bool[Array, ""]:
        """Return true if the Gaussian is degenerate, with the limits of `CMAES`."""
        # Directions change the extent by a small factor only, so sigma alone is tested.
        return ~(
            sound_extent(state.mean, state.sigma, jnp.ones((), jnp.float32))
            & jnp.all(jnp.isfinite(state.directions))
        )

    def check(self, sol: int, each: int) -> None:
        """Check that the rate of the step-size path, ``2 each / sol``, is below 1."""
        expected = f"less than half of {sol}, the size of a solution, for LMMAES"
        fix = "Use strategy=CMAES() for small solutions, or a smaller batch_size."
        checks.expect(2 * each < sol, "batch_size", expected, str(each), fix)
