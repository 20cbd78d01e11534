"""CMA-MAE's discount: one threshold per cell, rising towards the objectives found there."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from gloam import checks
from gloam.discounts.discount import Discount, untrained
from gloam.records import Batch, Fit, Scored


class Thresholds(Discount):
    """A table of thresholds ``t_e``, all ``f_min`` at the start.

    A solution with ``f > t_e`` moves the threshold of its cell, ``t_e <- (1-alpha) t_e + alpha f``.
    When ``n`` such solutions of one batch share a cell, pyribs' closed form applies: the update is
    made ``n`` times with their mean, ``t_e <- (1-alpha)^n t_e + (1-(1-alpha)^n) mean(f)``, which
    does not depend on their order.

    Args:
        num_cells: Number of cells.
        alpha: Archive learning rate: 1 explores only, as CMA-ME does, 0 optimises only.
        f_min: Where thresholds start.
    """

    num_cells: int = eqx.field(static=True)
    alpha: float
    f_min: float

    def __init__(self, num_cells: int, *, alpha: float = 0.01, f_min: float = 0.0):
        self.num_cells = checks.integer("num_cells", num_cells, minimum=1)
        self.alpha = checks.number("alpha", alpha, at_least=0.0, at_most=1.0)
        self.f_min = checks.objective("f_min", f_min)

    def check(self, num_cells: int, measure_dim: int) -> None:
        """It has a threshold for each cell of the archive."""
        expected, fix = f"{num_cells}, as the archive has", "Give it archive.num_cells."
        same = self.num_cells == num_cells
        checks.expect(same, "num_cells of Thresholds", expected, self.num_cells, fix)

    @property
    def num_initial_centers(self) -> int:
        """None."""
        return 0

    @property
    def num_empty_centers(self) -> int:
        """None."""
        return 0

    def init(
        self, centers: Float[Array, "n meas"], is_real: Bool[Array, " n"], *, key: PRNGKeyArray
    ) -> Float[Array, " cells"]:
        """``f_min`` everywhere."""
        return jnp.full((self.num_cells,), self.f_min, jnp.float32)

    def at_cells(
        self,
        state: Float[Array, " cells"],
        cells: Int[Array, " n"],
        centers: Float[Array, "n meas"],
    ) -> Float[Array, " n"]:
        """The thresholds."""
        return state[cells]

    def score(self, state: Float[Array, " cells"], batch: Batch) -> Scored:
        """Threshold of each solution's cell, and improvement over it."""
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
        """Raise the thresholds of the cells that better solutions landed in."""
        better = batch.valid & (scored.improvements > 0)
        cell = jnp.where(better, batch.cells, self.num_cells)
        number = jnp.zeros(self.num_cells, jnp.float32).at[cell].add(1.0, mode="drop")
        total = jnp.zeros(self.num_cells, jnp.float32).at[cell].add(batch.objectives, mode="drop")
        # 0 ** 0 is 1: cells without better solutions keep their threshold also for alpha = 1.
        kept = (1.0 - self.alpha) ** number
        return kept * state + (1 - kept) * total / jnp.maximum(number, 1.0), untrained(batch)
