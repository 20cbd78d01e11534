"""Evaluations that fail in `optimize`: masked, counted, logged once, and a limit to them."""

import dataclasses
import warnings

import numpy as np
import pytest

import gloam
from gloam.errors import EvaluationError
from gloam.evaluators import Failure
from gloam.runs import failures
from tests.helpers import assert_same_bits, refused


def algorithm():
    archive = gloam.GridArchive((6, 6), -1, 1, f_min=-100)
    return gloam.CMAMAE(archive, np.zeros(3), 0.3, num_emitters=2, batch_size=4)


def evaluate(x):
    return 1 - np.square(x).sum(axis=1), x[:, :2]


def is_bad(x):
    """Half of all solutions, by chance but always the same."""
    return np.asarray(x * 1000 % 2, np.int64)[..., 0] == 0


def nan_for_bad(x):
    objectives, measures = evaluate(x)
    return np.where(is_bad(x), np.nan, objectives), measures


def raises_for_bad(x):
    if is_bad(x).any():
        raise RuntimeError("the simulator diverged")
    return evaluate(x)


def odd_for_bad(x):
    """Three measures instead of two when a solution is bad."""
    return (evaluate(x)[0], x[:, :3]) if is_bad(x).any() else evaluate(x)


def all_fail(x):
    raise RuntimeError("no licence")


def optimize(function, iterations=6, **options):
    options = {"seeds": [3], "log_every": 1, "progress": False} | options
    return gloam.optimize(function, algorithm(), iterations, **options)


@pytest.mark.parametrize(
    ("function", "kind", "error"),
    [
        (nan_for_bad, "not finite", "expected a finite objective, got nan"),
        (raises_for_bad, "exception", "RuntimeError: the simulator diverged"),
        (odd_for_bad, "wrong form", "ValueError: measures: expected shape (1, 2)"),
    ],
)
def test_a_bad_solution_masks_its_row_only(tmp_path, function, kind, error):
    found = optimize(function, run_dir=tmp_path)
    assert_same_bits(found.elites, optimize(nan_for_bad).elites)  # however it fails
    assert not is_bad(found.elites.solutions).any()
    assert len(found.elites) > 0
    table = gloam.RunFolder(tmp_path).read_failures()
    assert set(table["kind"]) == {kind}
    assert all(text.startswith(error) for text in table["error"])
    assert is_bad(np.stack(list(table["solution"]))).all()
    assert not table.duplicated(["seed", "iteration", "row"]).any()
    metrics = found.metrics
    assert table.groupby("iteration").size().reindex(
        metrics["iteration"], fill_value=0
    ).tolist() == (metrics["failed"].tolist())
    assert metrics["failed_total"].tolist() == metrics["failed"].cumsum().tolist()
    if kind == "exception":
        assert "in raises_for_bad" in table["traceback"][0]
        assert "gloam/evaluators" not in table["traceback"][0]


class StopsAfter(gloam.evaluators.InProcess):
    """Is lost after some batches."""

    def __init__(self, batches):
        super().__init__()
        self.left = batches

    def evaluate(self, function, solutions, spec=None):
        self.left -= 1
        if self.left < 0:
            raise gloam.errors.WorkerError("lost")
        return super().evaluate(function, solutions, spec)


def test_each_failure_is_logged_once_also_after_a_resume(tmp_path, monkeypatch):
    whole, part = tmp_path / "whole", tmp_path / "part"
    optimize(nan_for_bad, run_dir=whole, seeds=[3, 4])
    write = gloam.RunFolder.write_checkpoint
    monkeypatch.setattr(gloam.RunFolder, "write_checkpoint", lambda *args, **options: None)
    with pytest.raises(gloam.errors.WorkerError):  # failures are written, but no state
        optimize(nan_for_bad, run_dir=part, seeds=[3, 4], evaluator=StopsAfter(4))
    assert set(gloam.RunFolder(part).read_failures()["iteration"]) == {1, 2}
    monkeypatch.setattr(gloam.RunFolder, "write_checkpoint", write)
    for batches in (2, 6):
        with pytest.raises(gloam.errors.WorkerError):
            optimize(
                nan_for_bad, run_dir=part, seeds=[3, 4], resume=True, evaluator=StopsAfter(batches)
            )
    optimize(nan_for_bad, run_dir=part, seeds=[3, 4], resume=True)
    mine, theirs = (gloam.RunFolder(folder).read_failures() for folder in (part, whole))
    columns = ["seed", "iteration", "row", "kind", "error"]
    assert mine[columns].equals(theirs[columns])
    assert len(mine) > 10


