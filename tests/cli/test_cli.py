"""The command line as a user types it."""

import ast
import dataclasses
import inspect
import itertools
import sys
from types import NoneType, UnionType
from typing import Union, get_args, get_origin, get_type_hints

import pandas as pd
import pytest

import gloam
from gloam import cli
from gloam.cli import choices, main
from gloam.cli.outputs import check_bench
from gloam.experiments.presets import ALGORITHMS


def run(*arguments):
    main([str(argument) for argument in arguments])


def test_run_resume_and_plot(tmp_path, capsys):
    out = tmp_path / "run"
    run(
        "run",
        "dms",
        "lp",
        "--solution",
        10,
        "--iterations",
        4,
        "--seeds",
        2,
        "--seed",
        5,
        "--emitters",
        2,
        "--batch-size",
        6,
        "--restart",
        "3",
        "--out",
        out,
        "--quiet",
    )
    shown = capsys.readouterr().out
    assert "QD score" in shown
    assert f"gloam plot {out}" in shown
    folder = gloam.RunFolder(out)
    assert folder.read_config().seeds == (5, 6)
    assert folder.read_part("algorithm").emitter.restart == gloam.emitters.RestartEvery(3)
    run("resume", out, "--iterations", 6, "--quiet")
    assert folder.read_metrics()["iteration"].max() == 6
    capsys.readouterr()
    run("plot", out)
    for line in capsys.readouterr().out.split():
        assert line.endswith(".png")
        assert (tmp_path / line).stat().st_size > 5000


def test_the_paper_is_the_default(tmp_path):
    run("run", "map-elites-line", "arm", "--iterations", 1, "--out", tmp_path / "r", "--quiet")
    emitter = gloam.RunFolder(tmp_path / "r").read_part("algorithm").emitter
    assert (emitter.sigma, emitter.line_sigma, emitter.batch_size) == (0.1, 0.2, 540)


def test_demo_leaves_a_gallery(tmp_path, capsys):
    run("demo", "--iterations", 25, "--out", tmp_path / "demo")
    shown = capsys.readouterr().out
    assert "of 1,797 items have an elite" in shown
    for path in (tmp_path / "demo" / "figures" / "gallery.png", tmp_path / "demo" / "gallery.html"):
        assert str(path) in shown
        assert path.is_file()


@pytest.mark.slow
def test_demo_of_the_sphere_leaves_pictures(tmp_path, capsys):
    run("demo", "--domain", "lp", "--iterations", 25, "--out", tmp_path / "demo")
    shown = capsys.readouterr().out
    for name in ("curves.png", "archive.png", "discount.png"):
        assert str(tmp_path / "demo" / "figures" / name) in shown
        assert (tmp_path / "demo" / "figures" / name).is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "dms", "lp", "--measures", "7"], "solution_dim: expected a multiple of the 7"),
        (
            ["run", "dms", "arm", "--restart", "often"],
            "restart: expected idle, basic, no-improvement",
        ),
        (["run", "cma-mae", "arm", "--alpha", "2"], "alpha: expected a finite number >= 0"),
        (["run", "dms", "lp", "--centroids", "no.npy"], "centroids: expected an existing file"),
        (["resume", "nowhere"], "run folder: expected a run of gloam"),
        (["plot", "nowhere"], "run folder: expected a run of gloam"),
    ],
)
def test_errors_are_one_line_and_exit_2(arguments, message, tmp_path, capsys):
    more = ["--out", str(tmp_path / "x")] if arguments[0] == "run" else []
    with pytest.raises(SystemExit) as stop:
        main([*arguments, *more])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


