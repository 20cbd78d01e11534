"""The command line as a user types it."""

import sys

import pandas as pd
import pytest

import gloam
from gloam.cli import main
from gloam.cli.outputs import check_bench


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
        (["run", "dms", "arm", "--restart", "often"], "restart: expected basic, no-improvement"),
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


@pytest.mark.parametrize("command", ["", "run", "run dms lp", "resume", "plot", "demo", "paper"])
def test_every_command_explains_itself(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), "--help"])
    assert stop.value.code == 0
    assert "usage: gloam" in capsys.readouterr().out


def test_bench_writes_a_table_a_csv_and_a_picture(tmp_path, capsys, monkeypatch):
    # Without peers: the comparison of gloam's two drivers is enough to see the whole command.
    monkeypatch.setitem(sys.modules, "gloam.peers.pyribs", None)
    monkeypatch.setitem(sys.modules, "gloam.peers.qdax", None)
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

    monkeypatch.setattr("gloam.cli.commands.run", stopped)
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
