"""Callbacks that log metrics: CSV files, printed lines, TensorBoard, Weights & Biases, MLflow.

Experiment trackers get one number per metric, seed and logged iteration. With several seeds, the
names contain the seed, as in ``seed 3/coverage``. The package of a tracker is imported when its
callback is built.
"""

import csv
import importlib
import io
import math
import os
import statistics
from collections.abc import Sequence
from typing import Any, TextIO

from gloam._tools import checks
from gloam._tools.files import append, write_bytes
from gloam.archives.qd_score import reference_note, with_one_reference
from gloam.callbacks.callback import Callback, Row, RunEnd, RunStart

# The first columns of all metrics, by which files of a CsvLogger are recognized.
_CSV_HEADER = "seed,iteration,evaluations,"


class CsvLogger(Callback):
    """Writes the logged rows to a CSV file as soon as they are logged.

    The file has the columns of the metrics, in the same order. When a run is resumed, the file is
    rewritten from the rows in the run folder, so that it has every row exactly once.

    Args:
        path: The file. It must not exist, except when the run is resumed.
    """

    def __init__(self, path: str | os.PathLike):
        self._path = checks.path("path", path)
        self._has_header = False

    def start(self, run: RunStart) -> None:
        """Check the file, and write the rows of a resumed run."""
        fix = "Choose another name, or move the file away."
        if run.run_dir is not None:
            is_metrics = self._path.resolve() == (run.run_dir / "metrics.csv").resolve()
            checks.expect(not is_metrics, "path", "a file of its own", "the run's metrics", fix)
        if self._path.exists():
            got = f"'{self._path}', which exists"
            checks.expect(run.first_iteration > 0, "path", "a new file", got, fix)
            with open(self._path, encoding="utf-8", errors="replace") as file:
                is_ours = file.read(len(_CSV_HEADER)) in ("", _CSV_HEADER)
            got = f"'{self._path}', which has other columns"
            checks.expect(is_ours, "path", "a file of an earlier CsvLogger", got, fix)
        write_bytes(self._path, b"")
        self._has_header = False
        if run.earlier_rows:
            self.log(run.earlier_rows)

    def log(self, rows: Sequence[Row]) -> None:
        """Write the rows."""
        text = io.StringIO(newline="")
        table = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
        if not self._has_header:
            table.writeheader()
        table.writerows(rows)
        append(self._path, text.getvalue().encode(), sync=False)
        self._has_header = True


class PrintLogger(Callback):
    """Prints the means over the seeds, on one line per logged iteration.

    Args:
        every: Number of logged iterations per line.
        file: An open text file. Default: standard output.
    """

    def __init__(self, every: int = 1, *, file: TextIO | None = None):
        self._every = checks.integer("every", every, minimum=1)
        self._file = file
        self._calls = 0

    def log(self, rows: Sequence[Row]) -> None:
        """Print the line."""
        self._calls += 1
        if self._calls % self._every:
            return
        rows = with_one_reference(rows)
        reference = reference_note(rows[0]["f_min"])
        names = ("qd_score", "coverage", "seconds")
        score, coverage, seconds = (statistics.fmean(row[name] for row in rows) for name in names)
        best = max(row["best_objective"] for row in rows)
        print(
            f"iteration {rows[0]['iteration']:,}: QD score {score:,.4g}{reference}, "
            f"coverage {coverage:.2%}, best objective {best:.4g}, {seconds:,.1f} s",
            file=self._file,
            flush=True,
        )

    def end(self, end: RunEnd) -> None:
        """Print how the run ended."""
        reason = f" ({end.reason})" if end.reason else ""
        line = f"{end.status} after iteration {end.iteration:,}{reason}"
        print(line, file=self._file, flush=True)


