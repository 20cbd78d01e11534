"""Studies: `gloam paper` from end to end, cells that are finished or continued, and the report."""

import itertools
import os
import shutil
import threading

import pandas as pd
import pytest

import gloam
from gloam.cli import main
from gloam.explorer.library import Library
from gloam.runs import fused_driver
from gloam.runs.fused_driver import FusedPrograms
from gloam_lab import Study, report
from gloam_lab.study import (
    ABLATIONS,
    VARIANTS,
    _by_program,
    build_cell,
    compiled_ahead,
    run_cell,
    seeds_that_fit,
)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """The folder of a small study, with its report."""
    out = tmp_path_factory.mktemp("study")
    return written(out, "map-elites-line", "map-elites")


def written(out, *algorithms):
    cells = ["--domains", "2d-lp-flat", "--algorithms", *algorithms]
    main(["paper", *cells, "--seeds", "2", "--iterations", "8", "--out", str(out)])
    return out


def run_all(study):
    for cell in study.cells():
        run_cell(study, cell, display=False)


def test_the_report_has_tables_and_figures(study):
    text = (study / "report" / "report.md").read_text()
    for expected in ("2D LP (Flat)", "MAP-Elites", "4,511 ± 41", "Welch", "Games-Howell"):
        assert expected in text
    results = pd.read_csv(study / "report" / "results.csv")
    assert list(results["algorithm"]) == ["map-elites-line", "map-elites"]
    assert (results["seeds"] == 2).all()
    # On the flat objective the QD score is 10,000 times the coverage (here in per cent).
    assert (abs(results["qd_score"] - 100 * results["coverage"]) < 1).all()
    # So is the share of the ceiling, since all 10,000 cells can be filled.
    assert (abs(results["qd_score_share"] - results["coverage"]) < 0.01).all()
    assert "| 2D LP (Flat) | 10,000.0 | " in text
    assert "| the paper |  | 45.1% | 43.3% |" in text
    for name in ("curves-2d-lp--flat", "heatmaps-2d-lp--flat"):
        assert (study / "report" / f"{name}.png").stat().st_size > 10_000
        assert (study / "report" / f"{name}.pdf").is_file()
    assert r"\toprule" in (study / "report" / "results.tex").read_text()
    assert (study / "report" / "report.html").is_file()


@pytest.mark.parametrize("on_cpu", [True, False])
def test_the_next_cells_are_compiled_while_one_runs(tmp_path, monkeypatch, on_cpu):
    monkeypatch.setattr("gloam_lab.study.runs_on_cpu", lambda: on_cpu)
    fused_driver._kept_programs.cache_clear()
    compiled_here = []
    compile_both = FusedPrograms._compile_both

    def noted(program, *arguments):
        if program._compiled_begin is None:
            compiled_here.append(threading.current_thread() is threading.main_thread())
        compile_both(program, *arguments)

    monkeypatch.setattr(FusedPrograms, "_compile_both", noted)
    names = ("map-elites", "map-elites-line", "cma-mae")
    study = Study(tmp_path, ("2d-lp-flat", "arm", "2d-lp-sphere"), names, 3, 2)
    for cell in compiled_ahead(study):
        run_cell(study, cell, display=False)
    # Flat and Sphere share programs. Each was compiled once, that of the first cell by this thread,
    # and others ahead of it.
    assert len(compiled_here) == 2 * len(names)
    assert set(compiled_here) == {True, False}
    assert all(study.finished(cell) for cell in study.cells())


def test_cells_of_one_program_run_one_after_the_other(tmp_path):
    study = Study(tmp_path)
    groups = _by_program(study)
    assert sorted(map(str, itertools.chain(*groups))) == sorted(map(str, study.cells()))
    assert len(groups) == 5 * len(study.algorithms)
    assert [(cell.domain, cell.algorithm) for cell in groups[0]] == [
        (f"2d-lp-{objective}", "map-elites") for objective in ("sphere", "rastrigin", "flat")
    ]
    assert [(cell.domain, cell.algorithm) for cell in groups[-1]] == [("arm", "dms")]


def test_finished_cells_are_not_run_again(study, monkeypatch):
    before = {path: path.stat().st_mtime_ns for path in study.rglob("checkpoint/*.npz")}
    monkeypatch.setattr(
        "gloam_lab.study.run", lambda *a, **k: pytest.fail("a finished cell was run")
    )
    run_all(Study.read(study))
    assert before == {path: path.stat().st_mtime_ns for path in study.rglob("checkpoint/*.npz")}
    assert len({path.parent for path in before}) == 2


