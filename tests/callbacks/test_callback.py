"""Callbacks get the logged rows, can stop a run, and cannot lose one."""

import warnings

import pandas as pd
import pytest

import gloam
from gloam.callbacks import Callback, CallbackWarning
from tests.helpers import assert_same_bits

from .conftest import Recorder, search


def test_callbacks_get_the_rows_of_the_metrics_in_order(run):
    recorder = Recorder()
    result = run(callbacks=[recorder])
    assert [kind for kind, _ in recorder.calls] == ["start", *["log"] * 5, "end"]
    rows = [row for rows in recorder.told("log") for row in rows]
    pd.testing.assert_frame_equal(pd.DataFrame(rows), result.metrics)
    (start,), (end,) = recorder.told("start"), recorder.told("end")
    assert (start.seeds, start.iterations, start.first_iteration) == ((3,), 10, 0)
    assert start.settings["algorithm"] == "MAP-Elites"
    assert (start.earlier_rows, start.run_dir) == ([], None)
    assert (end.status, end.reason, end.iteration) == ("finished", "", 10)
    assert_same_bits(end.elites_by_seed[3], result.elites)
    assert result.stopped is None


def test_a_callback_changes_nothing_of_the_search():
    plain = search(iterations=6)
    followed = search(iterations=6, callbacks=[Recorder()])
    columns = plain.metrics.columns.drop("seconds")
    pd.testing.assert_frame_equal(followed.metrics[columns], plain.metrics[columns])
    assert_same_bits(followed.elites, plain.elites)


def test_changes_to_a_row_stay_with_the_callback():
    class Eraser(Callback):
        def log(self, rows):
            rows[0].clear()

    assert search(callbacks=[Eraser()]).metrics["iteration"].tolist() == [2, 4, 6, 8, 10]


def test_a_stopped_run_is_a_shorter_run(run, tmp_path):
    recorder = Recorder(stop_at=4)
    stopped = run(run_dir=tmp_path / "a", callbacks=[recorder, Recorder()])
    short = run(iterations=4, run_dir=tmp_path / "b")
    assert stopped.stopped == "enough"
    assert_same_bits(stopped.elites, short.elites)
    names = [
        sorted(str(file.relative_to(tmp_path / name)) for file in (tmp_path / name).rglob("*.*"))
        for name in "ab"
    ]
    assert names[0] == names[1]
    folder = gloam.RunFolder(tmp_path / "a")
    assert folder.read_checkpoint_iteration() == 4
    assert_same_bits(folder.read_archive(), short.elites)
    assert recorder.told("checkpoint")[-1] == 4
    (end,) = recorder.told("end")
    assert (end.status, end.reason, end.iteration) == ("stopped", "enough", 4)
    assert folder.read_config().plan["stopped"] == "enough"
    # It can be continued to the end that it would have had.
    resumed = run(run_dir=tmp_path / "a", resume=True)
    assert resumed.stopped is None
    assert "stopped" not in folder.read_config().plan
    assert_same_bits(resumed.elites, run().elites)


def test_a_resumed_run_tells_what_was_logged_before(tmp_path):
    first = search(iterations=4, run_dir=tmp_path)
    recorder = Recorder()
    search(run_dir=tmp_path, resume=True, callbacks=[recorder])
    (start,) = recorder.told("start")
    assert start.first_iteration == 4
    pd.testing.assert_frame_equal(pd.DataFrame(start.earlier_rows), first.metrics)
    assert [rows[0]["iteration"] for rows in recorder.told("log")] == [6, 8, 10]
    assert start.run_dir == tmp_path


def test_resume_takes_callbacks(tmp_path):
    domain = gloam.domains.LinearProjection(2, solution_dim=4)
    algorithm = gloam.MAPElites(gloam.GridArchive((4, 4), -9, 9), domain.x0, 0.5, batch_size=4)
    gloam.run(domain, algorithm, 2, run_dir=tmp_path, log_every=1, progress=False)
    stop = [Recorder(stop_at=4)]
    result = gloam.resume(tmp_path, iterations=9, progress=False, callbacks=stop)
    assert (result.stopped, result.metrics["iteration"].max()) == ("enough", 4)


class Raises(Callback):
    def __init__(self, method, error=None):
        self.calls, self._error = [], error or OSError("the server is gone")
        setattr(self, method, self._raise)

    def _raise(self, _):
        self.calls.append(1)
        raise self._error


