"""The interface of evolution strategies, and the canonical CMA-ES.

Equation numbers are those of Hansen's tutorial (arXiv:1604.00772). Only the best solutions have
weights (no negative weights), as in pycma's `purecma`. Sampling uses a Cholesky factor
``A A^T = C`` instead of an eigendecomposition, which is ten times cheaper. The path of sigma needs
``A^-1 (mean shift) / sigma``, which is the weighted sum of the sampled noise, so no matrix is
inverted. The path then lives in the coordinates of the factor, where its expected length is the
same.
"""

from abc import abstractmethod
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float, Int

from gloam._tools import checks, kernels
from gloam._tools.registry import register


class Strategy(eqx.Module):
    """Frozen settings of a strategy, which samples and adapts one Gaussian.

    Its state has a ``mean``, a ``sigma`` and a ``generation``. `gloam.emitters.CmaEmitters` runs
    one for each emitter.
    """

    @abstractmethod
    def start(self, mean: Float[Array, " sol"], sigma0: float | Float[Array, ""]) -> Any:
        """Return an isotropic Gaussian around ``mean``."""

    @abstractmethod
    def steps(self, state: Any, noise: Float[Array, "each sol"]) -> Float[Array, "each sol"]:
        """Turn standard normal noise into steps from the mean, in units of sigma."""

    def noise_of(self, state: Any, steps: Float[Array, "each sol"]) -> Float[Array, "each sol"]:
        """Return the noise of steps, the inverse of `steps`. It is needed for bounds and spaces."""
        raise NotImplementedError(
            f"strategy: expected a method noise_of, the inverse of steps, because solutions have "
            f"bounds, got {type(self).__name__} without one. Define it, or leave bounds out."
        )

    @abstractmethod
    def update(
        self,
        state: Any,
        solutions: Float[Array, "each sol"],
        noise: Float[Array, "each sol"],
        order: Int[Array, " each"],
        parents: int | Int[Array, ""],
    ) -> Any:
        """Adapt the Gaussian to ranked solutions.

        Args:
            state: The Gaussian that the solutions were sampled from.
            solutions: The evaluated solutions, within the bounds.
            noise: The standard normal noise of each solution.
            order: Row indices from best to worst.
            parents: Number of the best solutions that have a weight; 0 changes nothing.
        """

    @abstractmethod
    def degenerate(self, state: Any) -> Bool[Array, ""]:
        """Return true if the Gaussian has converged, diverged or is numerically broken."""

    def deviations(self, state: Any) -> Float[Array, " sol"]:
        """Return the standard deviations of the variables, in units of sigma; 1 by default."""
        return jnp.ones_like(state.mean)

    def renew(self, state: Any) -> Any:
        """Do the expensive part of the update, which is due only every `gap` iterations."""
        return state

    def gap(self, sol: int, each: int) -> int:
        """Return the number of iterations between two calls of `renew`; 0 for never."""
        return 0

    def check(self, sol: int, each: int) -> None:
        """Raise an error if the strategy does not support these sizes."""


class Constants(NamedTuple):
    """Weights and learning rates, with a row for each number of parents from 0 to ``each``.

    The number of parents varies with filter selection and failed rows.
    """

    weights: np.ndarray
    mu_eff: np.ndarray
    c_c: np.ndarray
    c_sigma: np.ndarray
    c_1: np.ndarray
    c_mu: np.ndarray
    damping: np.ndarray


@lru_cache
def constants(sol: int, each: int) -> Constants:
    """Return the default strategy parameters (tutorial, table 1), in float64."""
    parents = np.arange(each + 1)[:, None]
    rank = np.arange(1, each + 1)[None, :]
    raw = np.where(rank <= parents, np.log(parents + 0.5) - np.log(rank), 0.0)  # (49)
    total = np.maximum(raw.sum(axis=1, keepdims=True), 1e-300)
    weights = raw / total  # (53)
    mu_eff = 1.0 / np.maximum(np.square(weights).sum(axis=1), 1e-300)
    mu_eff[0] = 1.0  # never used: without parents there is no update
    c_c = (4 + mu_eff / sol) / (sol + 4 + 2 * mu_eff / sol)  # (56)
    c_sigma = (mu_eff + 2) / (sol + mu_eff + 5)  # (55)
    c_1 = 2 / ((sol + 1.3) ** 2 + mu_eff)  # (57)
    c_mu = np.minimum(1 - c_1, 2 * (mu_eff - 2 + 1 / mu_eff) / ((sol + 2) ** 2 + mu_eff))  # (58)
    damping = 1 + 2 * np.maximum(0, np.sqrt((mu_eff - 1) / (sol + 1)) - 1) + c_sigma  # (55)
    return Constants(weights, mu_eff, c_c, c_sigma, c_1, c_mu, damping)


