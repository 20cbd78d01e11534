"""Moves between elites: lines, differences and swaps, in shares that adapt to their success."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray

from gloam import checks
from gloam.draws import normals, uniforms
from gloam.emitters.emitter import (
    Bounds,
    EliteEmitter,
    ElitesWanted,
    Outside,
    checked_start,
    checked_step,
)
from gloam.records import Feedback, Proposal

# Noise in units of sigma0; docs/research/default-search.md compares values.
_NOISE = 0.04
# Weight of a filled cell relative to an improved elite. Cells filled by swaps are not counted:
# searches in which swaps filled more cells than other moves got worse by more swaps.
_CELL = 1000.0
# Limits of the share of swaps, so that both kinds are always tried.
_FEWEST_SWAPS, _MOST_SWAPS = 0.03, 0.9
# Smallest count that is divided by.
_FEWEST = 1e-6
# Number of batches in the default window of the success counts.
_BATCHES = 100.0


class RecombinationState(eqx.Module):
    """Recent success counts of each kind of move: lines and differences first, then swaps."""

    tried: Float[Array, "2"]
    accepted: Float[Array, "2"]
    """Number of moves that beat the elite of their cell."""
    filled: Float[Array, ""]
    """Number of lines and differences that filled an empty cell."""

    @property
    def swap_share(self) -> Float[Array, ""]:
        """Share of swaps in the next batch, by the squared success rates of both kinds."""
        tried = jnp.maximum(self.tried, _FEWEST)
        squares = jnp.square((self.accepted / _CELL).at[0].add(self.filled) / tried)
        share = jnp.where(squares[1] > 0, squares[1] / jnp.sum(squares), 0.0)
        return jnp.clip(share, _FEWEST_SWAPS, _MOST_SWAPS)


class Recombination(EliteEmitter):
    """Perturbs an elite along differences between elites: ``x' = x1 + iso_sigma N(0,I) + t d``.

    ``t`` is sampled from ``N(0, line_sigma^2)`` and the direction ``d`` is one of three:

    * a *line*, ``x2 - x1``;
    * a *difference*, ``x2 - x3``, as in differential evolution, which does not lead to the middle
      of the archive;
    * a *swap*, ``x2 - x1`` in a random subset of the variables, from one to all of them.

    Half of the other moves are lines and half are differences. These find new cells, while swaps
    refine elites: the share of swaps grows with their success, and stays small while the other
    moves fill cells. While the archive is empty, ``x0`` replaces the elites.

    Args:
        x0: ``(sol,)`` solution that is varied while the archive is empty.
        sigma0: Step size of the search, as for `gloam.emitters.CmaEmitters`.
        iso_sigma: Standard deviation of the noise; by default 4% of ``sigma0``.
        line_sigma: Standard deviation of the step along a direction.
        batch_size: Number of solutions per iteration.
        best_of: Tournament size: ``x1`` has the largest improvement over the discount of this many
            random elites.
        window: Number of moves over which the success counts are taken; 100 batches by default.
        bounds: Lower and upper bounds of the solutions, each a number, an array or ``None``.
        outside: What happens to numbers outside the bounds, as for `gloam.emitters.CmaEmitters`.

    Example:
        >>> import gloam, numpy as np
        >>> moves = gloam.emitters.Recombination(np.zeros(10), sigma0=0.5)
        >>> moves.batch_size, round(moves.init().swap_share.item(), 2)
        (216, 0.03)
    """

    x0: Float[Array, " sol"]
    sigma0: float | Float[Array, " sol"]
    iso_sigma: float | Float[Array, " sol"]
    line_sigma: float
    batch_size: int = eqx.field(static=True)
    best_of: int = eqx.field(static=True)
    window: float
    bounds: Bounds | None

    def __init__(
        self,
        x0: Any,
        sigma0: float | ArrayLike | None = None,
        *,
        iso_sigma: float | ArrayLike | None = None,
        line_sigma: float = 0.5,
        batch_size: int = 216,
        best_of: int = 4,
        window: float | None = None,
        bounds: checks.SolutionBounds | None = None,
        outside: Outside | None = None,
    ):
        self.x0, self.bounds = checked_start(x0, bounds, outside)
        self.sigma0 = checked_step("sigma0", sigma0, self.x0.size, self.bounds, default=0.2)
        iso_sigma = _NOISE * self.sigma0 if iso_sigma is None else iso_sigma
        self.iso_sigma = checked_step("iso_sigma", iso_sigma, self.x0.size, self.bounds)
        self.line_sigma = checks.number("line_sigma", line_sigma, above=0.0, at_most=1e3)
        self.batch_size = checks.count("batch_size", batch_size)
        self.best_of = checks.count("best_of", best_of)
        window = _BATCHES * self.batch_size if window is None else window
        self.window = checks.number("window", window, above=1.0)

    @property
    def label(self) -> str:
        """Prefix of the metrics in a mixture."""
        return "moves"

    @property
    def num_differences(self) -> int:
        """Number of differences, unless they are swaps: the last solutions of the batch."""
        return self.batch_size // 2

    @property
    def elites_to_ask(self) -> tuple[ElitesWanted, ...]:
        """Two elites for each solution, and three for a difference."""
        first = ElitesWanted(self.batch_size, self.best_of)
        return first, ElitesWanted(self.batch_size + self.num_differences)

    def init(self, x0: Float[Array, " sol"] | None = None) -> RecombinationState:
        """Return counts of one success each, so that swaps start at their smallest share."""
        return RecombinationState(*map(jnp.float32, ([1, 1], [1, 1], 1)))

    def ask(
        self, state: RecombinationState, elites: Float[Array, "n sol"], *, key: PRNGKeyArray
    ) -> Proposal:
        """Move from the elites. The proposal records which moves are swaps."""
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
        stays = is_swap[:, None] & ~swapped
        direction = jnp.where(stays, 0.0, second - start)
        solutions = self.varied(first, noise[:, :-1], self.iso_sigma)
        solutions += self.line_sigma * noise[:, -1:] * direction
        solutions = self.with_categories(solutions, first, second, ~stays, key=key)
        return Proposal(self.inside(solutions, key=key), is_swap)

    def adapt(
        self,
        state: RecombinationState,
        proposal: Proposal,
        feedback: Feedback,
        elites: Float[Array, "n sol"],
    ) -> RecombinationState:
        """Update the success counts."""
        kept = (1.0 - 1.0 / self.window) ** self.batch_size
        is_kind = jnp.stack([~proposal.aux, proposal.aux])

        def number(rows: Bool[Array, "*kinds batch"]) -> Float[Array, "*kinds"]:
            return jnp.sum(rows, axis=-1, dtype=jnp.float32)

        return RecombinationState(
            kept * state.tried + number(is_kind),
            kept * state.accepted + number(is_kind & feedback.accepted),
            kept * state.filled + number(is_kind[0] & feedback.filled),
        )

    def metrics(self, state: RecombinationState) -> dict[str, Array]:
        """Return the number of restarts, which is 0, and the share of swaps in the next batch."""
        return {"restarts": jnp.zeros((), jnp.int32), "swap_share": state.swap_share}


def _numbers_to_swap(
    key: PRNGKeyArray, drawn: Float[Array, " batch"], size: int
) -> Bool[Array, "batch size"]:
    """Choose the variables that each solution would swap: a log-uniform share, at least one."""
    share = float(size) ** -drawn
    ranks = uniforms(key, drawn.shape[0] * size).reshape(-1, size)
    return (ranks < share[:, None]) | (ranks == jnp.min(ranks, axis=1, keepdims=True))
