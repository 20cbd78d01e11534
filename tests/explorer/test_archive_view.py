import numpy as np
import pytest

import gloam
from gloam.explorer import archive_view
from gloam.explorer.archive_view import (
    described_run,
    found_at,
    has_model,
    packed_column,
    packed_discount,
    packed_elites,
    packed_map,
)
from gloam.explorer.cell_view import cell_details, discount_at
from gloam.explorer.library import OpenedRun
from gloam.formats import RunFolder
from tests.explorer.unpacking import unpacked
from tests.helpers import refused
from tests.run_folders import BATCH, small_dms, write_run, write_space_run


@pytest.fixture(scope="module")
def grid(made_runs):
    return OpenedRun(made_runs / "grid")


@pytest.fixture(scope="module")
def pictures(made_runs):
    return OpenedRun(made_runs / "pictures")


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


def test_the_discount_of_a_cell_is_the_models(grid, made_runs):
    values, about = unpacked(packed_discount(grid, 2))
    snapshot = RunFolder(made_runs / "grid").read_snapshot(2)
    assert about == {"iteration": 2, "raster": [300, 300]}
    assert len(values["values"]) == 90_000
    assert values["solution"].sum() == snapshot["real"][:BATCH].sum()
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


def test_a_grid_of_three_measures_is_drawn_by_two_of_them(tmp_path):
    archive = gloam.GridArchive((4, 3, 2), -1, 1, measure_names=("x", "y", "z"))
    folder = write_run(tmp_path, small_dms(archive, np.zeros(4)), None, seeds=[1])
    run = OpenedRun(tmp_path)
    described = described_run(run)["archive"]
    assert described["measures"] == ("x", "y", "z")
    assert [one["name"] for one in described["projections"]][:2] == ["grid", "pca"]
    found, _ = unpacked(packed_discount(run, 2))
    snapshot = folder.read_snapshot(2)
    np.testing.assert_array_equal(
        found["points"].reshape(-1, 3), snapshot["points"][snapshot["real"]]
    )
    assert len(found["values"]) == archive.num_cells


@pytest.fixture(scope="module")
def space(tmp_path_factory):
    return OpenedRun(write_space_run(tmp_path_factory.mktemp("space") / "run").path)


def test_elites_are_colored_by_fields_and_variables(space):
    columns = described_run(space)["columns"]
    titles = [f"{column['kind']} {column['title']}" for column in columns]
    fields = ["field speed", "field forces_0", "field forces_1", "field forces_2"]
    variables = ["log10 rate", "layers", "kind_0", "kind_1"]
    assert titles == fields + [f"variable {name}" for name in variables]
    rows = space.elites(0)
    elites = rows.elites
    values = elites.values()
    expected = [elites.field("speed"), *elites.field("forces").T]
    expected += [np.log10(values["rate"]), values["layers"], *values["kind"].T]
    for number, (column, wanted) in enumerate(zip(columns, expected, strict=True)):
        found, _ = unpacked(packed_column(space, 0, number))
        np.testing.assert_array_equal(found["cell"], rows.cells)
        if column["choices"]:
            shown = [column["choices"][int(code)] for code in found["value"]]
            assert shown == [str(choice) for choice in wanted]
        else:
            np.testing.assert_allclose(found["value"], wanted, rtol=1e-6)
    with refused("The run has 8 columns", "8"):
        packed_column(space, 0, 8)


def test_two_of_six_named_measures_are_the_axes(space, pictures):
    names = [one["name"] for one in described_run(space)["archive"]["projections"]]
    assert names[:2] == ["pca", "axes"]
    found, about = unpacked(packed_map(space, "axes", 0, (4, 1)))
    rows = space.elites(0)
    row = [rows.row_of(cell) for cell in found["cell"].tolist()]
    assert sorted(row) == list(range(len(rows.cells)))
    assert (np.diff(rows.objectives[row]) >= 0).all()
    np.testing.assert_array_equal(found["x"], rows.measures[row, 4])
    np.testing.assert_array_equal(found["y"], rows.measures[row, 1])
    assert (about["x"], about["y"]) == ("five", "two")
    with refused("The archive has 6 measures."):
        packed_map(space, "axes", 0, (0, 6))
    # Pixels have no names.
    assert "axes" not in [one["name"] for one in described_run(pictures)["archive"]["projections"]]


def test_a_run_without_a_model_has_none(made_runs):
    run = OpenedRun(made_runs / "others" / "map-elites")
    assert not has_model(run)
    with refused("The run has no discount model."):
        packed_discount(run, None)


def test_the_map_of_many_measures_names_its_projection(pictures, monkeypatch):
    found, about = unpacked(packed_map(pictures, "pca", 0))
    assert about["title"].startswith("PCA: principal component 1 (")
    items = pictures.dataset.items
    centered = items - items.mean(axis=0)
    variances = np.linalg.eigvalsh(centered.T @ centered)[::-1][:2]
    assert np.sum(found["x"] ** 2) == pytest.approx(variances[0], rel=1e-3)
    assert np.sum(found["y"] ** 2) == pytest.approx(variances[1], rel=1e-3)
    rows = pictures.elites(0)
    monkeypatch.setattr(archive_view, "project", lambda points, _: (points[:, 5:7], ("a", "b")))
    found, about = unpacked(packed_map(pictures, "tsne", 0))
    assert about == {"x": "a", "y": "b", "title": f"t-SNE of {len(rows.cells)} elites"}
    assert found["cell"].tolist() == rows.cells.tolist()
    np.testing.assert_array_equal(found["y"], rows.measures[:, 6])
    with refused("There is no projection 'measures' for this run."):
        packed_map(pictures, "measures", 0)
