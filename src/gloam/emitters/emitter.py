"""What an emitter is: it proposes solutions and learns from how they were ranked."""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
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
