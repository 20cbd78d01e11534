"""The variation operators of MAP-Elites: Gaussian noise, and iso+line."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from gloam._tools import checks
from gloam._tools.draws import normals
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


@register
class Variation(EliteEmitter):
    """Noise around random elites: ``x' = x1 + sigma0 N(0,I) + line_sigma N(0,1) (x2 - x1)``.

    Without ``line_sigma`` it is the Gaussian variation of MAP-Elites, with it the iso+line
    operator. While the archive is empty, ``x0`` replaces the elites.

    Args:
        x0: ``(sol,)`` solution that is varied while the archive is empty.
        sigma0: Standard deviation of the noise: one number, or one for each variable. With bounds
            on both sides it is a share of their width, by default a tenth.
        line_sigma: Standard deviation along the line to a second elite; ``None`` or 0 for no lines.
        batch_size: Number of solutions per iteration.
        best_of: Tournament size: ``x1`` has the largest improvement over the discount of this many
            random elites.
        bounds: Lower and upper bounds of the solutions, each a number, an array or ``None``.
        outside: What happens to numbers outside the bounds, as for `gloam.emitters.CmaEmitters`.
    """

    x0: Float[Array, " sol"]
    sigma0: float | Float[Array, " sol"]
    line_sigma: float | None
    """``None`` without lines. Whether there are lines is known when a program is compiled; the
    number itself is an operand."""
    batch_size: int = eqx.field(static=True)
    best_of: int = eqx.field(static=True)
    bounds: Bounds | None

    def __init__(
        self,
        x0: Any,
        sigma0: float | ArrayLike | None = None,
        *,
        line_sigma: float | None = None,
        batch_size: int = 540,
        best_of: int = 1,
        bounds: checks.SolutionBounds | None = None,
        outside: Outside | None = None,
    ):
        self.x0, self.bounds = checked_start(x0, bounds, outside)
        self.sigma0 = checked_step("sigma0", sigma0, self.x0.size, self.bounds, default=0.1)
        along = 0.0 if line_sigma is None else line_sigma
        along = checks.number("line_sigma", along, at_least=0.0, at_most=1e3)
        self.line_sigma = along if along > 0 else None
        self.batch_size = checks.count("batch_size", batch_size)
        self.best_of = checks.count("best_of", best_of)

    @property
    def label(self) -> str:
        """Prefix of the metrics in a mixture."""
        return "variation"

    @property
    def elites_to_ask(self) -> tuple[ElitesWanted, ...]:
        """One elite for each solution, and a second one for lines."""
        num_partners = 0 if self.line_sigma is None else self.batch_size
        if self.best_of == 1:
            return (ElitesWanted(self.batch_size + num_partners),)
        first = ElitesWanted(self.batch_size, self.best_of)
        return (first, ElitesWanted(num_partners)) if num_partners else (first,)

    def ask(
        self,
        state: None,
        elites: Float[Array, "n sol"],
        *,
        key: PRNGKeyArray,
        targets: DrawsTargets | None = None,
    ) -> Proposal:
        """Vary the elites."""
        first = second = elites[: self.batch_size]
        if self.line_sigma is not None:
            second = elites[self.batch_size :]
            first, second = self.completed(first, second), self.completed(second, first)
        # The last column is for the lines.
        noise = normals(key, (self.batch_size, first.shape[1] + 1))
        solutions = self.varied(first, noise[:, :-1], self.sigma0)
        if self.line_sigma is not None:
            solutions += self.line_sigma * noise[:, -1:] * (second - first)
        solutions = self.with_categories(solutions, first, second, key=key)
        return Proposal(self.inside(solutions, key=key), None)
