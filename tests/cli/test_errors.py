"""What the command line says when something goes wrong: the remedy, the place, the exit code."""

import contextlib
import signal
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import gloam
from gloam import datasets
from gloam.cli import main, user_code
from gloam.cli import run as run_command
from gloam.datasets import FetchError
from gloam.runs import Interrupted


@pytest.fixture
def problem(tmp_path, monkeypatch):
    """A folder with functions of two numbers, and data of two numbers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("mine", "broken", "wrong", "warns"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "mine.py").write_text(
        "import numpy as np\nx0 = np.zeros(2)\nsigma0 = 0.3\ncalls = []\n"
        "def evaluate(x):\n    return np.tanh(x)\n"
        "def breaks(x):\n    calls.append(1)\n"
        "    if len(calls) >= 4:\n        raise ValueError('the [simulator] broke')\n"
        "    return np.tanh(x)\n"
    )
    random = np.random.default_rng(0)
    np.save(tmp_path / "data.npy", random.uniform(-1, 1, (20, 2)).astype(np.float32))
    return tmp_path


def told(capsys, *arguments, code=2):
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    assert stopped.value.code == code
    return capsys.readouterr().err


def fill(function, *more):
    return [
        "fill",
        function,
        "--dataset",
        "data.npy",
        "--iterations",
        "6",
        "--quiet",
        "--out",
        "runs/x",
        *more,
    ]


# Square brackets


@pytest.mark.parametrize("path", ["[/x]", "runs[faiss]", "[red]a", "a:smile:b", "[link=x]y"])
def test_nothing_in_a_message_is_markup(path, capsys):
    assert f"'{path}'" in told(capsys, "resume", path)


def test_the_extra_to_install_is_named(capsys, monkeypatch):
    def needs_faiss(*_, **__):
        raise ValueError("index: got 'ivf'. Run: pip install 'gloam[faiss]'")

    monkeypatch.setattr(run_command, "run", needs_faiss)
    assert "pip install 'gloam[faiss]'" in told(capsys, "run", "dms", "lp", "--out", "x")


# Remedies


def test_a_folder_that_holds_a_run_says_how_to_continue_it(problem, capsys):
    run = ["run", "map-elites", "lp", "--solution", 10, "--iterations", 1, "--out", "r", "--quiet"]
    main([str(argument) for argument in run])
    message = told(capsys, *run)
    assert "Continue it with `gloam resume r`" in message
    assert "resume=True" not in message
    main(fill("mine.py"))
    message = told(capsys, *fill("mine.py"))
    assert "Continue it with the same command and --resume" in message
    assert "resume=True" not in message
    main(fill("mine.py", "--resume"))


def test_a_drivers_advice_is_reworded(problem, capsys, monkeypatch):
    def exists(*_, **__):
        raise gloam.RunExistsError(Path("r"))

    monkeypatch.setattr(run_command, "run", exists)
    message = told(capsys, "run", "dms", "lp", "--out", "r")
    assert "`gloam resume r`" in message
    assert "resume=True" not in message


def test_what_a_driver_adds_to_an_error_is_told(capsys, monkeypatch):
    class LockedError(ValueError):
        run_dir = Path("r")  # not every error about a run folder is that it holds a run

    def locked(*_, **__):
        error = LockedError("'r' is in use.")
        error.add_note("The run was saved after iteration 3 in 'r'.")
        raise error

    monkeypatch.setattr(run_command, "run", locked)
    message = told(capsys, "run", "dms", "lp", "--out", "r")
    assert message == "error: 'r' is in use. The run was saved after iteration 3 in 'r'.\n"


def test_resume_of_a_filled_dataset_names_the_command(problem, capsys):
    main(fill("mine.py"))
    message = told(capsys, "resume", "runs/x")
    assert "uses your own function or classes" in message
    assert "gloam fill ... --out runs/x --resume" in message


def test_no_network_is_no_traceback(capsys, monkeypatch):
    def offline(*_, **__):
        raise FetchError("mnist: 'images.gz' cannot be reached. Try again later.")

    monkeypatch.setattr(datasets, "fetch", offline)
    assert told(capsys, "datasets", "fetch", "mnist").startswith("error: mnist: 'images.gz'")


# The user's own code


@pytest.mark.filterwarnings("ignore:evaluation. expected at least one finite result")
def test_an_error_in_the_users_function_keeps_its_traceback(problem, capsys):
    message = told(capsys, *fill("mine.py:breaks", "--checkpoint-every", "1"), code=1)
    assert "in breaks\n" in message
    assert "ValueError: the [simulator] broke\n" in message
    assert "site-packages" not in message
    assert "host.py" not in message
    last = message.strip().splitlines()[-1]
    assert "the run was saved in 'runs/x' after iteration 5" in last
    assert "continue it with the same command and --resume" in last


def test_an_error_before_the_search_says_that_no_run_was_saved(problem, capsys):
    (problem / "broken.py").write_text("import nothing_of_this_name\n")
    message = told(capsys, *fill("broken.py"), code=1)
    assert 'broken.py", line 1' in message
    assert "ModuleNotFoundError: No module named 'nothing_of_this_name'" in message
    assert "importlib" not in message
    assert message.strip().splitlines()[-1].endswith("no run was saved")
    (problem / "wrong.py").write_text("def evaluate(:\n")
    assert "SyntaxError" in told(capsys, *fill("wrong.py"), code=1)
    message = told(capsys, *fill("broken"), code=1)  # by its module's name
    assert "No module named 'nothing_of_this_name'" in message
    assert "expected a module that Python can import" in told(capsys, *fill("no_such_module"))


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        (r"C:\x.py:evaluate", (r"C:\x.py", "evaluate")),
        (r"C:\my problems\x.py", (r"C:\my problems\x.py", "")),
        ("C:/x.py:evaluate", ("C:/x.py", "evaluate")),
        ("D:x.py", ("D:x.py", "")),
        (r"\\server\share\x.py:f", (r"\\server\share\x.py", "f")),
        ("x.py", ("x.py", "")),
        ("x.py:", ("x.py", "")),
        ("a/b:c/x.py:f", ("a/b:c/x.py", "f")),
        ("my.module:f", ("my.module", "f")),
        ("my.module", ("my.module", "")),
    ],
)
def test_a_drive_is_part_of_the_path(reference, expected):
    assert user_code.split_reference(reference) == expected


# Warnings


@pytest.mark.filterwarnings("default")
def test_a_warning_is_one_plain_line(problem, capsys):
    from PIL import Image

    folder = problem / "pictures [a]"
    folder.mkdir()
    for number in range(3):
        Image.new("L", (4, 4), 80 * number).save(folder / f"{number}.png")
    (folder / "bad [b].png").write_bytes(b"no picture")
    text = (problem / "mine.py").read_text().replace("np.tanh(x)", "np.zeros((len(x), 2, 2))")
    (problem / "mine.py").write_text(text)
    main(
        [
            "fill",
            "mine.py",
            "--dataset",
            "pictures [a]",
            "--size",
            "2",
            "2",
            "--iterations",
            "1",
            "--quiet",
        ]
    )
    lines = [line for line in capsys.readouterr().err.splitlines() if "warning" in line.lower()]
    assert len(lines) == 1
    assert lines[0].startswith("warning: 1 of 4 files in 'pictures [a]' could not be read")
    assert "bad [b].png" in lines[0]
    assert ".py:" not in lines[0]


@pytest.mark.filterwarnings("default")
def test_a_warning_of_the_users_code_keeps_its_place(problem, capsys):
    (problem / "warns.py").write_text(
        "import warnings\nfrom mine import *\nwarnings.warn('mine to mend')\n"
    )
    shown = []
    with warnings.catch_warnings():
        warnings.showwarning = lambda *arguments: shown.append(arguments)
        main(fill("warns.py"))
    assert [Path(arguments[2]).name for arguments in shown] == ["warns.py"]


# Signals


@pytest.mark.parametrize(
    ("kind", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_the_exit_code_names_the_signal(kind, code, problem, capsys, monkeypatch):
    def stopped(*_, **__):
        raise Interrupted(Path("r"), 7, signal=kind)

    monkeypatch.setattr(run_command, "run", stopped)
    message = told(capsys, "run", "dms", "lp", "--out", "r", code=code)
    assert message == "stopped after iteration 7; continue with: gloam resume r\n"
    monkeypatch.setattr("gloam.cli.fill.optimize", stopped)
    told(capsys, *fill("mine.py"), code=code)


def test_ctrl_c_that_a_library_lost_still_counts(capsys, monkeypatch):
    def loses(*_, **__):
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return []

    monkeypatch.setattr("gloam.plots.plot_run", loses)
    assert "stopped" in told(capsys, "plot", "anywhere", code=130)
