"""Run folders: the only interface between running and looking.

config.json, config.npz    the algorithm, the domain and the settings of the run
metrics.parquet            a row for each seed and logged iteration
failures.parquet           evaluations that failed, where there are some
archive.npz                the elites (archive-SEED.npz when there are several seeds)
dataset.npz                the items that the cells are, where a dataset was given
checkpoint/state.npz       everything needed to go on
snapshots/NNNNNNN.npz      discount and elites of the first seed at chosen iterations
figures/, gallery.html     pictures

Every file carries digests of its content and the identity of its run, and is checked when it is
read. Nothing that a file says is imported or called.
"""

import contextlib
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gloam import checks
from gloam.archives import Archive, Elites
from gloam.datasets import Dataset
from gloam.formats import objects
from gloam.formats.arrays import digest, read_arrays, write_arrays
from gloam.formats.config import RunConfig
from gloam.formats.contents import dataset_arrays, dataset_from, elite_arrays, elites_from
from gloam.formats.documents import is_document, read_document, write_document
from gloam.formats.errors import DamagedFileError, ForeignError, RunExistsError
from gloam.formats.failure_table import read_failures, write_failures
from gloam.formats.lock import locked
from gloam.formats.own_files import FOLDERS, SNAPSHOT, own_files
from gloam.formats.states import state_arrays, state_from
from gloam.formats.tables import read_table, write_table

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
        return self._state_file.is_file()

    @property
    def _state_file(self) -> Path:
        return self.path / "checkpoint" / "state.npz"

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
        taken = sorted(str(file) for file in own_files(self.path))
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
            for file in own_files(self.path):
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

    def write_metrics(self, table: "pd.DataFrame") -> None:
        """Write the metrics."""
        about = {"run": self.read_config().identity}
        write_table(self.path / "metrics.parquet", table, about=about)

    def read_metrics(self) -> "pd.DataFrame":
        """The metrics so far; empty before the first checkpoint."""
        import pandas as pd  # lazily: half a second that `import gloam` need not wait for

        path = self.path / "metrics.parquet"
        if not path.is_file():
            return pd.DataFrame()
        fix = "Delete it to continue the run without its earlier metrics, or restore a copy."
        table, about = read_table(path, fix=fix)
        self._check_run(path, about, self.read_config())
        return table

    def write_failures(self, table: "pd.DataFrame") -> None:
        """Write the evaluations that failed."""
        write_failures(self.path, table, run=self.read_config().identity)

    def read_failures(self) -> "pd.DataFrame":
        """Evaluations that failed: seed, iteration, row, kind, error, traceback and solution."""
        return read_failures(self.path, run=self.read_config().identity)

    def write_checkpoint(self, state: Any, *, seconds: float) -> None:
        """Write the state of the search (the metrics first: see `gloam.drivers.loop`)."""
        about = {"seconds": seconds, "iteration": int(state.iteration)}
        self._write("checkpoint/state.npz", "checkpoint", state_arrays(state), about)

    def read_checkpoint(self, like: Any) -> tuple[Any, float]:
        """The state of the search, of the structure of ``like``, and the seconds spent so far."""
        arrays, about = self._read("checkpoint/state.npz", "checkpoint")
        seconds = about.get("seconds")
        try:
            if not (isinstance(seconds, float) and math.isfinite(seconds)):
                raise ValueError("it does not say how long the run took")
            state = state_from(like, arrays)
            if not 0 <= int(state.iteration) == about.get("iteration"):
                raise ValueError("it does not agree with itself on the iteration")
        except ValueError as error:
            raise DamagedFileError(self._state_file, str(error), _COPY) from None
        return state, seconds

    def read_checkpoint_iteration(self) -> int:
        """Number of iterations finished at the last checkpoint."""
        about = self._read("checkpoint/state.npz", "checkpoint", names=())[1]
        return checks.integer("iteration", about.get("iteration"), minimum=0)

    def write_archive(self, elites: Elites, *, seed: int, alone: bool) -> None:
        """Write the elites of one seed."""
        name = "archive.npz" if alone else f"archive-{seed}.npz"
        self._write(name, "archive", elite_arrays(elites), {"seed": seed})

    def read_archive(self, seed: int | None = None, *, archive: Archive | None = None) -> Elites:
        """The elites of one seed (of the first when none is named)."""
        config = self.read_config()
        seed = config.seeds[0] if seed is None else seed
        name = "archive.npz" if len(config.seeds) == 1 else f"archive-{seed}.npz"
        fix = f"The run has the seeds {list(config.seeds)}."
        checks.expect(seed in config.seeds, "seed", "a seed of the run", seed, fix)
        path = checks.existing_file("archive", self.path / name, "Wait for a checkpoint.")
        arrays, about = self._read(name, "archive", config)
        try:
            if about.get("seed") != seed:
                raise ValueError("it is the archive of another seed")
            return elites_from(archive or self.read_part("algorithm").archive, arrays)
        except ForeignError:
            raise
        except ValueError as error:
            raise DamagedFileError(path, str(error), _COPY) from None

    def write_snapshot(self, iteration: int, arrays: dict[str, np.ndarray]) -> None:
        """Write what a picture of this iteration needs."""
        self._write(f"snapshots/{iteration:07d}.npz", "snapshot", arrays, {})

    def read_snapshots(self) -> dict[int, dict[str, np.ndarray]]:
        """All snapshots by iteration, ascending."""
        config = self.read_config()
        folder = self.path / "snapshots"
        names = sorted(file.name for file in folder.glob("*.npz") if SNAPSHOT.match(file.name))
        return {
            int(Path(name).stem): self._read(f"snapshots/{name}", "snapshot", config)[0]
            for name in names
        }

    def _write(self, name: str, kind: str, arrays: dict[str, np.ndarray], about: Any) -> None:
        about = about | {"run": self.read_config().identity}
        write_arrays(self.path / name, arrays, kind=kind, about=about)

    def _read(
        self,
        name: str,
        kind: str,
        config: RunConfig | None = None,
        names: tuple[str, ...] | None = None,
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """A file of arrays of this run."""
        path = self.path / name
        arrays, about = read_arrays(path, kind=kind, fix=_COPY, names=names)
        self._check_run(path, about, config or self.read_config())
        return arrays, about

    @staticmethod
    def _check_run(path: Path, about: dict[str, Any], config: RunConfig) -> None:
        if about.get("run") != config.identity:
            raise DamagedFileError(path, "it belongs to another run", _COPY)


def dataset_digest(arrays: dict[str, np.ndarray]) -> str:
    """A digest of a dataset's arrays."""
    parts = " ".join(f"{name} {digest(arrays[name])}" for name in sorted(arrays))
    return digest(np.frombuffer(parts.encode(), np.uint8))
