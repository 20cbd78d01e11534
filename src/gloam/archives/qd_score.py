"""The QD score: the sum over elites of ``objective - f_min``, and what ``f_min`` is by default.

With an ``f_min`` of the archive, the score is the plain sum, as in pyribs with that
``qd_score_offset``, and elites below ``f_min`` lower it.

Without one, the reference is chosen from the elites, such that scores of different seeds and
algorithms can be compared, never fall, and do not depend on evaluations that are not elites:

* It is 0, as in pyribs, unless more than half of the elites have objectives below 0.
* Then it is a negative power of ten, the first that is twice as far from 0 as the median elite or
  farther. It moves on, down only, when more than half of the elites lie below it. Searches on one
  problem therefore have the same few references to choose from, and usually agree on the first.
* Elites below the reference count as 0.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from gloam.archives.store import Store

if TYPE_CHECKING:
    import pandas as pd

_COUNTED = {"qd_score", "f_min", "num_counted"}
# From 0 down to a number whose half is below all objectives.
_REFERENCES = np.array([0.0, *(-(10.0**power) for power in range(-12, 32))], np.float32)


class ArchiveMetrics(eqx.Module):
    """Metrics by which archives are compared."""

    qd_score: Float[Array, ""]
    """Sum over elites of ``objective - f_min``; see `gloam.archives.qd_score`."""
    f_min: Float[Array, ""]
    """Reference of the QD score."""
    num_elites: Int[Array, ""]
    num_counted: Int[Array, ""]
    """Number of elites in the QD score: all of them, or those above a reference by default."""
    coverage: Float[Array, ""]
    """Share of cells that hold an elite, between 0 and 1."""
    best_objective: Float[Array, ""]
    """Best objective of any elite; minus infinity for an empty archive."""
    mean_objective: Float[Array, ""]
    """Mean objective of the elites; 0 for an empty archive."""


def archive_metrics(
    store: Store, f_min: float | Float[Array, ""], *, is_given: bool
) -> ArchiveMetrics:
    """Return the metrics of a store.

    Args:
        store: The elites.
        f_min: Reference of the QD score.
        is_given: Whether it is the archive's ``f_min``.
    """
    occupied = store.occupied
    number = jnp.sum(occupied, dtype=jnp.int32)
    total = jnp.sum(jnp.where(occupied, store.objectives, 0.0))
    is_counted = occupied if is_given else occupied & (store.objectives > f_min)
    return ArchiveMetrics(
        jnp.sum(jnp.where(is_counted, store.objectives - f_min, 0.0)),
        jnp.asarray(f_min, jnp.float32),
        number,
        jnp.sum(is_counted, dtype=jnp.int32),
        jnp.mean(occupied, dtype=jnp.float32),
        jnp.max(store.objectives),
        total / jnp.maximum(number, 1),
    )


def lowered(reference: Float[Array, ""], objectives: Float[Array, " cells"]) -> Float[Array, ""]:
    """Return the reference of a search after elites were added, on the device.

    Args:
        reference: Reference before, 0 at the start.
        objectives: Objectives of all cells, minus infinity for empty ones.
    """
    occupied, references = objectives > -jnp.inf, jnp.asarray(_REFERENCES)
    start = jnp.sum(references > reference, dtype=jnp.int32)

    def is_too_high(index: Int[Array, ""]) -> Bool[Array, ""]:
        limit = jnp.where(index == start, reference, references[index] / 2)
        below = jnp.sum(occupied & (objectives < limit), dtype=jnp.int32)
        return 2 * below > jnp.sum(occupied, dtype=jnp.int32)

    # Nearly always the reference stays, and the loop ends at once: a median would be sorted for.
    return references[jax.lax.while_loop(is_too_high, lambda index: index + 1, start)]


def lowered_on_host(reference: float, objectives: Float[np.ndarray, " n"]) -> float:
    """Return what `lowered` does, for the objectives of elites.

    >>> costs = -np.array([30.0, 40.0, 50.0])
    >>> lowered_on_host(0.0, costs), lowered_on_host(0.0, np.array([-5.0, 1.0, 2.0]))
    (-100.0, 0.0)
    """
    if not len(objectives):
        return reference
    middle = len(objectives) // 2
    median = float(np.partition(objectives, middle)[middle])
    if median >= reference:
        return reference
    return float(_REFERENCES[np.argmax(2 * median >= _REFERENCES)])


def qd_score(objectives: Float[np.ndarray, " n"], f_min: float, *, is_given: bool) -> float:
    """Return the QD score of elites, summed in float64.

    >>> objectives = np.array([-1.0, 2.0])
    >>> qd_score(objectives, 0.0, is_given=True), qd_score(objectives, 0.0, is_given=False)
    (1.0, 2.0)
    """
    heights = objectives.astype(np.float64) - f_min
    return float(np.sum(heights if is_given else np.maximum(heights, 0.0)))


def qd_score_from(metrics: Any, f_min: float) -> Any:
    """Return the sum over elites of ``objective - f_min``, of a row of metrics or of a table.

    >>> qd_score_from({"mean_objective": 3.0, "num_elites": 2}, f_min=-10.0)
    26.0
    """
    return metrics["num_elites"] * (metrics["mean_objective"] - f_min)


def _counted_from(metrics: Any, f_min: float) -> Any:
    """Return the QD score from a lower reference than its own; elites it does not count stay 0."""
    return metrics["qd_score"] + metrics["num_counted"] * (metrics["f_min"] - f_min)


def with_one_reference(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of metrics whose QD scores are counted from the lowest of their references."""
    f_min = min(row["f_min"] for row in rows)
    return [{**row, "qd_score": _counted_from(row, f_min), "f_min": f_min} for row in rows]


def recounted(table: "pd.DataFrame", f_min: float, *, is_given: bool) -> "pd.DataFrame":
    """Return a table of metrics whose QD scores are counted from ``f_min``.

    Args:
        table: The metrics.
        f_min: The reference.
        is_given: Whether all elites count. Otherwise those below their own reference do not.
    """
    count = qd_score_from if is_given else _counted_from
    return table.assign(qd_score=count(table, f_min), f_min=f_min)


def tables_with_one_reference(
    tables: Sequence["pd.DataFrame"],
) -> tuple[list["pd.DataFrame"], float]:
    """Return tables of metrics whose QD scores can be compared, and their reference.

    Tables without the columns that this needs are left as they are.
    """
    has_columns = [set(table.columns) >= _COUNTED for table in tables]
    pairs = list(zip(tables, has_columns, strict=True))
    f_min = min(
        (float(t["f_min"].to_numpy().min()) for t, has in pairs if has and len(t)), default=0.0
    )
    return [recounted(t, f_min, is_given=False) if has else t for t, has in pairs], f_min


def reference_note(f_min: float) -> str:
    """Return what is printed behind a QD score that is not counted from 0.

    >>> reference_note(0.0), reference_note(-100.0)
    ('', ' (from -100)')
    """
    return "" if f_min == 0 else f" (from {f_min:g})"
