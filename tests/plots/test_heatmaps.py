"""Heatmaps show the right numbers at the right places."""

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.collections import PathCollection, PolyCollection, QuadMesh
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.path import Path as Outline

import gloam
from gloam import plots
from gloam.archives.store import Store
from gloam.plots.heatmaps import cell_polygons, draw_heatmap
from gloam.plots.plane import Plane, cell_values
from tests.plots.conftest import drawn, filled


def test_a_grid_is_drawn_cell_by_cell(run_2d):
    elites = run_2d.read_archive()
    axes = Figure().subplots()
    mesh = draw_heatmap(axes, cell_values(elites), Plane(elites.archive))
    assert isinstance(mesh, QuadMesh)
    found = mesh.get_array()
    expected = elites.store.objectives.reshape(8, 6).T
    np.testing.assert_array_equal(found.mask, np.isneginf(expected))
    np.testing.assert_array_equal(found.compressed(), expected[np.isfinite(expected)])
    assert mesh.get_clim() == (elites.objectives.min(), elites.objectives.max())
    assert axes.get_xlim() == (-1, 1)
    assert axes.get_ylim() == (-1, 0.5)
    assert axes.get_box_aspect() == 0.75
    # Column 2, row 1 of the picture is the cell of that place.
    corners = mesh.get_coordinates()
    center = (corners[1, 2] + corners[2, 3]) / 2
    cell = int(elites.archive.index_of(jnp.asarray(center, jnp.float32)[None])[0])
    assert cell == 2 * 6 + 1


@pytest.mark.parametrize(
    ("objectives", "limits"),
    [
        ([-np.inf] * 3, (0.5, 0.5)),
        ([2.0, -np.inf, 2.0], (0.5, 2.0)),
        ([0.5, 0.5, -np.inf], (-0.5, 0.5)),
    ],
)
def test_one_measure_and_equal_objectives_can_be_drawn(objectives, limits):
    archive = gloam.GridArchive((3,), 0, 1, f_min=0.5)
    shown = cell_values((archive, np.array(objectives, np.float32)))
    mesh = draw_heatmap(Figure().subplots(), shown, Plane(archive))
    assert mesh.get_array().shape == (1, 3)
    low, high = mesh.get_clim()
    assert low < high
    assert high == limits[1]


def test_many_measures_become_two_principal_components():
    rng = np.random.default_rng(1)
    # All but the third and first measure are nearly nothing, and the third varies most.
    centroids = rng.uniform(-1, 1, (50, 5)) * [2.0, 0.01, 5.0, 0.01, 0.01]
    archive = gloam.CVTArchive(centroids)
    objectives = np.where(np.arange(50) % 3 == 0, -np.inf, rng.uniform(size=50))
    objectives = objectives.astype(np.float32)
    axes = Figure().subplots()
    dots = draw_heatmap(axes, cell_values((archive, objectives)), Plane(archive))
    empty, filled = drawn(axes, PathCollection)
    assert filled is dots
    assert len(empty.get_offsets()) == 17
    np.testing.assert_array_equal(dots.get_array(), np.sort(objectives[np.isfinite(objectives)]))
    order = [i for i in np.argsort(objectives) if np.isfinite(objectives[i])]
    places = np.asarray(dots.get_offsets())
    for column, measure in enumerate([2, 0]):
        exact = centroids[order, measure] - centroids[:, measure].mean()
        assert abs(np.corrcoef(places[:, column], exact)[0, 1]) > 0.99
    assert axes.get_xlabel().startswith("principal component 1 (")


def test_objectives_that_do_not_fit_the_archive_are_refused():
    archive = gloam.GridArchive((3, 3), 0, 1)
    with pytest.raises(ValueError, match=r"^objectives:.*9"):
        cell_values((archive, np.zeros((3, 3))))


def test_a_field_or_numbers_give_the_colors(plane):
    (mesh,) = drawn(plots.heatmap(plane, color="age").axes[0], QuadMesh)
    np.testing.assert_array_equal(mesh.get_array().compressed(), _by_rows(plane.cells, plane))
    values = np.full(30, np.nan)
    values[7] = 3.0
    (mesh,) = drawn(plots.heatmap(plane, color=values).axes[0], QuadMesh)
    assert mesh.get_array().compressed().tolist() == [3.0]
    with pytest.raises(ValueError, match=r"^color:.*'ages'"):
        plots.heatmap(plane, color="ages")
    with pytest.raises(ValueError, match=r"^color:.*30"):
        plots.heatmap(plane, color=np.zeros(29))
    with pytest.raises(ValueError, match=r"^color:"):
        plots.heatmap(plane, color=["a"] * 30)


