"""Error messages of the command line: the remedy, the place and the exit code."""

import contextlib
import signal
from pathlib import Path

import pytest
from PIL import Image

import gloam
import gloam_lab
from gloam.cli import user_code
from gloam.errors import Interrupted
from tests.cli.conftest import fill, run, stopped

LP = ("run", "dms-paper", "lp", "--out", "r")


def raises(error):
    """A function that raises an error whatever its arguments."""

    def function(*_, **__):
        raise error

    return function


# Square brackets


@pytest.mark.parametrize("path", ["[/x]", "runs[faiss]", "[red]a", "a:smile:b", "[link=x]y"])
def test_nothing_in_a_message_is_markup(path, capsys):
    assert f"'{path}'" in stopped(capsys, "resume", path)


@pytest.mark.parametrize("kind", [ValueError, ImportError])
def test_the_extra_to_install_is_named(kind, capsys, monkeypatch):
    error = kind("index: got 'ivf'. Run: pip install 'gloam[faiss]'")
    monkeypatch.setattr(gloam, "run", raises(error))
    assert "pip install 'gloam[faiss]'" in stopped(capsys, *LP)


# Remedies


def test_advice_for_python_is_reworded(problem, capsys, monkeypatch):
    monkeypatch.setattr(gloam, "run", raises(gloam.errors.RunExistsError(Path("r"))))
    message = stopped(capsys, *LP)
    assert "`gloam resume r`" in message
    assert "resume=True" not in message


def test_notes_of_an_error_are_printed(capsys, monkeypatch):
    class LockedError(ValueError):
        run_dir = Path("r")  # not every error about a run folder is that it holds a run

    error = LockedError("'r' is in use.")
    error.add_note("The run was saved after iteration 3 in 'r'.")
    monkeypatch.setattr(gloam, "run", raises(error))
    message = stopped(capsys, *LP)
    assert message == "error: 'r' is in use. The run was saved after iteration 3 in 'r'.\n"


def test_a_failed_download_has_no_traceback(capsys, monkeypatch):
    error = gloam_lab.FetchError("mnist: 'images.gz' cannot be reached. Try again later.")
    monkeypatch.setattr(gloam_lab, "fetch", raises(error))
    assert stopped(capsys, "datasets", "fetch", "mnist").startswith("error: mnist: 'images.gz'")


@pytest.mark.parametrize("error", [ZeroDivisionError(), ImportError("x", name="gloam.y")])
def test_unexpected_errors_are_raised(error, monkeypatch):
    monkeypatch.setattr(gloam, "run", raises(error))
    with pytest.raises(type(error)):
        run(*LP)


# The user's own code


def test_an_error_before_the_search_says_that_no_run_was_saved(problem, capsys):
    (problem / "broken.py").write_text("import nothing_of_this_name\n")
    message = stopped(capsys, *fill(function="broken.py"), code=1)
    assert 'broken.py", line 1' in message
    assert "ModuleNotFoundError: No module named 'nothing_of_this_name'" in message
    assert "importlib" not in message
    assert message.strip().splitlines()[-1].endswith("no run was saved")
    (problem / "wrong.py").write_text("def evaluate(:\n")
    assert "SyntaxError" in stopped(capsys, *fill(function="wrong.py"), code=1)
    message = stopped(capsys, *fill(function="broken"), code=1)  # by its module's name
    assert "No module named 'nothing_of_this_name'" in message
    assert "expected a module that Python can import" in stopped(
        capsys, *fill(function="no_such_module")
    )


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
def test_a_warning_is_one_plain_line(problem, capsys, monkeypatch):
    folder = problem / "pictures [a]"
    folder.mkdir()
    for number in range(3):
        Image.new("L", (4, 4), 80 * number).save(folder / f"{number}.png")
    (folder / "bad [b].png").write_bytes(b"no picture")
    text = (problem / "mine.py").read_text().replace("np.tanh(x)", "np.zeros((len(x), 2, 2))")
    (problem / "mine.py").write_text(text)
    monkeypatch.setattr(gloam, "optimize", raises(KeyboardInterrupt()))
    shown = stopped(capsys, *fill("--size", "2", "2", dataset="pictures [a]"), code=130)
    lines = [line for line in shown.splitlines() if "warning" in line.lower()]
    assert len(lines) == 1
    assert lines[0].startswith("warning: 1 of 4 files in 'pictures [a]' could not be read")
    assert "bad [b].png" in lines[0]
    assert ".py:" not in lines[0]


# Signals


@pytest.mark.parametrize(
    ("kind", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_the_exit_code_names_the_signal(kind, code, problem, capsys, monkeypatch):
    error = Interrupted(Path("r"), 7, signal=kind)
    monkeypatch.setattr(gloam, "run", raises(error))
    message = stopped(capsys, *LP, code=code)
    assert message == "stopped after iteration 7 in 'r'; continue with `gloam resume r`\n"
    monkeypatch.setattr(gloam, "optimize", raises(error))
    message = stopped(capsys, *fill(), code=code)
    # `gloam resume` could not know the function.
    advice = "continue with the same command and --resume"
    assert message == f"stopped after iteration 7 in 'r'; {advice}\n"


def test_an_interrupt_outside_the_search_has_no_traceback(capsys, monkeypatch):
    monkeypatch.setattr(gloam, "run", raises(KeyboardInterrupt()))
    assert stopped(capsys, *LP, code=130) == "stopped; all files written so far are complete\n"


def test_an_interrupt_in_an_evaluation_says_what_was_saved(capsys, monkeypatch):
    error = KeyboardInterrupt()
    error.add_note("The run was saved after iteration 3 in 'r'.")
    monkeypatch.setattr(gloam, "run", raises(error))
    assert "saved after iteration 3 in 'r'" in stopped(capsys, *LP, code=130)


def test_an_interrupt_that_a_library_lost_still_counts(capsys, monkeypatch):
    def loses(*_, **__):
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return []

    monkeypatch.setattr("gloam.plots.plot_run", loses)
    assert "stopped" in stopped(capsys, "plot", "anywhere", code=130)
