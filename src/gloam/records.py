"""Records that the steps of an iteration exchange, as pytrees with shapes.

Axis names used throughout gloam: ``batch`` solutions of one iteration (all instances together),
``emitters`` and ``each`` the same solutions by instance, ``sol`` numbers in a solution, ``meas``
measures, ``cells`` archive cells.
"""

from typing import Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from gloam._tools.registry import register


@register
class MeasureSpace(eqx.Module):
    """Bounds and shape of the measures of an archive."""

    lower: Float[Array, " meas"]
    upper: Float[Array, " meas"]
    shape: tuple[int, ...] = eqx.field(static=True)
    """Shape of the measures of one solution: (28, 28) for images, (10,) for ten numbers."""


@runtime_checkable
class Cells(Protocol):
    """The interface of archives for discounts."""

    @property
    def num_cells(self) -> int:
        """Number of cells."""
        ...

    @property
    def f_min(self) -> float | None:
        """Lowest objective that the user expects, if given."""
        ...

    @property
    def measure_space(self) -> MeasureSpace:
        """Bounds and shape of the measures."""
        ...


class Proposal(eqx.Module):
    """ASK: solutions to evaluate."""

    solutions: Float[Array, "batch sol"]
    aux: PyTree
    """Data that the emitter needs to adapt to the solutions, such as the noise they came from."""
    aims: "Aims | None" = None
    """Objectives of the solutions whose gradients the emitter needs."""
    targets: Int[Array, " batch"] | None = None
    """Cells that solutions aim at, if the emitter needs the distances from them."""


class DrawsTargets(Protocol):
    """ASK: draws cells to aim at, on the request of an emitter."""

    def __call__(
        self,
        number: int,
        *,
        num_near: int = 1,
        near_elites: bool = False,
        tried: Int[Array, " counts"] | None = None,
        key: PRNGKeyArray,
    ) -> "Targets":
        """Draw a number of targets, with the nearest elites of each.

        Targets are random empty cells, those nearest to random elites, or those tried least.
        """
        ...


class Targets(eqx.Module):
    """Cells to aim at, each with the elites whose measures are nearest to its center.

    Measures and centers are in the space of the discount, divided by the archive's units.
    """

    cells: Int[Array, " targets"]
    are_empty: Bool[Array, " targets"]
    """True for empty cells. While no cell is empty, targets are random cells."""
    centers: Float[Array, "targets meas"]
    solutions: Float[Array, "targets near sol"]
    """The nearest elites of each target, in order; ``x0`` where there are none."""
    measures: Float[Array, "targets near meas"]
    are_elites: Bool[Array, "targets near"]


class Batch(eqx.Module):
    """EVALUATE: solutions with their objectives, measures and archive cells.

    Rows with ``valid`` false failed (a NaN or infinite result) or are infeasible. They contain
    zeros, never become elites and are never trained on. Failed rows rank last, and infeasible ones
    before them by their violation. Rows that are infeasible by their distance alone keep their
    measures, by which emitters with targets rank them.
    """

    solutions: Float[Array, "batch sol"]
    objectives: Float[Array, " batch"]
    measures: Float[Array, "batch meas"]
    cells: Int[Array, " batch"]
    valid: Bool[Array, " batch"]
    fields: dict[str, Array]
    violations: Float[Array, " batch"] | None = None
    """Violations of the constraints, 0 for feasible solutions; ``None`` without constraints."""
    is_far: Bool[Array, " batch"] | None = None
    """True for rows that are infeasible by their distance alone; ``None`` if no distance counts."""

    @property
    def has_measures(self) -> Bool[Array, " batch"]:
        """True for rows whose measures are kept."""
        return self.valid if self.is_far is None else self.valid | self.is_far


class Scored(eqx.Module):
    """SCORE: the discount at each solution's measures, and the improvement over it."""

    discounts: Float[Array, " batch"]
    improvements: Float[Array, " batch"]


class Added(eqx.Module):
    """ADD: how each solution compares with the archive before the batch."""

    accepted: Bool[Array, " batch"]
    """True if the solution beats the elite of its cell, or the cell was empty."""
    filled: Bool[Array, " batch"]
    """True if it became the elite of a cell that was empty."""
    unique_cells: Int[Array, ""]
    """Number of different cells of the valid solutions."""
    before: Float[Array, " batch"]
    """Objective of the elite that its cell had, minus infinity if the cell was empty."""


class Aims(eqx.Module):
    """The quantity that gradients ascend, for each of the emitter's ``gradient_rows``."""

    is_pulled: Bool[Array, " rows"]
    """False: the improvement over the discount. True: the objective, less a pull to a center."""
    pulls: Float[Array, " rows"]
    """Weight of the squared distance from the center, for those that are pulled."""
    targets: Int[Array, " rows"]
    """Cell whose center pulls; -1 for the cell of the solution itself."""


