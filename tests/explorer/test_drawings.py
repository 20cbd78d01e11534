"""Drawings of a user's function in the explorer and in reports."""

import base64
from xml.etree import ElementTree

import numpy as np
import pytest

import gloam
from gloam.cli import main
from gloam.explorer import write_html
from gloam.explorer.archive_view import described_run
from gloam.explorer.cell_view import THUMB, picture, sheet
from gloam.explorer.library import Library, OpenedRun
from gloam.gallery.drawings import Drawer
from tests.explorer.conftest import HOSTILE, serving
from tests.explorer.test_app import answer, asked
from tests.explorer.test_html_report import data_of
from tests.explorer.unpacking import png
from tests.helpers import refused
from tests.run_folders import write_curves_run

SCRIPT = "<script>document.title = 'bad'</script>"
DRAWN = f"<svg viewBox='0 0 2 2' onload='alert(1)'>{SCRIPT}<text>&lt;b&gt;</text></svg>"


def gray(solution):
    return np.full((4, 4), 100, np.uint8)


def half_gray(solution, measures):
    """Elites with a low first measure are drawn, and others fail."""
    return gray(solution) if measures[0] < 0 else measures["x"]


@pytest.fixture(scope="module")
def curves(tmp_path_factory):
    return write_curves_run(tmp_path_factory.mktemp("curves") / "run").path


def test_files_bring_no_drawings(made_runs):
    run = OpenedRun(made_runs / "grid")
    assert described_run(run)["pictures"] == {"solution": False, "item": False}
    cell = int(run.elites(3).cells[0])
    assert picture(run, 3, cell, "solution") is None
    assert picture(run, 3, cell, "item") is None


def test_any_run_is_drawn_by_a_function_and_failures_have_signs(made_runs):
    run = OpenedRun(made_runs / "grid", Drawer(half_gray))
    assert described_run(run)["pictures"] == {"solution": True, "item": False}
    rows = run.elites(3)
    is_drawn = rows.measures[:, 0] < 0
    assert 0 < is_drawn.sum() < len(is_drawn)
    for cell, drawn in zip(rows.cells.tolist(), is_drawn.tolist(), strict=True):
        content, kind = picture(run, 3, cell, "solution")
        assert kind == "image/png"
        # Small ones are enlarged; a sign has several colors.
        assert png(content).shape == ((256, 256) if drawn else (256, 256, 3))
        assert (len(np.unique(png(content))) == 1) == drawn
    empty = sorted(set(range(48)) - set(rows.cells.tolist()))[0]
    cells = [int(rows.cells[is_drawn][0]), empty]
    content, kind = sheet(run, 3, cells)
    assert kind == "image/png"
    pixels = png(content)
    assert (pixels[:THUMB, :THUMB, :3] == 100).all()
    assert not pixels[THUMB:].any()
    assert not pixels[:, THUMB:].any()


def test_vectors_of_a_dataset_are_drawn_as_lines(curves):
    run = OpenedRun(curves)
    assert described_run(run)["pictures"] == {"solution": True, "item": True}
    rows = run.elites(0)
    cells = rows.cells[:2].tolist()
    pixels = png(sheet(run, 0, cells)[0])
    for side in (pixels[:, :THUMB], pixels[:, THUMB + 4 :]):
        for tile in (side[:THUMB], side[THUMB:]):
            assert (tile[..., 3] == 255).all()
            assert 0 < (tile[..., 0] < 128).mean() < 0.3
    items = [png(picture(run, 0, cell, "item")[0]) for cell in cells]
    assert (items[0] != items[1]).any()


def test_svg_is_served_as_an_image_that_may_do_nothing(made_runs):
    pytest.importorskip("starlette", reason="the explorer needs gloam[explorer]")
    with serving(made_runs, draw=lambda solution: DRAWN) as address:
        ids = {run["name"]: run["id"] for run in answer(address, "api/folder")["runs"]}
        for name, seed in (("grid", 3), ("pictures", 0)):
            run = f"api/runs/{ids[name]}"
            assert answer(address, f"{run}/parts")["pictures"]["solution"]
            cell = int(gloam.RunFolder(made_runs / name).read_archive(seed).cells[0])
            cells = f"{run}/cells/{cell}/picture?side=solution"
            for path in (cells, f"{run}/sheet?cells={cell}"):
                status, headers, content = asked(address, path)
                assert status == 200
                assert headers["content-type"].partition(";")[0] == "image/svg+xml"
                policy = headers["content-security-policy"].split("; ")
                assert {"default-src 'none'", "sandbox"} <= set(policy)
                assert not [part for part in policy if part.startswith("script-src")]
                assert headers["x-content-type-options"] == "nosniff"
                ElementTree.fromstring(content)
            # Drawings are images of their own in a sheet.
            assert SCRIPT.encode() not in content
        status, headers, _ = asked(address, f"{run}/cells/{cell}/picture?side=item")
        assert (status, headers["content-type"]) == (200, "image/png")
        assert "sandbox" not in headers["content-security-policy"]