class TensorBoard(Callback):
    """Writes event files for TensorBoard; view them with ``tensorboard --logdir FOLDER``.

    A resumed run adds a file to the folder. Iterations after the checkpoint are in it a second
    time, with the same numbers.

    Args:
        folder: Folder for the event files.
    """

    def __init__(self, folder: str | os.PathLike):
        self._writer_class = _package("tensorboard.summary", "tensorboard").Writer
        self._folder = str(checks.path("folder", folder))
        self._writer: Any = None

    def start(self, run: RunStart) -> None:
        """Open a file."""
        self._writer = self._writer_class(self._folder)

    def log(self, rows: Sequence[Row]) -> None:
        """Write the numbers."""
        for name, number in _finite_numbers(rows).items():
            self._writer.add_scalar(name, number, rows[0]["iteration"])
        self._writer.flush()

    def end(self, end: RunEnd) -> None:
        """Close the file."""
        self._writer.close()


class WandB(Callback):
    """Sends the rows to Weights & Biases.

    Args:
        project: Name of the project.
        settings: Further arguments of ``wandb.init``, for example ``{"mode": "offline"}``, or
            ``{"id": "...", "resume": "allow"}`` to continue the same page in a resumed run.
    """

    def __init__(self, project: str, settings: dict[str, Any] | None = None):
        self._wandb = _package("wandb", "wandb")
        self._settings = {"project": project, **(settings or {})}
        self._run: Any = None

    def start(self, run: RunStart) -> None:
        """Begin a run of Weights & Biases."""
        config = {**run.settings, **self._settings.get("config", {})}
        self._run = self._wandb.init(**{"name": run.title, **self._settings, "config": config})

    def log(self, rows: Sequence[Row]) -> None:
        """Send the numbers."""
        self._run.log(_finite_numbers(rows), step=rows[0]["iteration"])

    def end(self, end: RunEnd) -> None:
        """Finish the run of Weights & Biases."""
        self._run.summary["status"] = end.status
        self._run.finish(exit_code=int(end.status == "failed"))


class MLflow(Callback):
    """Sends the rows to MLflow.

    Args:
        experiment: Name of the experiment; it is created if it does not exist.
        tracking_uri: Address of MLflow's data. Default: MLflow's own default.
        run_id: Identifier of an MLflow run to continue in a resumed run. Default: a new run.
    """

    def __init__(
        self, experiment: str, *, tracking_uri: str | None = None, run_id: str | None = None
    ):
        self._client = _package("mlflow", "mlflow").MlflowClient(tracking_uri)
        self._experiment = experiment
        self.run_id = run_id
        """Identifier of the MLflow run, set at the start."""

    def start(self, run: RunStart) -> None:
        """Begin a run of MLflow."""
        if self.run_id is not None:
            return
        known = self._client.get_experiment_by_name(self._experiment)
        if known:
            identifier = known.experiment_id
        else:
            identifier = self._client.create_experiment(self._experiment)
        self.run_id = self._client.create_run(identifier, run_name=run.title).info.run_id
        for name, value in run.settings.items():
            self._client.log_param(self.run_id, name, value)

    def log(self, rows: Sequence[Row]) -> None:
        """Send the numbers."""
        for name, number in _finite_numbers(rows).items():
            self._client.log_metric(self.run_id, name, number, step=rows[0]["iteration"])

    def end(self, end: RunEnd) -> None:
        """Finish the run of MLflow."""
        self._client.set_tag(self.run_id, "gloam status", end.status)
        failed = end.status in ("failed", "interrupted")
        self._client.set_terminated(self.run_id, "FAILED" if failed else "FINISHED")


def _package(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"The package {module.partition('.')[0]} is required ({error}). "
            f"Install it with: pip install 'gloam[{extra}]'"
        ) from error


def _finite_numbers(rows: Sequence[Row]) -> dict[str, float]:
    """Return the metrics by name. NaN, such as a loss before training, is left out."""
    has_seeds = len(rows) > 1
    return {
        f"seed {row['seed']}/{name}" if has_seeds else name: float(value)
        for row in rows
        for name, value in row.items()
        if name not in ("seed", "iteration") and math.isfinite(value)
    }
