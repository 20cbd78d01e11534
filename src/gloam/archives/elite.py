"""One elite, and several at once, as `gloam.Elites` hands them out."""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped


@dataclasses.dataclass(frozen=True, eq=False)
class Elite:
    """The elite of one cell."""

    cell: int
    solution: Float[np.ndarray, " sol"]
    objective: float
    measures: Float[np.ndarray, " *measure_shape"]
    fields: dict[str, Shaped[np.ndarray, " ..."]]
    """The extra fields that the archive declares."""


@dataclasses.dataclass(frozen=True, eq=False)
class EliteBatch:
    """The elites of several cells, a row for each, in the order in which they were asked for.

    Rows of empty cells have ``found`` false and NaN for numbers, zero for integers.
    """

    cells: Int[np.ndarray, " n"]
    found: Bool[np.ndarray, " n"]
    solutions: Float[np.ndarray, "n sol"]
    objectives: Float[np.ndarray, " n"]
    measures: Float[np.ndarray, "n *measure_shape"]
    fields: dict[str, Shaped[np.ndarray, "n ..."]]

    def __len__(self) -> int:
        return len(self.cells)


@dataclasses.dataclass(frozen=True)
class EliteStatistics:
    """Figures of a set of cells. Those of objectives are NaN where no cell holds an elite."""

    num_cells: int
    num_elites: int
    coverage: float
    """Share of the cells that hold an elite."""
    qd_score: float
    """Sum over elites of ``objective - f_min``."""
    normalized_qd_score: float
    """The QD score divided by the number of cells."""
    best_objective: float
    mean_objective: float
    median_objective: float
    worst_objective: float
