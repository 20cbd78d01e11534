"""Linear projection: measures are sums of blocks of the solution, hard to spread by chance."""

import os
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from gloam import checks, files
from gloam.archives import Archive, CVTArchive, GridArchive, kmeans_centroids
from gloam.domains.domain import Domain
from gloam.files import cache_folder

_EDGE = 5.12
_SHIFT = 0.4 * _EDGE


def _sphere(d: Float[Array, "... sol"]) -> Float[Array, "..."]:
    return jnp.sum(jnp.square(d), axis=-1)


def _rastrigin(d: Float[Array, "... sol"]) -> Float[Array, "..."]:
    # The paper prints cos(2 pi t^2); the released experiment has cos(2 pi d), the usual form.
    return jnp.sum(jnp.square(d) - 10 * jnp.cos(2 * jnp.pi * d) + 10, axis=-1)


def _clip(solutions: Float[Array, "batch sol"]) -> Float[Array, "batch sol"]:
    """The domain's own clip: beyond the edge a number counts for less, not for the edge."""
    inside = jnp.abs(solutions) <= _EDGE
    return jnp.where(inside, solutions, _EDGE / jnp.where(inside, 1.0, solutions))


class LinearProjection(Domain):
    """Linear projection (LP).

    Args:
        measure_dim: Number of measures k; the solution must divide into k blocks.
        objective: ``"sphere"``, ``"rastrigin"`` or ``"flat"``, scaled so that the best is 1 and a
            solution of all -5.12 is 0.
        solution_dim: Number of numbers in a solution.
        centroids: For more than two measures, a ``.npy`` file of centroids for `archive`. By
            default 10,000 are made by k-means, once, with a fixed seed, and cached.

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
        self.measure_dim = checks.integer("measure_dim", measure_dim, minimum=1)
        self.solution_dim = checks.integer("solution_dim", solution_dim, minimum=1)
        checks.expect(
            self.solution_dim % self.measure_dim == 0,
            "solution_dim",
            f"a multiple of the {self.measure_dim} measures",
            self.solution_dim,
            "The solution is cut into one block for each measure.",
        )
        checks.choice("objective", objective, ("sphere", "rastrigin", "flat"))
        self.objective = objective
        if centroids is not None:
            checks.existing_file("centroids", centroids)
        self.centroids = None if centroids is None else os.fspath(centroids)

    @property
    def name(self) -> str:
        """For instance ``10d-lp-sphere``."""
        return f"{self.measure_dim}d-lp-{self.objective}"

    @property
    def x0(self) -> Float[Array, " sol"]:
        """All zero."""
        return jnp.zeros(self.solution_dim, jnp.float32)

    @property
    def edge(self) -> float:
        """Every measure lies between minus and plus this."""
        return _EDGE * self.solution_dim / self.measure_dim

    def __call__(
        self, solutions: Float[Array, "batch sol"]
    ) -> tuple[Float[Array, " batch"], Float[Array, "batch meas"]]:
        """Objectives and measures of solutions."""
        blocks = _clip(solutions).reshape(solutions.shape[0], self.measure_dim, -1)
        measures = jnp.sum(blocks, axis=-1)
        if self.objective == "flat":
            return jnp.ones(solutions.shape[0], jnp.float32), measures
        raw = _sphere if self.objective == "sphere" else _rastrigin
        worst = raw(jnp.full((self.solution_dim,), -_EDGE - _SHIFT, jnp.float32))
        return 1.0 - raw(solutions - _SHIFT) / worst, measures

    def archive(self) -> Archive:
        """100 x 100 cells for two measures, else 10,000 centroids, the same for every seed."""
        if self.measure_dim == 2 and self.centroids is None:
            return GridArchive((100, 100), -self.edge, self.edge)
        if self.centroids is not None:
            points = files.read_array(self.centroids, "centroids")
            checks.expect(
                points.ndim == 2 and points.shape[1] == self.measure_dim,
                "centroids",
                f"{self.measure_dim} columns",
                f"shape {points.shape}",
            )
        else:
            cache = cache_folder() / f"lp-{self.measure_dim}d-{self.solution_dim}.npy"
            points = kmeans_centroids(10_000, -self.edge, self.edge, self.measure_dim, cache=cache)
        return CVTArchive(points, -self.edge, self.edge)
