"""The command line as a whole: help texts, options that mean the same everywhere, exit codes."""

import ast
import dataclasses
import gc
import inspect
import itertools
import os
import subprocess
import sys
from importlib import metadata
from importlib.metadata import EntryPoint
from types import NoneType, UnionType
from typing import Union, get_args, get_origin, get_type_hints

import pytest

import gloam
from gloam import cli
from gloam.cli import main
from gloam_lab.presets import ALGORITHMS
from tests.cli.conftest import stopped


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["run", "dms-paper", "lp", "--measures", "7"],
            "solution_dim: expected a multiple of the 7",
        ),
        (
            ["run", "dms-paper", "arm", "--restart", "often"],
            "restart: expected idle, basic, no-improvement",
        ),
        (["run", "cma-mae", "arm", "--alpha", "2"], "alpha: expected a finite number >= 0"),
        (
            ["run", "dms-paper", "lp", "--centroids", "no.npy"],
            "centroids: expected an existing file",
        ),
        (["resume", "nowhere"], "run folder: expected a run of gloam"),
        (["plot", "nowhere"], "run folder: expected a run of gloam"),
    ],
)
def test_errors_are_one_line_and_exit_2(arguments, message, tmp_path, capsys):
    more = ["--out", tmp_path / "x"] if arguments[0] == "run" else []
    shown = stopped(capsys, *arguments, *more)
    assert message in shown
    assert shown.count("\n") == 1


@pytest.mark.parametrize("arguments", [["plot", "a", "{}"], ["datasets", "{}"], ["bench", "--{}"]])
def test_refused_arguments_are_no_commands_for_the_terminal(arguments, capsys):
    """Names of files are arguments, as in `gloam plot runs/*`."""
    shown = stopped(capsys, *(text.format("\033]0;x\007") for text in arguments))
    assert r"\x1b]0;x\x07" in shown
    assert "\033" not in shown


def test_plot_hands_measures_and_values_over(monkeypatch):
    calls = []
    monkeypatch.setattr("gloam.plots.plot_run", lambda *a, **k: calls.append((a, k)) or [])
    words = "plot runs/x --measures speed 2 --at weight 0.5 size -1 --tails 0.1"
    main(words.split())
    ((_, given),) = calls
    view = {"measures": ("speed", "2"), "at": {"weight": 0.5, "size": -1.0}, "tails": 0.1}
    assert given == view | {"pdf": False}


@dataclasses.dataclass(frozen=True)
class Greet:
    """Greet somebody."""

    name: str = "nobody"
    """Name to greet."""

    def __call__(self):
        print(f"hello {self.name}")


def test_installed_packages_add_commands(monkeypatch, capsys):
    entries = [
        EntryPoint("greet", f"{__name__}:Greet", "gloam.commands"),
        EntryPoint("new", f"{__name__}:Greet", "gloam.commands"),
        EntryPoint("broken", "no_such_module:Command", "gloam.commands"),
    ]
    # Other libraries, such as JAX, look for groups of their own.
    by_group = {"gloam.commands": entries}
    monkeypatch.setattr(metadata, "entry_points", lambda *, group: by_group.get(group, []))
    main(["greet", "--name", "you"])
    printed = capsys.readouterr()
    assert printed.out == "hello you\n"
    # A package that cannot be imported costs its own command only, and one line.
    assert printed.err.count("\n") == 1
    assert "broken" in printed.err
    assert "no_such_module" in printed.err
    # gloam's own commands are not replaced.
    assert "Write an example" in help_text("new", capsys)


COMMANDS = ("demo", "new", "fill", "gallery", "datasets", "resume", "plot", "compare", "paper")
COMMANDS += (
    "paper-report",
    "bench",
    "explore",
    "report",
    "lsi convert",
    "lsi check",
    "lsi run",
    *(f"run {name} lp" for name in ALGORITHMS),
    "run dms arm",
)


def help_text(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), "--help"])
    assert stop.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", ["", "run", "run dms", *COMMANDS])
def test_every_command_has_a_help_text(command, capsys):
    assert "usage: gloam" in help_text(command, capsys)


def test_the_version_is_printed(capsys):
    main(["--version"])
    assert capsys.readouterr().out == f"gloam {gloam.__version__}\n"
    assert "gloam --version" in help_text("", capsys)


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"]], ids=" ".join)
def test_help_for_a_reader_that_has_left_is_no_error(arguments):
    # As by `gloam --help | head`: a text that fits in the buffer, and one that does not.
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", "from gloam.cli import main; main()", *arguments]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_the_help_of_fill_begins_with_what_is_required(capsys):
    text = " ".join(help_text("fill", capsys).split())
    beginning = text[: text.index("positional arguments")]
    assert "Required: FUNCTION" in beginning
    assert all(name in beginning for name in ("--dataset", "x0", "sigma0", "gloam new"))


def documented(one):
    """Names of the fields that a class declares, with the texts below them."""
    if one is object:
        return
    (body,) = ast.parse(inspect.getsource(one)).body
    assert isinstance(body, ast.ClassDef)
    for field, text in itertools.pairwise(body.body):
        is_text = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        if isinstance(field, ast.AnnAssign) and is_text:
            yield field.target.id, text.value.value


def options(node, found=None):
    """The fields of a command and of the choices inside it, with their types and descriptions."""
    found = {} if found is None else found
    if isinstance(node, type) and dataclasses.is_dataclass(node):
        hints = get_type_hints(node, include_extras=True)
        texts = {name: text for base in node.__mro__[::-1] for name, text in documented(base)}
        for field in dataclasses.fields(node):
            use = (node.__name__, hints[field.name], texts.get(field.name))
            found.setdefault(field.name, []).append(use)
            options(hints[field.name], found)
    for inner in get_args(node):
        options(inner, found)
    return found