COMMANDS = ("demo", "new", "fill", "gallery", "datasets", "resume", "plot", "paper", "bench")
COMMANDS += (
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
    found = options(cli._Command)
    kinds = {name: {without_none(kind) for _, kind, _ in uses} for name, uses in found.items()}
    several = {name: types for name, types in kinds.items() if len(types) > 1}
    # `bench` and `paper` take several of what `run` and `demo` take one of.
    assert set(several) <= {"algorithm", "algorithms", "measures", "domain", "domains", "run"}
    assert kinds["restart"] == {(str,)}
    assert "trials" not in kinds
    assert {place for place, _, _ in found["centroids"]} == {"LpChoice"}
    assert {place for place, _, _ in found["centroids_dir"]} == {"Bench", "Paper"}


def test_every_option_is_described_by_a_sentence():
    for name, uses in options(cli._Command).items():
        for place, kind, text in uses:
            if dataclasses.is_dataclass(kind) or name in ("algorithm", "domain"):
                continue
            assert text is not None, f"{place}.{name}"
            assert len(text.split()) > 1, f"{place}.{name}: {text}"
            assert text.endswith("."), f"{place}.{name}: {text}"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("basic", gloam.emitters.BasicRestart()),
        ("no-improvement", gloam.emitters.RestartWithoutImprovement()),
        ("7", gloam.emitters.RestartEvery(7)),
    ],
)
def test_restart_is_text_in_run_and_fill(text, rule):
    assert choices.restart_rule(text) == rule


def test_bench_writes_a_table_a_csv_and_a_picture(tmp_path, capsys, monkeypatch):
    # Without peers: the comparison of gloam's two drivers is enough to see the whole command.
    monkeypatch.setitem(sys.modules, "gloam.experiments.pyribs", None)
    monkeypatch.setitem(sys.modules, "gloam.experiments.qdax", None)
    main(
        [
            "bench",
            "--algorithms",
            "map-elites-line",
            "--measures",
            "2",
            "--repeats",
            "1",
            "--seconds",
            "0.01",
            "--warm-up",
            "3",
            "--out",
            str(tmp_path),
        ]
    )
    printed = capsys.readouterr().out
    assert "pyribs is missing" in printed
    assert "| map-elites-line | 2 | gloam fused |" in printed
    assert {path.name for path in tmp_path.iterdir()} == {"bench.md", "bench.csv", "bench.png"}
    assert len(pd.read_csv(tmp_path / "bench.csv")) == 2
    check_bench(tmp_path)  # its own files may be replaced


def test_a_stop_outside_the_search_needs_no_traceback(tmp_path, monkeypatch, capsys):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("gloam.cli.run.run", stopped)
    with pytest.raises(SystemExit) as ended:
        run("run", "dms", "lp", "--iterations", 1, "--out", tmp_path / "r", "--quiet")
    assert ended.value.code == 130
    assert "stopped" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["bench.md", "bench.csv", "bench.png"])
def test_bench_does_not_replace_files_of_others(name, tmp_path, capsys):
    (tmp_path / name).write_text("my own, 1, 2")
    with pytest.raises(SystemExit) as stopped:
        main(["bench", "--out", str(tmp_path)])
    assert stopped.value.code == 2
    assert name in capsys.readouterr().err
    assert (tmp_path / name).read_text() == "my own, 1, 2"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("name", ["matches.csv", "gallery.html", "archive.npz"])
def test_a_run_does_not_replace_files_of_others(name, tmp_path, capsys):
    (tmp_path / name).write_text("my own")
    with pytest.raises(SystemExit):
        run("run", "map-elites", "arm", "--iterations", 1, "--out", tmp_path, "--quiet")
    assert name in capsys.readouterr().err
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "my own")]


def test_a_run_is_stopped_and_logged_by_options(tmp_path, capsys):
    small = ("map-elites", "lp", "--solution", 10, "--batch-size", 36, "--log-every", 1)
    out, table = tmp_path / "run", tmp_path / "rows.csv"
    follow = ("--stop-score", 1, "--csv", table, "--quiet")
    run("run", *small, "--iterations", 50, "--out", out, *follow)
    assert "Stopped early: qd_score reached 1" in capsys.readouterr().out
    metrics = gloam.RunFolder(out).read_metrics()
    assert metrics["iteration"].max() < 50
    assert pd.read_csv(table)["iteration"].tolist() == metrics["iteration"].tolist()
    run("resume", out, "--csv", table, "--stop-plateau", 60, "--stop-coverage", 1, "--quiet")
    assert "Stopped early" not in capsys.readouterr().out
    assert pd.read_csv(table)["iteration"].tolist() == list(range(1, 51))