def step_size_path(
    path: Float[Array, " sol"],
    mean_noise: Float[Array, " sol"],
    generation: Int[Array, ""],
    c_sigma: Float[Array, ""],
    mu_eff: Float[Array, ""],
    damping: Float[Array, ""],
) -> tuple[Float[Array, " sol"], Float[Array, ""], Float[Array, ""]]:
    """Return the new step-size path, ``h_sigma`` and the growth factor of sigma."""
    sol = path.shape[0]
    path = (1 - c_sigma) * path + jnp.sqrt(c_sigma * (2 - c_sigma) * mu_eff) * mean_noise  # (43)
    squared_length = jnp.sum(jnp.square(path))
    # h_sigma stalls the rank-one path while sigma still grows fast.
    expected = sol * (1 - (1 - c_sigma) ** (2 * generation.astype(jnp.float32)))
    h_sigma = (squared_length / expected < 2 + 4 / (sol + 1)).astype(jnp.float32)
    # pycma's form: squared length, growth limited to e.
    growth = c_sigma / damping * (squared_length / sol - 1) / 2
    return path, h_sigma, jnp.exp(jnp.minimum(1.0, growth))  # (44)


def sound_extent(
    mean: Float[Array, " sol"], sigma: Float[Array, ""], variance: Float[Array, ""]
) -> Bool[Array, ""]:
    """Return whether the mean is finite and the extent within limits; false for NaN."""
    extent = sigma * jnp.sqrt(variance)
    return jnp.all(jnp.isfinite(mean)) & (extent > 1e-11) & (extent < 1e11)


def unless_idle(new: Any, old: Any, parents: int | Int[Array, ""]) -> Any:
    """Return the new state; without parents, the old one with the generation counted."""
    idle = eqx.tree_at(lambda s: s.generation, old, new.generation)
    return jax.tree.map(lambda a, b: jnp.where(parents > 0, a, b), new, idle)


class CmaState(eqx.Module):
    """One Gaussian ``N(mean, sigma^2 C)`` and its evolution paths."""

    mean: Float[Array, " sol"]
    sigma: Float[Array, ""]
    covariance: Float[Array, "sol sol"]
    factor: Float[Array, "sol sol"]
    """Lower Cholesky factor of the covariance, as of the last factorization."""
    path_sigma: Float[Array, " sol"]
    path_c: Float[Array, " sol"]
    generation: Int[Array, ""]
    """Updates since the last restart."""


@register
class CMAES(Strategy):
    """Canonical CMA-ES with a full covariance, for solutions of up to a few hundred numbers.

    Args:
        pyribs_covariance: Use the covariance update of pyribs 0.12, with which the paper's results
            were produced. Its rank-one term contains ``c_1`` twice and its path is not divided by
            sigma, so the term has practically no effect.
    """

    pyribs_covariance: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        checks.instance("pyribs_covariance", self.pyribs_covariance, bool)

    def start(self, mean: Float[Array, " sol"], sigma0: float | Float[Array, ""]) -> CmaState:
        """Return an isotropic Gaussian around ``mean``."""
        sol = mean.shape[0]
        unit, zero = jnp.eye(sol, dtype=jnp.float32), jnp.zeros(sol, jnp.float32)
        sigma, generation = jnp.asarray(sigma0, mean.dtype), jnp.zeros((), jnp.int32)
        return CmaState(mean, sigma, unit, unit, zero, zero, generation)

    def steps(self, state: CmaState, noise: Float[Array, "each sol"]) -> Float[Array, "each sol"]:
        """Multiply the noise by the Cholesky factor."""
        return noise @ state.factor.T

    def noise_of(
        self, state: CmaState, steps: Float[Array, "each sol"]
    ) -> Float[Array, "each sol"]:
        """Solve for the noise."""
        return solve_triangular(state.factor, steps.T, lower=True).T

    def deviations(self, state: CmaState) -> Float[Array, " sol"]:
        """Return the lengths of the rows of the factor."""
        return jnp.linalg.norm(state.factor, axis=1)

    def update(
        self,
        state: CmaState,
        solutions: Float[Array, "each sol"],
        noise: Float[Array, "each sol"],
        order: Int[Array, " each"],
        parents: int | Int[Array, ""],
    ) -> CmaState:
        """Return the Gaussian after one CMA-ES update.

        The new state still has the old ``factor``, which `renew` replaces.
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
        """Return true if the Gaussian has converged, diverged or is numerically broken.

        pycma's limits are a condition number over 1e14 and an extent under 1e-11. The factor's
        diagonal gives a lower bound of the condition number without eigenvalues. In float32 the
        factorization itself fails first, near 1e7; a NaN in the factor counts as the condition
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
        """Factorize the covariance. The factor is NaN if it is not positive definite."""
        return eqx.tree_at(lambda s: s.factor, state, _cholesky(state.covariance))

    def gap(self, sol: int, each: int) -> int:
        """Return the number of iterations between two factorizations of C, by pycma's rule."""
        table = constants(sol, each)
        rate = float(table.c_1[each // 2] + table.c_mu[each // 2])
        return int(0.5 / (sol * rate)) + 1


def _cholesky(matrix: Float[Array, "sol sol"]) -> Float[Array, "sol sol"]:
    kernel = kernels.load("cholesky")
    if kernel is not None and matrix.shape[0] <= kernel.LARGEST:
        return kernel.cholesky(matrix)
    return jnp.linalg.cholesky(matrix)
