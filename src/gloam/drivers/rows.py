"""What both drivers log: a row of metrics, and the arrays of a snapshot."""

from typing import Any

import jax
import numpy as np

from gloam.records import Fit, Report
from gloam.step import Figures


def metric_row(
    seed: int, iteration: int, batch: int, report: Report, figures: Figures
) -> dict[str, Any]:
    """One row of the metrics table, without the time."""
    summary, diagnosis = figures.summary, figures.diagnosis
    return {
        "seed": seed,
        "iteration": iteration,
        "evaluations": iteration * batch,
        "qd_score": float(summary.qd_score),
        "coverage": float(summary.coverage),
        "best": float(summary.best),
        "loss": float(report.fit.loss),
        "epochs": int(report.fit.epochs),
        "restarts": int(report.restarts),
        "unique_cells": int(report.unique_cells),
        "failed": int(report.failed),
        "empty_discount": float(diagnosis.empty_discount),
        "rank_correlation": float(diagnosis.rank_correlation),
    }


def snapshot_arrays(objectives: Any, discount: Any, fit: Fit) -> dict[str, np.ndarray]:
    """Objectives of the cells, the discount's state, and what it was last trained on."""
    arrays = {
        "objectives": np.asarray(objectives),
        "points": np.asarray(fit.points),
        "targets": np.asarray(fit.targets),
        "real": np.asarray(fit.real),
    }
    leaves = jax.tree.leaves(discount)
    return arrays | {f"leaf_{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
