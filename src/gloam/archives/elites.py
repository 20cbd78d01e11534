"""One elite, and several at once, as `gloam.Elites` hands them out.

Elites of several archives in one, and elites brought into an archive with other cells.

Elites on the host: the filled archive as a user reads it.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, Bool, Float, Int, Shaped

from gloam import checks
from gloam.archives.archive import Archive
from gloam.archives.cvt_archive import CVTArchive
from gloam.archives.grid_archive import GridArchive
from gloam.archives.store import Store, add, archive_metrics, empty_store
from gloam.archives.thumbnail import elites_card
from gloam.records import Batch

if TYPE_CHECKING:
    import pandas as pd


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


# Rows whose cells are found at once.
_ROWS = 4096


def same_cells(one: Archive, other: Archive) -> bool:
    """Whether two archives have the same cells under the same numbers."""
    if type(one) is not type(other) or one.num_cells != other.num_cells:
        return False
    arrays = [(one.lower, other.lower), (one.upper, other.upper)]
    if isinstance(one, GridArchive) and isinstance(other, GridArchive):
        if one.shape != other.shape:
            return False
    elif isinstance(one, CVTArchive) and isinstance(other, CVTArchive):
        if one.metric != other.metric:
            return False
        arrays = [(one.centroids, other.centroids)]
    elif one is not other:  # of the user's own class
        every = jnp.arange(one.num_cells, dtype=jnp.int32)
        arrays = [(one.centers_of(every), other.centers_of(every))]
    return all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in arrays)


def cells_of(archive: Archive, measures: Float[np.ndarray, "n meas"]) -> Int[np.ndarray, " n"]:
    """The cell of each row, some rows at a time."""
    blocks = [measures[start : start + _ROWS] for start in range(0, len(measures), _ROWS)]
    found = [np.asarray(archive.index_of(jnp.asarray(block, jnp.float32))) for block in blocks]
    return np.concatenate([np.zeros(0, np.int32), *found])


def with_elites(store: Store, cells: np.ndarray, others: Store, rows: np.ndarray) -> Store:
    """A store after the rows of others were offered to these cells of it."""
    batch = Batch(
        jnp.asarray(others.solutions[rows]),
        jnp.asarray(others.objectives[rows]),
        jnp.asarray(others.measures[rows]),
        jnp.asarray(cells, jnp.int32),
        jnp.ones(len(rows), bool),
        {name: jnp.asarray(others.fields[name][rows]) for name in store.fields},
    )
    return add(store, batch)[0] if len(rows) else store


def merged_store(store: Store, others: Sequence[Store]) -> Store:
    """The best elite of every cell; of equal ones the first."""
    store = jax.tree.map(jnp.asarray, store)
    for other in others:
        rows = np.flatnonzero(np.isfinite(other.objectives))
        store = with_elites(store, rows, other, rows)
    return store


def store_in(archive: Archive, store: Store, measure_dim: int) -> Store:
    """A store of ``archive``'s cells with the elites of another store, by their measures."""
    checks.expect(
        archive.measure_dim == measure_dim,
        "archive",
        f"{measure_dim} measures, as the elites have",
        f"{archive.measure_dim}",
    )
    for name, spec in archive.fields.items():
        there = store.fields.get(name)
        found = "no such field" if there is None else f"shape {there.shape[1:]}"
        fits = there is not None and there.shape[1:] == spec.shape
        checks.expect(fits, f"field '{name}'", f"elites with shape {spec.shape}", found)
    rows = np.flatnonzero(np.isfinite(store.objectives))
    measures = np.asarray(store.measures)[rows]
    fits = np.asarray(archive.accepts(measures))
    rows, measures = rows[fits], measures[fits]
    solution_dim = store.solutions.shape[1]
    empty = empty_store(archive.num_cells, solution_dim, measure_dim, archive.fields)
    return with_elites(empty, cells_of(archive, measures), store, rows)


