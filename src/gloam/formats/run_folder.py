"""Run folders: the files that a run writes, and that figures, galleries and the explorer read.

config.json, config.npz    algorithm, domain and settings of the run
metrics.csv                a row for each seed and logged iteration
failures.parquet           evaluations that failed, if there are any
corrected.npz              scores of elites that were evaluated again, of a run with noise
archive.npz                the elites of a finished run (archive-SEED.npz with several seeds)
dataset.npz                the items that the cells stand for, if a dataset was given
checkpoint/NNNNNNN.npz     the complete state after iteration NNNNNNN; the last two are kept
snapshots/NNNNNNN.npz      discount and elites of the first seed at chosen iterations
figures/, gallery.html     pictures; report.html has all views

Files of arrays and config.json carry digests of their content and the identity of their run, and
are validated on read. Nothing that a file names is imported or called.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gloam._tools import checks
from gloam.algorithms import Algorithm
from gloam.archives import Archive, Elites
from gloam.archives.qd_score import recounted
from gloam.datasets import Dataset
from gloam.errors import DamagedFileError, RunExistsError
from gloam.formats import objects
from gloam.formats.arrays import Prefix, digest, read_arrays, write_arrays
from gloam.formats.checkpoints import (
    Checkpoint,
    Checkpoints,
    elite_arrays,
    elites_from,
    state_arrays,
    store_of_seed,
)
from gloam.formats.config import RunConfig
from gloam.formats.documents import (
    check_is_no_folder,
    content_of,
    is_document,
    read_document,
    write_document,
)
from gloam.formats.ownership import (
    ARCHIVE,
    SNAPSHOT,
    check_places,
    locked,
    own_files,
)
from gloam.formats.tables import MetricsFile, read_failures, write_failures
from gloam.spaces import Form

if TYPE_CHECKING:
    import pandas as pd

_COPY = "Restore it from a copy, or start the run again in another folder."
# Reference of the QD score of each seed, among the arrays of a checkpoint.
_REFERENCE = ".reference"
# Scores of elites that were evaluated again.
_CORRECTED = ("corrected_qd_score", "corrected_qd_score_error", "corrected_coverage")
_CORRECTED += ("corrected_coverage_error", "f_min")
# Parts of a configuration, and their classes.
_PARTS = {"algorithm": Algorithm, "archive": Archive, "domain": object}
_DELETE = "Delete it, or restore it from a copy."
_DELETE_ARCHIVE = (
    "Delete it to read the elites of the last checkpoint instead, or restore it from a copy."
)


class RunFolder:
    """Reads and writes one run folder.

    Args:
        path: The folder; it need not exist yet.
    """

    def __init__(self, path: str | os.PathLike):
        self.path = checks.path("run folder", path)
        self._checkpoints = Checkpoints(self.path / "checkpoint")

    def __repr__(self) -> str:
        return f"RunFolder('{self.path}')"

    @property
    def figures(self) -> Path:
        """Folder for pictures."""
        return self.path / "figures"

    @property
    def holds_run(self) -> bool:
        """True if gloam started a run here."""
        return is_document(self.path / "config.json", "run")

    @property
    def holds_checkpoint(self) -> bool:
        """True if the run can be continued."""
        return bool(self._checkpoints.files())

    def must_hold_run(self) -> "RunFolder":
        """Check that there is a run to read."""
        check_is_no_folder(self.path / "config.json")
        fix = "Give the folder of a run, which has a config.json that gloam wrote."
        checks.expect(self.holds_run, "run folder", "a run of gloam", f"'{self.path}'", fix)
        return self

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from writing here, and remove partial files of killed ones."""
        for name in ("checkpoint", "snapshots"):
            checks.expect(
                not (self.path / name).is_symlink(),
                "run folder",
                f"'{name}' as a folder of its own",
                f"a link, '{self.path / name}'",
                "Replace the link by the folder it leads to.",
            )
        check_places(self.path, checkpoints=False)
        with locked(self.path):
            for file in own_files(self.path, partial=True):
                file.unlink(missing_ok=True)
            yield

    def check_new(self) -> None:
        """Check that a new run may start here.

        Raises:
            RunExistsError: The folder holds a run.
            ValueError: The folder holds files of other programs under names that a run uses.
        """
        if self.holds_run:
            raise RunExistsError(self.path)
        self.check_free()

    def check_free(self) -> None:
        """Check that a new run would replace nothing that gloam did not write."""
        check_places(self.path, checkpoints=True)
        taken = sorted(str(file) for file in own_files(self.path) if not self._is_begun(file))
        checks.expect(
            not taken,
            "run_dir",
            "a folder without files of other programs",
            ", ".join(f"'{file}'" for file in taken[:3]),
            "Choose another folder, or move these files away.",
        )

    def _is_begun(self, file: Path) -> bool:
        """Whether this is config.npz, the only file of a run that was killed at its very start."""
        with contextlib.suppress(DamagedFileError):
            read_arrays(file, kind="config", fix="", prefix=())
            return file == self.path / "config.npz"
        return False

    def write_config(self, config: RunConfig, arrays: dict[str, np.ndarray]) -> None:
        """Write the configuration of the run."""
        about = {"run": config.identity}
        write_arrays(self.path / "config.npz", arrays, kind="config", about=about)
        self.write_plan(config)

    def write_plan(self, config: RunConfig) -> None:
        """Write the configuration again, with another plan but the same arrays."""
        write_document(self.path / "config.json", config.to_json(), kind="run")

    def read_config(self) -> RunConfig:
        """Read the configuration of the run."""
        path = self.path / "config.json"
        with content_of(path, _COPY):
            return RunConfig.from_json(read_document(path, kind="run", fix=_COPY))

    def read_part(self, name: str) -> Any:
        """Build the ``"algorithm"``, its ``"archive"`` or the ``"domain"`` of the run.

        Raises:
            ForeignError: It has parts that only the user's program can build.
        """
        checks.choice("name", name, tuple(_PARTS))
        config, path = self.read_config(), self.path / "config.npz"
        arrays, _ = read_arrays(path, kind="config", fix=_COPY, run=config.identity)
        with content_of(self.path / "config.json", _COPY):
            content = config.domain if name == "domain" else config.algorithm
            if name == "archive":
                content = objects.archive_of(content)
            value = objects.decode(content, arrays)
            checks.instance(name, value, _PARTS[name])
            return value

    def read_form(self) -> Form | None:
        """Return the space or tree that solutions stand for; ``None`` for plain vectors."""
        content = objects.first_of_class(self.read_config().algorithm, ("Space", "Tree"))
        with content_of(self.path / "config.json", _COPY):
            return None if content is None else objects.decode(content, {})

    def write_dataset(self, dataset: Dataset) -> None:
        """Write the items that the cells stand for, with their labels, names and images."""
        write_arrays(self.path / "dataset.npz", dataset_arrays(dataset), kind="dataset")

    def read_dataset(self) -> Dataset:
        """Read the items that the cells stand for."""
        fix = "Pass dataset=... to gloam.run or gloam.optimize."
        check_is_no_folder(self.path / "dataset.npz")
        path = checks.existing_file("dataset", self.path / "dataset.npz", fix)
        arrays, _ = read_arrays(path, kind="dataset", fix=_COPY)
        with content_of(path, _COPY):
            if dataset_digest(arrays) != self.read_config().dataset:
                raise ValueError("it is the dataset of another run")
            return _dataset_from(arrays)

    def append_metrics(self, rows: Sequence[dict[str, Any]], *, sync: bool = False) -> None:
        """Append rows of metrics; with ``sync``, return only when all rows are on the disk."""
        self._metrics.append(rows, sync=sync)

    def read_metrics(self, f_min: float | None = None) -> "pd.DataFrame":
        """Read the metrics so far; empty before the first logged iteration.

        Args:
            f_min: Reference of the QD scores; by default as they were logged.

        Raises:
            DamagedFileError: Some rows cannot be read, or do not fit the run.
        """
        table, error = self._metrics.read()
        if error:
            raise error
        if f_min is not None and len(table):
            table = recounted(table, checks.number("f_min", f_min), is_given=True)
        return table

    def drop_metrics_after(self, iteration: int) -> tuple[int, DamagedFileError | None]:
        """Keep only the rows of metrics up to ``iteration`` that can be read.

        Returns:
            Number of rows kept, and an error if some could not be read.
        """
        return self._metrics.drop_after(iteration)

    def write_failures(self, table: "pd.DataFrame") -> None:
        """Write the evaluations that failed."""
        write_failures(self.path, table, run=self._identity)

    def read_failures(self) -> "pd.DataFrame":
        """Read the evaluations that failed.

        Columns: seed, iteration, row, kind, error, traceback and solution.
        """
        return read_failures(self.path, run=self._identity)

    def write_checkpoint(
        self, state: Any, *, seconds: float, num_rows: int = 0, keep: int = 2
    ) -> None:
        """Write the state of the search. The rows of metrics up to it have to be on the disk.

        Args:
            state: The state.
            seconds: Time that the run has taken.
            num_rows: Number of rows of metrics so far.
            keep: Number of checkpoints to keep, this one included.
        """
        # Archives are as old as the newest checkpoint.
        for file in self._archives():
            file.unlink()
        checkpoint = Checkpoint(state, int(state.iteration), seconds, num_rows)
        self._checkpoints.write(checkpoint, run=self._identity, keep=keep)

    def read_checkpoint(self, like: Any, prefix: Prefix = "") -> Checkpoint:
        """Read the newest valid checkpoint, its state of the structure of ``like``.

        Args:
            like: A state, or its shapes; ``None`` for parts that are not read.
            prefix: Read only arrays whose names begin with it, or with one of several.
        """
        return self._checkpoints.read(like, run=self._identity, prefix=prefix)

    def read_checkpoint_iteration(self) -> int:
        """Number of finished iterations at the newest valid checkpoint."""
        return self._checkpoints.read_arrays((), run=self._identity)[1]

    def check_number_of_seeds(self) -> None:
        """Check that the newest checkpoint, if there is one, has the seeds of the configuration."""
        num_configured = len(self.read_config().seeds)
        if self.holds_checkpoint:
            arrays, _ = self._checkpoints.read_arrays(".failed", run=self._identity)
            num_stored = len(np.atleast_1d(arrays.get(".failed", ())))
            if num_stored != num_configured:
                problem = (
                    f"it names {num_configured:,} seeds, and the checkpoint has {num_stored:,}"
                )
                raise DamagedFileError(self.path / "config.json", problem, _COPY)

    def write_archive(self, elites: Elites, *, seed: int) -> None:
        """Write the elites of one seed, as they are at the newest checkpoint."""
        config = self.read_config()
        about = {"run": config.identity, "seed": seed, "reference": elites.f_min}
        path, arrays = self._archive_path(seed, config), elite_arrays(state_arrays(elites.store))
        write_arrays(path, arrays, kind="archive", about=about)

    def read_archive(self, seed: int | None = None, *, archive: Archive | None = None) -> Elites:
        """Read the elites of one seed (by default the first) as of the newest checkpoint.

        They are read from the checkpoint until the run ends and writes its archive.
        """
        config = self.read_config()
        seed = config.seeds[0] if seed is None else seed
        fix = f"The run has the seeds {list(config.seeds)}."
        checks.expect(seed in config.seeds, "seed", "a seed of the run", seed, fix)
        if archive is None:
            archive = self.read_part("archive")
        checks.instance("archive", archive, Archive)
        assert archive is not None
        path, fix = self._archive_path(seed, config), _DELETE_ARCHIVE
        if path.exists():
            arrays, about = read_arrays(path, kind="archive", fix=fix, run=config.identity)
            if about.get("seed") != seed:
                raise DamagedFileError(path, "it is the archive of another seed", fix)
        else:
            wait = "Wait for a checkpoint."
            checks.expect(self.holds_checkpoint, "archive", "an existing file", f"'{path}'", wait)
            path, fix = self._checkpoints.folder, _COPY
            prefixes, index = (".store", _REFERENCE), config.seeds.index(seed)
            state, _ = self._checkpoints.read_arrays(prefixes, run=config.identity)
            with content_of(path, fix):
                references = np.atleast_1d(state.pop(_REFERENCE, ()))
                store = {name.removeprefix(".store"): array for name, array in state.items()}
                arrays = elite_arrays(store_of_seed(store, index))
                about = {"reference": references[index].item() if index < len(references) else None}
        with content_of(path, fix):
            reference = checks.objective("reference", about.get("reference"))
            return elites_from(archive, arrays, reference, self.read_form())

    def check_not_finished(self) -> None:
        """Check that there are no elites of a run whose checkpoints are gone.

        It cannot be continued, and to start it again would replace its elites and metrics.
        """
        if self._archives():
            problem = "it has no checkpoint, although the run has written its archive"
            fix = "Restore it from a copy, or give the run as start_from to one in another folder."
            raise DamagedFileError(self._checkpoints.folder, problem, fix)

    def _archives(self) -> list[Path]:
        return [file for file in self.path.glob("*.npz") if ARCHIVE.fullmatch(file.name)]

    def _archive_path(self, seed: int, config: RunConfig) -> Path:
        is_single = len(config.seeds) == 1
        return self.path / ("archive.npz" if is_single else f"archive-{seed}.npz")

    def write_corrected(
        self, scores: Mapping[str, np.ndarray], *, number: int, iteration: int
    ) -> None:
        """Write the corrected scores of all seeds.

        Args:
            scores: A number for each seed, in the order of the configuration, by the names of the
                columns of `gloam.runs.reevaluation.Corrected.table`.
            number: Number of evaluations of each elite.
            iteration: Iteration of the elites.
        """
        about = {"run": self._identity, "number": number, "iteration": iteration}
        arrays = {name: np.asarray(scores[name], np.float64) for name in _CORRECTED}
        write_arrays(self.path / "corrected.npz", arrays, kind="corrected", about=about)

    def read_corrected(self) -> tuple[dict[str, np.ndarray], int, int]:
        """Read the corrected scores, the number of evaluations, and the iteration."""
        path, config = self.path / "corrected.npz", self.read_config()
        fix = "Delete it, or evaluate the elites again."
        arrays, about = read_arrays(path, kind="corrected", fix=fix, run=config.identity)
        with content_of(path, fix):
            shape, dtype = (len(config.seeds),), np.dtype(np.float64)
            fits = set(arrays) == set(_CORRECTED)
            if not (fits and all((a.shape, a.dtype) == (shape, dtype) for a in arrays.values())):
                raise ValueError("it has other scores than gloam writes")
            number = checks.integer("number", about.get("number"), minimum=1)
            return arrays, number, checks.integer("iteration", about.get("iteration"), minimum=0)

    def write_snapshot(self, iteration: int, arrays: dict[str, np.ndarray]) -> None:
        """Write the arrays that a picture of this iteration needs."""
        about = {"run": self._identity, "iteration": iteration}
        write_arrays(self._snapshot_path(iteration), arrays, kind="snapshot", about=about)

    def read_snapshot(self, iteration: int) -> dict[str, np.ndarray]:
        """Read the snapshot of one iteration."""
        path = self._snapshot_path(checks.integer("iteration", iteration, minimum=0))
        has = ", ".join(map(str, self.snapshot_iterations)) or "none"
        fix = f"The run has snapshots of these iterations: {has}."
        is_there = os.path.lexists(path)  # a link is refused by name when it is read
        checks.expect(is_there, "iteration", "one with a snapshot", iteration, fix)
        arrays, about = read_arrays(path, kind="snapshot", fix=_DELETE, run=self._identity)
        if about.get("iteration") != iteration:
            raise DamagedFileError(path, "it is the snapshot of another iteration", _DELETE)
        return arrays

    @property
    def snapshot_iterations(self) -> list[int]:
        """Iterations with a snapshot, in ascending order."""
        files = (self.path / "snapshots").glob("*.npz")
        return sorted(int(file.stem) for file in files if SNAPSHOT.fullmatch(file.name))

    def _snapshot_path(self, iteration: int) -> Path:
        return self.path / "snapshots" / f"{iteration:07d}.npz"

    @property
    def _metrics(self) -> MetricsFile:
        return MetricsFile(self.path, lambda: self.read_config() if self.holds_run else None)

    @property
    def _identity(self) -> str:
        return self.read_config().identity


