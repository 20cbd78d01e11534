"""Elites on the host: a filled archive as users read it."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, Bool, Float, Int, Shaped

from gloam._tools import checks, drawing
from gloam.archives.archive import Archive
from gloam.archives.qd_score import lowered_on_host, qd_score, reference_note
from gloam.archives.store import Store, filled_store
from gloam.archives.thumbnails import thumbnail
from gloam.evaluation import measure_shapes
from gloam.spaces import Form, Space
from gloam.spaces.payloads import Payloads

if TYPE_CHECKING:
    import pandas as pd

_ROWS = 4096  # rows whose cells are computed at once


@dataclasses.dataclass(frozen=True, eq=False)
class Elite:
    """The elite of one cell."""

    cell: int
    solution: Float[np.ndarray, " sol"]
    objective: float
    measures: Float[np.ndarray, " *measure_shape"]
    fields: dict[str, Shaped[np.ndarray, " ..."]]
    """The extra fields that the archive declares."""
    values: Any = None
    """Values of the space by name, the tree, or the payload; ``None`` for plain vectors."""


@dataclasses.dataclass(frozen=True, eq=False)
class EliteBatch:
    """The elites of several cells, one row for each, in the order of the request.

    Rows of empty cells have ``found`` false, NaN for floating-point numbers and 0 for integers.
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
    """Statistics of a set of cells. Those of objectives are NaN if no cell holds an elite."""

    num_cells: int
    num_elites: int
    coverage: float
    """Share of the cells that hold an elite."""
    qd_score: float
    """Sum over elites of ``objective - f_min``, see `gloam.archives.qd_score`."""
    normalized_qd_score: float
    """The QD score divided by the number of cells."""
    f_min: float
    """Reference of the QD score."""
    best_objective: float
    mean_objective: float
    median_objective: float
    worst_objective: float


