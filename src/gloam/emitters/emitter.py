"""The interface of emitters: they propose solutions and adapt to how these rank."""

import dataclasses
from abc import abstractmethod
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from gloam import checks
from gloam.records import Feedback, Proposal

Box = tuple[Float[Array, " sol"], Float[Array, " sol"]]
"""Lower and upper bounds of solutions, infinite where a side is open."""

# Largest number of solutions in a part of an `EliteEmitter`. The compiled call of a part takes
# about as long as for one solution.
_LARGEST_PART = 36


class ElitesWanted(NamedTuple):
    """A draw of random elites that an emitter asks for."""

    number: int
    best_of: int = 1
    """Size of a tournament: each elite has the largest improvement of this many random ones."""


class Emitter(eqx.Module):
    """Frozen settings of an emitter. Everything that it learns is in its state."""

    x0: eqx.AbstractVar[Float[Array, " sol"]]
    """Starting solution, unless a seed has its own."""

    @property
    @abstractmethod
    def num_solutions(self) -> int:
        """Number of solutions proposed in each iteration."""

    @property
    def label(self) -> str:
        """Prefix of the emitter's metrics when it is part of a `Mixture`."""
        return "emitter"

    @property
    @abstractmethod
    def elites_to_ask(self) -> tuple[ElitesWanted, ...]:
        """Draws of elites that `ask` receives, one after the other."""

    @property
    @abstractmethod
    def num_elites_to_adapt(self) -> int:
        """Number of random elites that `adapt` receives, for restarts."""

    @abstractmethod
    def init(self, x0: Float[Array, " sol"] | None = None) -> Any:
        """Return the state before the first iteration, at ``x0`` or at the emitter's own."""

    @abstractmethod
    def ask(self, state: Any, elites: Float[Array, "n sol"], *, key: PRNGKeyArray) -> Proposal:
        """Propose solutions."""

    @abstractmethod
    def adapt(
        self,
        state: Any,
        proposal: Proposal,
        feedback: Feedback,
        elites: Float[Array, "n sol"],
    ) -> Any:
        """Adapt to the evaluation of a proposal.

        Args:
            state: State that the proposal came from.
            proposal: The evaluated proposal.
            feedback: How its solutions ranked.
            elites: ``num_elites_to_adapt`` random elites.
        """

    def metrics(self, state: Any) -> dict[str, Array]:
        """Return numbers for the table of metrics, counted since the start of the search."""
        return {"restarts": jnp.zeros((), jnp.int32)}


@runtime_checkable
class Divisible(Protocol):
    """An emitter that consists of equal parts, for asynchronous search.

    Each part asks and adapts independently of the others. In the proposals of a part, arrays of
    ``aux`` have a leading axis.
    """

    @property
    def num_parts(self) -> int:
        """Preferred number of parts."""
        ...

    def divides_into(self, num_parts: int) -> bool:
        """Return whether there is an equal division into ``num_parts`` parts."""
        ...

    def part(self, num_parts: int) -> Emitter:
        """Return an emitter like one of ``num_parts`` parts."""
        ...

    def part_state(self, state: Any, index: Int[Array, ""]) -> Any:
        """Return the state of one part."""
        ...

    def with_part_state(self, state: Any, index: Int[Array, ""], part_state: Any) -> Any:
        """Return the state of all parts after one of them has changed."""
        ...


class EliteEmitter(Emitter):
    """An emitter that proposes ``batch_size`` variations of elites and never restarts.

    It divides into smaller batches, which share one state.
    """

    batch_size: eqx.AbstractVar[int]
    bounds: eqx.AbstractVar[Box | None]

    @property
    def num_solutions(self) -> int:
        """Number of solutions proposed in each iteration."""
        return self.batch_size

    @property
    def num_elites_to_adapt(self) -> int:
        """Always 0: there are no restarts."""
        return 0

    @property
    def num_parts(self) -> int:
        """Number of batches of at most 36 solutions: small batches vary newer elites."""
        sizes = range(_LARGEST_PART, 0, -1)
        return self.batch_size // next(size for size in sizes if self.batch_size % size == 0)

    def divides_into(self, num_parts: int) -> bool:
        """Return whether the batch has ``num_parts`` equal parts."""
        return self.batch_size % num_parts == 0

    def part(self, num_parts: int) -> "EliteEmitter":
        """Return the emitter with a smaller batch."""
        return dataclasses.replace(self, batch_size=self.batch_size // num_parts)

    def part_state(self, state: Any, index: Int[Array, ""]) -> Any:
        """Return the shared state."""
        return state

    def with_part_state(self, state: Any, index: Int[Array, ""], part_state: Any) -> Any:
        """Return the shared state."""
        return part_state

    def clipped(self, solutions: Float[Array, "batch sol"]) -> Float[Array, "batch sol"]:
        """Return the solutions clipped to the bounds, if there are any."""
        return solutions if self.bounds is None else jnp.clip(solutions, *self.bounds)


def checked_start(x0: Any, bounds: Any) -> tuple[Float[Array, " sol"], Box | None]:
    """Return the starting solution and the bounds of an emitter as arrays."""
    start = checks.finite_array("x0", x0, ndim=1, fix="Give one starting solution.")
    box = checks.solution_bounds(bounds, start)
    if box is None:
        return jnp.asarray(start, jnp.float32), None
    lower, upper = (jnp.asarray(bound, jnp.float32) for bound in box)
    return jnp.asarray(start, jnp.float32), (lower, upper)


def checked_sigma0(sigma0: Any, bounds: Box | None) -> float:
    """Return the initial step size: as given, or a fifth of the (median) width of the bounds."""
    if sigma0 is None:
        if bounds is None:
            raise ValueError(
                "sigma0: expected a number for solutions without bounds, got None. Give about a "
                "fifth of the range in which you expect good solutions, or bounds=(lower, upper)."
            )
        lower, upper = (np.asarray(bound) for bound in bounds)
        sigma0 = 0.2 * float(np.median(upper - lower))
    sigma0 = checks.number("sigma0", sigma0, above=0.0)
    limits = "a number between 1e-11 and 1e11, the range in which CMA-ES is stable"
    checks.expect(1e-11 < sigma0 < 1e11, "sigma0", limits, sigma0, "Scale the solutions.")
    return sigma0
