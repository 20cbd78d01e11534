import dataclasses
import json
import shutil

import numpy as np
import pytest

import gloam
from gloam.explorer.library import Library
from gloam.formats import RunFolder
from gloam.formats.config import describe
from gloam.formats.documents import FORMAT, content_digest
from gloam.formats.ownership import NAME, holder, locked
from gloam.formats.tables import MetricsFile


def summary_of(root, name="grid"):
    library = Library(root)
    entry = next(one for one in library.look().runs.values() if one.name == name)
    return library.summary(entry)


def test_a_finished_run_has_its_names_settings_and_final_scores(runs):
    found = summary_of(runs)
    table = RunFolder(runs / "grid").read_metrics()
    last = table[table["iteration"] == 6]
    assert found["state"] == "finished"
    assert found["algorithm"] == "DMS (paper)"
    assert found["domain"] == "2d-lp-sphere"
    assert (found["iteration"], found["iterations"], found["seeds"]) == (6, 6, [3, 4])
    assert found["settings"]["archive.shape"] == "8, 6"
    assert found["settings"]["emitter.batch_size"] == 6
    assert found["results"]["qd_score"] == pytest.approx(last["qd_score"].mean())
    assert "infeasible_total" not in found["results"]
    folder = RunFolder(runs / "grid")
    MetricsFile(folder.path).write(table.assign(infeasible_total=2 * table["iteration"]))
    assert summary_of(runs)["results"]["infeasible_total"] == 12
    assert found["results"]["qd_score_error"] == pytest.approx(last["qd_score"].sem())
    means = table.groupby("iteration")["qd_score"].mean()
    assert found["sparkline"] == pytest.approx(list(means), rel=1e-4)


def test_corrected_scores_are_told_as_such_until_the_run_goes_on(runs):
    folder = RunFolder(runs / "grid")
    scores = {
        "corrected_qd_score": np.array([4.0, 6.0]),
        "corrected_qd_score_error": np.array([0.1, 0.1]),
        "corrected_coverage": np.array([0.5, 0.7]),
        "corrected_coverage_error": np.full(2, np.nan),
        "f_min": np.array([-1.0, -1.0]),
    }
    library = Library(runs)

    def results():
        (entry,) = [one for one in library.look().runs.values() if one.name == "grid"]
        found = library.summary(entry)
        return {n: v for n, v in found["results"].items() if "corrected" in n}, found["warnings"]

    assert results() == ({}, [])
    folder.write_corrected(scores, number=20, iteration=6)
    found, _ = results()
    assert found["corrected"] == 20
    assert found["corrected_f_min"] == -1
    assert found["corrected_qd_score"] == 5
    assert found["corrected_qd_score_error"] == pytest.approx(np.std([4, 6], ddof=1) / 2**0.5)
    assert found["corrected_coverage"] == pytest.approx(0.6)
    folder.write_corrected(scores, number=20, iteration=4)  # of elites before the newest checkpoint
    assert results() == ({}, [])
    folder.write_corrected(
        {name: values[:1] for name, values in scores.items()}, number=20, iteration=6
    )
    found, (warning,) = results()
    assert found == {}
    assert warning.startswith("corrected.npz: ")


def test_a_locked_run_is_running_and_says_how_long_it_takes(runs):
    folder = RunFolder(runs / "grid")
    config = folder.read_config()
    object.__setattr__(config, "plan", dict(config.plan) | {"iterations": 16})
    folder.write_plan(config)
    table = folder.read_metrics()
    table["seconds"] = 2.0 * table["iteration"]
    MetricsFile(folder.path).write(table)
    with locked(runs / "grid"):
        found = summary_of(runs)
    assert found["state"] == "running"
    assert found["seconds_left"] == pytest.approx(2.0 * (16 - 6))


def test_runs_that_were_stopped_are_interrupted_or_failed(runs):
    (runs / "grid" / "archive-3.npz").unlink()
    (runs / "grid" / "archive-4.npz").unlink()
    assert summary_of(runs)["state"] == "interrupted"
    assert summary_of(runs)["reason"] == "Its last checkpoint is at iteration 6."
    shutil.rmtree(runs / "grid" / "checkpoint")
    assert summary_of(runs)["state"] == "failed"


