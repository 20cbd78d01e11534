"""Odd command lines: an exit code, a short message, and no file lost or written elsewhere."""

import contextlib
import dataclasses
import io
import shutil
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import tyro

from gloam import cli
from tests.cli.conftest import DATA, FUNCTIONS
from tests.run_folders import write_grid_run, write_pictures_run

from .attack import SECRET, Attack

_LONGEST_MESSAGE = 12  # lines
_SIGNALS = range(129, 129 + 64)

# Commands that work and are quick, to which odd options are added. "fresh" does not exist.
_COMMANDS: tuple[str, ...] = (
    "demo --domain lp --iterations 1 --out fresh",
    "new fresh.py",
    "fill mine.py --dataset data.npy --emitters 2 --batch-size 6 --iterations 2 --out fresh",
    "answer grid --function mine.py --dataset data.npy --evaluations 0 --out fresh --quiet",
    "gallery pictures",
    "datasets fetch x",
    "run map-elites arm --joints 5 --batch-size 8 --iterations 2 --out fresh --quiet",
    "run cma-mae lp --solution 4 --emitters 2 --batch-size 6 --iterations 2 --out fresh",
    "resume grid --quiet",
    "plot grid",
    "compare grid again",
    "explore . --no-browser",
    "lsi check",
    "lsi convert data.npy fresh.safetensors",
    "lsi run --stylegan data.npy --clip data.npy --landscapes data.npy --out fresh",
    "paper --domains arm --algorithms map-elites --seeds 1 --iterations 1 --out fresh --no-figures",
    "report grid",
    "bench --algorithms map-elites-line --measures 2 --repeats 1 --seconds 0.01 --warm-up 1"
    " --out fresh",
)
_VALUES = (
    "-1",
    "0",
    "",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "1e-400",
    "1.5",
    "99999999999999999999",
    "9" * 5000,
    "x",
    "None",
    "-",
    "--",
    "é\udcff",
    "\033]0;x\007",
    "a\nb",
    "x" * 300,
    "/dev/null",
    "/dev/null/x",
    "/proc/x",
    ".",
    "..",
    "grid",
    "grid/config.json",
    "data.npy",
    "mine.py",
    "nowhere",
    "nowhere/deep/x.png",
    "secret",
    "mine.py:breaks",
    "mine.py:words",
    "zeros:0",
    "zeros:99999999999",
    "uniform:-1",
)
# Any number of them is allowed, so only numbers that are none are tried.
_WORK = {
    "iterations",
    "seeds",
    "repeats",
    "seconds",
    "warm_up",
    "items",
    "starts",
    "size",
    "batch_size",
}
_WORK |= {"joints", "measures", "solution", "emitters", "moves", "count"}


def called(arguments: list[str]) -> tuple[int, str, str]:
    """Run a command in this process.

    Returns:
        Exit code, standard output and standard error. What a terminal would show as a traceback of
        gloam is raised.
    """
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main(arguments)
            code = 0
        except SystemExit as end:
            code = end.code
    assert isinstance(code, int), f"exit code {code!r}"
    return code, out.getvalue(), err.getvalue()


class Option(typing.NamedTuple):
    """An option of a command: its flag, the name of its field, and whether it takes a value."""

    flag: str
    name: str
    takes_value: bool


def options_of(command: list[str]) -> list[Option]:
    """All options of a command with its subcommands, from the classes that the parser reads."""
    found: list[Option] = []
    waiting: list[Any] = [
        typing.get_args(part)[0]
        for part in typing.get_args(cli._command_type())
        if _subcommand(part) == command[0]
    ]
    words = set(command[1:])
    while waiting:
        kind = waiting.pop()
        chosen = [part for part in typing.get_args(kind) if _subcommand(part) in words]
        if chosen:
            waiting += [typing.get_args(part)[0] for part in chosen]
        elif dataclasses.is_dataclass(kind):
            hints = typing.get_type_hints(kind, include_extras=True)
            for field in dataclasses.fields(kind):
                hint = hints[field.name]
                if _is_nested(hint):
                    waiting.append(hint)
                elif not _is_positional(hint):
                    found += _options(field.name, hint)
    return sorted(set(found))


def _subcommand(hint: Any) -> str | None:
    """The name of a subcommand, or ``None``."""
    names = [getattr(part, "name", None) for part in getattr(hint, "__metadata__", ())]
    return next((name for name in names if isinstance(name, str)), None)


