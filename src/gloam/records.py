"""What passes between the rooms of one iteration, as pytrees with shapes.

Axis names used throughout gloam: ``batch`` solutions of one iteration (all emitters together),
``emitters`` and ``each`` the same solutions by emitter, ``sol`` numbers in a solution, ``meas``
measures, ``cells`` archive cells.
"""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray


class Proposal(eqx.Module):
    """ASK: solutions to evaluate, with what the emitter needs to learn from them later."""

    solutions: Float[Array, "batch sol"]
    memory: Any


class Batch(eqx.Module):
    """EVALUATE: solutions with their objectives, measures and archive cells.

    Rows with ``valid`` false failed (a NaN or infinite result): they carry zeros, are never
    elites, never trained on, and rank last.
    """

    solutions: Float[Array, "batch sol"]
    objectives: Float[Array, " batch"]
    measures: Float[Array, "batch meas"]
    cells: Int[Array, " batch"]
    valid: Bool[Array, " batch"]
    fields: dict[str, Array]


class Scored(eqx.Module):
    """SCORE: the discount at each solution's measures and its improvement over it."""

    discounts: Float[Array, " batch"]
    improvements: Float[Array, " batch"]


class Added(eqx.Module):
    """ADD: what the archive made of each solution, judged against the archive before the batch."""

    improved: Bool[Array, " batch"]
    """True where the solution is better than the elite its cell held, or the cell was empty."""
    filled: Bool[Array, " batch"]
    """True where it became the elite of a cell that was empty before the batch."""
    unique_cells: Int[Array, ""]
    """Number of different cells the valid solutions landed in."""


class Feedback(eqx.Module):
    """ADAPT: how the solutions of a proposal did."""

    improvements: Float[Array, " batch"]
    """The ranking values, larger is better."""
    improved: Bool[Array, " batch"]
    """True where the solution improved the archive."""
    filled: Bool[Array, " batch"]
    """True where it became the elite of a cell that was empty."""
    valid: Bool[Array, " batch"]
    """True where the evaluation succeeded."""
    iteration: Int[Array, ""]
    """Iterations finished, this one included."""


class Fit(eqx.Module):
    """TRAIN: what the discount learned from in this iteration, and how that went."""

    loss: Float[Array, ""]
    epochs: Int[Array, ""]
    points: Float[Array, "rows meas"]
    """Training inputs: the batch's measures, then the centres of empty cells."""
    targets: Float[Array, " rows"]
    is_trained: Bool[Array, " rows"]
    """False for rows that were masked and not trained on."""


class StepInfo(eqx.Module):
    """What one iteration says of itself, cheap enough to make every time."""

    fit: Fit
    emitter: dict[str, Array]
    """Restarts, and what else the emitter counts, since the start of the run."""
    unique_cells: Int[Array, ""]
    failed: Int[Array, ""]
    """Failed evaluations of this iteration."""
    below_f_min: Int[Array, ""]
    """Valid solutions of this iteration with an objective below the archive's f_min."""
    outside_bounds: Int[Array, ""]
    """Valid solutions of this iteration with a measure outside the archive's bounds."""


class LowObjectives(eqx.Module):
    """What a search has seen below the archive's f_min; the drivers warn of it."""

    lowest: Float[Array, ""]
    """Lowest valid objective since the start of the run, f_min while none is lower."""
    batches: Int[Array, ""]
    """Batches with at least half of their valid objectives below f_min."""


class SearchState(eqx.Module):
    """All that changes during a search. A checkpoint is this and nothing more."""

    key: PRNGKeyArray
    """The root key. It never changes: an iteration's randomness is ``fold_in(key, iteration)``."""
    iteration: Int[Array, ""]
    failed: Int[Array, ""]
    """Failed evaluations since the start of the run."""
    emitter: Any
    store: Any
    discount: Any
    low: LowObjectives
    x0: Float[Array, " sol"]
    """Where this seed started. It never changes, and stands for an elite while there is none."""
