"""The ask-tell driver: gloam proposes and learns in compiled programs, you evaluate in Python."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

from gloam import checks
from gloam._version import __version__
from gloam.algorithms import Algorithm
from gloam.archives import Elites
from gloam.archives.fields import field_rows
from gloam.draws import root_key
from gloam.drivers.evaluation import flat_rows, float32, valid_rows
from gloam.drivers.low_objectives import warn_of_low_objectives
from gloam.drivers.metrics import metric_columns, metric_rows, snapshot_arrays
from gloam.drivers.result_cards import search_card, search_text
from gloam.drivers.search_programs import search_programs
from gloam.drivers.splitting import for_programs, shapes_of, split, surroundings
from gloam.evaluators.answers import AnswerForm
from gloam.formats import DamagedFileError, ForeignError, objects
from gloam.formats.arrays import read_arrays, write_arrays
from gloam.formats.states import state_arrays, state_from
from gloam.records import Proposal, SearchState, StepInfo


class Checked(NamedTuple):
    """An evaluation that was checked: `Search.learn` takes it without an error."""

    evaluation: tuple[np.ndarray | None, np.ndarray, dict[str, np.ndarray]]
    cells: np.ndarray | None
    valid: Any


class Search:
    """A search that you drive: ask for solutions, evaluate them your way, tell the results.

    Args:
        algorithm: For instance `gloam.DMS`.
        seed: The same seed gives the same search.
        x0: Where the search starts, instead of at the algorithm's own ``x0``.

    Example:
        >>> import gloam
        >>> archive = gloam.GridArchive(shape=(10, 10), lower=-1, upper=1)
        >>> search = gloam.Search(gloam.DMS(archive, x0=np.zeros(3), sigma0=0.3), seed=7)
        >>> for _ in range(2):
        ...     solutions = search.ask()
        ...     search.tell(1 - np.square(solutions).sum(axis=1), solutions[:, :2])
        >>> search.metrics["iteration"], search.metrics["evaluations"]
        (2, 1080)
    """

    def __init__(self, algorithm: Algorithm, seed: int = 0, *, x0: ArrayLike | None = None):
        checks.instance("algorithm", algorithm, Algorithm, "Build one, for instance gloam.DMS.")
        self.algorithm = algorithm
        self.seed = checks.seed("seed", seed)
        arrays, rest = split(for_programs(algorithm, cells_given=True))
        programs = search_programs(rest, shapes_of(arrays), surroundings())
        self._init, self._ask, self._tell, self._metrics = programs
        self._arrays = arrays
        # Looked up once: attributes of Equinox modules are slow to read, and a batch may take 1 ms.
        self._archive, self._batch = algorithm.archive, algorithm.emitter.num_solutions
        self._fields = dict(self._archive.fields)
        self._shapes = checks.measure_shapes(self._batch, self._archive.measure_shape)
        self._proposal: Proposal | None = None
        self.report: StepInfo | None = None  # what the last `tell` said of itself
        self._has_warned = False
        self._has_unseen_objectives = False
        self.state: SearchState = self._init(
            arrays, root_key(self.seed), _start(algorithm, x0)
        )

    def ask(self) -> np.ndarray:
        """``(batch, sol)`` solutions to evaluate. Asking again before telling gives the same."""
        proposal = self._proposal or self._ask(self._arrays, self.state)
        self._proposal = proposal
        solutions = np.asarray(proposal.solutions)
        # Objectives that `tell` left to the device are known by now, and nothing waits for them.
        if self._has_unseen_objectives and int(self.state.low.batches) > 0:
            self._warn_of_low_objectives(float(self.state.low.lowest))
        self._has_unseen_objectives = False
        return solutions

    def tell(
        self,
        objectives: ArrayLike | None,
        measures: ArrayLike,
        *,
        cells: ArrayLike | None = None,
        **fields: ArrayLike,
    ) -> None:
        """Learn from the evaluation of the solutions asked last.

        Args:
            objectives: ``(batch,)`` numbers to maximise. A row with NaN or infinity here or in its
                measures counts as failed, in a cosine archive also one whose measures are all
                zero: it is left out, and the others count. ``None`` maximises closeness to
                the centre of the cell, see `gloam.archives.Archive.closeness`.
            measures: ``(batch, meas)`` measures, or ``(batch, *shape)`` where the archive's have a
                shape, such as images.
            cells: ``(batch,)`` archive cells, when you have found them yourself.
            fields: The extra fields that the archive declares, ``(batch, ...)`` each.

        Raises:
            EvaluationError: Every row failed. The search is as it was: ask again gives the same.
        """
        self.learn(self.checked(objectives, measures, cells, fields))

    def checked(
        self,
        objectives: ArrayLike | None,
        measures: ArrayLike,
        cells: ArrayLike | None,
        fields: dict[str, Any],
        *,
        may_all_fail: bool = False,
    ) -> Checked:
        """The arguments of `tell`, checked. The search stays as it is.

        ``may_all_fail`` accepts a batch without a valid row: its emitters restart.
        """
        if self._proposal is None:
            raise ValueError(
                "tell() was called before ask(). Call ask(), evaluate the solutions that it "
                "returns, then call tell()."
            )
        batch, values = self._batch, None
        if objectives is not None:
            values = float32(checks.rows("objectives", objectives, (batch,)))
        points = flat_rows(float32(checks.rows("measures", measures, *self._shapes)))
        checks.same_names("fields", self._fields, fields)
        extras = {
            name: field_rows(name, fields[name], batch, spec) for name, spec in self._fields.items()
        }
        if cells is not None:
            cells = checks.rows("cells", cells, (batch,))
            whole = cells.dtype.kind in "iu"
            inside = whole and bool(((cells >= 0) & (cells < self._archive.num_cells)).all())
            checks.expect(
                inside,
                "cells",
                f"indices from 0 to {self._archive.num_cells - 1}",
                f"{cells.dtype} {cells.min()} to {cells.max()}",
            )
            cells = cells.astype(np.int32)
        valid = valid_rows(self._archive, values, points)
        if not may_all_fail:
            checks.some_valid(int(valid.sum()), batch)
        if cells is None:
            cells = self._archive.index_on_host(points)
        return Checked((values, points, extras), cells, valid)

    def learn(self, told: Checked) -> None:
        """The part of `tell` that changes the search."""
        self.state, self.report = self._tell(
            self._arrays, self.state, self._proposal, told.evaluation, told.cells
        )
        self._proposal = None
        values, valid = told.evaluation[0], told.valid
        self._has_unseen_objectives = values is None
        if values is not None and not self._has_warned:
            below = values[valid] < self._archive.f_min
            if below.any() and 2 * below.sum() >= len(below):
                self._warn_of_low_objectives(float(values[valid].min()), stacklevel=4)

    def _warn_of_low_objectives(self, lowest: float, *, stacklevel: int = 3) -> None:
        if not self._has_warned:
            self._has_warned = True
            warn_of_low_objectives(lowest, self.algorithm, stacklevel=stacklevel)

    def __repr__(self) -> str:
        return search_text(self)

    def _repr_html_(self) -> str:
        return search_card(self)

    @property
    def iteration(self) -> int:
        """Iterations finished."""
        return int(self.state.iteration)

    @property
    def answer_form(self) -> AnswerForm:
        """The form of answers that evaluators check: shapes of measures and fields."""
        return AnswerForm.of(self._archive)

    @property
    def elites(self) -> Elites:
        """The elites found so far."""
        return Elites(self.algorithm.archive, self.state.store)

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics of the search as it is now; those of training are of the last `tell`."""
        return self.metrics_of(self.state)

    def metrics_of(self, state: SearchState) -> dict[str, Any]:
        """The metrics of a state that has come from the state of the last `tell`."""
        found, iteration = self._metrics(self._arrays, state), int(state.iteration)
        batch, archive = self.algorithm.emitter.num_solutions, found.archive
        if self.report is not None:
            columns = metric_columns(self.report, found)
            columns = {name: np.asarray(value)[None] for name, value in columns.items()}
            return metric_rows([self.seed], iteration, batch, columns)[0]
        return {
            "seed": self.seed,
            "iteration": iteration,
            "evaluations": iteration * batch,
            "qd_score": float(archive.qd_score),
            "coverage": float(archive.coverage),
            "best_objective": float(archive.best_objective),
            "failed_total": int(found.failed),
        }

    def snapshot(self) -> dict[str, np.ndarray]:
        """Arrays for a picture of the search after the last `tell`."""
        assert self.report is not None
        return snapshot_arrays(self.state.store.objectives, self.state.discount, self.report.fit)

    def save(self, path: str | os.PathLike) -> None:
        """Write the search to one file, atomically.

        A proposal that was asked but not told is not saved: the loaded search asks for it again.
        """
        arrays: dict[str, np.ndarray] = {}
        content = {
            "gloam": __version__,
            "seed": self.seed,
            "algorithm": objects.encode(self.algorithm, arrays),
        }
        parts = {f"array {name}": array for name, array in arrays.items()}
        parts |= {f"state {name}": array for name, array in state_arrays(self.state).items()}
        write_arrays(Path(path), parts, kind="search", about=content)

    @classmethod
    def load(cls, path: str | os.PathLike, algorithm: Algorithm | None = None) -> "Search":
        """Read a search that `save` wrote; it goes on as if it had never stopped.

        Args:
            path: The file.
            algorithm: Needed only when it has parts that gloam does not know, such as a network of
                your own class.

        Raises:
            DamagedFileError: The file is damaged, or `save` did not write it.
            ForeignError: The algorithm has parts of your own and was not given.
        """
        file = checks.existing_file("path", path)
        fix = "Give a file that Search.save wrote."
        arrays, content = read_arrays(file, kind="search", fix=fix)
        named = {name.partition(" ")[2]: array for name, array in arrays.items() if name[0] == "a"}
        state = {name.partition(" ")[2]: array for name, array in arrays.items() if name[0] == "s"}
        try:
            seed = checks.integer("seed", content.get("seed"), minimum=0)
            if algorithm is None:
                algorithm = objects.decode(content.get("algorithm"), named)
            else:
                mine = objects.encode(algorithm, {})
                differ = objects.differences(content.get("algorithm"), mine, "algorithm")
                if differ:
                    raise ValueError(f"it was saved with another algorithm: {differ[0]}")
            if not isinstance(algorithm, Algorithm):
                raise ValueError("it holds no algorithm")
            search = cls(algorithm, seed)
            search.state = state_from(search.state, state)
        except ForeignError:
            raise
        except (TypeError, ValueError, OverflowError) as error:
            raise DamagedFileError(file, str(error).rstrip("."), fix) from None
        return search


def _start(algorithm: Algorithm, x0: ArrayLike | None) -> jax.Array:
    """An array of its own: the state that holds it is donated to the next."""
    own = algorithm.emitter.x0
    start = own if x0 is None else checks.finite_array("x0", x0, ndim=1)
    checks.expect(
        start.shape == own.shape, "x0", f"{own.size} numbers, as the algorithm has", f"{start.size}"
    )
    return jnp.array(start, jnp.float32, copy=True)
