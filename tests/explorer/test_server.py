import json
import logging
import socket
import subprocess
import sys
import urllib.request

import pytest

from gloam._tools import checks
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
    with refused("port:", "65536"):
        explore(runs, port=65536, browser=False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(SystemExit) as stop:
            main(["explore", str(runs), "--no-browser", "--port", str(taken.getsockname()[1])])
    assert stop.value.code == 2
    assert "Choose another port by --port." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("", "0.0.0.0"),
        (" ", "0.0.0.0"),
        ("no-such-name.invalid", "could not be resolved"),
        ("a" * 70 + ".invalid", "could not be resolved"),
        ("192.0.2.1", "not an address of this machine"),
    ],
)
def test_a_host_that_is_not_of_this_machine_is_refused(runs, host, reason, capsys):
    pytest.importorskip("uvicorn", reason="the explorer needs gloam[explorer]")
    with pytest.raises(SystemExit) as stop:
        main(["explore", str(runs), "--no-browser", "--host", host])
    assert stop.value.code == 2
    message = capsys.readouterr().err
    assert message.startswith("error: host: expected")
    assert checks.short(host) in message
    assert reason in message
    assert "port" not in message


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "0"])
def test_an_address_that_others_can_reach_is_announced(runs, host, monkeypatch, capsys):
    uvicorn = pytest.importorskip("uvicorn", reason="the explorer needs gloam[explorer]")
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: sockets[0].close())
    main(["explore", str(runs), "--no-browser", "--port", "0", "--host", host])
    address, *announced = capsys.readouterr().out.splitlines()
    assert address.startswith("gloam explorer: http://localhost:")
    if host in ("127.0.0.1", "localhost"):
        assert announced == []
    else:
        (line,) = announced
        for part in ("0.0.0.0", "password", "--host", "read all runs"):
            assert part in line


def test_names_of_files_in_the_log_are_no_commands_for_the_terminal(runs, monkeypatch, capsys):
    uvicorn = pytest.importorskip("uvicorn", reason="the explorer needs gloam[explorer]")
    logger = logging.getLogger("gloam.explorer")
    monkeypatch.setattr(logger, "handlers", [])

    def run(self, sockets):
        sockets[0].close()
        logger.warning("not readable: %s", "\x1b]0;x\x07")

    monkeypatch.setattr(uvicorn.Server, "run", run)
    explore(runs, browser=False, port=0)
    assert capsys.readouterr().err == "gloam explorer: not readable: \\x1b]0;x\\x07\n"


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
