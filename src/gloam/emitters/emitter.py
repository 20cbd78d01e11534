"""What an emitter is: it proposes solutions and learns from how they were ranked."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, Int, PRNGKeyArray

from gloam.records import Feedback, Proposal


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
    def num_elites_to_ask(self) -> int:
        """Random elites that `ask` wants."""

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