class Elites:
    """A filled archive: its elites as arrays, one by one, as a table, and figures of them.

    ``len`` is the number of elites, and iteration gives an `Elite` for each, in the order of cells.

    Args:
        archive: The division into cells.
        store: The elites.
    """

    def __init__(self, archive: Archive, store: Store):
        self.archive = archive
        self.store: Store = jax.tree.map(np.asarray, store)

    @cached_property
    def _summary(self) -> Any:
        objectives = jax.numpy.asarray(self.store.objectives)
        # The figures depend on objectives alone: the rest of a large store need not be copied.
        nothing = jax.numpy.zeros((len(objectives), 0), jax.numpy.float32)
        return archive_metrics(Store(nothing, objectives, nothing, {}), self.archive.f_min)

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

    def _repr_html_(self) -> str:
        return elites_card(self)

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

    def __iter__(self) -> Iterator[Elite]:
        return (self._elite(cell) for cell in self.cells.tolist())

    @property
    def best(self) -> Elite:
        """The elite with the best objective, of equal ones that of the first cell."""
        return self._elite(int(np.argmax(self._some().objectives)))

    def elite(self, cell: int) -> Elite | None:
        """The elite of a cell, or ``None`` if it is empty."""
        cell = int(self._known(np.array([checks.integer("cell", cell, minimum=0)]))[0])
        return self._elite(cell) if self.occupied[cell] else None

    def of_cells(self, cells: ArrayLike) -> EliteBatch:
        """The elites of these cells, a row for each."""
        chosen = self._known(np.asarray(cells))
        found = self.occupied[chosen]

        def rows(values: Any) -> np.ndarray:
            taken = np.array(np.asarray(values)[chosen])
            taken[~found] = np.nan if taken.dtype.kind == "f" else 0
            return taken

        store, shape = self.store, (len(chosen), *self.archive.measure_shape)
        return EliteBatch(
            chosen,
            found,
            rows(store.solutions),
            rows(store.objectives),
            rows(store.measures).reshape(shape),
            {name: rows(values) for name, values in store.fields.items()},
        )

    def retrieve(self, measures: ArrayLike) -> EliteBatch:
        """The elites of the cells that measures lie in.

        Args:
            measures: ``(n, meas)`` measures, or ``(n, *shape)`` where the archive's have a shape.
        """
        archive = self.archive
        points = checks.finite_array("measures", measures, ndim=2, or_more=True)
        shapes = checks.measure_shapes(len(points), archive.measure_shape)
        expected = f"shape {checks.one_of(shapes)}"
        checks.expect(points.shape in shapes, "measures", expected, f"shape {points.shape}")
        points = points.reshape(len(points), archive.measure_dim)
        lost = int((~np.asarray(archive.accepts(points))).sum())
        fix = "A row of zeros has no direction for cosine."
        checks.expect(lost == 0, "measures", "rows that have a cell", f"{lost} without one", fix)
        return self.of_cells(cells_of(archive, points))

    def retrieve_single(self, measures: ArrayLike) -> Elite | None:
        """The elite of the cell that one row of measures lies in, or ``None`` if it is empty."""
        return self.elite(int(self.retrieve(np.asarray(measures)[None]).cells[0]))

    def sample(self, number: int, seed: int = 0, *, replace: bool = True) -> EliteBatch:
        """``number`` elites drawn uniformly.

        Args:
            number: How many elites to draw.
            seed: The same seed gives the same elites.
            replace: Whether one elite may be drawn several times.
        """
        number = checks.integer("number", number, minimum=1)
        occupied = np.flatnonzero(np.isfinite(self._some().objectives))
        most = f"at most the {len(occupied)} elites there are"
        fix = "Or draw with replace=True."
        checks.expect(replace or number <= len(occupied), "number", most, number, fix)
        draws = np.random.default_rng(checks.seed("seed", seed))
        return self.of_cells(draws.choice(occupied, number, replace=replace))

    def statistics(self, cells: ArrayLike | None = None) -> EliteStatistics:
        """Coverage, QD score and objectives of some cells.

        Args:
            cells: Numbers of cells, or a ``(cells,)`` mask; by default all cells.
        """
        every = np.asarray(self.store.objectives)
        chosen = every if cells is None else every[np.unique(self._known(np.asarray(cells)))]
        checks.expect(len(chosen) > 0, "cells", "at least one cell", "none")
        found = chosen[np.isfinite(chosen)].astype(np.float64)
        score = float((found - self.archive.f_min).sum())
        none = [float("nan")] * 4
        values = (found.max(), found.mean(), np.median(found), found.min()) if len(found) else none
        share = len(found) / len(chosen)
        rest = score / len(chosen), *map(float, values)
        return EliteStatistics(len(chosen), len(found), share, score, *rest)

    def merged(self, *others: "Elites") -> "Elites":
        """The best elite of every cell of this archive and others; of equal ones this archive's.

        The archives must have the same cells; `into` brings elites into other cells.
        """
        for other in others:
            checks.instance("others", other, Elites, "Give result.elites or search.elites().")
            archive = other.archive
            checks.expect(
                same_cells(self.archive, archive) and archive.fields == self.archive.fields,
                "others",
                "archives with the same cells and fields",
                f"a {type(archive).__name__} of {archive.num_cells} other cells",
                "Bring its elites into this archive first: other.into(elites.archive).",
            )
        return Elites(self.archive, merged_store(self.store, [other.store for other in others]))

    def into(self, archive: Archive) -> "Elites":
        """The elites in the cells of another archive with as many measures, the best of each cell.

        Fields that the other archive does not declare are left out.
        """
        checks.instance("archive", archive, Archive, "Build a GridArchive or a CVTArchive.")
        return Elites(archive, store_in(archive, self.store, self.archive.measure_dim))

    def _some(self) -> Store:
        fix = "The archive is empty: run the search longer."
        checks.expect(bool(self.occupied.any()), "elites", "at least one elite", "none", fix)
        return self.store

    def _known(self, cells: np.ndarray) -> np.ndarray:
        """Numbers of cells from numbers or a mask, checked."""
        number = self.archive.num_cells
        if cells.dtype == bool and cells.shape == (number,):
            return np.flatnonzero(cells)
        sound = cells.ndim == 1 and (cells.dtype.kind in "iu" or cells.size == 0)
        sound = sound and bool(((cells >= 0) & (cells < number)).all())
        expected = f"a list of numbers from 0 to {number - 1}"
        checks.expect(sound, "cells", expected, checks.short(cells))
        return cells.astype(np.int64)

    def _elite(self, cell: int) -> Elite:
        store = self.store
        return Elite(
            cell,
            np.asarray(store.solutions[cell]),
            float(store.objectives[cell]),
            np.asarray(store.measures[cell]).reshape(self.archive.measure_shape),
            {name: np.asarray(values[cell]) for name, values in store.fields.items()},
        )

    def field(self, name: str) -> np.ndarray:
        """``(n, ...)`` an extra field of the elites."""
        return np.asarray(self.store.fields[name])[self.occupied]

    def to_pandas(self) -> "pd.DataFrame":
        """A row for each elite: cell, objective, measures_0.., solution_0.., and the fields.

        Measures with names have columns of these names. Fields and measures that are arrays are
        flattened into columns ``name_0``, ``name_1``, ...
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
                names = [f"{name}_{i}" for i in range(flat.shape[1])]
                if name == "measures" and self.archive.measure_names:
                    names = list(self.archive.measure_names)
                columns |= dict(zip(names, flat.T, strict=True))
        return pd.DataFrame(columns)
