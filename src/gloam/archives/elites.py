"""Elites on the host: the filled archive as a user reads it."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from gloam.archives.archive import Archive
from gloam.archives.archive_metrics import archive_metrics
from gloam.archives.store import Store

if TYPE_CHECKING:
    import pandas as pd


class Elites:
    """A filled archive: arrays over all cells, figures, and a table of its elites.

    Args:
        archive: The division into cells.
        store: The elites.
    """

    def __init__(self, archive: Archive, store: Store):
        self.archive = archive
        self.store: Store = jax.tree.map(np.asarray, store)

    @cached_property
    def _summary(self) -> Any:
        return archive_metrics(jax.tree.map(jax.numpy.asarray, self.store), self.archive.f_min)

    @property
    def qd_score(self) -> float:
        """Sum over elites of ``objective - f_min``."""
        return float(self._summary.qd_score)

    @property
    def coverage(self) -> float:
        """Share of cells that hold an elite."""
        return float(self._summary.coverage)

    @property
    def best_objective(self) -> float:
        """Best objective; minus infinity when empty."""
        return float(self._summary.best_objective)

    @property
    def occupied(self) -> np.ndarray:
        """``(cells,)`` mask of cells that hold an elite."""
        return np.isfinite(self.store.objectives)

    def __len__(self) -> int:
        return int(self.occupied.sum())

    def __repr__(self) -> str:
        return (
            f"Elites({len(self)} of {self.archive.num_cells} cells, "
            f"QD score {self.qd_score:.2f}, best {self.best_objective:.4g})"
        )

    @property
    def cells(self) -> np.ndarray:
        """``(n,)`` indices of the occupied cells, ascending."""
        return np.flatnonzero(self.occupied)

    @property
    def solutions(self) -> np.ndarray:
        """``(n, sol)`` the elites, in the order of `cells`."""
        return np.asarray(self.store.solutions)[self.occupied]

    @property
    def objectives(self) -> np.ndarray:
        """``(n,)`` their objectives."""
        return np.asarray(self.store.objectives)[self.occupied]

    @property
    def measures(self) -> np.ndarray:
        """``(n, meas)`` their measures, or ``(n, *shape)`` where the archive's have a shape."""
        return self.flat_measures.reshape(-1, *self.archive.measure_shape)

    @property
    def flat_measures(self) -> np.ndarray:
        """``(n, meas)`` their measures, one flat row each."""
        return np.asarray(self.store.measures)[self.occupied]

    def field(self, name: str) -> np.ndarray:
        """``(n, ...)`` an extra field of the elites."""
        return np.asarray(self.store.fields[name])[self.occupied]

    def to_pandas(self) -> "pd.DataFrame":
        """A row for each elite: cell, objective, measures_0.., solution_0.., and the fields.

        Measures and fields that are arrays are flattened into columns ``name_0``, ``name_1``, ...
        """
        import pandas as pd  # lazily: half a second that `import gloam` need not wait for

        columns: dict[str, np.ndarray] = {"cell": self.cells, "objective": self.objectives}
        parts = {"measures": self.measures, "solution": self.solutions}
        parts |= {name: self.field(name) for name in self.store.fields}
        for name, values in parts.items():
            if values.ndim == 1:
                columns[name] = values
            else:
                flat = values.reshape(len(values), int(np.prod(values.shape[1:])))
                columns |= {f"{name}_{i}": flat[:, i] for i in range(flat.shape[1])}
        return pd.DataFrame(columns)
