"""Writes the logged rows to a CSV file, row by row.

Prints a line for each logged iteration.

Experiment trackers: TensorBoard, Weights & Biases and MLflow, each with its own package.

A tracker gets one number for each metric, seed and logged iteration. With several seeds the names
have the seed, as in ``seed 3/coverage``. A package is imported when its callback is built, and an
error says how to install one that is missing.
"""

import csv
import importlib
import io
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from gloam import checks
from gloam.callbacks.callback import Callback, Row, RunEnd, RunStart
from gloam.files import append, write_bytes

# The first columns of all metrics: by them a file is known to be one of ours.
_FIRST = "seed,iteration,evaluations,"


class CsvLogger(Callback):
    """Writes the logged rows to a CSV file, as soon as they are logged.

    The file has the columns of the metrics, in the same order. In a resumed run it is first written
    anew with the rows that the run folder has, so that no row is missing and none is there twice.

    Args:
        path: The file. It must not exist, or be of an earlier `CsvLogger` of a resumed run.
    """

    def __init__(self, path: str | os.PathLike):
        self._path = Path(path)
        self._has_header = False

    def start(self, run: RunStart) -> None:
        """Check the file, and write the rows of a resumed run."""
        exists, resumed = self._path.exists(), run.first_iteration > 0
        fix = "Choose another name, or move the file away."
        got = f"'{self._path}', which exists"
        checks.expect(not exists or resumed, "path", "a new file", got, fix)
        if exists:
            with open(self._path, encoding="utf-8", errors="replace") as file:
                is_ours = file.read(len(_FIRST)) in ("", _FIRST)
            got = f"'{self._path}', which has other columns"
            checks.expect(is_ours, "path", "a file of an earlier CsvLogger", got, fix)
        self._has_header = False
        write_bytes(self._path, self._lines(run.earlier_rows))

    def log(self, rows: Sequence[Row]) -> None:
        """Write the rows."""
        append(self._path, self._lines(rows), sync=False)

    def _lines(self, rows: Sequence[Row]) -> bytes:
        text = io.StringIO(newline="")
        if rows:
            table = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
            if not self._has_header:
                table.writeheader()
                self._has_header = True
            table.writerows(rows)
        return text.getvalue().encode()


class PrintLogger(Callback):
    """Prints a line for each logged iteration: the means over the seeds.

    Args:
        every: Number of logged iterations for each line.
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

        def mean(name: str) -> float:
            return math.fsum(row[name] for row in rows) / len(rows)

        best = max(row["best_objective"] for row in rows)
        self._print(
            f"iteration {rows[0]['iteration']:,}: QD score {mean('qd_score'):,.4g}, "
            f"coverage {mean('coverage'):.2%}, best objective {best:.4g}, "
            f"{mean('seconds'):,.1f} s"
        )

    def end(self, end: RunEnd) -> None:
        """Print how the run ended."""
        why = f" ({end.reason})" if end.reason else ""
        self._print(f"{end.status} after iteration {end.iteration:,}{why}")

    def _print(self, line: str) -> None:
        print(line, file=self._file or sys.stdout, flush=True)


# These columns say which row it is, and are no results.
_PLACE = ("seed", "iteration")


def _package(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise ImportError(
            f"callbacks: expected the package {name}, got none ({error}). "
            f"Install it by: pip install 'gloam[{extra}]'"
        ) from error


def _numbers(rows: Sequence[Row]) -> dict[str, float]:
    """Finite numbers of the rows by name; a NaN (a loss before training) is left out."""
    many = len(rows) > 1
    named = {
        f"seed {row['seed']}/{name}" if many else name: float(value)
        for row in rows
        for name, value in row.items()
        if name not in _PLACE
    }
    return {name: value for name, value in named.items() if math.isfinite(value)}


class TensorBoard(Callback):
    """Writes event files for TensorBoard; look at them with ``tensorboard --logdir FOLDER``.

    A resumed run adds a file to the folder. Iterations after the checkpoint are in it a second
    time, with the same numbers.

    Args:
        folder: Folder for the event files.
    """

    def __init__(self, folder: str | os.PathLike):
        self._writer_class = _package("tensorboard.summary", "tensorboard").Writer
        self._folder = os.fspath(folder)
        self._writer: Any = None

    def start(self, run: RunStart) -> None:
        """Open a file."""
        self._writer = self._writer_class(self._folder)

    def log(self, rows: Sequence[Row]) -> None:
        """Write the numbers."""
        for name, number in _numbers(rows).items():
            self._writer.add_scalar(name, number, rows[0]["iteration"])
        self._writer.flush()

    def end(self, end: RunEnd) -> None:
        """Close the file."""
        self._writer.close()


class WandB(Callback):
    """Sends the rows to Weights & Biases.

    Args:
        project: Name of the project.
        settings: Further arguments of ``wandb.init``, for instance ``{"mode": "offline"}``, or
            ``{"id": "...", "resume": "allow"}`` to go on with the same page in a resumed run.
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
        self._run.log(_numbers(rows), step=rows[0]["iteration"])

    def end(self, end: RunEnd) -> None:
        """Finish the run of Weights & Biases."""
        self._run.summary["status"] = end.status
        self._run.finish(exit_code=int(end.status == "failed"))


class MLflow(Callback):
    """Sends the rows to MLflow.

    Args:
        experiment: Name of the experiment; it is created if it does not exist.
        tracking_uri: Where MLflow keeps its data. Default: as MLflow is set up.
        run_id: A run of MLflow to go on with, for a resumed run. Default: a new one.
    """

    def __init__(
        self, experiment: str, *, tracking_uri: str | None = None, run_id: str | None = None
    ):
        self._client = _package("mlflow", "mlflow").MlflowClient(tracking_uri)
        self._experiment = experiment
        self.run_id = run_id
        """Identifier of MLflow's run, once it has begun."""

    def start(self, run: RunStart) -> None:
        """Begin a run of MLflow."""
        if self.run_id is not None:
            return
        found = self._client.get_experiment_by_name(self._experiment)
        place = found.experiment_id if found else self._client.create_experiment(self._experiment)
        self.run_id = self._client.create_run(place, run_name=run.title).info.run_id
        for name, value in run.settings.items():
            self._client.log_param(self.run_id, name, value)

    def log(self, rows: Sequence[Row]) -> None:
        """Send the numbers."""
        for name, number in _numbers(rows).items():
            self._client.log_metric(self.run_id, name, number, step=rows[0]["iteration"])

    def end(self, end: RunEnd) -> None:
        """Finish the run of MLflow."""
        self._client.set_tag(self.run_id, "gloam status", end.status)
        failed = end.status in ("failed", "interrupted")
        self._client.set_terminated(self.run_id, "FAILED" if failed else "FINISHED")
