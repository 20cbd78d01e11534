import shutil

from gloam.explorer.library import Library
from gloam.explorer.summaries import RunSummary
from gloam.formats import RunFolder
from gloam.formats.tables import MetricsFile


def test_a_change_of_a_file_is_seen_by_the_same_library(runs):
    library = Library(runs)
    folder = RunFolder(runs / "grid")
    first = {run["name"]: run for run in library.folder()["runs"]}
    table = folder.read_metrics()
    table["qd_score"] = 7.0
    MetricsFile(folder.path).write(table)
    second = {run["name"]: run for run in library.folder()["runs"]}
    assert first["grid"]["results"]["qd_score"] != 7.0
    assert second["grid"]["results"]["qd_score"] == 7.0
    assert first["pictures"] == second["pictures"]
    shutil.rmtree(runs / "pictures")
    assert {run["name"] for run in library.folder()["runs"]} == {"grid", "others/map-elites"}


def test_links_and_files_of_other_programs_are_not_runs(runs, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    shutil.move(runs / "grid", tmp_path / "elsewhere" / "grid")
    (runs / "link").symlink_to(tmp_path / "elsewhere")
    (runs / "mine").mkdir()
    (runs / "mine" / "config.json").write_text("{}")
    (runs / "others" / "gone").symlink_to(tmp_path / "nothing")
    (runs / "others" / "circle").symlink_to(runs)
    (runs / "file").symlink_to(runs / "mine" / "config.json")
    found = Library(runs).folder()
    assert {run["name"] for run in found["runs"]} == {"others/map-elites", "pictures"}
    assert found["complete"]
    # Named, so that nobody looks for their runs.
    assert sorted(found["links"]) == ["link", "others/circle"]


def test_opened_runs_are_kept_and_read_again_after_a_change(runs):
    library = Library(runs)
    entry = next(one for one in library.look().runs.values() if one.name == "grid")
    first = library.opened(entry).elites(3)
    assert library.opened(entry).elites(3) is first
    folder = RunFolder(runs / "grid")
    folder.write_archive(folder.read_archive(3), seed=4)
    assert library.opened(entry).elites(3) is not first


def test_an_error_at_one_run_that_was_not_foreseen_leaves_the_others(runs, monkeypatch, caplog):
    def read(summary, real=RunSummary.read):
        if summary._folder.path.name == "grid":
            raise OverflowError("a secret of a file")
        return real(summary)

    monkeypatch.setattr(RunSummary, "read", read)
    found = {run["name"]: run["state"] for run in Library(runs).folder()["runs"]}
    assert found == {"grid": "damaged", "pictures": "finished", "others/map-elites": "finished"}
    assert "grid" in caplog.text