class Elites:
    """A filled archive: its elites as arrays, one by one or as a table, and their statistics.

    ``len`` is the number of elites, and iteration yields an `Elite` for each, in the order of
    cells. Arrays of elites are selected from the store when they are first read, and then kept.

    Args:
        archive: The division into cells.
        store: The elites.
        reference: Reference of the QD score that the search has had, if the archive has no
            ``f_min``; see `gloam.archives.qd_score`.
        form: The space, tree or payloads that solutions stand for, or ``None`` for plain vectors.
        is_corrected: Whether objectives and measures are means of a re-evaluation
            (`gloam.Result.reevaluated`). Figures say so.
    """

    def __init__(
        self,
        archive: Archive,
        store: Store,
        *,
        reference: float = 0.0,
        form: Form | None = None,
        is_corrected: bool = False,
    ):
        checks.instance("archive", archive, Archive, "Build a GridArchive or a CVTArchive.")
        checks.instance("store", store, Store, "gloam.interop.elites_from_arrays builds elites.")
        self.archive = archive
        self.form = form
        """The space or tree that solutions stand for, or ``None`` for plain vectors."""
        self.is_corrected = is_corrected
        self.store: Store = jax.tree.map(np.asarray, store)
        self._reference = reference

    def __len__(self) -> int:
        return len(self.cells)

    def __iter__(self) -> Iterator[Elite]:
        return (self._elite(cell) for cell in self.cells.tolist())

    def __repr__(self) -> str:
        corrected = "corrected " if self.is_corrected else ""
        return (
            f"Elites({len(self)} of {self.archive.num_cells} cells, "
            f"{corrected}QD score {self.qd_score:.2f}{reference_note(self.f_min)}, "
            f"best {self.best_objective:.4g})"
        )

    def _repr_html_(self) -> str:
        title = f"Elites of a {type(self.archive).__name__}"
        figures = archive_figures(self) | {
            "measures": ", ".join(self.archive.measure_names) or f"{self.archive.measure_dim}",
            "solutions": _described_form(self),
        }
        return drawing.card(
            title, figures, [thumbnail(self.archive, self.store)] if len(self) else []
        )

    @cached_property
    def f_min(self) -> float:
        """Reference of the QD score: the archive's, or that of `gloam.archives.qd_score`."""
        return self.archive.f_min_from(lowered_on_host(self._reference, self.objectives))

    @property
    def qd_score(self) -> float:
        """Sum over elites of ``objective - f_min``, see `gloam.archives.qd_score`."""
        return self._statistics.qd_score

    def qd_score_from(self, f_min: float) -> float:
        """Return the sum over elites of ``objective - f_min`` for another ``f_min``."""
        return qd_score(self.objectives, f_min, is_given=True)

    @property
    def coverage(self) -> float:
        """Share of cells that hold an elite."""
        return self._statistics.coverage

    @property
    def best_objective(self) -> float:
        """Best objective; minus infinity if there are no elites."""
        return self._statistics.best_objective if len(self) else -np.inf

    @cached_property
    def occupied(self) -> np.ndarray:
        """``(cells,)`` mask of cells that hold an elite."""
        return np.isfinite(self.store.objectives)

    @cached_property
    def cells(self) -> np.ndarray:
        """``(n,)`` indices of the occupied cells, ascending."""
        return np.flatnonzero(self.occupied)

    @cached_property
    def solutions(self) -> np.ndarray:
        """``(n, sol)`` solutions of the elites, in the order of `cells`."""
        return np.asarray(self.store.solutions)[self.cells]

    @cached_property
    def objectives(self) -> np.ndarray:
        """``(n,)`` objectives of the elites."""
        return np.asarray(self.store.objectives)[self.cells]

    @cached_property
    def flat_measures(self) -> np.ndarray:
        """``(n, meas)`` measures of the elites, one flat row each."""
        return np.asarray(self.store.measures)[self.cells]

    @property
    def measures(self) -> np.ndarray:
        """``(n, meas)`` measures of the elites, or ``(n, *shape)`` if measures have a shape."""
        return self.flat_measures.reshape(-1, *self.archive.measure_shape)

    def field(self, name: str) -> np.ndarray:
        """Return ``(n, ...)`` values of an extra field of the elites."""
        names = list(self.store.fields)
        is_known, fix = name in names, "Declare fields in the archive: fields={'name': shape}."
        checks.expect(is_known, "name", f"one of the fields {names}", checks.short(name), fix)
        return np.asarray(self.store.fields[name])[self.cells]

    def values(self) -> Any:
        """Return the solutions as ``evaluate`` gets them: arrays by name for a space.

        For a tree they are a tree whose arrays have a leading axis of elites, otherwise vectors.
        """
        return self.solutions if self.form is None else self.form.values(self.solutions)

    def solution(self, cell: int) -> Any:
        """Return the solution of a cell: a dict of values of a space, a tree, or a vector."""
        elite = self.elite(cell)
        fix = "elites.cells has the numbers of the others."
        if elite is None:
            raise ValueError(f"cell: expected one that holds an elite, got {cell}. {fix}")
        return elite.solution if self.form is None else elite.values

    @property
    def best(self) -> Elite:
        """The elite with the best objective; of equal ones, that of the first cell."""
        return self._elite(int(self._any_cells()[np.argmax(self.objectives)]))

    def elite(self, cell: int) -> Elite | None:
        """Return the elite of a cell, or ``None`` if it is empty."""
        cell = int(self._known(np.array([checks.integer("cell", cell, minimum=0)]))[0])
        return self._elite(cell) if self.occupied[cell] else None

    def of_cells(self, cells: ArrayLike) -> EliteBatch:
        """Return the elites of these cells, one row for each."""
        chosen = self._known(np.asarray(cells))
        is_occupied = self.occupied[chosen]

        def rows(values: Any) -> np.ndarray:
            selected = np.array(np.asarray(values)[chosen])
            selected[~is_occupied] = np.nan if selected.dtype.kind == "f" else 0
            return selected

        store, shape = self.store, (len(chosen), *self.archive.measure_shape)
        return EliteBatch(
            chosen,
            is_occupied,
            rows(store.solutions),
            rows(store.objectives),
            rows(store.measures).reshape(shape),
            {name: rows(values) for name, values in store.fields.items()},
        )

    def retrieve(self, measures: ArrayLike) -> EliteBatch:
        """Return the elites of the cells that measures lie in.

        Args:
            measures: ``(n, meas)`` measures, or ``(n, *shape)`` if the archive's have a shape.
        """
        archive = self.archive
        points = checks.finite_array("measures", measures, ndim=2, or_more=True)
        shapes = measure_shapes(len(points), archive.measure_shape)
        expected = f"shape {checks.one_of(shapes)}"
        checks.expect(points.shape in shapes, "measures", expected, f"shape {points.shape}")
        points = points.reshape(len(points), archive.measure_dim)
        lost = int((~np.asarray(archive.accepts(points))).sum())
        fix = "A row of zeros has no direction for cosine."
        checks.expect(lost == 0, "measures", "rows that have a cell", f"{lost} without one", fix)
        return self.of_cells(_cells_of(archive, points))

    def retrieve_single(self, measures: ArrayLike) -> Elite | None:
        """Return the elite of the cell of one row of measures, or ``None`` if it is empty."""
        return self.elite(int(self.retrieve(np.asarray(measures)[None]).cells[0]))

    def sample(self, number: int, seed: int = 0, *, replace: bool = True) -> EliteBatch:
        """Draw elites uniformly.

        Args:
            number: Number of elites to draw.
            seed: The same seed gives the same elites.
            replace: Whether one elite may be drawn several times.
        """
        number = checks.integer("number", number, minimum=1)
        cells = self._any_cells()
        most = f"at most the {len(cells)} elites there are"
        fix = "Or draw with replace=True."
        checks.expect(replace or number <= len(cells), "number", most, number, fix)
        draws = np.random.default_rng(checks.seed("seed", seed))
        return self.of_cells(draws.choice(cells, number, replace=replace))

    def statistics(self, cells: ArrayLike | None = None) -> EliteStatistics:
        """Return coverage, QD score and statistics of the objectives of some cells.

        Args:
            cells: Indices of cells, or a ``(cells,)`` mask; by default all cells.
        """
        every = np.asarray(self.store.objectives)
        chosen = every if cells is None else every[np.unique(self._known(np.asarray(cells)))]
        checks.expect(len(chosen) > 0, "cells", "at least one cell", "none")
        values = chosen[np.isfinite(chosen)].astype(np.float64)
        score = qd_score(values, self.f_min, is_given=self.archive.f_min is not None)
        is_empty = len(values) == 0
        return EliteStatistics(
            num_cells=len(chosen),
            num_elites=len(values),
            coverage=len(values) / len(chosen),
            qd_score=score,
            normalized_qd_score=score / len(chosen),
            f_min=self.f_min,
            best_objective=math.nan if is_empty else float(values.max()),
            mean_objective=math.nan if is_empty else float(values.mean()),
            median_objective=math.nan if is_empty else float(np.median(values)),
            worst_objective=math.nan if is_empty else float(values.min()),
        )

    def merged(self, *others: "Elites") -> "Elites":
        """Return the best elite of every cell of several archives; of equal ones the first.

        The archives must have the same cells; `into` moves elites into other cells.
        """
        store, form = jax.tree.map(np.copy, self.store), self.form
        for other in others:
            checks.instance("others", other, Elites, "Give result.elites or search.elites().")
            archive = other.archive
            checks.expect(
                self.archive.has_cells_of(archive) and archive.fields == self.archive.fields,
                "others",
                "archives with the same cells and fields",
                f"a {type(archive).__name__} of {archive.num_cells} other cells",
                "Bring its elites into this archive first: other.into(elites.archive).",
            )
            cells = np.flatnonzero(other.store.objectives > store.objectives)
            leaves = jax.tree.leaves(store), jax.tree.leaves(other.store)
            for ours, theirs in zip(*leaves, strict=True):
                ours[cells] = theirs[cells]
            if isinstance(form, Payloads) or isinstance(other.form, Payloads):
                form = _joined(store.solutions, form, other, cells)
        # Means of a re-evaluation and single evaluations do not make a corrected archive.
        is_corrected = all(elites.is_corrected for elites in (self, *others))
        reference = min(elites.f_min for elites in (self, *others))
        more = {"form": form, "is_corrected": is_corrected}
        return Elites(self.archive, store, reference=reference, **more)

    def into(self, archive: Archive) -> "Elites":
        """Return the elites in the cells of another archive with equally many measures.

        Fields that the other archive does not declare are left out, and so are elites beyond the
        distance ``within`` that a `CVTArchive` may have.
        """
        checks.instance("archive", archive, Archive, "Build a GridArchive or a CVTArchive.")
        measure_dim, store = self.archive.measure_dim, self.store
        checks.expect(
            archive.measure_dim == measure_dim,
            "archive",
            f"{measure_dim} measures, as the elites have",
            f"{archive.measure_dim}",
        )
        for name, spec in archive.fields.items():
            values = store.fields.get(name)
            got = "no such field" if values is None else f"shape {values.shape[1:]}"
            fits = values is not None and values.shape[1:] == spec.shape
            checks.expect(fits, f"field '{name}'", f"elites with shape {spec.shape}", got)
        rows = self.cells[np.asarray(archive.accepts(self.flat_measures))]
        moved = filled_store(
            archive,
            store.solutions[rows],
            store.objectives[rows],
            store.measures[rows],
            _cells_of(archive, np.asarray(store.measures)[rows]),
            {name: store.fields[name][rows] for name in archive.fields},
        )
        more = {"form": self.form, "is_corrected": self.is_corrected}
        return Elites(archive, moved, reference=self.f_min, **more)

    def to_pandas(self) -> "pd.DataFrame":
        """Return a row for each elite: cell, objective, measures_0.., solution_0.., and the fields.

        Measures with names have columns of these names, and so have the variables of a space; one
        that is also the name of a measure or field gets the column ``solution_NAME``. Fields,
        measures and variables that are arrays are flattened into ``name_0``, ``name_1``, ...
        """
        import pandas as pd  # lazily: half a second that `import gloam` need not wait for

        columns: dict[str, np.ndarray] = {"cell": self.cells, "objective": self.objectives}
        arrays: dict[str, Any] = {"measures": self.measures, "solution": self.solutions}
        arrays |= {name: self.field(name) for name in self.store.fields}
        for name, values in arrays.items():
            if name == "solution" and self.form is not None:
                variables = self.form.columns(values)
                columns |= {self.column_of(n): v for n, v in variables.items()}
            elif values.ndim == 1:
                columns[name] = values
            else:
                flat = values.reshape(len(values), int(np.prod(values.shape[1:])))
                names = [f"{name}_{i}" for i in range(flat.shape[1])]
                if name == "measures" and self.archive.measure_names:
                    names = list(self.archive.measure_names)
                columns |= dict(zip(names, flat.T, strict=True))
        return pd.DataFrame(columns)

    def column_of(self, variable: str) -> str:
        """Return the name of the column of a variable of a space, as in `to_pandas`."""
        taken = {"cell", "objective", *self.archive.measure_names, *self.store.fields}
        return f"solution_{variable}" if variable in taken else variable

    @cached_property
    def _statistics(self) -> EliteStatistics:
        return self.statistics()

    def _any_cells(self) -> np.ndarray:
        """Return the occupied cells, and raise if there are none."""
        fix = "The archive is empty: run the search longer."
        checks.expect(len(self) > 0, "elites", "at least one elite", "none", fix)
        return self.cells

    def _known(self, cells: np.ndarray) -> np.ndarray:
        """Check indices of cells, or convert a mask to indices."""
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
            None if self.form is None else self.form.value(np.asarray(store.solutions[cell])),
        )


