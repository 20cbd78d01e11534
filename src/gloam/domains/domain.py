"""What a domain is: a problem that JAX can trace, with everything needed to start on it."""

from abc import abstractmethod

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from gloam.archives import Archive


class Domain(eqx.Module):
    """A quality-diversity problem."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Short name, as in tables and file names."""

    @property
    @abstractmethod
    def x0(self) -> Float[Array, " sol"]:
        """The paper's starting solution."""

    def x0_of(self, seed: int) -> Float[Array | np.ndarray, " sol"]:
        """Where the search of a seed starts: at `x0`, unless the domain draws one for each seed.

        `gloam.run` asks for it where the algorithm was built with the domain's own `x0`.
        """
        return self.x0

    @abstractmethod
    def __call__(
        self, solutions: Float[Array, "batch sol"]
    ) -> tuple[Float[Array, " batch"], Float[Array, "batch meas"]] | Float[Array, "batch meas"]:
        """Objectives and measures of solutions.

        Or measures alone, where the objective is closeness to the centre of the cell.
        """

    @abstractmethod
    def archive(self) -> Archive:
        """The paper's archive."""
