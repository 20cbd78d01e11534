import numpy as np
import pytest

from gloam.datasets import Matches
from gloam.explorer.archive_views import (
    THUMB,
    cell_details,
    found_at,
    packed,
    packed_elites,
    packed_map,
    picture,
    sheet,
)
from gloam.explorer.discount_view import discount_at, has_model, packed_discount
from gloam.explorer.html_report import best_of_blocks
from gloam.explorer.library import Library
from gloam.explorer.opened_run import OpenedRun
from gloam.explorer.views import pairs_view
from gloam.formats import RunFolder
from tests.explorer.unpacking import png, unpacked
from tests.helpers import refused


@pytest.fixture(scope="module")
def grid(made_runs):
    return OpenedRun(made_runs / "grid")


@pytest.fixture(scope="module")
def pictures(made_runs):
    return OpenedRun(made_runs / "pictures")


def test_packed_arrays_are_what_was_packed():
    arrays = {
        "a": np.arange(3, dtype=np.int32),
        "b": np.array([[0.5, np.nan]], np.float32),
        "c": np.array([], np.float64),
        "d": np.array([255], np.uint8),
    }
    found, about = unpacked(packed(arrays, {"name": "\udc80é"}))
    assert about == {"name": "\udc80é"}
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array.ravel())


def test_the_elites_that_are_sent_are_those_of_the_run(grid, made_runs):
    elites = RunFolder(made_runs / "grid").read_archive(4)
    found, about = unpacked(packed_elites(grid, 4))
    np.testing.assert_array_equal(found["cell"], elites.cells)
    np.testing.assert_array_equal(found["objective"], elites.objectives)
    assert about == {"iteration": 6, "seed": 4}
    assert "found" not in found  # snapshots are of the first seed


def test_the_elites_of_a_recorded_iteration_are_those_of_its_snapshot(grid, made_runs):
    then = RunFolder(made_runs / "grid").read_snapshot(2)["objectives"]
    found, about = unpacked(packed_elites(grid, 3, 2))
    np.testing.assert_array_equal(found["cell"], np.flatnonzero(np.isfinite(then)))
    np.testing.assert_array_equal(found["objective"], then[np.isfinite(then)])
    assert about["iteration"] == 2


def test_an_elite_is_found_by_the_first_iteration_that_has_its_objective(grid, made_runs):
    rows = grid.elites(3)
    then = RunFolder(made_runs / "grid").read_snapshot(2)["objectives"][rows.cells]
    expected = np.where(then == rows.objectives, 2, 6)
    assert {2, 6} == set(expected)
    np.testing.assert_array_equal(found_at(grid, 3, rows), expected)
    late = rows.cells[np.flatnonzero(expected == 6)[0]]
    assert cell_details(grid, 3, int(late))["found"] == {"after": 2, "until": 6}


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


def test_the_discount_of_a_cell_is_the_models(grid):
    values, about = unpacked(packed_discount(grid, 2))
    assert about == {"iteration": 2, "raster": [300, 300]}
    assert len(values["values"]) == 90_000
    assert values["solution"].sum() == 8
    assert has_model(grid)
    rows = grid.elites(3)
    cell = int(rows.cells[0])
    newest, about = unpacked(packed_discount(grid, None))
    assert about["iteration"] == 6
    lower, upper = np.asarray(grid.archive.lower), np.asarray(grid.archive.upper)
    column, row = ((rows.measures[0] - lower) / (upper - lower) * 300).astype(int).clip(0, 299)
    raster = newest["values"].reshape(300, 300)
    near = raster[max(0, row - 1) : row + 2, max(0, column - 1) : column + 2]
    assert near.min() - 1e-3 <= discount_at(grid, 3, cell) <= near.max() + 1e-3


def test_a_run_without_a_model_has_none(made_runs):
    run = OpenedRun(made_runs / "others" / "map-elites")
    assert not has_model(run)
    with refused("The run has no discount model."):
        packed_discount(run, None)


def test_the_map_of_many_measures_names_its_projection(pictures):
    found, about = unpacked(packed_map(pictures, "pca", 0))
    assert about["title"].startswith("PCA: principal component 1 (")
    items = pictures.dataset.items
    centered = items - items.mean(axis=0)
    variances = np.linalg.eigvalsh(centered.T @ centered)[::-1][:2]
    assert np.sum(found["x"] ** 2) == pytest.approx(variances[0], rel=1e-3)
    assert np.sum(found["y"] ** 2) == pytest.approx(variances[1], rel=1e-3)
    with refused("There is no projection 'measures' for this run."):
        packed_map(pictures, "measures", 0)


def test_pairs_have_the_distances_of_matches(pictures, made_runs):
    folder = RunFolder(made_runs / "pictures")
    matches = Matches(folder.read_archive(), folder.read_dataset())
    found = pairs_view(pictures, 0)
    np.testing.assert_array_equal(found["cells"], matches.elites.cells)
    np.testing.assert_allclose(found["distance"], matches.distances, rtol=1e-5)
    assert found["labels"] == list("abcabcabc")


def test_a_sheet_shows_solution_and_item_of_each_cell(pictures):
    rows = pictures.elites(0)
    filled = int(rows.cells[0])
    empty = sorted(set(range(9)) - set(rows.cells.tolist()))
    cells = [filled, *empty[:1]]
    pixels = png(sheet(pictures, 0, cells))
    assert pixels.shape == (THUMB * len(cells), 2 * THUMB + 4, 4)
    item = pictures.dataset.image(filled)
    scale = THUMB // 4
    shown = pixels[:THUMB:scale, THUMB + 4 :: scale]
    np.testing.assert_array_equal(shown[..., 0], item)
    drawn = pictures.pictures(rows)(np.array([0]))[0]
    np.testing.assert_allclose(pixels[:THUMB:scale, :THUMB:scale][..., 0], drawn, atol=1)
    if empty:
        assert not pixels[THUMB:, :THUMB].any()
    assert png(picture(pictures, 0, filled, "item")).shape == (256, 256)


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


def test_opened_runs_are_kept_and_read_again_after_a_change(runs):
    library = Library(runs)
    entry = next(one for one in library.look().runs.values() if one.name == "grid")
    first = library.opened(entry).elites(3)
    assert library.opened(entry).elites(3) is first
    folder = RunFolder(runs / "grid")
    folder.write_archive(folder.read_archive(3), seed=4)
    assert library.opened(entry).elites(3) is not first
