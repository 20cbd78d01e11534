"""Progress on terminals, in log files and in notebooks; text of users is never markup."""

import importlib.util
import io
import sys

import pytest
from rich.console import Console

from gloam import terminal
from gloam.datasets.progress import bar
from gloam.drivers import progress_bars as progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def on_terminal(monkeypatch):
    shown = Terminal()
    console = Console(file=shown, force_terminal=True, width=200)
    monkeypatch.setattr(terminal, "error_console", lambda: console)
    return shown


TITLE = "DMS [/x] [red]f[faiss]"


def test_titles_are_not_markup_on_a_terminal(on_terminal):
    with progress.bar(TITLE, 10) as display:
        assert isinstance(display, progress.Bar)
        display.update(5, 1.0, 0.5, 100.0)
    with progress.StudyBar(TITLE, 2) as study:
        study.begin(TITLE, 5).update(5, 1.0, 0.5, 100.0)
        study.finish_run()
    with bar(TITLE, 3, show=True) as advance:
        advance(3)
    assert on_terminal.getvalue().count(TITLE) >= 4


def test_a_log_file_gets_plain_lines(capsys):
    with progress.bar(TITLE, 200) as display:
        for iteration in range(1, 201):
            display.update(iteration, 12.0, 0.5, 100.0)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10
    assert lines[0] == f"{TITLE}: 20 of 200, QD 12 50.0% 100/s"
    assert lines[-1].startswith(f"{TITLE}: 200 of 200")
    with progress.StudyBar("study", 2) as study:
        study.begin(TITLE, 1).update(1, 1.0, 0.5, 100.0)
        study.finish_run()
    shown = capsys.readouterr().err
    assert f"{TITLE}: 1 of 1" in shown
    assert "study: 1 of 2" in shown
    with bar(TITLE, 3, show=True) as advance:
        advance(3)
    assert capsys.readouterr().err == f"{TITLE}: 3 of 3\n"
    assert "\x1b" not in shown


def test_a_slow_run_prints_once_a_minute(capsys):
    now = [0.0]
    lines = terminal.ProgressLines("slow", 1000, clock=lambda: now[0])
    for done in range(1, 7):
        now[0] += 25.0
        lines.update(done)
    assert capsys.readouterr().err.splitlines() == ["slow: 3 of 1,000", "slow: 6 of 1,000"]
    unknown = terminal.ProgressLines("download", None, clock=lambda: now[0])
    now[0] += 61
    unknown.update(4096, "bytes")
    assert capsys.readouterr().err == "download: 4,096, bytes\n"


def test_jupyter_without_widgets_gets_lines_and_no_warning(monkeypatch, capsys):
    console = Console(force_jupyter=True)
    monkeypatch.setattr(terminal, "error_console", lambda: console)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    with progress.bar("notebook", 2) as display:  # a warning would be an error here
        display.update(2, 1.0, 0.5, 100.0)
    with progress.StudyBar("study", 1) as study:
        study.begin("run", 1).update(1, 1.0, 0.5, 100.0)
        study.finish_run()
    assert "notebook: 2 of 2" in capsys.readouterr().err
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert terminal.can_draw_bars(console)
