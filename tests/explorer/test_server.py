import json
import socket
import subprocess
import sys
import urllib.request

import pytest

from gloam.cli import main
from gloam.explorer import explore
from tests.helpers import refused


def test_what_is_missing_is_named_with_the_extra_that_has_it(runs, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with refused("The explorer needs the package uvicorn. Install it: pip install 'gloam[expl"):
        explore(runs, browser=False)


def test_wrong_arguments_are_refused_before_anything_listens(runs, capsys):
    pytest.importorskip("uvicorn", reason="the explorer needs gloam[explorer]")
    with refused("folder: expected an existing folder, got"):
        explore(runs / "nothing", browser=False)
    with refused("port: expected a port up to 65535, got 65536"):
        explore(runs, port=65536, browser=False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(SystemExit) as stop:
            main(["explore", str(runs), "--no-browser", "--port", str(taken.getsockname()[1])])
    assert stop.value.code == 2
    assert "Choose another port by --port." in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_serves_until_it_is_interrupted(runs):
    pytest.importorskip("uvicorn", reason="the explorer needs gloam[explorer]")
    command = [sys.executable, "-m", "gloam", "explore", str(runs), "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        address = line.split()[2]
        assert line == f"gloam explorer: {address} (Ctrl-C ends it)\n"
        with urllib.request.urlopen(f"{address}api/folder") as answer:
            assert len(json.load(answer)["runs"]) == 3
        process.send_signal(2)
        assert process.wait(timeout=60) in (0, 130)