def test_a_longer_study_continues_its_cells(study, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(study, copy)
    run_all(Study(copy, ("2d-lp-flat",), ("map-elites-line", "map-elites"), 2, iterations=10))
    metrics = gloam.RunFolder(copy / "2d-lp-flat" / "map-elites-line").read_metrics()
    assert metrics["iteration"].max() == 10
    whole = gloam.RunFolder(study / "2d-lp-flat" / "map-elites-line").read_metrics()
    pd.testing.assert_frame_equal(metrics[metrics["iteration"] <= 8], whole)


@pytest.mark.parametrize("row", ["0,1e400", "nan,8", "7,8"])
def test_a_damaged_run_does_not_hide_the_others(study, tmp_path, row):
    copy = tmp_path / "copy"
    shutil.copytree(study, copy)
    path = copy / "2d-lp-flat" / "map-elites" / "metrics.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, ",".join([row, *lines[-1].split(",")[2:]]), ""]))
    with pytest.warns(UserWarning, match=r"map-elites/metrics\.csv' cannot be used"):
        report.write_report(copy, figures=False)
    results = pd.read_csv(copy / "report" / "results.csv")
    assert list(results["algorithm"]) == ["map-elites-line"]
    with pytest.warns(UserWarning, match=r"map-elites/metrics\.csv' cannot be used"):
        assert report._folders(Study.read(copy), ["2d-lp-flat"])
    main(["report", str(copy / "2d-lp-flat" / "map-elites")])
    summaries = {run["name"]: run for run in Library(copy).folder()["runs"]}
    damaged = summaries.pop("2d-lp-flat/map-elites")
    assert damaged["state"] == "finished"
    assert "metrics.csv: 1 of its lines" in damaged["warnings"][0]
    assert all(run["warnings"] == [] for run in summaries.values())


def test_every_variant_can_be_built(tmp_path):
    study = Study(tmp_path, ("2d-lp-sphere",), tuple(VARIANTS), 1, 1)
    built = {cell.algorithm: build_cell(study, cell)[1] for cell in study.cells()}
    assert [built[name].discount.alpha for name in ABLATIONS["alpha"]] == [0, 0.001, 0.01, 0.1, 1]
    numbers = [built[name].discount.num_empty_points for name in ABLATIONS["empty"]]
    assert numbers == [0, 10, 100, 1000]
    assert built["cma-mae-pyribs"].emitter.strategy.pyribs_covariance


def test_seeds_are_split_when_the_device_is_small(monkeypatch, tmp_path):
    study = Study(tmp_path, ("2d-lp-sphere",), ("dms-paper",), 20, 1)
    _, algorithm = build_cell(study, next(study.cells()))
    assert seeds_that_fit(algorithm, 20) == 20
    # A state of this search is about 5.5 MB: solutions, 15 covariances and factors, the network.
    monkeypatch.setattr("gloam_lab.study._CPU_BYTES", 4 * 7 * 5_500_000)
    assert 5 <= seeds_that_fit(algorithm, 20) <= 9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--domains", "3d-chess"], "domains: expected some of 2d-lp-sphere"),
        (["--algorithms", "nsga"], "algorithms: expected some of dms"),
        (["--seeds", "0"], "error: seeds: expected a whole number >= 1"),
    ],
)
def test_wrong_studies_are_refused(arguments, message, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["paper", "--out", str(tmp_path), *arguments])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_a_report_without_a_study_says_so(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["paper-report", str(tmp_path)])
    assert "study: expected" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content", ["{}", "[1, 2]", "a study of bees", '{"path": ".", "domains": 3}', "null"]
)
def test_a_study_file_of_something_else_is_not_replaced(content, tmp_path, capsys):
    (tmp_path / "study.json").write_text(content)
    for command in (["paper", "--out", str(tmp_path)], ["paper-report", str(tmp_path)]):
        with pytest.raises(SystemExit) as stopped:
            main(command)
        assert stopped.value.code == 2
        assert f"'{tmp_path / 'study.json'}'" in "".join(capsys.readouterr().err.splitlines())
    assert (tmp_path / "study.json").read_text() == content
    assert [path.name for path in tmp_path.iterdir()] == ["study.json"]


def test_a_report_of_something_else_is_not_replaced(study, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(study, copy, ignore=shutil.ignore_patterns("report"))
    (copy / "report").mkdir()
    (copy / "report" / "report.md").write_text("my own")
    with pytest.raises(SystemExit):
        main(["paper-report", str(copy), "--no-figures"])
    assert "report.md" in capsys.readouterr().err
    assert (copy / "report" / "report.md").read_text() == "my own"


def test_the_wallclock_of_a_cell_in_parts_is_their_sum(study, tmp_path):
    whole = study / "2d-lp-flat" / "map-elites-line"
    spent = gloam.RunFolder(whole).read_metrics()["seconds"].max()
    copy = Study(tmp_path, ("2d-lp-flat",), ("map-elites-line",), num_seeds=4, iterations=200)
    for part in range(3):
        shutil.copytree(whole, tmp_path / "2d-lp-flat" / "map-elites-line" / f"part-{part:02d}")
    results = report.results(report.final_metrics(copy))
    assert results["seconds"].tolist() == pytest.approx([3 * spent])
    assert float(report.wallclock(results).iloc[0, 1]) == pytest.approx(3 * spent, abs=0.06)
    alone = report.results(report.final_metrics(Study.read(study)))
    assert alone["seconds"].iloc[0] == pytest.approx(spent)


def test_a_killed_drawing_process_is_an_error_that_says_what_to_do():
    with pytest.raises(ChildProcessError, match="--no-figures"), report.drawing_processes() as pool:
        pool.submit(os._exit, 9).result()
