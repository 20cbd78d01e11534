"""Selection rules: how many of an emitter's solutions are parents."""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int


class SelectionRule(eqx.Module):
    """How many of an emitter's best solutions become parents."""

    @abstractmethod
    def parents(
        self, batch_size: int, improved: Int[Array, " emitters"]
    ) -> Int[Array, " emitters"]:
        """Number of parents of each emitter.

        Args:
            batch_size: Number of solutions of an emitter.
            improved: How many of them improved the archive.
        """


class MuSelection(SelectionRule):
    """The best half."""

    def parents(
        self, batch_size: int, improved: Int[Array, " emitters"]
    ) -> Int[Array, " emitters"]:
        """Half of ``batch_size``, whatever improved."""
        return jnp.full_like(improved, max(batch_size // 2, 1))


class FilterSelection(SelectionRule):
    """As many as improved the archive."""

    def parents(
        self, batch_size: int, improved: Int[Array, " emitters"]
    ) -> Int[Array, " emitters"]:
        """``improved`` itself."""
        return improved