def _is_nested(hint: Any) -> bool:
    parts = (hint, *typing.get_args(hint))
    inner = [part for whole in parts for part in (whole, *typing.get_args(whole))]
    return any(dataclasses.is_dataclass(part) for part in inner)


def _is_positional(hint: Any) -> bool:
    return any(part is tyro.conf.Positional for part in typing.get_args(hint)) or (
        "Positional" in str(getattr(hint, "__metadata__", ""))
    )


def _options(name: str, hint: Any) -> Iterator[Option]:
    flag = name.replace("_", "-")
    if hint is bool:
        yield Option(f"--no-{flag}", name, False)
    yield Option(f"--{flag}", name, hint is not bool)


class CommandLines:
    """A command that works, with odd options, odd values, or parts left out.

    Args:
        work: A folder.
    """

    def __init__(self, work: Path):
        self._sound, self._place = work / "commands" / "sound", work / "commands" / "here"
        write_grid_run(self._sound / "grid")
        write_grid_run(self._sound / "again", seeds=(5, 6))
        write_pictures_run(self._sound / "pictures")
        (self._sound / "mine.py").write_text(FUNCTIONS)
        np.save(self._sound / "data.npy", DATA)
        (work / "commands" / "secret").write_text(SECRET)
        (self._sound / "secret").symlink_to("../secret")
        self._earlier = _contents(self._sound)

    def draw(self, rng: np.random.Generator) -> Attack:
        """Return a random command line."""
        words = str(rng.choice(_COMMANDS)).split()
        options = options_of(words)
        for _ in range(int(rng.integers(1, 4))):
            self._change(words, options, rng)
        return Attack(ascii(" ".join(words))[:400], lambda: self._call(words))

    def _change(self, words: list[str], options: list[Option], rng: np.random.Generator) -> None:
        """Change a command line in one place."""
        match rng.integers(8):
            case 0 if len(words) > 1:  # a positional argument, a value or a subcommand
                at = int(rng.integers(1, len(words)))
                if not _is_work(words[at - 1]):
                    words[at] = str(rng.choice(_VALUES))
            case 1 if len(words) > 1:
                at = int(rng.integers(1, len(words)))
                if not (_is_work(words[at - 1]) or _is_work(words[at])):
                    del words[at]
            case 2:
                words.append(str(rng.choice([*_VALUES, "--help", "--nonsense", "-h", "-x"])))
            case _ if options:
                option = options[rng.integers(len(options))]
                values = _VALUES[:13] if option.name in _WORK else _VALUES
                value = [str(rng.choice(values))] if option.takes_value else []
                if option.name == "size":
                    value *= 2
                if option.name == "iterations" and value == ["0"]:
                    value = ["-5"]  # 0 may mean the default
                words += [option.flag, *value]

    def _call(self, words: list[str]) -> None:
        shutil.rmtree(self._place, ignore_errors=True)
        shutil.copytree(self._sound, self._place, symlinks=True)
        with (
            contextlib.chdir(self._place),
            mock.patch("uvicorn.Server.run", return_value=None),
            mock.patch("webbrowser.open", return_value=True),
            mock.patch.object(sys, "path", [*sys.path]),
        ):
            sys.modules.pop("mine", None)
            code, out, err = called(words)
        assert code in (0, 1, 2) or code in _SIGNALS, f"exit code {code}"
        # The parser writes many lines about what it got, and repeats it.
        is_parsed = "-----" not in err and "─────" not in err
        lines = err.strip().splitlines()
        assert not is_parsed or code == 1 or len(lines) <= _LONGEST_MESSAGE, err[:500]
        assert not is_parsed or "\033" not in out + err, "control characters reach the terminal"
        assert code != 2 or err.strip(), "no message"
        assert "Traceback" not in err or code == 1, err[-500:]
        assert SECRET not in out + err, "the content of a foreign file"
        now = _contents(self._place)
        changed = [name for name in self._earlier if now.get(name) != self._earlier[name]]
        changed = [name for name in changed if name not in words]  # the user named them
        if words[0] == "resume":  # it adds to its run
            changed = [name for name in changed if "config.json" in name and name not in now]
        assert not changed, f"earlier files were changed or deleted: {changed[:5]}"


def _is_work(word: str) -> bool:
    return word.removeprefix("--").replace("-", "_") in _WORK


def _contents(folder: Path) -> dict[str, bytes]:
    """The files that no command may change or delete."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock" and not path.is_symlink()
    }