def dataset_arrays(dataset: Dataset) -> dict[str, np.ndarray]:
    """Return the items of a dataset, with their labels, names and images, as arrays."""
    arrays = {
        "items": dataset.items,
        "names": np.asarray(dataset.names, np.str_),
        "shape": np.asarray(dataset.shape, np.int64),
    }
    optional = {"labels": dataset.labels, "images": dataset.images, "bounds": dataset.bounds}
    return arrays | {name: np.asarray(part) for name, part in optional.items() if part is not None}


def dataset_digest(arrays: dict[str, np.ndarray]) -> str:
    """Return a digest of a dataset's arrays."""
    digests = " ".join(f"{name} {digest(arrays[name])}" for name in sorted(arrays))
    return digest(np.frombuffer(digests.encode(), np.uint8))


def _dataset_from(arrays: dict[str, np.ndarray]) -> Dataset:
    """Return the dataset of `dataset_arrays`; its constructor checks them."""
    required, optional = {"items", "names", "shape"}, {"labels", "images", "bounds"}
    if not required <= set(arrays) <= required | optional:
        raise ValueError(f"it has the arrays {sorted(arrays)}")
    arguments: dict[str, Any] = {
        name: array if name in ("items", "images") else array.tolist()
        for name, array in arrays.items()
    }
    return Dataset(**arguments)
