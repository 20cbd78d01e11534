"""Progress on terminals, in log files and in notebooks; titles are never markup."""

import importlib.machinery
import importlib.util
import io
import sys
import types
from functools import partial

import pytest
from PIL import Image
from rich.console import Console

import gloam
from gloam._tools import progress
from gloam._tools.progress import Bar, work_bar
from gloam_lab.progress import study_display
from tests import problems


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def on_terminal(monkeypatch):
    shown = Terminal()
    console = Console(file=shown, force_terminal=True, width=200)
    monkeypatch.setattr(progress, "error_console", lambda: console)
    return shown


TITLE = "DMS [/x] [red]f[faiss]"


def test_titles_are_not_markup_on_a_terminal(on_terminal):
    with progress.run_display(TITLE, 10) as display:
        display.update(5, 1.0, 0.5, 100.0)
    with study_display(TITLE, 2) as study:
        study.begin_run(TITLE, 5).update(5, 1.0, 0.5, 100.0)
        study.finish_run()
    with work_bar(TITLE, 3, show=True) as advance:
        advance(3)
    assert on_terminal.getvalue().count(TITLE) >= 4


@pytest.mark.parametrize("kind", ["terminal", "log file"])
def test_titles_are_no_commands_for_the_terminal(kind, request, capsys):
    shown = request.getfixturevalue("on_terminal") if kind == "terminal" else None
    with study_display("\x1b]0;study\x07", 2) as study:
        for title in ("\x1b]0;one\x07", "\x1b]0;two\x07"):
            study.begin_run(title, 1).update(1, 1.0, 0.5, 100.0)
            study.finish_run()
    text = capsys.readouterr().err if shown is None else shown.getvalue()
    assert "\x1b]0;" not in text
    for title in ("study", "two"):
        assert rf"\x1b]0;{title}\x07" in text


def test_a_log_file_gets_plain_lines(capsys):
    with progress.run_display(TITLE, 200) as display:
        for iteration in range(1, 201):
            display.update(iteration, 12.0, 0.5, 100.0)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10
    assert lines[0] == f"{TITLE}: 20 of 200, QD 12 50.0% 100/s"
    assert lines[-1].startswith(f"{TITLE}: 200 of 200")
    with study_display("study", 2) as study:
        study.begin_run(TITLE, 1).update(1, 1.0, 0.5, 100.0)
        study.finish_run()
    shown = capsys.readouterr().err
    assert f"{TITLE}: 1 of 1" in shown
    assert "study: 1 of 2" in shown
    with work_bar(TITLE, 3, show=True) as advance:
        advance(3)
    assert capsys.readouterr().err == f"{TITLE}: 3 of 3\n"
    assert "\x1b" not in shown


def test_a_slow_run_prints_once_a_minute(capsys):
    now = [0.0]
    lines = Bar("slow", 1000, clock=lambda: now[0])
    for done in range(1, 7):
        now[0] += 25.0
        lines.update(done)
    assert capsys.readouterr().err.splitlines() == ["slow: 3 of 1,000", "slow: 6 of 1,000"]
    unknown = Bar("reading", None, clock=lambda: now[0])
    now[0] += 61
    unknown.update(4096, "note")
    assert capsys.readouterr().err == "reading: 4,096, note\n"


def test_sizes_in_bytes_have_units(capsys, on_terminal):
    with work_bar("download", 5000, show=True, size_in_bytes=True, done=1000) as advance:
        advance(4000)
    assert "5.0/5.0 kB" in on_terminal.getvalue()


def test_a_resumed_download_starts_where_it_was(capsys):
    with work_bar("download", 5000, show=True, size_in_bytes=True, done=1000) as advance:
        advance(4000)
    lines = ["download: 1.0 kB of 5.0 kB", "download: 5.0 kB of 5.0 kB"]
    assert capsys.readouterr().err.splitlines() == lines


@pytest.fixture
def in_notebook(monkeypatch):
    """A kernel with ipywidgets: a list of what is shown in the output of the cell."""
    shown: list[str] = []

    class Output:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def clear_output(self, wait):
            shown.clear()

    ipython, widgets = types.ModuleType("IPython"), types.ModuleType("ipywidgets")
    screen = types.ModuleType("IPython.display")
    # rich also displays what its console still holds at the end: nothing.
    screen.display = lambda content: shown.extend(filter(None, [getattr(content, "text", "")]))
    widgets.Output = Output
    widgets.__spec__ = importlib.machinery.ModuleSpec("ipywidgets", None)
    for module in (ipython, screen, widgets):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    console = Console(force_jupyter=True, width=200)
    monkeypatch.setattr(progress, "error_console", lambda: console)
    return shown


def test_a_notebook_gets_one_bar_for_each_kind_of_work(in_notebook, capsys):
    with study_display(TITLE, 2) as study:
        for name in ("first", "second"):
            with study.begin_run(name, 5) as display:
                display.update(5, 12.0, 0.5, 100.0)
            study.finish_run()
    text = in_notebook[-1]
    assert "2/2" in text
    assert "second" in text
    assert "QD 12 50.0% 100/s" in text
    assert "first" not in text
    assert capsys.readouterr().err == ""


def test_a_notebook_without_widgets_gets_lines(monkeypatch, capsys):
    console = Console(force_jupyter=True)
    monkeypatch.setattr(progress, "error_console", lambda: console)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with progress.run_display("notebook", 2) as display:
        display.update(2, 1.0, 0.5, 100.0)
    assert "notebook: 2 of 2" in capsys.readouterr().err


def test_a_search_says_once_that_it_compiles(on_terminal, monkeypatch, capfd):
    progress.tell_of_compilation.cache_clear()
    algorithm = problems.small("map-elites-line")
    gloam.optimize(problems.evaluate, algorithm, 1, progress=False)
    assert on_terminal.getvalue() == ""
    for seed in (0, 1):
        search = gloam.Search(algorithm, seed)
        search.tell(*problems.evaluate(search.ask()))
        search.ask()
    assert on_terminal.getvalue().count("\n") == 1
    assert "ompiling" in on_terminal.getvalue()
    progress.tell_of_compilation.cache_clear()
    monkeypatch.setattr(progress, "error_console", lambda: Console(file=io.StringIO()))
    gloam.Search(algorithm).ask()
    assert "ompiling" not in "".join(capfd.readouterr())


def test_without_progress_nothing_is_printed(tmp_path, capfd):
    for start in (gloam.run, gloam.optimize, partial(gloam.optimize, asynchronous=True)):
        start(problems.evaluate, problems.small("map-elites-line"), 2, progress=False)
    (tmp_path / "pictures").mkdir()
    for number in range(2):
        Image.new("L", (4, 4), 90 * number).save(tmp_path / "pictures" / f"{number}.png")
    data = gloam.datasets.from_folder(tmp_path / "pictures", (4, 4), "L", progress=False)
    data.embedded(lambda items: items.reshape(len(items), -1), progress=False)
    assert capfd.readouterr() == ("", "")
