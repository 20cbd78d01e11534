"""Moves between elites: lines, differences and swaps, with shares that follow what they bring."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from gloam import checks
from gloam.draws import normals, uniforms
from gloam.emitters.emitter import EliteEmitter, ElitesWanted
from gloam.records import Feedback, Proposal

# An empty cell that is filled counts as much as so many improvements. What swaps fill is not
# counted: where they fill more cells than other moves, the search is worse for it all the same.
_CELL = 1000.0
# However much better one kind is, the other is tried, too.
_FEWEST_SWAPS, _MOST_SWAPS = 0.03, 0.9
# A kind that was not tried of late brought nothing.
_FEWEST = 1e-6
# Batches over which the shares are estimated.
_BATCHES = 100.0


class RecombinationState(eqx.Module):
    """What moves brought, of late: first the lines and differences, then the swaps."""

    tried: Float[Array, "2"]
    improved: Float[Array, "2"]
    """Moves that improved the archive."""
    filled: Float[Array, ""]
    """Lines and differences that landed in an empty cell."""

    @property
    def swap_share(self) -> Float[Array, ""]:
        """Share of the batch that are swaps, by the squares of what both kinds are worth."""
        tried = jnp.maximum(self.tried, _FEWEST)
        squares = jnp.square((self.improved / _CELL).at[0].add(self.filled) / tried)
        share = jnp.where(squares[1] > 0, squares[1] / jnp.sum(squares), 0.0)
        return jnp.clip(share, _FEWEST_SWAPS, _MOST_SWAPS)


class Recombination(EliteEmitter):
    """Moves from one elite by what tells others apart: ``x' = x1 + sigma N(0,I) + t d``.

    ``t`` is drawn from ``N(0, line_sigma^2)`` and the direction ``d`` is one of three:

    * a *line*, ``x2 - x1``;
    * a *difference*, ``x2 - x3``, as in differential evolution, which does not lead to the middle
      of the archive;
    * a *swap*, ``x2 - x1`` in a random part of the numbers, one to all of them.

    Lines and differences are equally many. They find cells, and swaps refine what is found: the
    share of swaps grows with how often they improve the archive, and is small while the others fill
    cells. While the archive is empty, ``x0`` stands for the elites.

    Args:
        x0: ``(sol,)`` solution that is varied while the archive is empty.
        sigma: Standard deviation of the isotropic noise.
        line_sigma: Standard deviation of the step along a direction.
        batch_size: Number of solutions per iteration.
        best_of: Moves start at the elite with the largest improvement over the discount of so many
            random ones.
        memory: Number of moves over which the share of swaps is estimated; 100 batches by default.
        lower, upper: Optional box of the solutions, into which they are clipped.

    Example:
        >>> import gloam, numpy as np
        >>> moves = gloam.emitters.Recombination(np.zeros(10), sigma=0.02, batch_size=180)
        >>> round(moves.init().swap_share.item(), 2)
        0.03
    """

    x0: Float[Array, " sol"]
    sigma: float
    line_sigma: float
    batch_size: int = eqx.field(static=True)
    best_of: int = eqx.field(static=True)
    memory: float
    lower: Float[Array, " sol"] | None
    upper: Float[Array, " sol"] | None

    def __init__(
        self,
        x0: Any,
        sigma: float,
        *,
        line_sigma: float = 0.5,
        batch_size: int = 540,
        best_of: int = 4,
        memory: float | None = None,
        lower: checks.Bounds | None = None,
        upper: checks.Bounds | None = None,
    ):
        start = checks.finite_array("x0", x0, ndim=1, fix="Give one starting solution.")
        self.x0 = jnp.asarray(start, jnp.float32)
        self.sigma = checks.number("sigma", sigma, above=0.0, at_most=1e11)
        self.line_sigma = checks.number("line_sigma", line_sigma, above=0.0, at_most=1e3)
        self.batch_size = checks.integer("batch_size", batch_size, minimum=1)
        self.best_of = checks.integer("best_of", best_of, minimum=1)
        moves = _BATCHES * self.batch_size if memory is None else memory
        self.memory = checks.number("memory", moves, above=1.0)
        low, high = checks.solution_bounds(lower, upper, start)
        self.lower = None if low is None else jnp.asarray(low, jnp.float32)
        self.upper = None if high is None else jnp.asarray(high, jnp.float32)

    @property
    def num_differences(self) -> int:
        """Solutions that move along differences unless they are swaps: the last ones."""
        return self.batch_size // 2

    @property
    def elites_to_ask(self) -> tuple[ElitesWanted, ...]:
        """Two for each solution, and three for a difference."""
        first = ElitesWanted(self.batch_size, self.best_of)
        return first, ElitesWanted(self.batch_size + self.num_differences)

    def init(self, x0: Float[Array, " sol"] | None = None) -> RecombinationState:
        """Both kinds are thought to improve, and the first to fill a cell by each move."""
        return RecombinationState(jnp.ones(2), jnp.ones(2), jnp.ones(()))

    def ask(
        self, state: RecombinationState, elites: Float[Array, "n sol"], *, key: PRNGKeyArray
    ) -> Proposal:
        """Move from the elites; the proposal remembers which moves are swaps."""
        number, size = self.batch_size, self.x0.shape[0]
        key_noise, key_kinds, key_numbers = jax.random.split(key, 3)
        first, second, third = jnp.split(elites, [number, 2 * number])
        # The last column is for the steps.
        noise = normals(key_noise, (number, size + 1))
        drawn = uniforms(key_kinds, 2 * number)
        is_swap = drawn[:number] < state.swap_share
        from_others = jnp.concatenate([first[: number - self.num_differences], third])
        start = jnp.where(is_swap[:, None], first, from_others)
        swapped = _numbers_to_swap(key_numbers, drawn[number:], size)
        direction = jnp.where(is_swap[:, None] & ~swapped, 0.0, second - start)
        solutions = first + self.sigma * noise[:, :-1] + self.line_sigma * noise[:, -1:] * direction
        return Proposal(self.in_box(solutions), is_swap)

    def adapt(
        self,
        state: RecombinationState,
        proposal: Proposal,
        feedback: Feedback,
        elites: Float[Array, "n sol"],
    ) -> RecombinationState:
        """Count what both kinds of moves brought."""
        kept = (1.0 - 1.0 / self.memory) ** self.batch_size
        is_kind = jnp.stack([~proposal.memory, proposal.memory])

        def number(rows: Bool[Array, "*kinds batch"]) -> Float[Array, "*kinds"]:
            return jnp.sum(rows, axis=-1, dtype=jnp.float32)

        return RecombinationState(
            kept * state.tried + number(is_kind),
            kept * state.improved + number(is_kind & feedback.improved),
            kept * state.filled + number(is_kind[0] & feedback.filled),
        )

    def metrics(self, state: RecombinationState) -> dict[str, Array]:
        """Restarts, which are none, and the share of swaps in the next batch."""
        return {"restarts": self.num_restarts(state), "swap_share": state.swap_share}


def _numbers_to_swap(
    key: PRNGKeyArray, drawn: Float[Array, " batch"], size: int
) -> Bool[Array, "batch size"]:
    """Which numbers each solution would swap: a log-uniform share, and one at least."""
    share = float(size) ** -drawn
    ranks = uniforms(key, drawn.shape[0] * size).reshape(-1, size)
    return (ranks < share[:, None]) | (ranks == jnp.min(ranks, axis=1, keepdims=True))
