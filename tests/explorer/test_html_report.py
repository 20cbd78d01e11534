import base64
import gzip
import json
import re
import shutil
import subprocess
import sys

import equinox as eqx
import numpy as np
import pytest

import gloam
from gloam.archives import Elites
from gloam.archives.store import empty_store
from gloam.cli import main
from gloam.explorer import write_html
from gloam.explorer.cell_view import cell_details
from gloam.explorer.html_report import MAX_CELLS, best_of_blocks
from gloam.explorer.library import Library
from gloam.formats.config import describe
from gloam_lab.study import Study
from tests.explorer.conftest import HOSTILE
from tests.explorer.unpacking import unpacked
from tests.helpers import refused


def data_of(path):
    text = path.read_text()
    found = re.search(r'<script type="application/json" id="report-data">(.*?)</script>', text)
    assert found is not None
    return json.loads(found[1])


def arrays_of(data, name):
    return unpacked(gzip.decompress(base64.b64decode(data["arrays"][name])))


@pytest.mark.slow
def test_the_report_of_a_run_holds_its_views_and_loads_nothing(runs, capsys):
    main(["report", str(runs / "pictures")])
    assert capsys.readouterr().out.strip() == str(runs / "pictures" / "report.html")
    path = runs / "pictures" / "report.html"
    text = path.read_text()
    assert not re.findall(r'(?:src|href)="(?!data:|#)', text)
    assert "connect-src" not in text.partition("<style>")[0]
    assert "default-src 'none'" in text
    data = data_of(path)
    run_id = data["about"]["start"].removeprefix("#/run/")
    run = data["json"][f"runs/{run_id}"]
    assert (run["name"], run["state"]) == ("pictures", "finished")
    elites = gloam.RunFolder(runs / "pictures").read_archive()
    found, _ = arrays_of(data, f"runs/{run_id}/elites?seed=0")
    assert found["cell"].tolist() == elites.cells.tolist()
    assert found["objective"].tolist() == elites.objectives.tolist()
    rows, about = arrays_of(data, f"runs/{run_id}/rows?seed=0")
    np.testing.assert_array_equal(
        rows["solutions"].reshape(-1, about["solution_dim"]), elites.solutions
    )
    (sheet,) = data["json"][f"runs/{run_id}/sheets?seed=0"]["sheets"]
    assert sorted(sheet) == list(range(9))  # all items, also those with empty cells
    assert f"runs/{run_id}/sheet?seed=0&number=0" in data["pictures"]


def test_a_report_has_the_variables_of_a_space(tmp_path):
    space = gloam.Space(
        rate=gloam.Real(1e-3, 1, log=True),
        layers=gloam.Integer(1, 5),
        kind=gloam.Categorical(["a", 2, None], shape=(2,)),
        width=gloam.Integer(1, 64, when={"layers": (3, 4, 5)}),
    )
    algorithm = gloam.MAPElites(gloam.GridArchive((4, 4), 0, 1), space, batch_size=20)

    def evaluate(values):
        return values["rate"], np.stack([values["rate"], values["layers"] / 5], axis=1)

    gloam.optimize(evaluate, algorithm, 2, run_dir=tmp_path / "run", progress=False)
    data = data_of(write_html(tmp_path / "run"))
    run_id = data["about"]["start"].removeprefix("#/run/")
    rows, about = arrays_of(data, f"runs/{run_id}/rows?seed=0")
    numbers = rows["values"].reshape(-1, about["solution_dim"])
    library = Library(tmp_path / "run")
    run = library.opened(library.look().runs[run_id])
    for row, cell in zip(numbers, run.elites(0).cells.tolist(), strict=True):
        named = dict(zip(about["variables"], zip(row, about["choices"], strict=True), strict=True))
        shown = {
            n: "" if np.isnan(v) else kinds[int(v)] if kinds else f"{v:.6g}"
            for n, (v, kinds) in named.items()
        }
        assert shown == cell_details(run, 0, cell)["values"]
        assert (shown["width"] == "") == (int(shown["layers"]) < 3)


@pytest.mark.slow
def test_a_report_needs_no_web_server():
    without = "sys.modules['starlette'] = sys.modules['uvicorn'] = None"
    code = f"import sys; {without}; import gloam.explorer.html_report"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_hostile_names_stay_inside_of_the_data(runs):
    shutil.move(runs / "grid", runs / HOSTILE)
    path = write_html(runs / HOSTILE)
    text = path.read_text()
    assert HOSTILE not in text
    assert data_of(path)["json"]["folder"]["runs"][0]["name"] == HOSTILE


