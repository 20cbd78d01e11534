"""What emitters share that make solutions of elites: a box, no restarts, and equal parts."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gloam.emitters.emitter import Emitter

# Solutions in a part: a compiled call for each part takes about as long as for one solution.
_LARGEST_PART = 36


class EliteEmitter(Emitter):
    """Proposes ``batch_size`` solutions made of elites, and never restarts."""

    batch_size: eqx.AbstractVar[int]
    lower: eqx.AbstractVar[Float[Array, " sol"] | None]
    upper: eqx.AbstractVar[Float[Array, " sol"] | None]

    @property
    def num_solutions(self) -> int:
        """Solutions proposed in each iteration."""
        return self.batch_size

    @property
    def num_elites_to_adapt(self) -> int:
        """None: nothing restarts."""
        return 0

    def num_restarts(self, state: object) -> Int[Array, ""]:
        """None ever."""
        return jnp.zeros((), jnp.int32)

    @property
    def num_parts(self) -> int:
        """Batches of a few solutions: the smaller they are, the newer the elites that they vary."""
        sizes = range(_LARGEST_PART, 0, -1)
        return self.batch_size // next(size for size in sizes if self.batch_size % size == 0)

    def divides_into(self, num_parts: int) -> bool:
        """Into batches of equal size."""
        return self.batch_size % num_parts == 0

    def part(self, num_parts: int | None = None) -> "EliteEmitter":
        """The emitter with a smaller batch. All parts share one state."""
        return dataclasses.replace(
            self,
            batch_size=self.batch_size // (num_parts or self.num_parts),
            lower=None if self.lower is None else np.asarray(self.lower),
            upper=None if self.upper is None else np.asarray(self.upper),
        )

    def in_box(self, solutions: Float[Array, "batch sol"]) -> Float[Array, "batch sol"]:
        """Solutions clipped into the box, if there is one."""
        return solutions if self.lower is None else jnp.clip(solutions, self.lower, self.upper)
