"""The ask-tell driver: gloam proposes and learns in compiled programs, you evaluate in Python."""

import json
import os
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import ArrayLike

from gloam import checks, files, step
from gloam._version import __version__
from gloam.algorithms import Algorithm
from gloam.archives import Elites
from gloam.archives.fields import field_rows
from gloam.draws import root_key
from gloam.drivers import codec
from gloam.drivers.evaluation import flat_rows
from gloam.drivers.low_objectives import warn_of_low_objectives
from gloam.drivers.rows import metric_columns, metric_rows, snapshot_arrays
from gloam.records import Proposal, Report, SearchState


class Search:
    """A search that you drive: ask for solutions, evaluate them your way, tell the results.

    Args:
        algorithm: For instance `gloam.DMS`.
        seed: The same seed gives the same search.

    Example:
        >>> import gloam
        >>> archive = gloam.GridArchive(shape=(10, 10), lower=-1, upper=1)
        >>> search = gloam.Search(gloam.DMS(archive, x0=np.zeros(3), sigma0=0.3), seed=7)
        >>> for _ in range(2):
        ...     solutions = search.ask()
        ...     search.tell(1 - np.square(solutions).sum(axis=1), solutions[:, :2])
        >>> search.stats["iteration"], search.stats["evaluations"]
        (2, 1080)
    """

    def __init__(self, algorithm: Algorithm, seed: int = 0):
        checks.instance("algorithm", algorithm, Algorithm, "Build one, for instance gloam.DMS.")
        self.algorithm = algorithm
        self.seed = checks.seed("seed", seed)
        arrays, static = eqx.partition(algorithm, eqx.is_array)

        def ask(arrays: Any, state: SearchState) -> Proposal:
            return step.ask(eqx.combine(arrays, static), state)

        def tell(arrays: Any, state: SearchState, proposal: Any, evaluation: Any, cells: Any):
            return step.tell(eqx.combine(arrays, static), state, proposal, evaluation, cells)

        self._arrays = arrays
        # Looked up once: attributes of Equinox modules are slow to read, and a batch may take 1 ms.
        self._archive, self._batch = algorithm.archive, algorithm.emitter.solutions
        self._fields = dict(self._archive.fields)
        self._shapes = checks.measure_shapes(self._batch, self._archive.measure_shape)
        self._init = jax.jit(lambda arrays, key: step.init(eqx.combine(arrays, static), key))
        self._inspect = jax.jit(
            lambda arrays, state: step.inspect(eqx.combine(arrays, static), state)
        )
        self._ask = jax.jit(ask)
        self._tell = jax.jit(tell, donate_argnums=1)
        self._proposal: Proposal | None = None
        self._report: Report | None = None
        self._has_warned = False
        self._has_unseen_objectives = False
        # Waited for, because PyTorch's random state is borrowed to draw a `TorchNetwork`'s weights.
        self.state: SearchState = jax.block_until_ready(self._init(arrays, root_key(self.seed)))

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
        checks.expect(self._proposal is not None, "tell", "a call of ask() before it", "none",
                      "Call ask(), evaluate its solutions, then tell().")  # fmt: skip
        batch, values = self._batch, None
        if objectives is not None:
            values = _float32(checks.rows("objectives", objectives, (batch,)))
        points = flat_rows(_float32(checks.rows("measures", measures, *self._shapes)))
        checks.same_names("fields", self._fields, fields)
        extras = {
            name: field_rows(name, fields[name], batch, spec) for name, spec in self._fields.items()
        }
        if cells is not None:
            cells = checks.rows("cells", cells, (batch,))
            whole = cells.dtype.kind in "iu"
            inside = whole and bool(((cells >= 0) & (cells < self._archive.cells)).all())
            checks.expect(
                inside,
                "cells",
                f"indices from 0 to {self._archive.cells - 1}",
                f"{cells.dtype} {cells.min()} to {cells.max()}",
            )
            cells = cells.astype(np.int32)
        valid = self._archive.accepts(points)
        if values is not None:
            valid &= np.abs(values) <= checks.LARGEST
        checks.some_valid(int(valid.sum()), batch)
        if cells is None:
            cells = self._archive.index_on_host(points)
        self.state, self._report = self._tell(
            self._arrays, self.state, self._proposal, (values, points, extras), cells
        )
        self._proposal = None
        self._has_unseen_objectives = values is None
        if values is not None and not self._has_warned:
            below = values[valid] < self._archive.f_min
            if below.any() and 2 * below.sum() >= len(below):
                self._warn_of_low_objectives(float(values[valid].min()))

    def _warn_of_low_objectives(self, lowest: float) -> None:
        if not self._has_warned:
            self._has_warned = True
            warn_of_low_objectives(lowest, self._archive.f_min, stacklevel=3)

    @property
    def iteration(self) -> int:
        """Iterations finished."""
        return int(self.state.iteration)

    @property
    def archive(self) -> Elites:
        """The elites found so far."""
        return Elites(self.algorithm.archive, self.state.store)

    @property
    def stats(self) -> dict[str, Any]:
        """The figures of the search as they are now; training figures are of the last `tell`."""
        figures = self._inspect(self._arrays, self.state)
        batch, summary = self.algorithm.emitter.solutions, figures.summary
        if self._report is not None:
            columns = metric_columns(self._report, figures)
            columns = {name: np.asarray(value)[None] for name, value in columns.items()}
            return metric_rows([self.seed], self.iteration, batch, columns)[0]
        return {
            "seed": self.seed, "iteration": self.iteration, "evaluations": self.iteration * batch,
            "qd_score": float(summary.qd_score), "coverage": float(summary.coverage),
            "best": float(summary.best),
        }  # fmt: skip

    def snapshot(self) -> dict[str, np.ndarray]:
        """Arrays for a picture of the search after the last `tell`."""
        assert self._report is not None
        return snapshot_arrays(self.state.store.objectives, self.state.discount, self._report.fit)

    def save(self, path: str | os.PathLike) -> None:
        """Write the search to one file, atomically.

        A proposal that was asked but not told is not saved: the loaded search asks for it again.
        """
        arrays: dict[str, np.ndarray] = {}
        content = {
            "gloam": __version__, "seed": self.seed,
            "algorithm": codec.encode(self.algorithm, arrays),
        }  # fmt: skip
        text = np.frombuffer(json.dumps(content).encode(), dtype=np.uint8)
        files.write_arrays(Path(path), arrays | codec.leaves(self.state) | {"search": text})

    @classmethod
    def load(cls, path: str | os.PathLike, algorithm: Algorithm | None = None) -> "Search":
        """Read a search that `save` wrote; it goes on as if it had never stopped.

        Args:
            path: The file.
            algorithm: Needed only when it has parts that gloam does not know, such as a network of
                your own class.
        """
        file = checks.existing_file("path", path)
        try:
            arrays = files.read_arrays(file)
            content = json.loads(arrays.pop("search").tobytes())
        except (ValueError, KeyError, OSError) as error:
            raise ValueError(
                f"path: expected a file written by Search.save, got '{path}' ({error})."
            ) from error
        if algorithm is None:
            algorithm = codec.decode(content["algorithm"], arrays)
        search = cls(algorithm, content["seed"])  # pyright: ignore[reportArgumentType]
        saved = {name: array for name, array in arrays.items() if name.startswith("leaf_")}
        search.state = codec.from_leaves(search.state, saved)
        return search


def _float32(array: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):  # what is too large becomes infinite, and its row has failed
        return array.astype(np.float32)
