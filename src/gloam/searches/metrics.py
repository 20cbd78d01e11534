"""Rows of metrics, arrays of snapshots, and the warning about low objectives."""

from typing import Any

import numpy as np

from gloam._tools.warn import warn
from gloam.algorithms import Algorithm
from gloam.diagnostics import SearchMetrics
from gloam.formats.checkpoints import state_arrays
from gloam.records import Fit, LowObjectives, StepInfo


def metric_columns(info: StepInfo, metrics: SearchMetrics) -> dict[str, Any]:
    """Return the columns of the metrics table, on the device."""
    archive, discount = metrics.archive, metrics.discount
    return {
        "qd_score": archive.qd_score,
        "f_min": archive.f_min,
        "num_elites": archive.num_elites,
        "num_counted": archive.num_counted,
        "coverage": archive.coverage,
        "best_objective": archive.best_objective,
        "mean_objective": archive.mean_objective,
        "loss": info.fit.loss,
        "epochs": info.fit.epochs,
        **info.emitter,
        "unique_cells": info.unique_cells,
        "failed": info.failed,
        "failed_total": metrics.failed,
        "infeasible": info.infeasible,
        "infeasible_total": metrics.infeasible,
        "started_from": metrics.started,
        "below_f_min": info.below_f_min,
        "outside_bounds": info.outside_bounds,
        "empty_discount": discount.empty_discount,
        "rank_correlation": discount.rank_correlation,
    }


def metric_rows(
    seeds: list[int], iteration: int, batch: int, gradients: int, columns: dict[str, np.ndarray]
) -> list[dict[str, Any]]:
    """Return the rows of the metrics table, one for each seed, without the time.

    Args:
        seeds: The seeds.
        iteration: Number of finished iterations.
        batch: Number of evaluations in each of them.
        gradients: Number of gradients in each of them.
        columns: The other columns, with a number for each seed.
    """
    counts = {
        "iteration": iteration,
        "evaluations": iteration * batch,
        "gradients": iteration * gradients,
    }
    lists = {name: values.tolist() for name, values in columns.items()}
    return [
        {"seed": seed} | counts | {name: values[i] for name, values in lists.items()}
        for i, seed in enumerate(seeds)
    ]


def snapshot_arrays(objectives: Any, discount: Any, fit: Fit) -> dict[str, np.ndarray]:
    """Return the objectives of the cells, the discount's state and its last training set."""
    arrays = {
        "objectives": np.asarray(objectives),
        "points": np.asarray(fit.points),
        "targets": np.asarray(fit.targets),
        "real": np.asarray(fit.is_trained),
    }
    learned = state_arrays(discount)
    return arrays | {f"discount {name}": array for name, array in learned.items()}


class LowObjectiveWarning:
    """Warns once if a batch lies mostly below an ``f_min`` that matters.

    It matters if it was given, as the reference of the QD score, or if the discount starts there.
    """

    def __init__(self, algorithm: Algorithm):
        archive, is_floor = algorithm.archive, algorithm.discount.has_fixed_floor
        self._f_min = archive.f_min_from(0.0)
        self._is_due = archive.f_min is not None or is_floor
        self._name = "the floor of the discount" if archive.f_min is None else "the archive's f_min"
        self._harm = "are not improvements for the search" if is_floor else "lower the QD score"

    def check(self, low: LowObjectives) -> None:
        """Warn if it is due."""
        if not self._is_due:
            return
        batches = np.atleast_1d(low.batches)
        if not batches.any():
            return
        self._is_due = False
        least = float(np.atleast_1d(low.lowest)[batches > 0].min())
        warn(
            f"objectives: expected values at or above {self._name} = {self._f_min:g}, got "
            f"{least:g}, and at least half of a batch below it. Such solutions {self._harm}. Set "
            "f_min=... of the archive at or below the lowest objective that you expect, here "
            f"{least:g} or less."
        )
