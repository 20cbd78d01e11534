"""QD score, coverage and best objective of a store."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from gloam.archives.store import Store


class ArchiveMetrics(eqx.Module):
    """The figures by which archives are compared."""

    qd_score: Float[Array, ""]
    """Sum over elites of (objective - f_min). With f_min at or below every objective, filling a
    cell never lowers it; with the paper's f_min = 0 it is the plain sum."""
    coverage: Float[Array, ""]
    """Share of cells that hold an elite, between 0 and 1."""
    best_objective: Float[Array, ""]
    """Best objective of any elite; minus infinity for an empty archive."""


def archive_metrics(store: Store, f_min: float | Float[Array, ""]) -> ArchiveMetrics:
    """Measure a store."""
    occupied = store.occupied
    gains = jnp.where(occupied, store.objectives - f_min, 0.0)
    return ArchiveMetrics(
        jnp.sum(gains), jnp.mean(occupied, dtype=jnp.float32), jnp.max(store.objectives)
    )
