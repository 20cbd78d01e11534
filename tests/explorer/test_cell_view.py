import numpy as np
import pytest

from gloam.datasets import Matches
from gloam.explorer.cell_view import THUMB, cell_details, pairs, picture, sheet
from gloam.explorer.library import OpenedRun
from gloam.formats import RunFolder
from tests.explorer.unpacking import png
from tests.helpers import refused
from tests.run_folders import write_space_run


@pytest.fixture(scope="module")
def grid(made_runs):
    return OpenedRun(made_runs / "grid")


@pytest.fixture(scope="module")
def pictures(made_runs):
    return OpenedRun(made_runs / "pictures")


@pytest.mark.parametrize("name", ["grid", "pictures"])
def test_the_details_of_a_cell_and_its_neighbours(made_runs, name):
    run = OpenedRun(made_runs / name)
    seed = run.config.seeds[0]
    rows = run.elites(seed)
    row = len(rows.cells) // 2
    found = cell_details(run, seed, int(rows.cells[row]))
    assert found["objective"] == rows.objectives[row]
    np.testing.assert_array_equal(found["solution"], rows.solutions[row])
    np.testing.assert_array_equal(found["measures"], rows.measures[row])
    apart = np.linalg.norm(rows.measures - rows.measures[row], axis=1)
    apart[row] = np.inf
    expected = np.sort(apart)[: min(8, len(apart) - 1)]
    distances = [one["distance"] for one in found["neighbours"]]
    np.testing.assert_allclose(distances, expected, rtol=1e-5)
    names: dict = {}
    exec(found["python"], names)
    np.testing.assert_array_equal(names["solution"], rows.solutions[row])


def test_an_empty_cell_and_a_cell_that_does_not_exist(grid):
    empty = sorted(set(range(48)) - set(grid.elites(3).cells.tolist()))[0]
    assert cell_details(grid, 3, empty) == {"cell": empty, "seed": 3, "filled": False}
    with refused("The archive has no cell 48: it has 48."):
        cell_details(grid, 3, 48)


def test_an_empty_cell_of_a_dataset_has_the_nearest_elites(pictures):
    rows = pictures.elites(0)
    empty = sorted(set(range(9)) - set(rows.cells.tolist()))[0]
    found = cell_details(pictures, 0, empty)
    assert not found["filled"]
    apart = np.linalg.norm(rows.measures - pictures.dataset.items[empty], axis=1)
    distances = [one["distance"] for one in found["neighbours"]]
    np.testing.assert_allclose(distances, np.sort(apart)[:8], rtol=1e-5)


def test_a_cell_has_its_fields(tmp_path):
    run = OpenedRun(write_space_run(tmp_path / "run").path)
    rows = run.elites(0)
    found = cell_details(run, 0, int(rows.cells[3]))["fields"]
    fields = {name: rows.elites.field(name)[3] for name in ("speed", "forces")}
    assert float(found["speed"]) == pytest.approx(float(fields["speed"]), rel=1e-5)
    shown = [float(text) for text in found["forces"].split(", ")]
    assert shown == pytest.approx(fields["forces"].tolist(), rel=1e-5)
    assert found["image"] == "float32 5×5"


def test_items_of_a_large_run_are_shown_with_their_own_elites(made_runs, monkeypatch):
    monkeypatch.setattr("gloam.explorer.cell_view._MAX_PRODUCTS", 1)
    run = OpenedRun(made_runs / "pictures")
    rows, found = run.elites(0), pairs(run, 0)
    expected = np.full(9, -1)
    expected[rows.cells] = np.arange(len(rows.cells))
    np.testing.assert_array_equal(found["row"], expected)
    np.testing.assert_array_equal(np.isnan(found["distance"]), expected < 0)
    pixels = png(sheet(run, 0, np.flatnonzero(expected < 0).tolist())[0])
    assert not pixels[:, :THUMB].any()


def test_pairs_have_the_distances_of_matches(pictures, made_runs):
    folder = RunFolder(made_runs / "pictures")
    matches = Matches(folder.read_archive(), folder.read_dataset())
    found = pairs(pictures, 0)
    np.testing.assert_array_equal(found["cells"], matches.elites.cells)
    np.testing.assert_array_equal(found["row"], matches.rows)
    np.testing.assert_allclose(found["distance"], matches.distances, rtol=1e-5)
    np.testing.assert_allclose(found["explained"], matches.explained_by_item, rtol=1e-5)
    assert len(found["names"]) == len(found["distance"]) == 9
    assert found["labels"] == list("abcabcabc")


def test_a_sheet_shows_solution_and_item_of_each_cell(pictures):
    rows = pictures.elites(0)
    filled = int(rows.cells[0])
    empty = sorted(set(range(9)) - set(rows.cells.tolist()))[0]
    cells = [filled, empty]
    pixels = png(sheet(pictures, 0, cells)[0])
    assert pixels.shape == (THUMB * len(cells), 2 * THUMB + 4, 4)
    item = pictures.dataset.image(filled)
    scale = THUMB // 4
    shown = pixels[:THUMB:scale, THUMB + 4 :: scale]
    np.testing.assert_array_equal(shown[..., 0], item)
    # On the left the nearest elite of each item, also where its own cell is empty.
    nearest = Matches(rows.elites, pictures.dataset).rows[cells]
    for place, drawn in enumerate(pictures.pictures(rows)(nearest)):
        left = pixels[place * THUMB : (place + 1) * THUMB : scale, :THUMB:scale]
        np.testing.assert_allclose(left[..., 0], drawn, atol=1)
    assert png(picture(pictures, 0, filled, "item")[0]).shape == (256, 256)