def without_none(kind):
    """The types that an option may have when it is given."""
    is_union = get_origin(kind) in (Union, UnionType)
    return tuple(one for one in get_args(kind) if one is not NoneType) if is_union else (kind,)


def test_an_option_means_the_same_in_every_command():
    found = options(cli._command_type())
    kinds = {name: {without_none(kind) for _, kind, _ in uses} for name, uses in found.items()}
    several = {name: types for name, types in kinds.items() if len(types) > 1}
    # `bench` and `paper` take several of what `run` and `demo` take one of.
    # The name of a problem is any text, and that of a public dataset one of a few.
    # The function of `fill` is its first argument, and an option of `answer`.
    allowed = {
        "algorithm",
        "algorithms",
        "measures",
        "domain",
        "domains",
        "run",
        "name",
        "function",
    }
    assert set(several) <= allowed
    assert kinds["restart"] == {(str,)}
    assert "trials" not in kinds
    assert {place for place, _, _ in found["centroids"]} == {"LpChoice"}
    assert {place for place, _, _ in found["centroids_dir"]} == {"Bench", "Paper"}


def test_every_option_is_described_by_a_sentence():
    for name, uses in options(cli._command_type()).items():
        for place, kind, text in uses:
            if dataclasses.is_dataclass(kind) or name in ("algorithm", "domain"):
                continue
            assert text is not None, f"{place}.{name}"
            assert len(text.split()) > 1, f"{place}.{name}: {text}"
            assert text.endswith("."), f"{place}.{name}: {text}"


def test_only_the_program_itself_freezes_its_modules(monkeypatch, tmp_path):
    arguments = ["plot", str(tmp_path / "missing")]
    before = gc.get_freeze_count()
    with pytest.raises(SystemExit):
        main(arguments)
    assert gc.get_freeze_count() == before
    monkeypatch.setattr(sys, "argv", ["gloam", *arguments])
    registered = []
    monkeypatch.setattr("atexit.register", registered.append)
    try:
        with pytest.raises(SystemExit):
            main()
        assert gc.isenabled()
        assert gc.get_freeze_count() > before
        assert registered == [gc.freeze]
    finally:
        gc.unfreeze()


REQUIRED = {
    "answer": "answer nowhere --function mine.py --dataset data.npy",
    "bench": "bench",
    "demo": "demo",
    "explore": "explore .",
    "fill": "fill mine.py --dataset data.npy",
    "gallery": "gallery nowhere",
    "lsi check": "lsi check",
    "lsi run": "lsi run dms --stylegan a --clip b --landscapes c --out x",
    "new": "new mine.py",
    "paper": "paper",
    "resume": "resume nowhere",
    "run": "run dms arm --out x",
    "run lp": "run dms lp --out x",
    "run digits": "run dms latent-digits --out x",
}
INTEGERS = {
    "answer": "evaluations seed workers",
    "bench": "measures repeats warm-up seed",
    "demo": "iterations seed",
    "explore": "port",
    "fill": "iterations size items emitters batch-size seed workers log-every checkpoint-every "
    "keep-checkpoints stop-plateau",
    "gallery": "count",
    "lsi check": "items",
    "lsi run": "items starts iterations seeds seed",
    "new": "size",
    "paper": "seeds iterations",
    "resume": "iterations",
    "run": "iterations seeds seed snapshots emitters batch-size empty-points joints",
    "run lp": "measures solution",
    "run digits": "items",
}


def test_every_integer_of_the_command_line_is_tested_below():
    found = {
        name.replace("_", "-")
        for name, uses in options(cli._command_type()).items()
        for _, kind, _ in uses
        if int in (kind, *get_args(kind), *(one for k in get_args(kind) for one in get_args(k)))
    }
    assert found == set(" ".join(INTEGERS.values()).split())


@pytest.mark.parametrize(
    ("command", "option"),
    [(command, name) for command, names in INTEGERS.items() for name in names.split()],
)
def test_integers_are_checked_before_a_command_begins(
    command, option, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    name = option.replace("-", "_")
    lowest = int(name not in cli._FROM_ZERO)
    for number in (lowest - 1, 2**64):
        given = ["-1" if number < 0 else str(number)] * (2 if option == "size" else 1)
        # Nothing is built or read first: the files that are named do not exist.
        shown = stopped(capsys, *REQUIRED[command].split(), f"--{option}", *given)
        assert shown.startswith(f"error: {name}: expected a whole number >= {lowest}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "dms", "arm", "--out", ""],
        ["run", "dms", "arm", "--out="],
        ["run", "dms", "arm", "--out", "x", "--csv", ""],
        ["run", "dms", "lp", "--out", "x", "--centroids", ""],
        ["fill", "mine.py", "--dataset", "data.npy", "--out", ""],
        ["demo", "--out", ""],
        ["paper", "--out", ""],
        ["bench", "--out", ""],
        ["compare", ""],
        ["compare", "x", "--out", ""],
        ["resume", ""],
        ["plot", ""],
        ["report", ""],
        ["explore", ""],
        ["new", ""],
    ],
    ids=" ".join,
)
def test_an_empty_path_is_not_the_current_folder(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shown = " ".join(stopped(capsys, *arguments).replace("│", " ").split())
    assert "expected a path, got ''" in shown or "parse for arguments: ['']" in shown
    assert not list(tmp_path.iterdir())
