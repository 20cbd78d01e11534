"""What is measured of a search: metrics of a state, and diagnostics of an iteration."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from gloam._tools.compiler import float32
from gloam.algorithms import Algorithm
from gloam.archives import Archive
from gloam.archives.qd_score import ArchiveMetrics, archive_metrics
from gloam.discounts.discount import DiscountMetrics, discount_metrics
from gloam.records import Batch, Fit, LowObjectives, SearchState, StepInfo

# Number of cells that metrics of the discount are computed from in large archives. The standard
# error of a rank correlation of so many is 0.02.
_MEASURED_CELLS = 2000


class SearchMetrics(eqx.Module):
    """Metrics of a state."""

    archive: ArchiveMetrics
    discount: DiscountMetrics
    failed: Int[Array, ""]
    """Number of failed evaluations since the start of the run."""
    infeasible: Int[Array, ""]
    """Number of infeasible solutions since the start of the run."""
    started: Int[Array, ""]
    """Number of solutions that the search was given before its first iteration."""


@float32()
def metrics(algorithm: Algorithm, state: SearchState) -> SearchMetrics:
    """Return QD score, coverage and best objective, and metrics of the discount."""
    archive, store = algorithm.archive, state.store
    cells = jnp.arange(
        0, archive.num_cells, -(-archive.num_cells // _MEASURED_CELLS), dtype=jnp.int32
    )
    discounts = algorithm.discount.at_cells(state.discount, cells, archive.centers_of(cells))
    objectives, occupied = store.objectives[cells], store.occupied[cells]
    empty_value = algorithm.discount.empty_value(state.discount, archive.f_min_from(0.0))
    reference, is_given = archive.f_min_from(state.reference), archive.f_min is not None
    return SearchMetrics(
        archive=archive_metrics(store, reference, is_given=is_given),
        discount=discount_metrics(discounts, objectives, occupied, empty_value),
        failed=state.failed,
        infeasible=state.infeasible,
        started=state.started,
    )


def diagnostics(
    algorithm: Algorithm,
    state: SearchState,
    adapted: Any,
    batch: Batch,
    seen: Batch,
    fit: Fit,
    unique_cells: Int[Array, ""],
) -> tuple[StepInfo, LowObjectives]:
    """Return the diagnostics of an iteration, and the updated record of low objectives."""
    infeasible = jnp.zeros((), jnp.int32)
    if batch.violations is not None:
        infeasible = jnp.sum(batch.violations > 0, dtype=jnp.int32)
    failed = jnp.sum(~batch.valid, dtype=jnp.int32) - infeasible
    below, low = below_f_min(state.low, batch, algorithm.archive.f_min_from(0.0))
    info = StepInfo(
        fit=fit,
        emitter=algorithm.emitter.metrics(adapted),
        unique_cells=unique_cells,
        failed=failed,
        infeasible=infeasible,
        below_f_min=below,
        outside_bounds=_outside_bounds(algorithm.archive, seen),
    )
    return info, low


def _outside_bounds(archive: Archive, seen: Batch) -> Int[Array, ""]:
    is_outside = (seen.measures < archive.lower) | (seen.measures > archive.upper)
    return jnp.sum(seen.valid & jnp.any(is_outside, axis=1), dtype=jnp.int32)


def below_f_min(
    low: LowObjectives, batch: Batch, f_min: float | Float[Array, ""]
) -> tuple[Int[Array, ""], LowObjectives]:
    """Return the number of objectives below ``f_min``, and the updated record of low ones."""
    number_valid = jnp.sum(batch.valid, dtype=jnp.int32)
    below = jnp.sum(batch.valid & (batch.objectives < f_min), dtype=jnp.int32)
    lowest = jnp.min(jnp.where(batch.valid, batch.objectives, jnp.inf))
    # A few low objectives are normal if solutions leave the domain; half of a batch is not.
    is_low = (2 * below >= number_valid) & (below > 0)
    batches = low.batches + is_low.astype(jnp.int32)
    return below, LowObjectives(lowest=jnp.minimum(low.lowest, lowest), batches=batches)
