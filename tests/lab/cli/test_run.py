"""`gloam run`, `gloam resume` and `gloam demo`, and the commands that look at their folders."""

import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

import gloam
from gloam.emitters import BasicRestart, RestartEvery, RestartWhenIdle, RestartWithoutImprovement
from gloam_lab import preset_algorithm
from gloam_lab.cli import run as choices
from gloam_lab.cli.run import LatentDigitsChoice
from gloam_lab.presets import LATENT_DIGITS_SETTINGS
from tests.cli.conftest import run, stopped
from tests.helpers import assert_same_bits

SMALL_LP = ("map-elites", "lp", "--solution", 10, "--batch-size", 36, "--log-every", 1)


def test_a_run_on_digits_ends_in_a_gallery(digits_once):
    folder, printed = digits_once
    assert "of 30 items have an elite" in printed
    assert "gloam plot runs/x" in printed
    for name in ("figures/gallery.png", "gallery.html"):
        assert f"runs/x/{name}" in printed
        assert (folder / name).stat().st_size > 5000
    assert "open runs/x/gallery.html in a browser" in printed
    assert gloam.RunFolder(folder).read_part("domain").archive().num_cells == 30


def test_a_run_is_resumed(digits_run, capsys):
    folder, _ = digits_run
    run("resume", folder, "--iterations", 5, "--quiet")
    assert f"gloam gallery {folder}" in capsys.readouterr().out
    assert gloam.RunFolder(folder).read_metrics()["iteration"].max() == 5


def test_a_run_is_drawn_again(digits_run, capsys):
    folder, _ = digits_run
    (folder / "gallery.html").unlink()
    run("gallery", folder, "--by", "label")
    assert (folder / "gallery.html").is_file()
    capsys.readouterr()
    run("plot", folder)
    written = capsys.readouterr().out.split()
    assert str(folder / "figures" / "discount.png") in written
    for path in written:
        assert (folder / path).stat().st_size > 5000


def test_a_run_is_stopped_and_logged_by_options(tmp_path, capsys):
    out, table = tmp_path / "run", tmp_path / "rows.csv"
    follow = ("--stop-score", 1, "--csv", table, "--quiet", "--seeds", 2, "--seed", 5)
    run("run", *SMALL_LP, "--iterations", 50, "--out", out, *follow)
    assert "Stopped early: qd_score reached 1" in capsys.readouterr().out
    metrics = gloam.RunFolder(out).read_metrics()
    assert metrics["iteration"].max() < 50
    assert gloam.RunFolder(out).read_config().seeds == (5, 6)
    assert pd.read_csv(table)["iteration"].tolist() == metrics["iteration"].tolist()
    run("resume", out, "--csv", table, "--stop-plateau", 60, "--stop-coverage", 1, "--quiet")
    assert "Stopped early" not in capsys.readouterr().out
    assert sorted(set(pd.read_csv(table)["iteration"])) == list(range(1, 51))
    message = stopped(capsys, "run", *SMALL_LP, "--out", out)
    assert f"'{out}' already holds a run. Continue it with `gloam resume {out}`" in message
    assert "resume=True" not in message


def test_a_run_starts_from_another(tmp_path, capsys):
    first, later, again = (tmp_path / name for name in ("first", "later", "again"))
    one = ("--iterations", 1, "--quiet")
    run("run", *SMALL_LP, *one, "--out", first)
    elites = gloam.RunFolder(first).read_archive()
    run("run", *SMALL_LP, *one, "--seed", 1, "--start-from", first, "--out", later)
    run(
        "run",
        *SMALL_LP,
        *one,
        "--seed",
        1,
        "--start-from",
        first,
        "--reevaluate-start",
        "--out",
        again,
    )
    for folder in map(gloam.RunFolder, (later, again)):
        assert folder.read_metrics()["started_from"].tolist() == [len(elites)]
        found = folder.read_archive().of_cells(elites.cells)
        assert (found.objectives >= elites.objectives - 1e-3).all()


def test_a_run_starts_from_run_folders_only(tmp_path, capsys):
    mine, out = tmp_path / "mine", tmp_path / "out"
    mine.mkdir()
    for place in (mine, tmp_path / "nowhere"):
        message = stopped(capsys, "run", *SMALL_LP, "--start-from", place, "--out", out)
        assert f"expected a run of gloam, got '{place}'. Give the folder of a run" in message
    assert not out.exists()


@pytest.mark.parametrize("name", ["matches.csv", "gallery.html", "archive.npz"])
def test_a_run_does_not_replace_files_of_others(name, tmp_path, capsys):
    (tmp_path / name).write_text("my own")
    assert name in stopped(capsys, "run", *SMALL_LP, "--iterations", 1, "--out", tmp_path)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "my own")]


