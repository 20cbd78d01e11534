"""Moves between elites: lines and differences, which explore, and swaps, which refine."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray

from gloam._tools import checks
from gloam._tools.draws import normals, uniforms
from gloam._tools.registry import register
from gloam.emitters.emitter import (
    Bounds,
    EliteEmitter,
    ElitesWanted,
    Outside,
    checked_start,
    checked_step,
)
from gloam.records import DrawsTargets, Proposal

# Folded into the key for the variables of swaps.
_CHOSEN = 2**32 - 5


@register
class Recombination(EliteEmitter):
    """Perturbs an elite along differences between elites: ``x' = x1 + iso_sigma N(0,I) + t d``.

    ``t`` is sampled from ``N(0, line_sigma^2)``. For half of the solutions, the direction ``d`` is
    a *line*, ``x2 - x1``. For the others it is a *difference*, ``x2 - x3``, as in differential
    evolution, which does not lead to the middle of the archive. While the archive is empty, ``x0``
    replaces the elites.

    Args:
        x0: ``(sol,)`` solution that is varied while the archive is empty.
        sigma0: Step size of the search, as for `gloam.emitters.CmaEmitters`.
        iso_sigma: Standard deviation of the noise; by default 4% of ``sigma0``.
        line_sigma: Standard deviation of the step along a direction.
        batch_size: Number of solutions per iteration.
        best_of: Tournament size: ``x1`` has the largest improvement over the discount of this many
            random elites.
        bounds: Lower and upper bounds of the solutions, each a number, an array or ``None``.
        outside: What happens to numbers outside the bounds, as for `gloam.emitters.CmaEmitters`.

    Example:
        >>> import gloam, numpy as np
        >>> moves = gloam.emitters.Recombination(np.zeros(10), sigma0=0.5)
        >>> moves.batch_size, [draw.number for draw in moves.elites_to_ask]
        (216, [216, 324])
    """

    x0: Float[Array, " sol"]
    sigma0: float | Float[Array, " sol"]
    iso_sigma: float | Float[Array, " sol"]
    line_sigma: float
    batch_size: int = eqx.field(static=True)
    bounds: Bounds | None
    best_of: int = eqx.field(static=True)

    def __init__(
        self,
        x0: Any,
        sigma0: float | ArrayLike | None = None,
        *,
        iso_sigma: float | ArrayLike | None = None,
        line_sigma: float = 0.5,
        batch_size: int = 216,
        best_of: int = 4,
        bounds: checks.SolutionBounds | None = None,
        outside: Outside | None = None,
    ):
        self.x0, self.bounds = checked_start(x0, bounds, outside)
        self.sigma0, self.iso_sigma = checked_steps(sigma0, iso_sigma, self.x0.size, self.bounds)
        self.line_sigma = checks.number("line_sigma", line_sigma, above=0.0, at_most=1e3)
        self.batch_size = checks.count("batch_size", batch_size)
        self.best_of = checks.count("best_of", best_of)

    @property
    def label(self) -> str:
        """Prefix of the metrics in a mixture."""
        return "moves"

    @property
    def num_differences(self) -> int:
        """Number of differences: the last solutions of the batch."""
        return self.batch_size // 2

    @property
    def elites_to_ask(self) -> tuple[ElitesWanted, ...]:
        """Two elites for each solution, and three for a difference."""
        first = ElitesWanted(self.batch_size, self.best_of)
        return first, ElitesWanted(self.batch_size + self.num_differences)

    def ask(
        self,
        state: None,
        elites: Float[Array, "n sol"],
        *,
        key: PRNGKeyArray,
        targets: DrawsTargets | None = None,
    ) -> Proposal:
        """Move from the elites."""
        number = self.batch_size
        first, second, third = jnp.split(elites, [number, 2 * number])
        start = jnp.concatenate([first[: number - self.num_differences], third])
        direction = self.completed(second, start) - self.completed(start, second)
        first, second = self.completed(first, second), self.completed(second, first)
        noise = normals(key, (number, first.shape[1] + 1))  # the last column is for the steps
        solutions = self.varied(first, noise[:, :-1], self.iso_sigma)
        solutions += self.line_sigma * noise[:, -1:] * direction
        solutions = self.with_categories(solutions, first, second, key=key)
        return Proposal(self.inside(solutions, key=key), None)


@register
class Swaps(EliteEmitter):
    """Moves some variables of random elites: ``x' = x1 + iso_sigma N(0,I) + t s (x2 - x1)``.

    ``t`` is sampled from ``N(0, line_sigma^2)``, and ``s`` is 1 for a random subset of the
    variables, from one to all of them, and 0 for the others. Swaps refine elites:
    `gloam.emitters.AdaptiveMixture` decides how many there are. While the archive is empty, ``x0``
    replaces the elites.

    Args:
        x0: ``(sol,)`` solution that is varied while the archive is empty.
        sigma0: Step size of the search, as for `gloam.emitters.CmaEmitters`.
        iso_sigma: Standard deviation of the noise; by default 4% of ``sigma0``.
        line_sigma: Standard deviation of the step towards the other elite.
        batch_size: Number of solutions per iteration.
        bounds: Lower and upper bounds of the solutions, each a number, an array or ``None``.
        outside: What happens to numbers outside the bounds, as for `gloam.emitters.CmaEmitters`.
    """

    x0: Float[Array, " sol"]
    sigma0: float | Float[Array, " sol"]
    iso_sigma: float | Float[Array, " sol"]
    line_sigma: float
    batch_size: int = eqx.field(static=True)
    bounds: Bounds | None

    def __init__(
        self,
        x0: Any,
        sigma0: float | ArrayLike | None = None,
        *,
        iso_sigma: float | ArrayLike | None = None,
        line_sigma: float = 0.5,
        batch_size: int = 540,
        bounds: checks.SolutionBounds | None = None,
        outside: Outside | None = None,
    ):
        self.x0, self.bounds = checked_start(x0, bounds, outside)
        self.sigma0, self.iso_sigma = checked_steps(sigma0, iso_sigma, self.x0.size, self.bounds)
        self.line_sigma = checks.number("line_sigma", line_sigma, above=0.0, at_most=1e3)
        self.batch_size = checks.count("batch_size", batch_size)

    @property
    def label(self) -> str:
        """Prefix of the metrics in a mixture."""
        return "swaps"

    @property
    def elites_to_ask(self) -> tuple[ElitesWanted, ...]:
        """Two elites for each solution."""
        return (ElitesWanted(2 * self.batch_size),)

    def ask(
        self,
        state: None,
        elites: Float[Array, "n sol"],
        *,
        key: PRNGKeyArray,
        targets: DrawsTargets | None = None,
    ) -> Proposal:
        """Move some variables of the first half of the elites towards the second half."""
        first, second = jnp.split(elites, 2)
        number, size = first.shape
        first, second = self.completed(first, second), self.completed(second, first)
        moves = _chosen(jax.random.fold_in(key, _CHOSEN), number, size)
        noise = normals(key, (number, size + 1))  # the last column is for the steps
        solutions = self.varied(first, noise[:, :-1], self.iso_sigma)
        solutions += jnp.where(moves, self.line_sigma * noise[:, -1:] * (second - first), 0.0)
        solutions = self.with_categories(solutions, first, second, moves, key=key)
        return Proposal(self.inside(solutions, key=key), None)


def checked_steps(
    sigma0: Any, iso_sigma: Any, size: int, bounds: Bounds | None
) -> tuple[float | Float[Array, " sol"], float | Float[Array, " sol"]]:
    """Check the step size of the search and that of the noise, by default 4% of it."""
    sigma0 = checked_step("sigma0", sigma0, size, bounds, default=0.2)
    iso_sigma = 0.04 * sigma0 if iso_sigma is None else iso_sigma
    return sigma0, checked_step("iso_sigma", iso_sigma, size, bounds)


def _chosen(key: PRNGKeyArray, number: int, size: int) -> Bool[Array, "number size"]:
    """Choose the variables that each swap moves: a log-uniform share of them, at least one."""
    drawn = uniforms(key, number * (size + 1)).reshape(number, size + 1)
    share, ranks = float(size) ** -drawn[:, :1], drawn[:, 1:]
    return (ranks < share) | (ranks == jnp.min(ranks, axis=1, keepdims=True))
