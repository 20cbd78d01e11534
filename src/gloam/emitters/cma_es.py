"""Canonical CMA-ES, one instance: sampling, one update, and the signs of convergence.

Equation numbers are those of Hansen's tutorial (arXiv:1604.00772). Only the best solutions carry
weight (no negative weights), as in pycma's `purecma`. One choice differs in form: sampling uses a
Cholesky factor ``A A^T = C`` instead of an eigendecomposition, which is ten times cheaper. The path
of sigma needs ``A^-1 (mean shift) / sigma``; that is the weighted sum of the sampled noise, so
nothing is inverted. The path then lives in the factor's coordinates, where its expected length is
the same.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from gloam import kernels
from gloam.emitters.cma_parts import constants, sound_extent, step_size_path, unless_idle
from gloam.emitters.strategy import Strategy


class CmaState(eqx.Module):
    """One Gaussian ``N(mean, sigma^2 C)`` and its evolution paths."""

    mean: Float[Array, " sol"]
    sigma: Float[Array, ""]
    covariance: Float[Array, "sol sol"]
    factor: Float[Array, "sol sol"]
    """Lower Cholesky factor of the covariance, as of the last factorisation."""
    path_sigma: Float[Array, " sol"]
    path_c: Float[Array, " sol"]
    generation: Int[Array, ""]
    """Updates since the last restart."""


class CMAES(Strategy):
    """Canonical CMA-ES with a full covariance: best up to some hundred numbers in a solution.

    Args:
        pyribs_covariance: Reproduce pyribs 0.12's covariance update, with which the paper's figures
            were made: its rank-one term carries ``c_1`` twice, and its path is not divided by
            sigma, so that the term has practically no effect.
    """

    pyribs_covariance: bool = eqx.field(static=True, default=False)

    def start(self, mean: Float[Array, " sol"], sigma0: float | Float[Array, ""]) -> CmaState:
        """An isotropic Gaussian around ``mean``."""
        sol = mean.shape[0]
        unit, zero = jnp.eye(sol, dtype=jnp.float32), jnp.zeros(sol, jnp.float32)
        sigma, generation = jnp.asarray(sigma0, mean.dtype), jnp.zeros((), jnp.int32)
        return CmaState(mean, sigma, unit, unit, zero, zero, generation)

    def steps(self, state: CmaState, noise: Float[Array, "each sol"]) -> Float[Array, "each sol"]:
        """The noise, turned and stretched by the Cholesky factor."""
        return noise @ state.factor.T

    def update(
        self,
        state: CmaState,
        solutions: Float[Array, "each sol"],
        noise: Float[Array, "each sol"],
        order: Int[Array, " each"],
        parents: int | Int[Array, ""],
    ) -> CmaState:
        """One CMA-ES update from solutions ranked by ``order``, best first.

        The ``factor`` of the new state is still the old one: `renew` makes a new one.
        """
        each, sol = solutions.shape
        table = constants(sol, each)

        def pick(column: np.ndarray) -> Array:
            return jnp.asarray(column, jnp.float32)[parents]

        c_c, c_sigma, c_1, c_mu = map(pick, (table.c_c, table.c_sigma, table.c_1, table.c_mu))
        mu_eff = pick(table.mu_eff)
        # Weights by row instead of rows by rank: nothing large is reordered.
        weights = jnp.zeros(each, jnp.float32).at[order].set(pick(table.weights))
        generation = state.generation + 1

        mean = weights @ solutions  # (42)
        mean_noise = weights @ noise
        shift = state.factor @ mean_noise  # (41), in units of sigma

        path_sigma, h_sigma, growth = step_size_path(
            state.path_sigma, mean_noise, generation, c_sigma, mu_eff, pick(table.damping)
        )

        step = shift * state.sigma if self.pyribs_covariance else shift
        path_c = (1 - c_c) * state.path_c
        path_c += h_sigma * jnp.sqrt(c_c * (2 - c_c) * mu_eff) * step  # (45)

        steps = noise @ state.factor.T
        # Transposed before, not within the product, which is then a fifth faster on a CPU.
        rank_mu = jax.lax.optimization_barrier((steps * weights[:, None]).T) @ steps
        rank_one = jnp.outer(path_c, path_c)
        loss_of_h = (1 - h_sigma) * c_c * (2 - c_c)
        keep = 1 - c_1 * (1 - loss_of_h) - c_mu
        rate_one = c_1 * c_1 if self.pyribs_covariance else c_1
        covariance = keep * state.covariance + rate_one * rank_one + c_mu * rank_mu  # (47)

        sigma = state.sigma * growth
        new = CmaState(mean, sigma, covariance, state.factor, path_sigma, path_c, generation)
        return unless_idle(new, state, parents)

    def degenerate(self, state: CmaState) -> Bool[Array, ""]:
        """True when the Gaussian can no longer be searched with: too narrow, too flat or broken.

        pycma's limits are a condition number over 1e14 and an extent under 1e-11. The factor's
        diagonal gives a lower bound of the condition number without eigenvalues. In float32 the
        factorisation itself fails first, near 1e7; a NaN in the factor counts as the condition
        limit being passed, and an extent over 1e11 as a divergence, so that sigma and C stay
        finite.
        """
        diagonal = jnp.diagonal(state.factor)
        condition = jnp.square(jnp.max(diagonal) / jnp.min(diagonal))
        widest = jnp.max(jnp.diagonal(state.covariance))
        sound = sound_extent(state.mean, state.sigma, widest)
        sound &= jnp.all(jnp.isfinite(state.covariance))
        # Written so that a NaN anywhere makes the test fail.
        return ~((condition < 1e14) & sound)

    def renew(self, state: CmaState) -> CmaState:
        """A new Cholesky factor. It is NaN where the covariance is not positive definite."""
        return eqx.tree_at(lambda s: s.factor, state, _cholesky(state.covariance))

    def gap(self, sol: int, each: int) -> int:
        """Iterations between two factorisations of C.

        pycma's rule: C changes so little in one iteration that factorising it less often loses
        nothing.
        """
        table = constants(sol, each)
        rate = float(table.c_1[each // 2] + table.c_mu[each // 2])
        return int(0.5 / (sol * rate)) + 1


def _cholesky(matrix: Float[Array, "sol sol"]) -> Float[Array, "sol sol"]:
    kernel = kernels.load("cholesky")
    if kernel is not None and matrix.shape[0] <= kernel.LARGEST:
        return kernel.cholesky(matrix)
    return jnp.linalg.cholesky(matrix)
