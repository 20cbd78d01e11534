"""Emitters without memory: they vary random elites (MAP-Elites)."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from gloam import checks
from gloam.draws import normals
from gloam.emitters.emitter import EliteEmitter, ElitesWanted
from gloam.records import Feedback, Proposal


class Variation(EliteEmitter):
    """Noise around random elites: ``x' = x1 + sigma N(0,I) + line_sigma N(0,1) (x2 - x1)``.

    Without ``line_sigma`` it is MAP-Elites' Gaussian variation, with it the iso+line operator.
    While the archive is empty, ``x0`` stands for the elites.

    Args:
        x0: ``(sol,)`` solution that is varied while the archive is empty.
        sigma: Standard deviation of the isotropic noise.
        line_sigma: Standard deviation along the line to a second elite; ``None`` or 0 for none.
        batch_size: Number of solutions per iteration.
        best_of: Solutions start at the elite with the largest improvement over the discount of so
            many random ones.
        lower, upper: Optional box of the solutions, into which they are clipped.
    """

    x0: Float[Array, " sol"]
    sigma: float
    line_sigma: float | None
    """``None`` without lines: whether there are any is known when a program is compiled, the number
    itself is not."""
    batch_size: int = eqx.field(static=True)
    best_of: int = eqx.field(static=True)
    lower: Float[Array, " sol"] | None
    upper: Float[Array, " sol"] | None

    def __init__(
        self,
        x0: Any,
        sigma: float,
        *,
        line_sigma: float | None = None,
        batch_size: int = 540,
        best_of: int = 1,
        lower: checks.Bounds | None = None,
        upper: checks.Bounds | None = None,
    ):
        start = checks.finite_array("x0", x0, ndim=1, fix="Give one starting solution.")
        self.x0 = jnp.asarray(start, jnp.float32)
        self.sigma = checks.number("sigma", sigma, above=0.0, at_most=1e11)
        along = 0.0 if line_sigma is None else line_sigma
        along = checks.number("line_sigma", along, at_least=0.0, at_most=1e3)
        self.line_sigma = along if along > 0 else None
        self.batch_size = checks.integer("batch_size", batch_size, minimum=1)
        self.best_of = checks.integer("best_of", best_of, minimum=1)
        low, high = checks.solution_bounds(lower, upper, start)
        self.lower = None if low is None else jnp.asarray(low, jnp.float32)
        self.upper = None if high is None else jnp.asarray(high, jnp.float32)

    @property
    def elites_to_ask(self) -> tuple[ElitesWanted, ...]:
        """One for each solution; two when they vary along lines."""
        others = 0 if self.line_sigma is None else self.batch_size
        if self.best_of == 1:
            return (ElitesWanted(self.batch_size + others),)
        first = ElitesWanted(self.batch_size, self.best_of)
        return (first, ElitesWanted(others)) if others else (first,)

    def init(self, x0: Float[Array, " sol"] | None = None) -> None:
        """Nothing to remember."""

    def ask(self, state: None, elites: Float[Array, "n sol"], *, key: PRNGKeyArray) -> Proposal:
        """Vary the elites."""
        first = elites[: self.batch_size]
        # The last column is for the lines.
        noise = normals(key, (self.batch_size, first.shape[1] + 1))
        solutions = first + self.sigma * noise[:, :-1]
        if self.line_sigma is not None:
            solutions += self.line_sigma * noise[:, -1:] * (elites[self.batch_size :] - first)
        return Proposal(self.in_box(solutions), None)

    def adapt(
        self,
        state: None,
        proposal: Proposal,
        feedback: Feedback,
        elites: Float[Array, "n sol"],
    ) -> None:
        """Nothing to learn."""
