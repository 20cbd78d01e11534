"""Linear projection: measures are sums of blocks of the solution; extremes are hard to reach."""

import os
from collections.abc import Callable
from functools import partial
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gloam._tools import checks, files
from gloam._tools.registry import register
from gloam.archives import Archive, CVTArchive, GridArchive, kmeans_centroids
from gloam.domains.domain import Domain

_EDGE = 5.12
_SHIFT = 0.4 * _EDGE


# Without the path of a file of centroids, which are in the archive; an evaluation needs none.
@register(without=("centroids",))
class LinearProjection(Domain):
    """Linear projection (LP).

    Args:
        measure_dim: Number of measures k; the solution is divided into k blocks.
        objective: ``"sphere"``, ``"rastrigin"`` or ``"flat"``, scaled such that the optimum is 1
            and the solution with -5.12 everywhere is 0.
        solution_dim: Dimension of a solution.
        centroids: A ``.npy`` file of centroids for `archive`. By default two measures have a grid;
            for more measures, 10,000 centroids are computed once by k-means and cached.

    Example:
        >>> domain = LinearProjection(measure_dim=2)
        >>> objectives, measures = domain(jnp.full((1, 100), 2.048))
        >>> float(objectives[0]), round(float(measures[0, 0]), 3)
        (1.0, 102.4)
    """

    measure_dim: int = eqx.field(static=True)
    objective: Literal["sphere", "rastrigin", "flat"] = eqx.field(static=True)
    solution_dim: int = eqx.field(static=True)
    centroids: str | None = eqx.field(static=True)

    def __init__(
        self,
        measure_dim: int = 2,
        objective: Literal["sphere", "rastrigin", "flat"] = "sphere",
        *,
        solution_dim: int = 100,
        centroids: str | os.PathLike | None = None,
    ):
        self.measure_dim = checks.count("measure_dim", measure_dim)
        self.solution_dim = checks.count("solution_dim", solution_dim)
        divides = self.solution_dim % self.measure_dim == 0
        expected = f"a multiple of the {self.measure_dim} measures"
        fix = "The solution is divided into one block for each measure."
        checks.expect(divides, "solution_dim", expected, self.solution_dim, fix)
        checks.choice("objective", objective, ("sphere", "rastrigin", "flat"))
        self.objective = objective
        if centroids is not None:
            checks.existing_file("centroids", centroids)
        self.centroids = None if centroids is None else os.fspath(centroids)

    @property
    def name(self) -> str:
        """For example ``10d-lp-sphere``."""
        return f"{self.measure_dim}d-lp-{self.objective}"

    @property
    def x0(self) -> Float[Array, " sol"]:
        """Zeros."""
        return jax.device_put(np.zeros(self.solution_dim, np.float32))

    @property
    def edge(self) -> float:
        """Bound of the absolute value of every measure."""
        return _EDGE * self.solution_dim / self.measure_dim

    def __call__(
        self, solutions: Float[Array, "batch sol"]
    ) -> tuple[Float[Array, " batch"], Float[Array, "batch meas"]]:
        """Return the objectives and measures of solutions."""
        return _OBJECTIVES[self.objective](solutions), _measures(solutions, self.measure_dim)

    def for_programs(self) -> Callable:
        """Return the domain with its objective as a number, which programs take as an argument."""
        if type(self).__call__ is not LinearProjection.__call__:  # a subclass evaluates otherwise
            return self
        return _AnyObjective(self.measure_dim, list(_OBJECTIVES).index(self.objective))

    def archive(self) -> Archive:
        """Return a grid of 100 x 100 cells for two measures, or a CVT with the centroids."""
        if self.centroids is not None:
            points = files.read_array(self.centroids, "centroids")
            fits = points.ndim == 2 and points.shape[1] == self.measure_dim
            got = f"shape {points.shape}"
            checks.expect(fits, "centroids", f"{self.measure_dim} columns", got)
        elif self.measure_dim == 2:
            return GridArchive((100, 100), -self.edge, self.edge, f_min=0.0)
        else:
            cache = files.cache_folder() / f"lp-{self.measure_dim}d-{self.solution_dim}.npy"
            points = kmeans_centroids(10_000, -self.edge, self.edge, self.measure_dim, cache=cache)
        return CVTArchive(points, -self.edge, self.edge, f_min=0.0)


class _AnyObjective(eqx.Module):
    """Linear projection with an objective by its place in `_OBJECTIVES`."""

    measure_dim: int = eqx.field(static=True)
    objective: int

    def __call__(
        self, solutions: Float[Array, "batch sol"]
    ) -> tuple[Float[Array, " batch"], Float[Array, "batch meas"]]:
        objectives = jax.lax.switch(self.objective, list(_OBJECTIVES.values()), solutions)
        return objectives, _measures(solutions, self.measure_dim)


def _sphere_cost(d: Float[Array, "... sol"]) -> Float[Array, "..."]:
    return jnp.sum(jnp.square(d), axis=-1)


def _rastrigin_cost(d: Float[Array, "... sol"]) -> Float[Array, "..."]:
    # The paper prints cos(2 pi t^2). The released experiment uses cos(2 pi d).
    return jnp.sum(jnp.square(d) - 10 * jnp.cos(2 * jnp.pi * d) + 10, axis=-1)


def _scaled(cost: Callable, solutions: Float[Array, "batch sol"]) -> Float[Array, " batch"]:
    """Return objectives: 1 where the cost is zero, 0 at -5.12 everywhere."""
    worst = cost(jnp.full(solutions.shape[1], -_EDGE - _SHIFT, jnp.float32))
    return 1.0 - cost(solutions - _SHIFT) / worst


def _flat(solutions: Float[Array, "batch sol"]) -> Float[Array, " batch"]:
    return jnp.ones(solutions.shape[0], jnp.float32)


_OBJECTIVES = {
    "sphere": partial(_scaled, _sphere_cost),
    "rastrigin": partial(_scaled, _rastrigin_cost),
    "flat": _flat,
}


def _measures(solutions: Float[Array, "batch sol"], measure_dim: int) -> Float[Array, "batch meas"]:
    return jnp.sum(_clip(solutions).reshape(solutions.shape[0], measure_dim, -1), axis=-1)


def _clip(solutions: Float[Array, "batch sol"]) -> Float[Array, "batch sol"]:
    """Clip as in the paper: a value ``t`` beyond the edge becomes ``edge / t``."""
    inside = jnp.abs(solutions) <= _EDGE
    return jnp.where(inside, solutions, _EDGE / jnp.where(inside, 1.0, solutions))
