"""Loggers and trackers write what the metrics table has."""

import csv
import io
import json
import math
import sys

import pandas as pd
import pytest

import gloam
from gloam.callbacks import CsvLogger, MLflow, PrintLogger, TensorBoard, WandB
from gloam.callbacks.loggers import _finite_numbers
from tests.helpers import refused

from .conftest import search


def assert_holds(path, metrics):
    """A CSV file has the rows of a table, to the last digit."""
    with open(path, newline="") as file:
        rows = [{name: float(text) for name, text in row.items()} for row in csv.DictReader(file)]
    pd.testing.assert_frame_equal(pd.DataFrame(rows), metrics, check_dtype=False, check_exact=True)


def test_a_csv_file_has_the_metrics(tmp_path):
    result = search(seeds=(3, 4), callbacks=[CsvLogger(tmp_path / "logs" / "a.csv")])
    assert_holds(tmp_path / "logs" / "a.csv", result.metrics)


def test_a_csv_file_of_a_resumed_run_has_every_row_once(tmp_path):
    path = tmp_path / "log.csv"
    logger = CsvLogger(path)
    search(iterations=4, run_dir=tmp_path / "run", callbacks=[logger])
    # As after a kill: a row past the checkpoint, and half of another.
    with open(path, "a") as file:
        file.write(path.read_text().splitlines()[-1].replace("3,4,", "3,6,", 1) + "\n3,8,")
    resumed = search(run_dir=tmp_path / "run", resume=True, callbacks=[logger])
    assert_holds(path, resumed.metrics)
    path.unlink()
    again = search(iterations=12, run_dir=tmp_path / "run", resume=True, callbacks=[logger])
    assert_holds(path, again.metrics)


def test_a_csv_logger_replaces_no_other_file(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("name,price\n")
    with pytest.raises(ValueError, match=r"^path:.*exists"):
        search(callbacks=[CsvLogger(path)])
    search(iterations=4, run_dir=tmp_path / "run")
    with pytest.raises(ValueError, match=r"^path:.*CsvLogger"):
        search(run_dir=tmp_path / "run", resume=True, callbacks=[CsvLogger(path)])
    assert path.read_text() == "name,price\n"


@pytest.mark.parametrize("driver", ["fused", "python"])
def test_a_file_that_cannot_be_written_leaves_no_run_behind(driver, tmp_path):
    (tmp_path / "file").write_text("")
    run, log = tmp_path / "run", CsvLogger(tmp_path / "file" / "log.csv")
    with pytest.raises(OSError, match=r"log\.csv"):
        search(driver, run_dir=run, callbacks=[log])
    assert not gloam.RunFolder(run).holds_run
    assert not list(run.iterdir())
    with refused("path: expected a path"):
        CsvLogger("")


def test_lines_are_printed(capsys):
    stop = gloam.callbacks.StopAt("evaluations", 24)
    search(seeds=(3, 4), callbacks=[PrintLogger(every=2), stop])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("iteration 4: QD score ")
    assert lines[1] == "stopped after iteration 6 (evaluations reached 24 (now 24))"
    text = io.StringIO()
    search(callbacks=[PrintLogger(file=text)])
    assert text.getvalue().splitlines()[-1] == "finished after iteration 10"
    with refused("every: expected"):
        PrintLogger(0)


def test_trackers_get_finite_numbers_by_name():
    one = {"seed": 3, "iteration": 2, "loss": math.nan, "coverage": 0.5}
    assert _finite_numbers([one]) == {"coverage": 0.5}
    assert _finite_numbers([one, one | {"seed": 4}]) == {
        "seed 3/coverage": 0.5,
        "seed 4/coverage": 0.5,
    }


@pytest.mark.parametrize(
    ("build", "module", "extra"),
    [
        (lambda: TensorBoard("x"), "tensorboard.summary", "tensorboard"),
        (lambda: WandB("x"), "wandb", "wandb"),
        (lambda: MLflow("x"), "mlflow", "mlflow"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(build, module, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"pip install 'gloam\[{extra}\]'"):
        build()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_reads_the_rows(tmp_path):
    pytest.importorskip("tensorboard", reason="needs gloam[tensorboard]")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = search(callbacks=[TensorBoard(tmp_path)])
    events = EventAccumulator(str(tmp_path)).Reload()
    found = [(event.step, event.tensor_proto) for event in events.Tensors("coverage")]
    assert [step for step, _ in found] == result.metrics["iteration"].tolist()
    values = [proto.float_val[0] for _, proto in found]
    assert values == pytest.approx(result.metrics["coverage"].tolist(), rel=1e-6)


def test_mlflow_keeps_the_rows(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = pytest.importorskip("mlflow", reason="needs gloam[mlflow]")
    place = (tmp_path / "mlruns").as_uri()
    tracker = MLflow("trials", tracking_uri=place)
    result = search(seeds=(3, 4), callbacks=[tracker])
    client = mlflow.MlflowClient(place)
    history = client.get_metric_history(tracker.run_id, "seed 4/coverage")
    rows = result.metrics[result.metrics["seed"] == 4]
    assert [(one.step, one.value) for one in history] == list(
        zip(rows["iteration"], rows["coverage"], strict=True)
    )
    kept = client.get_run(tracker.run_id)
    assert kept.info.status == "FINISHED"
    assert kept.data.params["algorithm"] == "MAP-Elites"
    # A second session goes on with it.
    search(callbacks=[MLflow("trials", tracking_uri=place, run_id=tracker.run_id)])
    assert len(client.get_metric_history(tracker.run_id, "coverage")) == 5


@pytest.mark.slow
def test_weights_and_biases_work_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="needs gloam[wandb]")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    result = search(callbacks=[WandB("gloam-tests", {"mode": "offline", "config": {"mine": 1}})])
    assert result.callback_failures == ()
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))


class FakeRun:
    def __init__(self):
        self.logged, self.summary, self.codes = [], {}, []

    def log(self, numbers, *, step):
        self.logged.append((step, numbers["coverage"]))

    def finish(self, *, exit_code):
        self.codes.append(exit_code)


def test_weights_and_biases_get_each_iteration_once(monkeypatch):
    """Against a stand-in for the package, whose own process takes seconds to start."""
    made, run = [], FakeRun()

    class Package:
        @staticmethod
        def init(**settings):
            made.append(settings)
            return run

    monkeypatch.setitem(sys.modules, "wandb", Package)
    result = search(callbacks=[WandB("project", {"mode": "offline", "config": {"mine": 1}})])
    (settings,) = made
    assert (settings["project"], settings["mode"]) == ("project", "offline")
    assert settings["config"]["mine"] == 1
    assert settings["config"]["algorithm"] == "MAP-Elites"
    assert json.dumps(settings["config"])
    table = result.metrics
    assert run.logged == list(zip(table["iteration"], table["coverage"], strict=True))
    assert (run.summary, run.codes) == ({"status": "finished"}, [0])