def test_a_run_that_a_callback_stopped_is_not_interrupted(runs):
    folder = RunFolder(runs / "grid")
    config = folder.read_config()
    plan = {"iterations": 9, "stopped": "no improvement"}
    folder.write_plan(dataclasses.replace(config, plan=plan))
    found = summary_of(runs)
    told = "A callback stopped it at iteration 6: no improvement"
    assert (found["state"], found["reason"]) == ("stopped", told)


def test_a_run_tells_when_it_began_and_when_its_archive_appears(runs):
    folder = RunFolder(runs / "grid")
    config = folder.read_config()
    assert summary_of(runs)["started"] is None  # not the time of a file, which a copy changes
    for told, shown in ((1.5e9, 1.5e9), ("now", None), (True, None), (-1, None), (1e300, None)):
        plan = dict(config.plan) | {"started": told}
        folder.write_plan(dataclasses.replace(config, plan=plan))
        found = summary_of(runs)
        assert found["started"] == shown
    assert found["first"] == {
        "log_every": None,
        "checkpoint_every": None,
        "checkpoint_seconds": None,
    }


def test_a_newer_format_and_damaged_files_are_told_as_such(runs):
    config = runs / "grid" / "config.json"
    content = json.loads(config.read_text())
    newer = {name: part for name, part in content.items() if name != "sha256"} | {
        "format": FORMAT + 1
    }
    config.write_text(json.dumps(newer | {"sha256": content_digest(newer)}))
    found = summary_of(runs)
    assert found["state"] == "newer"
    assert "a newer version of gloam wrote it" in found["reason"]
    config.write_bytes(config.read_bytes()[:100])
    found = summary_of(runs)
    assert (found["state"], found["reason"]) == ("damaged", "config.json: it is not valid JSON.")


def test_a_cut_off_archive_is_found_without_reading_it(runs):
    archive = runs / "grid" / "archive-4.npz"
    archive.write_bytes(archive.read_bytes()[:-100])
    found = summary_of(runs)
    assert found["state"] == "damaged"
    assert found["reason"].startswith("archive-4.npz: it is damaged")


def test_damaged_rows_of_metrics_are_left_out_and_told(runs):
    folder = RunFolder(runs / "grid")
    rows = folder.read_metrics()
    path = runs / "grid" / "metrics.csv"
    path.write_bytes(path.read_bytes().replace(b"\n4,", b"\nx,", 1))
    found = summary_of(runs)
    assert found["rows"] == len(rows) - 1
    (warning,) = found["warnings"]
    assert warning.startswith("metrics.csv: 1 of its lines cannot be read")


def test_looking_at_a_lock_changes_nothing_and_finds_who_has_it(tmp_path):
    assert holder(tmp_path) is None
    assert not (tmp_path / NAME).exists()
    with locked(tmp_path):
        assert holder(tmp_path).startswith("process ")
    (tmp_path / NAME).write_text("left behind by a killed process")
    assert holder(tmp_path) is None
    assert (tmp_path / NAME).read_text() == "left behind by a killed process"
    with locked(tmp_path):
        pass


def test_a_run_of_the_users_own_parts_is_shown_by_its_names(runs):
    def my_function(solutions):
        return solutions

    archive = gloam.GridArchive((4, 4), -1, 1)
    network = lambda points: points  # noqa: E731
    algorithm = gloam.MAPElites(archive, [0.0, 0.0], 0.1, batch_size=4)
    folder = gloam.RunFolder(runs / "own")
    settings = {"driver": "ask-tell", "seeds": [0], "dataset": None, "plan": {"iterations": 3}}
    folder.write_config(*describe(algorithm, my_function, **settings))
    found = summary_of(runs, "own")
    assert (found["domain"], found["state"]) == ("my_function", "failed")
    shutil.rmtree(runs / "own")
    folder.write_config(*describe(network, my_function, **settings))
    assert summary_of(runs, "own")["algorithm"].endswith("<lambda>")
