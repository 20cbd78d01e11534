"""What an emitter is: it proposes solutions and learns from how they were ranked.

What emitters share that make solutions of elites: a box, no restarts, and equal parts.
"""

import dataclasses
from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from gloam.records import Feedback, Proposal


class ElitesWanted(NamedTuple):
    """A draw of elites."""

    number: int
    best_of: int = 1
    """Each is the one with the largest improvement over the discount of so many random elites."""


class Emitter(eqx.Module):
    """Frozen settings of an emitter. What it learns is in its state."""

    x0: eqx.AbstractVar[Float[Array, " sol"]]
    """Where searches start, but for seeds that have a start of their own."""

    @property
    @abstractmethod
    def num_solutions(self) -> int:
        """Solutions proposed in each iteration."""

    @property
    @abstractmethod
    def elites_to_ask(self) -> tuple[ElitesWanted, ...]:
        """Elites that `ask` wants; it is given them one draw after another."""

    @property
    @abstractmethod
    def num_elites_to_adapt(self) -> int:
        """Random elites that `adapt` wants, for restarts."""

    @abstractmethod
    def init(self, x0: Float[Array, " sol"] | None = None) -> Any:
        """State before the first iteration, at ``x0`` or else at the emitter's own."""

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
        """Learn from a proposal.

        Args:
            state: The state that the proposal came from.
            proposal: What was evaluated.
            feedback: How its solutions did.
            elites: Random elites, ``num_elites_to_adapt`` of them.
        """

    @abstractmethod
    def num_restarts(self, state: Any) -> Int[Array, ""]:
        """Restarts since the start of the search."""

    def metrics(self, state: Any) -> dict[str, Array]:
        """Numbers for the table of metrics, counted since the start of the search."""
        return {"restarts": self.num_restarts(state)}

    # An asynchronous search asks and adapts one part of the emitter at a time. An emitter that is
    # not made of parts is one part, and adapts when the whole batch is evaluated.

    @property
    def num_parts(self) -> int:
        """Parts of equal size that ask and adapt independently of one another."""
        return 1

    def divides_into(self, num_parts: int) -> bool:
        """Whether it has so many equal parts."""
        return num_parts == 1

    def part(self, num_parts: int | None = None) -> "Emitter":
        """An emitter like one of ``num_parts`` parts, by default of `num_parts`.

        Arrays in the memory of its proposals have a leading axis.
        """
        return self

    def part_state(self, state: Any, index: Int[Array, ""]) -> Any:
        """The state of one part, as the emitter `part` has it."""
        return state

    def with_part_state(self, state: Any, index: Int[Array, ""], part_state: Any) -> Any:
        """The state of all parts with another state of one."""
        return part_state


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