class Weights(eqx.Module):
    """Cotangents of an evaluation: gradients are those of ``objectives * f + measures @ m``."""

    objectives: Float[Array, " rows"]
    measures: Float[Array, "rows meas"]


class Climb(eqx.Module):
    """ADAPT: gradients of solutions."""

    gradients: Float[Array, "batch sol"]
    """Zero for rows without a gradient, and where it is not finite."""
    is_finite: Bool[Array, " batch"]


class Distances(eqx.Module):
    """ADAPT: how near solutions came to the cells that they aimed at."""

    squared: Float[Array, " batch"]
    """Mean squared distance between measures and the center of the target."""
    are_known: Bool[Array, " batch"]
    """True for valid solutions, and those that are infeasible by their distance alone."""
    are_filled: Bool[Array, " batch"]
    """True if the target has an elite, from this batch or an earlier one."""


class Feedback(eqx.Module):
    """ADAPT: how the solutions of a proposal ranked."""

    improvements: Float[Array, " batch"]
    """Ranking values, larger is better."""
    accepted: Bool[Array, " batch"]
    """True if the solution beats the elite of its cell, or the cell was empty."""
    filled: Bool[Array, " batch"]
    """True if it became the elite of a cell that was empty."""
    valid: Bool[Array, " batch"]
    """True if the evaluation succeeded."""
    iteration: Int[Array, ""]
    """Number of finished iterations, including this one."""
    climb: Climb | None = None
    """Gradients, if the emitter needs some."""
    was_empty: Bool[Array, " batch"] | None = None
    """True if the cell of the solution was empty before the batch."""
    over_elites: Float[Array, " batch"] | None = None
    """Objective minus that of the elite that its cell had; the objective itself in empty cells."""
    gains: Float[Array, " batch"] | None = None
    """Increase of the QD score by a solution alone. New cells count from the floor of the
    discount."""
    violations: Float[Array, " batch"] | None = None
    """Violations above 0, by which infeasible solutions rank; they are not valid."""
    distances: Distances | None = None
    """Distances from the targets of the proposal, if it has some."""
    is_used: Bool[Array, " batch"] | None = None
    """False for solutions that were not evaluated, because those of another emitter took their
    place; ``None`` if all were."""


class Fit(eqx.Module):
    """TRAIN: the training set of the discount, and how the training went."""

    loss: Float[Array, ""]
    epochs: Int[Array, ""]
    points: Float[Array, "rows meas"]
    """Training inputs: the measures of the batch, then the centers of empty cells."""
    targets: Float[Array, " rows"]
    is_trained: Bool[Array, " rows"]
    """False for masked rows, which were not trained on."""


class StepInfo(eqx.Module):
    """Diagnostics of one iteration, cheap enough to compute every time."""

    fit: Fit
    emitter: dict[str, Array]
    """Metrics of the emitter, counted since the start of the run."""
    unique_cells: Int[Array, ""]
    failed: Int[Array, ""]
    """Number of failed evaluations."""
    infeasible: Int[Array, ""]
    """Number of infeasible solutions."""
    below_f_min: Int[Array, ""]
    """Number of valid objectives below the archive's f_min, or below 0 if it has none."""
    outside_bounds: Int[Array, ""]
    """Number of valid solutions with a measure outside the archive's bounds."""


class LowObjectives(eqx.Module):
    """Objectives below the archive's f_min, or below 0 if it has none, since the start."""

    lowest: Float[Array, ""]
    """Lowest valid objective, or f_min (0 if the archive has none) if none is lower."""
    batches: Int[Array, ""]
    """Number of batches with at least half of their valid objectives below it."""


class Store(eqx.Module):
    """The elites of all cells. A cell is empty while its objective is minus infinity."""

    solutions: Float[Array, "cells sol"]
    objectives: Float[Array, " cells"]
    measures: Float[Array, "cells meas"]
    fields: dict[str, Array]

    @property
    def occupied(self) -> Bool[Array, " cells"]:
        """True for cells that hold an elite."""
        return self.objectives > -jnp.inf


class SearchState(eqx.Module):
    """Everything that changes during a search. A checkpoint contains exactly this."""

    key: PRNGKeyArray
    """Root key. It never changes: the key of an iteration is ``fold_in(key, iteration)``."""
    iteration: Int[Array, ""]
    failed: Int[Array, ""]
    """Number of failed evaluations since the start of the run."""
    emitter: PyTree
    store: Store
    discount: PyTree
    low: LowObjectives
    x0: Float[Array, " sol"]
    """Starting solution of this seed. It never changes, and stands in for elites while the archive
    is empty."""
    infeasible: Int[Array, ""]
    """Number of infeasible solutions since the start of the run."""
    started: Int[Array, ""]
    """Number of solutions that the search was given before its first iteration."""
    reference: Float[Array, ""]
    """Reference of the QD score if the archive has no f_min (`gloam.archives.qd_score`)."""
