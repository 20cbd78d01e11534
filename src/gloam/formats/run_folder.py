"""Run folders: the only interface between running and looking.

config.json, config.npz    the algorithm, the domain and the settings of the run
metrics.parquet            a row for each seed and logged iteration
metrics.log                rows that are not in metrics.parquet yet, while the run goes on
failures.parquet           evaluations that failed, where there are some
archive.npz                the elites of a finished run (archive-SEED.npz with several seeds)
dataset.npz                the items that the cells are, where a dataset was given
checkpoint/NNNNNNN.npz     everything needed to go on after iteration NNNNNNN: the last two
snapshots/NNNNNNN.npz      discount and elites of the first seed at chosen iterations
figures/, gallery.html     pictures; report.html has all views

Every file carries digests of its content and the identity of its run, and is checked when it is
read. Nothing that a file says is imported or called.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gloam import checks
from gloam.archives import Archive, Elites
from gloam.datasets import Dataset
from gloam.formats import objects
from gloam.formats.arrays import digest, is_array_file, read_arrays, write_arrays
from gloam.formats.checkpoints import Checkpoint, Checkpoints, Snapshots
from gloam.formats.config import RunConfig
from gloam.formats.contents import ArchiveFiles, dataset_arrays, dataset_from
from gloam.formats.documents import (
    DamagedFileError,
    ForeignError,
    RunExistsError,
    is_document,
    read_document,
    write_document,
)
from gloam.formats.metrics import MetricsFiles
from gloam.formats.ownership import FOLDERS, locked, own_files
from gloam.formats.tables import read_failures, write_failures

if TYPE_CHECKING:
    import pandas as pd

_COPY = "Restore it from a copy, or start the run again in another folder."


class RunFolder:
    """Reads and writes one run folder.

    Args:
        path: The folder; it need not exist yet.
    """

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path)
        self._checkpoints = Checkpoints(self.path / "checkpoint")
        self._archives = ArchiveFiles(self.path, self._checkpoints)
        self._metrics = MetricsFiles(self.path)
        self._snapshots = Snapshots(self.path / "snapshots")

    def __repr__(self) -> str:
        return f"RunFolder('{self.path}')"

    @property
    def figures(self) -> Path:
        """Where pictures go."""
        return self.path / "figures"

    @property
    def holds_run(self) -> bool:
        """True when gloam began a run here."""
        return is_document(self.path / "config.json", "run")

    @property
    def holds_checkpoint(self) -> bool:
        """True when the run can be continued."""
        return bool(self._checkpoints.files())

    def must_hold_run(self) -> "RunFolder":
        """Check that there is a run to read."""
        fix = "Give the folder of a run, which has a config.json that gloam wrote."
        checks.expect(self.holds_run, "run folder", "a run of gloam", f"'{self.path}'", fix)
        return self

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from writing here, and clear away what a killed one left behind."""
        for name in ("checkpoint", "snapshots"):
            checks.expect(
                not (self.path / name).is_symlink(),
                "run folder",
                f"'{name}' as a folder of its own",
                f"a link, '{self.path / name}'",
                "Replace the link by the folder it leads to.",
            )
        with locked(self.path):
            for file in own_files(self.path, partial=True):
                file.unlink(missing_ok=True)
            yield

    def check_new(self) -> None:
        """Check that a new run may begin here.

        Raises:
            RunExistsError: The folder holds a run.
            ValueError: The folder holds files of other programs under the names of a run's.
        """
        if self.holds_run:
            raise RunExistsError(self.path)
        self.check_free()

    def check_free(self) -> None:
        """Check that a new run would replace nothing that gloam did not write."""
        begun = self.path / "config.npz"  # all that a run has that was killed at its very start
        taken = sorted(
            str(file)
            for file in own_files(self.path)
            if file != begun or not is_array_file(begun, "config")
        )
        checks.expect(
            not taken,
            "run_dir",
            "a folder without files of other programs",
            ", ".join(f"'{file}'" for file in taken[:3]),
            "Choose another folder, or move these files away.",
        )

    def delete_run(self) -> None:
        """Remove the run, and only what gloam wrote of it; folders go when they are empty."""
        if not self.path.exists():
            return
        if not self.holds_run:
            self.check_free()
            return
        with self.locked():
            # The config goes last: until then the folder says whose files these are.
            for file in sorted(own_files(self.path), key=lambda file: file.name == "config.json"):
                file.unlink()
        for folder in (*map(self.path.__truediv__, FOLDERS), self.path):
            with contextlib.suppress(OSError):  # not there, or not empty
                folder.rmdir()

    def write_config(self, config: RunConfig, arrays: dict[str, np.ndarray]) -> None:
        """Write what the run is."""
        about = {"run": config.identity}
        write_arrays(self.path / "config.npz", arrays, kind="config", about=about)
        self.write_plan(config)

    def write_plan(self, config: RunConfig) -> None:
        """Write the configuration again, with another plan but the same arrays."""
        write_document(self.path / "config.json", config.to_json(), kind="run")

    def read_config(self) -> RunConfig:
        """What the run is."""
        path = self.path / "config.json"
        content = read_document(path, kind="run", fix=_COPY)
        try:
            return RunConfig.from_json(content)
        except (TypeError, ValueError) as error:
            raise DamagedFileError(path, str(error), _COPY) from None

    def read_part(self, name: str) -> Any:
        """The ``"algorithm"`` or the ``"domain"``, built anew.

        Raises:
            ForeignError: It is the user's own; only the user's program can build it.
        """
        checks.expect(name in ("algorithm", "domain"), "name", "'algorithm' or 'domain'", name)
        config = self.read_config()
        arrays, _ = self._read("config.npz", "config", config)
        try:
            return objects.decode(getattr(config, name), arrays)
        except ForeignError:
            raise
        except (TypeError, ValueError, OverflowError) as error:
            raise DamagedFileError(self.path / "config.json", str(error), _COPY) from None

    def write_dataset(self, dataset: Dataset) -> None:
        """Write the items that the cells are, with what shows them."""
        write_arrays(self.path / "dataset.npz", dataset_arrays(dataset), kind="dataset")

    def read_dataset(self) -> Dataset:
        """The items that the cells are."""
        fix = "Pass dataset=... to gloam.run or gloam.optimize."
        path = checks.existing_file("dataset", self.path / "dataset.npz", fix)
        arrays, _ = read_arrays(path, kind="dataset", fix=_COPY)
        if dataset_digest(arrays) != self.read_config().dataset:
            raise DamagedFileError(path, "it is the dataset of another run", _COPY)
        try:
            return dataset_from(arrays)
        except ValueError as error:
            raise DamagedFileError(path, str(error), _COPY) from None

    def append_metrics(self, rows: Iterable[dict[str, Any]], *, sync: bool = False) -> None:
        """Add rows to the metrics; with ``sync``, return only when they are on the disk."""
        self._metrics.append(rows, run=self._identity, sync=sync)

    def write_metrics(self, table: "pd.DataFrame") -> None:
        """Replace the metrics by ``table``, as one file."""
        self._metrics.write(table, run=self._identity)

    def read_metrics(self) -> "pd.DataFrame":
        """The metrics so far; empty before the first logged iteration.

        Raises:
            DamagedFileError: Some rows cannot be read.
        """
        return self._metrics.read(run=self._identity)

    def read_whole_metrics(self) -> tuple["pd.DataFrame", list[DamagedFileError]]:
        """The rows of the metrics that can be read, and an error for each file with others."""
        return self._metrics.read_what_is_whole(run=self._identity)

    def write_failures(self, table: "pd.DataFrame") -> None:
        """Write the evaluations that failed."""
        write_failures(self.path, table, run=self.read_config().identity)

    def read_failures(self) -> "pd.DataFrame":
        """Evaluations that failed: seed, iteration, row, kind, error, traceback and solution."""
        return read_failures(self.path, run=self.read_config().identity)

    def write_checkpoint(
        self, state: Any, *, seconds: float, num_rows: int | None = None, keep: int = 2
    ) -> None:
        """Write the state of the search. The rows of metrics up to it have to be on the disk.

        Args:
            state: The state.
            seconds: Time that the run has taken.
            num_rows: Number of rows of metrics so far.
            keep: Number of checkpoints to keep, this one included.
        """
        self._archives.remove()
        checkpoint = Checkpoint(state, int(state.iteration), seconds, num_rows)
        self._checkpoints.write(checkpoint, run=self._identity, keep=keep)

    def read_checkpoint(self, like: Any) -> Checkpoint:
        """The newest state of the search that is whole, of the structure of ``like``."""
        return self._checkpoints.read(like, run=self._identity)

    def read_checkpoint_iteration(self) -> int:
        """Number of iterations finished at the last checkpoint."""
        return self._checkpoints.read_iteration(run=self._identity)

    def write_archive(self, elites: Elites, *, seed: int) -> None:
        """Write the elites of one seed, as they are at the last checkpoint."""
        self._archives.write(elites, seed=seed, config=self.read_config())

    def read_archive(self, seed: int | None = None, *, archive: Archive | None = None) -> Elites:
        """The elites of one seed (of the first when none is named), as of the last checkpoint."""
        config = self.read_config()
        seed = config.seeds[0] if seed is None else seed
        fix = f"The run has the seeds {list(config.seeds)}."
        checks.expect(seed in config.seeds, "seed", "a seed of the run", seed, fix)
        if archive is None:
            archive = self.read_part("algorithm").archive
        assert archive is not None
        return self._archives.read(archive, seed=seed, config=config)

    def write_snapshot(self, iteration: int, arrays: dict[str, np.ndarray]) -> None:
        """Write what a picture of this iteration needs."""
        self._snapshots.write(iteration, arrays, run=self._identity)

    def read_snapshots(self) -> dict[int, dict[str, np.ndarray]]:
        """All snapshots by iteration, ascending."""
        run = self._identity
        return {at: self._snapshots.read(at, run=run) for at in self.snapshot_iterations}

    def read_snapshot(self, iteration: int) -> dict[str, np.ndarray]:
        """The snapshot of one iteration."""
        return self._snapshots.read(iteration, run=self._identity)

    @property
    def snapshot_iterations(self) -> list[int]:
        """Iterations with a snapshot, ascending."""
        return self._snapshots.iterations()

    @property
    def _identity(self) -> str:
        return self.read_config().identity

    def _read(
        self, name: str, kind: str, config: RunConfig
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """A file of arrays of this run."""
        path = self.path / name
        arrays, about = read_arrays(path, kind=kind, fix=_COPY)
        if about.get("run") != config.identity:
            raise DamagedFileError(path, "it belongs to another run", _COPY)
        return arrays, about


def dataset_digest(arrays: dict[str, np.ndarray]) -> str:
    """A digest of a dataset's arrays."""
    parts = " ".join(f"{name} {digest(arrays[name])}" for name in sorted(arrays))
    return digest(np.frombuffer(parts.encode(), np.uint8))
