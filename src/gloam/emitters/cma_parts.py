"""What the CMA-ES strategies share: constants, the path of the step size, limits, idle updates.

Equation numbers are those of Hansen's tutorial (arXiv:1604.00772). The number of parents may vary
(filter selection, failed rows), so the constants that depend on it are tables with a row for every
number.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int


class Constants(NamedTuple):
    """Weights and learning rates, a row for each number of parents from 0 to ``each``."""

    weights: np.ndarray
    mu_eff: np.ndarray
    c_c: np.ndarray
    c_sigma: np.ndarray
    c_1: np.ndarray
    c_mu: np.ndarray
    damping: np.ndarray


@lru_cache
def constants(sol: int, each: int) -> Constants:
    """The default strategy parameters (tutorial, table 1), in float64."""
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
    """Cumulative step-size adaptation: the new path, ``h_sigma``, and the factor sigma grows by."""
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
    """Whether the mean is finite and the Gaussian neither too narrow nor diverging; not for NaN."""
    extent = sigma * jnp.sqrt(variance)
    return jnp.all(jnp.isfinite(mean)) & (extent > 1e-11) & (extent < 1e11)


def unless_idle(new: Any, old: Any, parents: int | Int[Array, ""]) -> Any:
    """The new state. Without parents nothing is learned, but the generation has passed."""
    idle = eqx.tree_at(lambda s: s.generation, old, new.generation)
    return jax.tree.map(lambda a, b: jnp.where(parents > 0, a, b), new, idle)