def test_a_file_of_somebody_else_is_not_replaced(runs, tmp_path):
    mine = tmp_path / "mine.html"
    mine.write_text("<p>mine</p>")
    with refused("out: expected a new file or a report of gloam"):
        write_html(runs / "grid", mine)
    assert mine.read_text() == "<p>mine</p>"
    first = write_html(runs / "grid", tmp_path / "report.html").read_text()
    assert write_html(runs / "grid", tmp_path / "report.html").read_text() == first


def test_a_folder_without_a_run_is_refused(runs):
    with refused("folder: expected the folder of a run or of a study"):
        write_html(runs)


def test_a_damaged_run_has_a_report_that_says_so(runs):
    archive = runs / "grid" / "archive-3.npz"
    archive.write_bytes(archive.read_bytes()[:200])
    data = data_of(write_html(runs / "grid"))
    run_id = data["about"]["start"].removeprefix("#/run/")
    assert data["json"][f"runs/{run_id}"]["state"] == "damaged"
    assert "archive-3.npz" in data["json"][f"runs/{run_id}/parts"]["error"]
    assert f"runs/{run_id}/metrics" in data["arrays"]


def test_the_report_of_a_study_has_the_curves_of_its_runs(runs, tmp_path):
    study = Study(tmp_path / "study", ("2d-lp-sphere",), ("dms-paper", "map-elites"), 2, 6)
    study.write()
    shutil.copytree(runs / "grid", tmp_path / "study" / "2d-lp-sphere" / "dms-paper" / "part-00")
    place = tmp_path / "study" / "2d-lp-sphere" / "map-elites"
    shutil.copytree(runs / "others" / "map-elites", place)
    data = data_of(write_html(tmp_path / "study"))
    (found,) = data["json"]["folder"]["studies"]
    assert data["about"]["start"] == f"#/study/{found['id']}"
    assert [cell["algorithm"] for cell in found["cells"]] == ["dms-paper", "map-elites"]
    assert found["titles"]["dms-paper"] == "DMS (paper)"
    for cell in found["cells"]:
        metrics, _ = arrays_of(data, f"runs/{cell['runs'][0]}/metrics")
        assert metrics["iteration"].max() == 6


def test_the_best_of_blocks_against_a_loop():
    random = np.random.default_rng(0)
    shape = (1003, 700)
    cells = np.sort(random.choice(shape[0] * shape[1], 5000, replace=False))
    objectives = random.random(5000).astype(np.float32)
    small, side, found, rows = best_of_blocks(shape, cells, objectives)
    assert (small, side) == ((335, 234), 3)
    best: dict = {}
    for row, cell in enumerate(cells.tolist()):
        block = (cell // 700 // 3) * 234 + cell % 700 // 3
        if block not in best or objectives[row] > objectives[best[block]]:
            best[block] = row
    assert dict(zip(found.tolist(), rows.tolist(), strict=True)) == best


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["grid", "cvt"])
def test_a_large_archive_makes_a_small_report(tmp_path, kind):
    random = np.random.default_rng(0)
    if kind == "grid":
        archive = gloam.GridArchive((1000, 1000), -1, 1)
    else:
        archive = gloam.CVTArchive(random.random((MAX_CELLS + 1, 3), np.float32), index="exact")
    cells = archive.num_cells
    algorithm = gloam.MAPElites(archive, np.zeros(2), 0.1, batch_size=4)
    folder = gloam.RunFolder(tmp_path / "run")
    settings = {"driver": "fused", "seeds": [0], "dataset": None, "plan": {"iterations": 1}}
    folder.write_config(*describe(algorithm, None, **settings))
    objectives = random.random(cells, np.float32)
    store = empty_store(cells, 2, archive.measure_dim, {})
    store = eqx.tree_at(lambda part: part.objectives, store, objectives)
    folder.write_archive(Elites(archive, store), seed=0)
    path = write_html(tmp_path / "run")
    assert path.stat().st_size < 10_000_000
    data = data_of(path)
    run_id = data["about"]["start"].removeprefix("#/run/")
    found, _ = arrays_of(data, f"runs/{run_id}/elites?seed=0")
    if kind == "grid":
        assert len(found["cell"]) == 500 * 500
        np.testing.assert_array_equal(objectives[found["original"]], found["objective"])
        blocks = objectives.reshape(500, 2, 500, 2).max(axis=(1, 3)).ravel()
        np.testing.assert_array_equal(found["objective"], blocks)
    else:
        assert len(found["cell"]) == 100_000
        np.testing.assert_array_equal(objectives[found["cell"]], found["objective"])
