"""What both drivers log: a row of metrics, and the arrays of a snapshot."""

from typing import Any

import jax
import numpy as np

from gloam.formats.states import state_arrays
from gloam.records import Fit, StepInfo
from gloam.step import SearchMetrics


def metric_columns(report: StepInfo, found: SearchMetrics) -> dict[str, np.ndarray]:
    """Columns of the metrics table, brought from the device all at once."""
    archive, discount = found.archive, found.discount
    columns = {
        "qd_score": archive.qd_score,
        "coverage": archive.coverage,
        "best_objective": archive.best_objective,
        "loss": report.fit.loss,
        "epochs": report.fit.epochs,
        **report.emitter,
        "unique_cells": report.unique_cells,
        "failed": report.failed,
        "failed_total": found.failed,
        "below_f_min": report.below_f_min,
        "outside_bounds": report.outside_bounds,
        "empty_discount": discount.empty_discount,
        "rank_correlation": discount.rank_correlation,
    }
    return dict(zip(columns, jax.device_get(list(columns.values())), strict=True))


def metric_rows(
    seeds: list[int], iteration: int, batch: int, columns: dict[str, np.ndarray]
) -> list[dict[str, Any]]:
    """Rows of the metrics table, without the time; a column has a number for each seed."""
    lists = {name: values.tolist() for name, values in columns.items()}
    return [
        {"seed": seed, "iteration": iteration, "evaluations": iteration * batch}
        | {name: values[i] for name, values in lists.items()}
        for i, seed in enumerate(seeds)
    ]


def snapshot_arrays(objectives: Any, discount: Any, fit: Fit) -> dict[str, np.ndarray]:
    """Objectives of the cells, the discount's state, and what it was last trained on."""
    arrays = {
        "objectives": np.asarray(objectives),
        "points": np.asarray(fit.points),
        "targets": np.asarray(fit.targets),
        "real": np.asarray(fit.is_trained),
    }
    learned = state_arrays(discount)
    return arrays | {f"discount {place}": array for place, array in learned.items()}