def test_a_damaged_log_does_not_block_a_resume(tmp_path):
    optimize(nan_for_bad, 3, run_dir=tmp_path)
    path = tmp_path / "failures.parquet"
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(gloam.errors.DamagedFileError, match=r"failures\.parquet"):
        gloam.RunFolder(tmp_path).read_failures()
    with pytest.warns(UserWarning, match="The run continues with a new one"):
        found = optimize(nan_for_bad, 6, run_dir=tmp_path, resume=True)
    assert_same_bits(found.elites, optimize(nan_for_bad).elites)
    assert set(gloam.RunFolder(tmp_path).read_failures()["iteration"]) <= {4, 5, 6}


class Text(str):
    """A text that only methods of str itself can read."""

    __slots__ = ()

    def _refuse(self, *arguments):
        raise RuntimeError("not this way")

    __str__ = __repr__ = __format__ = __getitem__ = __len__ = encode = _refuse


class OddError(Exception):
    """An exception whose text is what a function returns."""

    def __str__(self):
        return self.args[0]()


ODD_ERRORS = [
    (ValueError("caf\udce9.wav"), "ValueError: caf\\udce9.wav"),
    (
        OddError(lambda: {}[0]),
        "OddError: (OddError without a text: str() raised KeyError)",
    ),
    (OddError(lambda: 3), "OddError: (OddError without a text: str() raised TypeError)"),
    (OddError(lambda: Text("licence")), "OddError: licence"),
    (RuntimeError(9000 * "x"), "RuntimeError: " + 7986 * "x"),
    (KeyError("\ud800"), "KeyError: '\\ud800'"),
    (UserWarning(9000 * "\udce9"), ("UserWarning: " + 1332 * "\\udce9")[:8000]),
]


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("number", range(len(ODD_ERRORS)))
def test_no_error_keeps_a_run_from_being_saved(tmp_path, number, asynchronous):
    given, text = ODD_ERRORS[number]

    def raises(x):
        if is_bad(x).any():
            raise given
        return evaluate(x)

    found = optimize(raises, 2, run_dir=tmp_path, asynchronous=asynchronous)
    folder = gloam.RunFolder(tmp_path)
    assert folder.read_checkpoint_iteration() == 2
    table = folder.read_failures()
    assert len(table) == found.metrics["failed_total"].iloc[-1] > 0
    assert set(table["error"]) == {text}
    assert all("in raises" in trace or len(trace) == 8000 for trace in table["traceback"])


def test_the_failures_of_any_evaluator_have_plain_texts():
    failure = Failure(0, "lost worker", "node caf\udce9", 9000 * "x" + "\udce9")
    assert failure.error == "node caf\\udce9"
    assert (len(failure.traceback), failure.traceback[-7:]) == (8000, "x\\udce9")


@pytest.mark.parametrize("as_error", [False, True])
def test_a_log_that_cannot_be_written_keeps_no_state_from_being_saved(
    tmp_path, monkeypatch, as_error
):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(gloam.RunFolder, "write_failures", full)
    options = {"run_dir": tmp_path, "checkpoint_every": 1}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("error" if as_error else "always")
        if as_error:  # as with python -W error
            with pytest.raises(UserWarning, match="No space left"):
                optimize(nan_for_bad, **options)
        else:
            optimize(nan_for_bad, **options)
    if not as_error:
        (warning,) = told  # at six checkpoints
        assert "failures.parquet" in str(warning.message)
    folder = gloam.RunFolder(tmp_path)
    assert folder.read_checkpoint_iteration() == (1 if as_error else 6)
    monkeypatch.undo()
    optimize(nan_for_bad, 9, resume=True, **options)
    assert len(folder.read_failures()) > 0


class FailsIn:
    """Every solution fails in some iterations."""

    def __init__(self, iterations):
        self.iterations, self.iteration = iterations, 0

    def __call__(self, x):
        self.iteration += 1
        values, measures = evaluate(x)
        return (values * np.nan if self.iteration in self.iterations else values), measures


@pytest.mark.parametrize("function", [FailsIn({3, 4}), FailsIn({1, 2, 4, 5})])
def test_two_batches_in_a_row_may_fail_entirely(function):
    with pytest.warns(UserWarning, match="none among the 8 solutions of seed 3"):
        found = optimize(function)
    failed = [8 * (number in function.iterations) for number in range(1, 7)]
    assert found.metrics["failed"].tolist() == failed
    assert np.isfinite(found.elites.objectives).all()
    assert len(found.elites) > 0