@pytest.mark.parametrize("method", ["log", "checkpoint", "end"])
def test_an_error_in_a_callback_does_not_end_the_run(method, tmp_path):
    wrong, recorder = Raises(method), Recorder()
    with pytest.warns(CallbackWarning) as warned:
        result = search(callbacks=[wrong, recorder], run_dir=tmp_path)
    (warning,) = warned
    at = 2 if method == "log" else 10
    assert str(warning.message) == (
        f"Raises.{method} raised OSError: the server is gone at iteration {at}. "
        "The run continues without this callback."
    )
    assert wrong.calls == [1]
    assert recorder.told("end")[0].status == "finished"
    (failure,) = result.callback_failures
    assert (failure.callback, failure.method) == (wrong, method)
    assert isinstance(failure.error, OSError)
    assert_same_bits(result.elites, search().elites)
    assert_same_bits(gloam.RunFolder(tmp_path).read_archive(), result.elites)
    # The run was saved as soon as the callback had failed.
    assert recorder.told("checkpoint") == ([2, 10] if method == "log" else [10])


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
@pytest.mark.parametrize(("method", "at"), [("log", 2), ("checkpoint", 5)])
def test_a_callback_that_exits_leaves_a_run_that_resumes(run, tmp_path, method, at, error):
    recorder, options = Recorder(), {"run_dir": tmp_path, "checkpoint_every": 5}
    with pytest.raises(type(error)):
        run(callbacks=[recorder, Raises(method, error)], **options)
    assert gloam.RunFolder(tmp_path).read_checkpoint_iteration() == at
    assert recorder.told("checkpoint") == [at]
    assert recorder.told("end")[0].iteration == 2 * (at // 2)
    resumed, whole = run(resume=True, **options), run()
    assert_same_bits(resumed.elites, whole.elites)
    assert resumed.metrics["iteration"].tolist() == whole.metrics["iteration"].tolist()


class MuteError(Exception):
    """An exception without a text."""

    def __str__(self):
        raise ValueError("no text")


def test_an_error_without_a_text_does_not_end_the_run(tmp_path):
    with pytest.warns(CallbackWarning, match=r"raised MuteError: .*raised ValueError"):
        result = search(callbacks=[Raises("log", MuteError())], run_dir=tmp_path)
    assert result.metrics["iteration"].max() == 10
    recorder = Recorder()
    with pytest.raises(MuteError):
        search(callbacks=[recorder, Raises("start", MuteError())])
    assert recorder.told("end")[0].status == "failed"


def test_an_error_that_is_a_warning_leaves_a_run_that_resumes(tmp_path):
    """As with `python -W error`."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", CallbackWarning)
        with pytest.raises(CallbackWarning, match="the server is gone"):
            search(callbacks=[Raises("log")], run_dir=tmp_path)
    assert gloam.RunFolder(tmp_path).read_checkpoint_iteration() == 2
    resumed = search(run_dir=tmp_path, resume=True)
    assert_same_bits(resumed.elites, search().elites)


def test_an_answer_that_is_no_reason_is_reported():
    class Answers(Callback):
        def log(self, rows):
            return True

    with pytest.warns(CallbackWarning, match=r"log:.*True"):
        result = search(callbacks=[Answers()])
    assert result.metrics["iteration"].max() == 10


def test_an_error_at_the_start_prevents_the_run(tmp_path):
    first, second = Recorder(), Recorder()
    with pytest.raises(OSError, match="the server is gone"):
        search(callbacks=[first, Raises("start"), second], run_dir=tmp_path)
    assert [kind for kind, _ in first.calls] == ["start", "end"]
    assert first.told("end")[0].status == "failed"
    assert second.calls == []
    # The folder is as after an interruption before the first checkpoint.
    assert search(run_dir=tmp_path, resume=True).metrics["iteration"].max() == 10


def test_an_evaluation_that_fails_ends_the_callbacks():
    def fails(solutions):
        return solutions[:, 0] * float("nan"), solutions[:, :2]

    recorder = Recorder()
    algorithm = gloam.MAPElites(gloam.GridArchive((4, 4), -1, 1), [0.0, 0.0], 0.1, batch_size=4)
    with pytest.raises(gloam.errors.EvaluationError):
        gloam.run(fails, algorithm, 5, progress=False, callbacks=[recorder])
    (end,) = recorder.told("end")
    assert end.status == "failed"
    assert "at least one finite result" in end.reason
    assert end.elites_by_seed == {}


def test_what_is_no_callback_is_refused():
    with pytest.raises(ValueError, match=r"^callbacks:.*list"):
        search(callbacks=Recorder())
    for wrong in (Recorder, print, 3):
        with pytest.raises(ValueError, match=r"^callbacks:.*Callback"):
            search(callbacks=[wrong])
