"""The discount of CMA-MAE: one threshold per cell, which rises towards the objectives found."""

import dataclasses
from typing import Self

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from gloam._tools import checks
from gloam._tools.devices import sums_by_group
from gloam._tools.registry import register
from gloam.discounts.discount import Discount, untrained
from gloam.records import Batch, Cells, Fit, Scored


@register
class Thresholds(Discount):
    """A table of thresholds ``t_e``, which start at ``floor``.

    A solution with ``f > t_e`` moves the threshold of its cell, ``t_e <- (1-alpha) t_e + alpha f``.
    If ``n`` such solutions of one batch share a cell, the closed form of pyribs applies: the update
    is made ``n`` times with their mean, ``t_e <- (1-alpha)^n t_e + (1-(1-alpha)^n) mean(f)``, which
    does not depend on their order.

    Args:
        alpha: Archive learning rate: 1 only explores, as CMA-ME does, 0 only optimizes.
        floor: Initial threshold: at or below the lowest objective that you expect. By default the
            archive's ``f_min``, or 0 if it has none.
        num_cells: Number of cells; by default that of the archive.
    """

    alpha: float
    floor: float | None
    num_cells: int | None = eqx.field(static=True)

    def __init__(
        self, *, alpha: float = 0.01, floor: float | None = None, num_cells: int | None = None
    ):
        self.alpha = checks.number("alpha", alpha, at_least=0.0, at_most=1.0)
        self.floor = None if floor is None else checks.objective("floor", floor)
        if num_cells is not None:
            checks.integer("num_cells", num_cells, minimum=1)
        self.num_cells = num_cells

    def for_archive(self, archive: Cells) -> Self:
        """Return the discount with a threshold for each cell of an archive."""
        number = archive.num_cells
        fits = self.num_cells in (None, number)
        expected = f"{number}, as the archive has"
        checks.expect(fits, "num_cells of Thresholds", expected, self.num_cells, "Leave it out.")
        floor = archive.f_min or 0.0 if self.floor is None else self.floor
        return dataclasses.replace(self, num_cells=number, floor=floor)

    @property
    def has_fixed_floor(self) -> bool:
        """True: thresholds begin at ``floor``."""
        return True

    def init(
        self, centers: Float[Array, "n meas"], is_real: Bool[Array, " n"], *, key: PRNGKeyArray
    ) -> Float[Array, " cells"]:
        """Return a table that is ``floor`` everywhere."""
        assert self.num_cells is not None
        assert self.floor is not None
        return jnp.full((self.num_cells,), self.floor, jnp.float32)

    def at_cells(
        self,
        state: Float[Array, " cells"],
        cells: Int[Array, " n"],
        centers: Float[Array, "n meas"],
    ) -> Float[Array, " n"]:
        """Return the thresholds of cells."""
        return state[cells]

    def score(self, state: Float[Array, " cells"], batch: Batch) -> Scored:
        """Return the threshold of each solution's cell, and the improvement over it."""
        thresholds = state[batch.cells]
        return Scored(thresholds, batch.objectives - thresholds)

    def train(
        self,
        state: Float[Array, " cells"],
        batch: Batch,
        scored: Scored,
        centers: Float[Array, "n meas"],
        is_real: Bool[Array, " n"],
        *,
        key: PRNGKeyArray,
    ) -> tuple[Float[Array, " cells"], Fit]:
        """Raise the thresholds of cells in which better solutions landed."""
        cells = state.shape[0]
        better = batch.valid & (scored.improvements > 0)
        cell = jnp.where(better, batch.cells, cells)
        number = jnp.zeros(cells, jnp.float32).at[cell].add(1.0, mode="drop")
        total = sums_by_group(batch.objectives, cell, cells)
        # 0 ** 0 is 1: cells without better solutions keep their threshold also for alpha = 1.
        kept = (1.0 - self.alpha) ** number
        return kept * state + (1 - kept) * total / jnp.maximum(number, 1.0), untrained(batch)
