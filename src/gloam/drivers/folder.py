"""Run folders: the only interface between running and looking.

config.json, config.npz    the algorithm, the domain and the settings of the run
metrics.parquet            a row for each seed and logged iteration
archive.npz                the elites (archive-SEED.npz when there are several seeds)
dataset.npz                the items that the cells are, where a dataset was given
checkpoint/state.npz       everything needed to go on
snapshots/NNNNNNN.npz      discount and elites of the first seed at chosen iterations
figures/                   pictures
"""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gloam import checks, files
from gloam.archives import Archive, Elites, Store
from gloam.datasets import Dataset
from gloam.drivers import codec

if TYPE_CHECKING:
    import pandas as pd


class RunFolder:
    """Reads and writes one run folder."""

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
        """True when a run was started here."""
        return (self.path / "config.json").is_file()

    @property
    def holds_checkpoint(self) -> bool:
        """True when the run can be continued."""
        return (self.path / "checkpoint" / "state.npz").is_file()

    def must_hold_run(self) -> "RunFolder":
        """Check that there is a run to read."""
        checks.expect(self.holds_run, "run folder", "a folder with config.json",
                      f"'{self.path}'", "Give the folder of a run.")  # fmt: skip
        return self

    def write_config(self, *, algorithm: Any, domain: Any, settings: dict[str, Any]) -> None:
        """Write what the run is."""
        arrays: dict[str, np.ndarray] = {}
        content = dict(settings)
        # The algorithm first: whoever compares algorithms encodes nothing else, and the names of
        # arrays count up.
        content["algorithm"] = codec.encode(algorithm, arrays)
        content["domain"] = codec.encode(domain, arrays)
        files.write_arrays(self.path / "config.npz", arrays)
        files.write_json(self.path / "config.json", content)

    def read_settings(self) -> dict[str, Any]:
        """The plain part of the configuration."""
        return json.loads((self.path / "config.json").read_text())

    def read_part(self, name: str) -> Any:
        """The ``"algorithm"`` or the ``"domain"``, built anew."""
        arrays = files.read_arrays(self.path / "config.npz")
        return codec.decode(self.read_settings()[name], arrays)

    def write_dataset(self, dataset: Dataset) -> None:
        """Write the items that the cells are, with what shows them."""
        arrays: dict[str, Any] = {"items": dataset.items, "names": np.asarray(dataset.names)}
        arrays["shape"] = np.asarray(dataset.shape)
        optional = {"labels": dataset.labels, "images": dataset.images, "bounds": dataset.bounds}
        arrays |= {name: np.asarray(part) for name, part in optional.items() if part is not None}
        files.write_arrays(self.path / "dataset.npz", arrays)

    def read_dataset(self) -> Dataset:
        """The items that the cells are."""
        path = checks.existing_file("dataset", self.path / "dataset.npz",
                                    "Pass dataset=... to gloam.run or gloam.optimize.")  # fmt: skip
        arrays = files.read_arrays(path)
        labels, bounds = arrays.get("labels"), arrays.get("bounds")
        return Dataset(
            arrays["items"], tuple(arrays["shape"].tolist()),
            None if labels is None else labels.tolist(), arrays["names"].tolist(),
            arrays.get("images"), None if bounds is None else (float(bounds[0]), float(bounds[1])),
        )  # fmt: skip

    def write_metrics(self, table: "pd.DataFrame") -> None:
        """Write the metrics."""
        files.write_table(self.path / "metrics.parquet", table)

    def read_metrics(self) -> "pd.DataFrame":
        """The metrics so far; empty before the first checkpoint."""
        import pandas as pd  # lazily: half a second that `import gloam` need not wait for

        path = self.path / "metrics.parquet"
        return pd.read_parquet(path) if path.is_file() else pd.DataFrame()

    def write_checkpoint(self, state: Any, *, seconds: float) -> None:
        """Write the state of the search (the metrics first: see `gloam.drivers.loop`)."""
        arrays = codec.leaves(state)
        arrays |= {"seconds": np.asarray(seconds), "iteration": np.asarray(state.iteration)}
        files.write_arrays(self.path / "checkpoint" / "state.npz", arrays)

    def read_checkpoint(self, like: Any) -> tuple[Any, float]:
        """The state of the search, of the structure of ``like``, and the seconds spent so far."""
        arrays = files.read_arrays(self.path / "checkpoint" / "state.npz")
        seconds = float(arrays.pop("seconds"))
        return codec.from_leaves(like, arrays), seconds

    def read_checkpoint_iteration(self) -> int:
        """Iterations finished at the last checkpoint."""
        return int(files.read_arrays(self.path / "checkpoint" / "state.npz")["iteration"])

    def write_archive(self, elites: Elites, *, seed: int, alone: bool) -> None:
        """Write the elites of one seed."""
        store = elites.store
        arrays = {
            "cell": elites.cells, "solution": elites.solutions,
            "objective": elites.objectives, "measures": elites.flat_measures,
        }  # fmt: skip
        arrays |= {f"field_{name}": elites.field(name) for name in store.fields}
        name = "archive.npz" if alone else f"archive-{seed}.npz"
        files.write_arrays(self.path / name, arrays)

    def read_archive(self, seed: int | None = None, *, archive: Archive | None = None) -> Elites:
        """The elites of one seed (of the first when none is named)."""
        settings = self.read_settings()
        seed = settings["seeds"][0] if seed is None else seed
        alone = len(settings["seeds"]) == 1
        path = self.path / ("archive.npz" if alone else f"archive-{seed}.npz")
        checks.existing_file("archive", path, f"The run has the seeds {settings['seeds']}.")
        arrays = files.read_arrays(path)
        cells = archive or self.read_part("algorithm").archive

        def spread(values: np.ndarray, empty: float = 0.0) -> Any:
            whole = np.full((cells.cells, *values.shape[1:]), empty, values.dtype)
            whole[arrays["cell"]] = values
            return whole

        fields = {name: spread(arrays[f"field_{name}"]) for name in cells.fields}
        return Elites(cells, Store(
            spread(arrays["solution"]), spread(arrays["objective"], -np.inf),
            spread(arrays["measures"]), fields,
        ))  # fmt: skip

    def write_snapshot(self, iteration: int, arrays: dict[str, np.ndarray]) -> None:
        """Write what a picture of this iteration needs."""
        files.write_arrays(self.path / "snapshots" / f"{iteration:07d}.npz", arrays)

    def read_snapshots(self) -> dict[int, dict[str, np.ndarray]]:
        """All snapshots by iteration, ascending."""
        paths = sorted((self.path / "snapshots").glob("*.npz"))
        return {int(path.stem): files.read_arrays(path) for path in paths}