def test_options_change_the_preset():
    choice = choices.DmsPaperChoice(
        choices.LpChoice(solution=10), restart="3", emitters=2, empty_points=7, strategy="pyribs"
    )
    algorithm = choices.build_algorithm(choice, choice.domain.build())
    emitter = algorithm.emitter
    assert (emitter.restart, emitter.num_emitters, emitter.batch_size) == (RestartEvery(3), 2, 36)
    assert emitter.strategy.pyribs_covariance
    assert algorithm.discount.num_empty_points == 7
    default = choices.build_algorithm(
        choices.MapElitesLineChoice(choices.ArmChoice()), gloam.domains.Arm()
    )
    emitter = default.emitter
    assert (emitter.sigma0, emitter.line_sigma, emitter.batch_size) == (0.1, 0.2, 540)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("idle", RestartWhenIdle()),
        ("basic", BasicRestart()),
        ("no-improvement", RestartWithoutImprovement()),
        ("7", RestartEvery(7)),
    ],
)
def test_restart_rules_have_names(text, rule):
    assert choices.restart_rule(text) == rule


def test_the_whole_dataset_and_its_iterations_are_the_default():
    chosen = LatentDigitsChoice()
    assert len(chosen.dataset()) == chosen.build().archive().num_cells == 1000
    np.testing.assert_array_equal(chosen.build().archive().centroids, chosen.dataset().items)
    assert 1000 <= chosen.iterations < 10_000


@pytest.mark.parametrize("name", [name for name in LATENT_DIGITS_SETTINGS if name != "dms"])
def test_the_other_algorithms_run_on_digits(name, tmp_path, capsys):
    size = ["--batch-size", 8] + (["--emitters", 1] if name in ("dms-paper", "cma-mae") else [])
    digits = ("latent-digits", "--items", 30, "--quiet")
    run("run", name, *digits, *size, "--iterations", 2, "--out", tmp_path / "run")
    assert str(tmp_path / "run" / "gallery.html") in capsys.readouterr().out


def test_the_demo_leaves_a_gallery(tmp_path, capsys):
    run("demo", "--iterations", 3, "--out", tmp_path / "demo")
    shown = capsys.readouterr().out
    assert "of 1,797 items have an elite" in shown
    for path in (tmp_path / "demo" / "figures" / "gallery.png", tmp_path / "demo" / "gallery.html"):
        assert str(path) in shown
        assert path.is_file()


def files_in(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def small_demo(monkeypatch):
    """The demo with a small algorithm on three pictures, without its gallery."""
    few = gloam.datasets.from_array(np.linspace(0, 1, 192, dtype=np.float32).reshape(3, 8, 8))
    monkeypatch.setattr(gloam.datasets, "digits", lambda: few)
    monkeypatch.setattr(gloam, "DMS", lambda *parts, batch_size: gloam.MAPElites(*parts))
    monkeypatch.setattr("gloam.cli.demo.show_matches", lambda *parts: None)


@pytest.mark.usefixtures("small_demo")
def test_a_demo_deletes_no_run(tmp_path, capsys):
    out = tmp_path / "demo"
    run("demo", "--iterations", 2, "--out", out)
    demo = files_in(out)
    for wrong in (("--iterations", -1), ("--iterations", 0), ("--seed", -1), ("--seed", 2)):
        stopped(capsys, "demo", *wrong, "--out", out)
        assert files_in(out) == demo
    run("demo", "--iterations", 3, "--out", out)  # continues the first one
    assert gloam.RunFolder(out).read_checkpoint_iteration() == 3


@pytest.mark.usefixtures("small_demo")
def test_a_demo_replaces_no_run_of_another_command(tmp_path, capsys):
    out = tmp_path / "mine"
    run("run", *SMALL_LP, "--iterations", 1, "--quiet", "--out", out)
    before = files_in(out)
    message = stopped(capsys, "demo", "--iterations", 2, "--out", out)
    assert f"'{out}' cannot be resumed with other settings" in message
    assert "another folder" in message
    assert files_in(out) == before


def test_the_demo_of_the_sphere_leaves_figures(tmp_path, capsys):
    run("demo", "--domain", "lp", "--iterations", 25, "--out", tmp_path / "demo")
    shown = capsys.readouterr().out
    for name in ("curves.png", "archive.png", "discount.png"):
        assert str(tmp_path / "demo" / "figures" / name) in shown
        assert (tmp_path / "demo" / "figures" / name).is_file()


def test_a_killed_run_is_resumed_to_the_same_bits(tmp_path):
    out = tmp_path / "killed"
    options = ["latent-digits", "--items", "30", "--emitters", "2", "--batch-size", "4", "--quiet"]
    options += ["--iterations", "100000", "--checkpoint-every", "5", "--out", str(out)]
    code = "import sys; from gloam.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "run", "dms-paper", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not gloam.RunFolder(out).holds_checkpoint:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline, "no checkpoint was written"
        time.sleep(0.02)
    process.kill()
    process.communicate()
    iterations = gloam.RunFolder(out).read_checkpoint_iteration() + 20
    resumed = gloam.resume(out, iterations=iterations, progress=False)
    domain = LatentDigitsChoice(items=30).build()
    algorithm = preset_algorithm("dms-paper", domain, num_emitters=2, batch_size=4)
    whole = gloam.run(domain, algorithm, iterations=iterations, progress=False)
    assert_same_bits(whole.elites, resumed.elites)
