"""The interface of domains: problems that JAX can trace, with all that a search needs to start."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gloam._tools import checks
from gloam.archives import Archive


class Domain(eqx.Module):
    """A quality-diversity problem."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Short name, used in tables and file names."""

    @property
    @abstractmethod
    def x0(self) -> Float[Array, " sol"]:
        """The paper's starting solution."""

    def x0_of(self, seed: int) -> Float[Array | np.ndarray, " sol"]:
        """Return the starting solution of a seed; by default `x0` for all seeds.

        `gloam.run` uses it if the algorithm was constructed with the domain's own `x0`.
        """
        return self.x0

    @abstractmethod
    def __call__(
        self, solutions: Float[Array, "batch sol"]
    ) -> tuple[Float[Array, " batch"], Float[Array, "batch meas"]] | Float[Array, "batch meas"]:
        """Return the objectives and measures of solutions.

        If only measures are returned, the objective is the closeness to the center of the cell. A
        domain with noise takes a random key for the batch as well: ``(solutions, *, key)``.
        """

    @abstractmethod
    def archive(self) -> Archive:
        """Return the paper's archive."""

    def for_programs(self) -> Callable:
        """Return what compiled programs evaluate; by default the domain itself.

        Domains whose results of this method differ only in arrays and numbers share programs.
        """
        return self


def starting_solution(x0: Any, size: int) -> Float[Array, " sol"]:
    """Return a user's ``x0`` as an array, after checking that it has ``size`` numbers."""
    x0 = checks.finite_array("x0", x0, ndim=1)
    checks.expect(x0.size == size, "x0", f"{size} numbers", f"{x0.size}")
    return jnp.asarray(x0, jnp.float32)


def check_pixels(images: np.ndarray) -> None:
    """Check that the pixels of a dataset lie between 0 and 1."""
    low, high = float(images.min()), float(images.max())
    fits, fix = low >= 0 and high <= 1, "Divide bytes by 255."
    checks.expect(fits, "centroids", "pixels from 0 to 1", f"{low:g} to {high:g}", fix)