@pytest.mark.filterwarnings("ignore:evaluation. expected at least one finite result")
def test_a_mistake_in_the_function_is_told_after_the_first_batch(tmp_path):
    calls = []

    def mistaken(x):
        calls.append(len(x))
        return evaluate(x[:, :, 5])

    with pytest.raises(EvaluationError, match="for all 8 solutions of the first") as raised:
        optimize(mistaken, run_dir=tmp_path)
    assert "The first was IndexError: too many indices" in str(raised.value)
    assert isinstance(raised.value.__cause__, IndexError)
    assert calls == [8] + [1] * 8  # the batch, and each solution alone
    assert len(gloam.RunFolder(tmp_path).read_failures()) == 8
    found = optimize(evaluate, run_dir=tmp_path, resume=True)
    assert_same_bits(found.elites, optimize(evaluate).elites)


def test_a_mistake_in_another_process_has_its_traceback():
    lost = Failure(0, "exception", "RuntimeError: no licence.", "Traceback of the worker")
    outcome = failures.Outcome(3, 2, [lost, dataclasses.replace(lost, row=1)])
    with pytest.raises(EvaluationError, match="no licence") as raised:
        failures.refuse_first_batches([outcome])
    assert raised.value.__notes__ == ["Traceback of the worker"]
    failures.refuse_first_batches([outcome, failures.Outcome(4, 2, [])])  # another seed works


def test_three_batches_that_fail_entirely_end_the_run_after_saving(tmp_path):
    calls = []

    def expires(x):
        calls.append(x)
        return evaluate(x) if len(calls) == 1 else all_fail(x)

    with (
        pytest.warns(UserWarning, match="was exception: RuntimeError: no licence. Its emitters"),
        pytest.raises(EvaluationError, match="RuntimeError: no licence") as raised,
    ):
        optimize(expires, run_dir=tmp_path)
    assert str(raised.value).startswith(
        "All evaluations failed in 3 consecutive iterations, up to iteration 4."
    )
    assert isinstance(raised.value.__cause__, RuntimeError)
    assert gloam.RunFolder(tmp_path).read_checkpoint_iteration() == 4
    assert len(gloam.RunFolder(tmp_path).read_failures()) == 24
    with pytest.warns(UserWarning, match="expires' in the file and 'evaluate' now"):
        found = optimize(evaluate, run_dir=tmp_path, resume=True)  # the licence is there again
    assert len(found.elites) > 0
    assert found.metrics["failed_total"].iloc[-1] == 24


def test_a_share_of_failures_may_be_too_large():
    share = optimize(nan_for_bad).metrics["failed"][:3].sum() / 24
    assert 0 < share < 1
    optimize(nan_for_bad, 3, max_failure_rate=share)
    with pytest.raises(EvaluationError, match=r"up to iteration 3 \(at most"):
        optimize(nan_for_bad, max_failure_rate=share - 0.01)
    with refused("max_failure_rate: expected a share from 0 to 1, got 1.5"):
        optimize(evaluate, max_failure_rate=1.5)


def test_answers_that_never_fit_are_refused_at_once(tmp_path):
    # The shapes are those of the batch of 8, not those of its rows alone.
    with refused("measures: expected shape (8, 2) (one row for each solution asked), got shape (8"):
        optimize(lambda x: (x[:, 0], x), run_dir=tmp_path)
    assert gloam.RunFolder(tmp_path).read_checkpoint_iteration() == 0


def test_violations_that_are_nan_are_named(tmp_path):
    def violates(x):
        return (*evaluate(x), {"violation": np.where(is_bad(x), np.nan, 0.0)})

    optimize(violates, run_dir=tmp_path)
    table = gloam.RunFolder(tmp_path).read_failures()
    assert set(table["kind"]) == {"not finite"}
    assert set(table["error"]) == {"expected a violation that is a number, got nan"}


def test_a_log_is_bounded(monkeypatch):
    monkeypatch.setattr(failures, "MAX_FAILURES", 5)
    log = failures.FailureLog()
    one = Failure(0, "exception", "E: e")
    for row in range(8):
        log.add(0, 1, np.zeros(3), dataclasses.replace(one, row=row))
    assert log.table()["row"].tolist() == [0, 1, 2, 3, 4]
    monkeypatch.setattr(failures, "_BYTES_KEPT", 100)
    small = failures.FailureLog()
    small.add(0, 1, np.zeros(3), one)
    small.add(0, 1, np.zeros(3), dataclasses.replace(one, traceback="x" * 100))
    assert len(small.table()) == 1


def test_failures_are_shown_with_the_progress(capsys):
    optimize(nan_for_bad, progress=True)
    shown = capsys.readouterr().err
    assert " failed" in shown
    optimize(evaluate, progress=True)
    assert " failed" not in capsys.readouterr().err