def test_a_report_has_drawings_as_data(runs):
    path = write_html(runs / "grid", draw=lambda solution: DRAWN)
    text = path.read_text()
    assert SCRIPT not in text
    data = data_of(path)
    run_id = data["about"]["start"].removeprefix("#/run/")
    rows = OpenedRun(runs / "grid").elites(3)
    (cells,) = data["json"][f"runs/{run_id}/sheets?seed=3"]["sheets"]
    assert sorted(cells) == rows.cells.tolist()
    content = base64.b64decode(data["pictures"][f"runs/{run_id}/sheet?seed=3&number=0"])
    assert content.count(b"data:image/svg+xml;base64,") == len(cells)


def write_function(folder, body):
    path = folder / "mine.py"
    path.write_text(f"import numpy as np\n\ndef draw(solution):\n    {body}\n")
    return path


def test_commands_take_a_function_from_a_file(runs, tmp_path, monkeypatch, capsys):
    path = write_function(tmp_path, "return np.full((2, 2), 7, np.uint8)")
    main(["report", str(runs / "grid"), "--draw", str(path)])
    data = data_of(runs / "grid" / "report.html")
    (content,) = data["pictures"].values()
    pixels = png(base64.b64decode(content))
    assert (pixels[:THUMB, :THUMB, :3] == 7).all()
    main(["gallery", str(runs / "grid"), "--draw", f"{path}:draw"])
    assert (runs / "grid" / "figures" / "gallery.png").is_file()
    main(["gallery", str(runs / "pictures"), "--draw", str(path)])
    assert (runs / "pictures" / "gallery.html").is_file()
    given = {}
    monkeypatch.setattr("gloam.explorer.server.explore", lambda _, **options: given.update(options))
    main(["explore", str(runs), "--draw", str(path)])
    assert given["draw"](None).tolist() == [[7, 7], [7, 7]]
    main(["explore", str(runs)])
    assert given["draw"] is None
    with pytest.raises(SystemExit):
        main(["report", str(runs / "grid"), "--draw", f"{path}:nothing"])
    assert "nothing" in capsys.readouterr().err


def test_what_cannot_draw_is_refused_before_the_explorer_starts(made_runs):
    with refused("draw: expected (solution)"):
        Library(made_runs, lambda: None)


def test_a_result_has_a_gallery(tmp_path):
    def evaluate(solutions):
        return -np.square(solutions).sum(axis=1), solutions[:, :2]

    archive = gloam.GridArchive((4, 4), -1, 1)
    algorithm = gloam.MAPElites(archive, np.zeros(3), 0.3, batch_size=8)
    result = gloam.optimize(evaluate, algorithm, 2, progress=False)
    figure = result.gallery(draw=gray, count=3, title=HOSTILE)
    assert [image.get_array().tolist() for image in figure.axes[0].images] == 3 * [
        gray(None).tolist()
    ]
    assert HOSTILE in [text.get_text() for text in figure.axes[0].texts]
    with refused("dataset:", "draw=..."):
        result.gallery()


def test_a_resumed_result_has_the_items_of_its_run(tmp_path):
    data = gloam.datasets.from_array(np.eye(4, 6))
    archive = data.archive()

    def evaluate(solutions):
        return np.concatenate([solutions, solutions], axis=1)

    algorithm = gloam.MAPElites(archive, np.zeros(3), 0.3, batch_size=8)
    run = {"run_dir": tmp_path / "run", "progress": False}
    first = gloam.optimize(evaluate, algorithm, 1, dataset=data, **run)
    second = gloam.optimize(evaluate, algorithm, 2, resume=True, **run)
    for result in (first, second):
        assert len(result.gallery().axes[0].images) == 8
