"""Two measures of a grid of four: slices, and the best over the others."""

import numpy as np
import pytest
from matplotlib.collections import QuadMesh

import gloam
from gloam import plots
from gloam.plots.grid_view import GridView, viewed_values
from gloam.plots.plane import cell_values
from tests.plots.conftest import bowl, drawn, filled
from tests.run_folders import small_dms, write_run


def picture(figure):
    """The values of a heatmap, as ``(first measure, second measure)``."""
    (mesh,) = drawn(figure.axes[0], QuadMesh)
    return mesh.get_array().filled(-np.inf).T


def test_the_best_over_the_other_measures_is_drawn_by_default(four):
    cube = np.asarray(four.store.objectives).reshape(3, 4, 2, 5)
    figure = plots.heatmap(four)
    np.testing.assert_array_equal(picture(figure), cube.max(axis=(2, 3)))
    axes = figure.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("a", "b")
    assert (axes.get_xlim(), axes.get_ylim()) == ((0, 3), (0, 4))
    assert "best over c and d" in [text.get_text() for text in axes.texts]


@pytest.mark.parametrize(
    ("measures", "at", "expected", "note"),
    [
        (("d", "b"), None, lambda cube: cube.max(axis=(0, 2)).T, "best over a and c"),
        ((3, 1), {"c": 1.5}, lambda cube: cube[:, :, 1].max(axis=0).T, "c 1 to 2, best over a"),
        (None, {"a": 3, 2: 0.0}, lambda cube: cube[2, :, 0], "a 2 to 3, c 0 to 1"),
    ],
)
def test_two_measures_are_chosen_and_others_sliced(four, measures, at, expected, note):
    cube = np.asarray(four.store.objectives).reshape(3, 4, 2, 5)
    found = picture(plots.heatmap(four, measures=measures, at=at))
    np.testing.assert_array_equal(found, expected(cube))
    assert GridView(four.archive, measures, at).note == note


def test_colors_are_those_of_the_best_elite(four):
    cells = np.arange(120.0)
    found = picture(plots.heatmap(four, color=cells, measures="ad"))
    objectives = np.asarray(four.store.objectives).reshape(3, 4, 2, 5)
    order = objectives.transpose(0, 3, 1, 2).reshape(15, -1)
    places = cells.reshape(3, 4, 2, 5).transpose(0, 3, 1, 2).reshape(15, -1)
    expected = np.take_along_axis(places, order.argmax(axis=1)[:, None], axis=1)
    np.testing.assert_array_equal(found.ravel(), expected[:, 0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"measures": ("a", "e")}, r"measures, at: expected one of \['a', 'b', 'c', 'd'\], or a"),
        ({"measures": ("a", "a")}, "measures: expected two different measures"),
        ({"measures": ("a", "b"), "at": {"b": 1}}, "measures: expected two different measures"),
        ({"at": {"c": 2.5}}, "at: expected a value from 0 to 2, got 2.5"),
    ],
)
def test_wrong_measures_and_values_are_named(four, arguments, message):
    with pytest.raises(ValueError, match=message):
        plots.heatmap(four, **arguments)


def test_centroids_have_no_slices(run_3d):
    with pytest.raises(ValueError, match=r"expected a grid of .*got a CVTArchive of 3\. For"):
        plots.heatmap(run_3d.read_archive(), measures=(0, 1))


def test_a_comparison_is_of_the_best_at_each_place(four):
    lower = filled(four.archive, four.store.objectives - np.arange(120) / 100)
    cubes = [np.asarray(one.store.objectives).reshape(3, 4, -1) for one in (four, lower)]
    found = picture(plots.comparison(four, lower))
    np.testing.assert_allclose(found, cubes[0].max(axis=2) - cubes[1].max(axis=2), rtol=1e-6)


def test_a_tail_that_hides_the_rest_is_clipped():
    archive = gloam.GridArchive((10, 10), 0, 1)
    values = np.linspace(1.0, 2.0, 100, dtype=np.float32)
    values[0] = -60.0
    assert cell_values((archive, values)).limits() == (values[1], 2.0)
    assert cell_values((archive, -values)).limits() == (-2.0, -values[1])
    assert cell_values((archive, values)).limits(0.0) == (-60.0, 2.0)
    even = cell_values((archive, np.linspace(0, 1, 100, dtype=np.float32)))
    assert even.limits() == (0.0, 1.0)
    assert even.limits(0.1) == pytest.approx((9 / 99, 90 / 99))


def test_a_clipped_heatmap_says_so(four):
    bar = plots.heatmap(four, tails=0.1).axes[1]
    assert bar.get_ylim() == pytest.approx(
        viewed_values(four, "objective", None, None)[0].limits(0.1)
    )
    figure = plots.archive_figure(four, tails=0.1)
    assert figure.axes[2].get_ylabel() == "objective, clipped"
    counted = sum(bar.get_width() for bar in figure.axes[2].patches)
    assert counted == len(four)


@pytest.mark.slow
def test_all_figures_of_a_run_on_a_grid_of_three_measures(tmp_path):
    archive = gloam.GridArchive((4, 3, 2), -1, 1, measure_names=("x", "y", "z"))
    folder = write_run(tmp_path, small_dms(archive, np.zeros(4)), bowl, seeds=[1])
    names = [path.stem for path in plots.plot_run(tmp_path, measures=("z", "x"), at={"y": 0.0})]
    assert names == ["curves", "archive", "pairwise", "discount"]
    figure = plots.discount_panels(folder, measures=("z", "x"))
    (mesh,) = drawn(figure.axes[1], QuadMesh)
    assert mesh.get_array().shape == (4, 2)
    assert not np.ma.getmaskarray(mesh.get_array()).any()