def _joined(
    solutions: Float[np.ndarray, "cells 1"],
    form: Form | None,
    other: Elites,
    cells: Int[np.ndarray, " n"],
) -> Payloads:
    """Return payloads with new numbers for those of ``cells``, which come from ``other``."""
    both = isinstance(form, Payloads) and isinstance(other.form, Payloads)
    expected, got = "elites of the same kind", "payloads and vectors"
    checks.expect(both, "others", expected, got, "Merge elites of pools with one another.")
    assert isinstance(form, Payloads)
    assert isinstance(other.form, Payloads)
    first = max(form.texts, default=-1) + 1
    texts = dict(enumerate(other.form.json_of(other.store.solutions[cells]), first))
    solutions[cells, 0] = list(texts)
    return Payloads(form.texts | texts)


def _described_form(elites: Elites) -> str:
    if isinstance(elites.form, Payloads):
        return "texts or JSON values"
    if isinstance(elites.form, Space):
        return ", ".join(name for name, _ in elites.form.variables)
    return f"{elites.store.solutions.shape[1]:,} numbers each"


def _cells_of(archive: Archive, measures: Float[np.ndarray, "n meas"]) -> Int[np.ndarray, " n"]:
    """Return the cell of each row, computed in blocks."""
    blocks = [measures[start : start + _ROWS] for start in range(0, len(measures), _ROWS)]
    cells = [np.asarray(archive.index_of(jnp.asarray(block, jnp.float32))) for block in blocks]
    return np.concatenate([np.zeros(0, np.int32), *cells])


def scores_from_one_reference(archives: Sequence[Elites]) -> tuple[float, list[float]]:
    """Return the lowest reference of several archives, and the QD scores counted from it."""
    reference = min(elites.f_min for elites in archives)
    is_given = all(elites.archive.f_min is not None for elites in archives)
    scores = [qd_score(elites.objectives, reference, is_given=is_given) for elites in archives]
    return reference, scores


def archive_figures(elites: Elites) -> dict[str, str]:
    """Return number of elites, QD score, coverage and best objective as text."""
    corrected = "corrected " if elites.is_corrected else ""
    return {
        "elites": f"{len(elites):,} of {elites.archive.num_cells:,} cells",
        f"{corrected}QD score": f"{elites.qd_score:,.2f}{reference_note(elites.f_min)}",
        f"{corrected}coverage": f"{elites.coverage:.1%}",
        f"{corrected}best objective": f"{elites.best_objective:.4g}" if len(elites) else "none",
    }
