"""Signals stop a run at a whole state, and none is lost."""

import signal

import numpy as np
import pytest

import gloam
from gloam.runs.signals import remembered_interrupt, stop_signals

KINDS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
ENDS_OF_JOBS = [signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU]


@pytest.fixture(autouse=True)
def handlers():
    """Signals whose usual action is to be seen, not to end the tests."""
    usual = {kind: signal.getsignal(kind) for kind in KINDS + ENDS_OF_JOBS}

    def act(kind, frame):
        raise KeyboardInterrupt(kind)

    for kind in usual:
        signal.signal(kind, act if kind in KINDS else signal.SIG_DFL)
    yield act
    for kind, handler in usual.items():
        signal.signal(kind, handler)


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_signal_is_noted_and_the_second_acts(kind, handlers):
    seen = []

    def block():
        with stop_signals() as stop:
            seen.append(stop.is_set())
            signal.raise_signal(kind)
            seen.append(stop.signal)
            signal.raise_signal(kind)
            seen.append("not reached")

    with pytest.raises(KeyboardInterrupt):
        block()
    assert seen == [False, kind]
    assert signal.getsignal(kind) is handlers


@pytest.mark.parametrize("kind", KINDS)
def test_an_ignored_signal_stays_ignored(kind):
    signal.signal(kind, signal.SIG_IGN)  # as under nohup, or in the background of a script
    with stop_signals() as stop, remembered_interrupt():
        signal.raise_signal(kind)
        assert not stop.is_set()
    assert signal.getsignal(kind) is signal.SIG_IGN


@pytest.mark.parametrize("kind", KINDS)
def test_a_signal_that_nobody_answered_acts_after_the_block(kind):
    after = []

    def block(error=None):
        with stop_signals():
            signal.raise_signal(kind)
            after.append("the block goes on")
            if error:
                raise error
        after.append("not reached")

    with pytest.raises(KeyboardInterrupt) as delivered:
        block()
    assert delivered.value.args == (kind,)
    with pytest.raises(KeyboardInterrupt):
        block(ValueError("an error does not hide it"))
    assert after == ["the block goes on"] * 2


def test_an_answered_signal_acts_once():
    def block():
        with stop_signals() as stop:
            signal.raise_signal(signal.SIGTERM)
            raise gloam.errors.Interrupted(None, 3, signal=stop.signal)

    with pytest.raises(gloam.errors.Interrupted):
        block()


def search(at: int, kind, **options):
    """A run of four iterations that gets a signal while it evaluates the batch ``at``."""
    calls = []

    def evaluate(x):
        calls.append(1)
        if len(calls) == at:
            signal.raise_signal(kind)
        return 1 - np.square(x).sum(axis=1), x

    archive = gloam.GridArchive((4, 4), -1, 1)
    algorithm = gloam.MAPElites(archive, np.zeros(2), 0.3, batch_size=4)
    return gloam.optimize(evaluate, algorithm, 4, progress=False, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_says_which_signal_stopped_it(kind, tmp_path):
    with pytest.raises(gloam.errors.Interrupted) as stopped:
        search(1, kind, run_dir=tmp_path / "r")
    assert (stopped.value.signal, stopped.value.iteration) == (kind, 1)
    assert gloam.RunFolder(tmp_path / "r").read_checkpoint_iteration() == 1


@pytest.mark.parametrize("kind", ENDS_OF_JOBS)
def test_the_end_of_a_job_stops_a_run_that_was_saved(kind, tmp_path):
    assert signal.getsignal(kind) is signal.SIG_DFL
    with pytest.raises(gloam.errors.Interrupted, match="resume=True") as stopped:
        search(1, kind, run_dir=tmp_path / "r")
    assert (stopped.value.signal, stopped.value.iteration) == (kind, 1)
    assert gloam.RunFolder(tmp_path / "r").read_checkpoint_iteration() == 1
    assert signal.getsignal(kind) is signal.SIG_DFL


@pytest.mark.parametrize("kind", ENDS_OF_JOBS)
def test_a_program_that_handles_the_end_of_its_job_goes_on_to_do_so(kind):
    seen = []
    usual = signal.signal(kind, lambda kind, frame: seen.append(kind))
    try:
        with stop_signals() as stop:
            signal.raise_signal(kind)
        assert not stop.is_set()
    finally:
        signal.signal(kind, usual)
    assert seen == [kind]


def test_a_signal_during_the_last_iteration_is_not_lost(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        search(4, signal.SIGINT, run_dir=tmp_path / "r", log_every=1)
    assert gloam.RunFolder(tmp_path / "r").read_checkpoint_iteration() == 4


def test_an_interrupt_that_was_swallowed_is_raised_at_the_end():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    done = []

    def block():
        with remembered_interrupt():
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                done.append("swallowed")

    with pytest.raises(KeyboardInterrupt):
        block()
    assert done == ["swallowed"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with remembered_interrupt():
        pass


class Waits(gloam.evaluators.Evaluator):
    """Gets a signal while it has nothing to do but wait."""

    def evaluate(self, function, solutions, spec=None):
        assert not self.stop_requested()
        signal.raise_signal(signal.SIGTERM)
        assert self.stop_requested()
        raise gloam.errors.WorkerError("no workers")


def test_an_evaluator_that_waits_ends_at_the_first_signal(tmp_path):
    evaluator = Waits()
    with pytest.raises(gloam.errors.Interrupted) as stopped:
        search(0, signal.SIGTERM, run_dir=tmp_path / "r", evaluator=evaluator)
    assert (stopped.value.signal, stopped.value.iteration) == (signal.SIGTERM, 0)
    assert gloam.RunFolder(tmp_path / "r").read_checkpoint_iteration() == 0
    assert not evaluator.stop_requested()
