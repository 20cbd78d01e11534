"""Run folders that many tests look at, each made once by the command line."""

import shutil
import sys

import numpy as np
import pytest

from gloam.cli import main

FUNCTIONS = """
import numpy as np
x0, sigma0, calls = np.zeros(2), 0.3, []
def evaluate(x):
    return np.tanh(x)
def breaks(x):
    calls.append(1)
    if len(calls) >= 4:
        raise ValueError('the [simulator] broke')
    return np.tanh(x)
def wide(x):
    return np.zeros((len(x), 3))
def tall(x):
    return np.zeros((len(x), 2, 1))
def words(x):
    return 'far'
"""
DATA = np.random.default_rng(0).uniform(-1, 1, (20, 2)).astype(np.float32)


def run(*arguments):
    """Run a command in this process."""
    main([str(argument) for argument in arguments])


def fill(*more, function="mine.py", out="runs/x", dataset="data.npy"):
    """Arguments of `gloam fill`; with the same sizes everywhere, programs are compiled once."""
    sizes = ["--emitters", "2", "--batch-size", "6", "--iterations", "2", "--quiet"]
    return ["fill", function, "--dataset", dataset, "--out", out, *sizes, *more]


def stopped(capsys, *arguments, code=2):
    """Run a command that fails, and return what it prints on standard error."""
    with pytest.raises(SystemExit) as ended:
        run(*arguments)
    assert ended.value.code == code
    return capsys.readouterr().err


@pytest.fixture
def problem(tmp_path, monkeypatch):
    """A working folder with functions of two numbers, and data of two numbers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("mine", "broken", "wrong", "warns", "begin"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "mine.py").write_text(FUNCTIONS)
    np.save(tmp_path / "data.npy", DATA)
    return tmp_path


@pytest.fixture(scope="session")
def filled_once(tmp_path_factory):
    """The run folder of `gloam fill`, and what the command printed."""
    return made(tmp_path_factory, "filled", fill("--checkpoint-every", "1", "--log-every", "1"))


@pytest.fixture
def filled(filled_once, problem):
    """A copy of the run folder of `gloam fill` in the working folder, and what was printed."""
    folder, printed = filled_once
    shutil.copytree(folder, problem / "runs" / "x")
    return problem / "runs" / "x", printed


def made(tmp_path_factory, name, arguments):
    """Run a command in a new folder, and return its run folder with what it printed."""
    import contextlib
    import io

    folder, printed = tmp_path_factory.mktemp(name), io.StringIO()
    (folder / "mine.py").write_text(FUNCTIONS)
    np.save(folder / "data.npy", DATA)
    path = list(sys.path)
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        run(*arguments)
    sys.path[:] = path
    sys.modules.pop("mine", None)
    return folder / "runs" / "x", printed.getvalue()