def test_a_variable_of_a_space_gives_the_colors():
    variables = {
        "age": gloam.Integer(0, 9),  # also a field
        "rate": gloam.Real(1e-3, 1, log=True),
        "kind": gloam.Categorical(["wood", "steel"]),
        "place": gloam.Real(-1, 1, shape=(2,)),
    }
    space = gloam.Space(**variables)
    archive = gloam.GridArchive((2, 2), 0, 1, fields={"age": ()})
    values = {
        "age": [4, 0, 9, 2],
        "rate": [0.01, 0.1, 1.0, 0.5],
        "kind": ["steel", "wood", "steel", "wood"],
        "place": np.array([[0, 1], [0, -1], [0, 0.5], [0, 0]]),
    }
    store = Store(
        space.vectors(values),
        np.float32([1, -np.inf, 3, 4]),  # the second cell is empty
        np.zeros((4, 2), np.float32),
        {"age": np.float32([5, 6, 7, 8])},
    )
    elites = gloam.Elites(archive, store, form=space)
    expected = {
        "age": [5, 7, 8],
        "solution_age": [4, 9, 2],
        "rate": [0.01, 1.0, 0.5],
        "kind": [1, 1, 0],
        "place_1": [1, 0.5, 0],
    }
    for name, numbers in expected.items():
        shown = cell_values(elites, name)
        np.testing.assert_allclose(shown.values[elites.cells], numbers, rtol=1e-5)
        assert np.isnan(shown.values[1])
        assert name in elites.to_pandas()
    figure = plots.heatmap(elites, color="kind")
    assert figure.axes[1].get_ylabel() == "kind (0 is wood, 1 is steel)"
    with pytest.raises(ValueError, match=r"color: expected .*rate.*got 'rates'"):
        plots.heatmap(elites, color="rates")


def _by_rows(cells, elites):
    """Cells in the order in which a picture has them: row by row."""
    whole = np.full(elites.archive.num_cells, -1)
    whole[cells] = cells
    picture = whole.reshape(elites.archive.shape).T.ravel()
    return picture[picture >= 0]


def test_voronoi_cells_hold_the_points_that_are_nearest():
    draws = np.random.default_rng(2)
    centroids = draws.uniform(0, 1, (40, 2))
    outlines = [Outline(corners) for corners in cell_polygons(centroids)]
    points = draws.uniform(0, 1, (300, 2))
    nearest = ((points[:, None] - centroids) ** 2).sum(axis=2).argmin(axis=1)
    inside = np.array([outline.contains_points(points) for outline in outlines])
    np.testing.assert_array_equal(inside.argmax(axis=0), nearest)
    assert (inside.sum(axis=0) == 1).all()


def test_cells_of_centroids_are_drawn_where_they_are():
    archive = gloam.CVTArchive(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    objectives = np.array([0.1, 0.2, 0.3, -np.inf], np.float32)
    axes = Figure().subplots()
    cells = draw_heatmap(axes, cell_values((archive, objectives)), Plane(archive))
    assert isinstance(cells, PolyCollection)
    assert cells.get_array().tolist() == objectives[:3].tolist()
    # Each is a quarter of the picture, whose corners are the centroids.
    for corners, (x, y) in zip(cells.get_paths(), [(0, 0), (1, 0), (0, 1)], strict=True):
        assert corners.contains_point((0.25 + 0.5 * x, 0.25 + 0.5 * y))
        inner = corners.vertices[np.abs(corners.vertices - 0.5).sum(axis=1).argmin()]
        np.testing.assert_allclose(inner, [0.5, 0.5], atol=1e-9)
    assert axes.get_xlim() == axes.get_ylim() == (0, 1)


@pytest.mark.parametrize(
    "archive",
    [
        gloam.CVTArchive(np.array([[1.0, 0.0], [0.0, 1.0]]), metric="cosine"),
        gloam.CVTArchive(np.array([[1.0], [0.0]])),
    ],
    ids=["cosine", "one measure"],
)
def test_cells_that_have_no_polygons_are_a_raster(archive):
    shown = cell_values((archive, np.array([0.5, 1.0], np.float32)))
    image = draw_heatmap(Figure().subplots(), shown, Plane(archive))
    assert isinstance(image, AxesImage)
    values = image.get_array()
    assert values[0, -1] == 0.5
    assert values[-1, 0] == 1.0


def test_a_comparison_says_which_is_better_where():
    archive = gloam.GridArchive((6, 1), 0, 1)
    first = filled(archive, [0.9, 0.2, 0.5, 0.3, -np.inf, -np.inf])
    second = filled(archive, [0.4, 0.3, 0.5, -np.inf, 0.1, -np.inf])
    axes = plots.comparison(first, second, labels=("A", "B")).axes[0]
    (mesh,) = drawn(axes, QuadMesh)
    found = mesh.get_array().ravel()
    np.testing.assert_allclose(found[:5].filled(9), [0.5, -0.1, 0.0, 0.5, -0.5], atol=1e-7)
    assert found.mask.tolist() == [False] * 5 + [True]
    assert mesh.get_clim() == pytest.approx((-0.5, 0.5))
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert texts == [
        "A better: 2 (1 filled by it alone)",
        "B better: 2 (1 filled by it alone)",
        "equal: 1",
    ]
    other = filled(gloam.GridArchive((3, 2), 0, 1), np.zeros(6))
    with pytest.raises(ValueError, match=r"^second:"):
        plots.comparison(first, other)
