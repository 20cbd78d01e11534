"""Figures of filled archives show the right numbers at the right places."""

import sys
import types

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection, PathCollection, PolyCollection, QuadMesh
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.path import Path as Outline

import gloam
from gloam import plots
from gloam.archives import Elites
from gloam.archives.store import Store
from gloam.plots.heatmap import cell_polygons, draw_heatmap
from gloam.plots.plane import Plane, cell_values


def filled(archive, objectives, measures=None, fields=None):
    """Elites with these objectives, at the centres of their cells."""
    cells = np.arange(archive.num_cells, dtype=np.int32)
    measures = np.asarray(archive.centers_of(cells)) if measures is None else measures
    solutions = np.zeros((archive.num_cells, 2), np.float32)
    objectives = np.asarray(objectives, np.float32)
    return Elites(archive, Store(solutions, objectives, np.float32(measures), fields or {}))


def random_objectives(number, seed=0, empty=0.3):
    draws = np.random.default_rng(seed)
    found = draws.uniform(0, 1, number)
    found[draws.uniform(size=number) < empty] = -np.inf
    return found.astype(np.float32)


@pytest.fixture(scope="module")
def plane():
    archive = gloam.GridArchive((6, 5), 0, 1, fields={"age": ()}, measure_names=("speed", "height"))
    ages = np.arange(30, dtype=np.float32)
    return filled(archive, random_objectives(30), fields={"age": ages})


@pytest.fixture(scope="module")
def four():
    names = ("a", "b", "c", "d")
    archive = gloam.GridArchive((3, 4, 2, 5), [0, 0, 0, 0], [3, 4, 2, 5], measure_names=names)
    return filled(archive, random_objectives(120))


@pytest.fixture(scope="module")
def metrics():
    rows = [(seed, at, 20 * at) for at in (1, 2) for seed in (1, 2)]
    table = pd.DataFrame(rows, columns=["seed", "iteration", "evaluations"])
    return table.assign(qd_score=[1.0, 2, 3, 4], unique_cells=[5, 7, 9, 11])


def drawn(axes, kind):
    return [child for child in axes.get_children() if isinstance(child, kind)]


def every_plot(plane, four, metrics):
    """Each function of one data argument, ready to be called."""
    return {
        "heatmap": lambda **o: plots.heatmap(plane, **o),
        "archive_figure": lambda **o: plots.archive_figure(plane, **o),
        "projection_map": lambda **o: plots.projection_map(four, **o),
        "parallel_axes": lambda **o: plots.parallel_axes(four, **o),
        "pairwise": lambda **o: plots.pairwise(four, **o),
        "curves": lambda **o: plots.curves(metrics, **o),
        "unique_cells": lambda **o: plots.unique_cells(metrics, **o),
        "objective_ecdf": lambda **o: plots.objective_ecdf(plane, **o),
        "comparison": lambda **o: plots.comparison(plane, plane, **o),
    }


def test_every_plot_draws_into_axes_that_are_given_and_nowhere_else(plane, four, metrics):
    settings, loaded = dict(matplotlib.rcParams), "matplotlib.pyplot" in sys.modules
    for name, plot in every_plot(plane, four, metrics).items():
        figure = Figure(figsize=(6, 3), layout="constrained")
        left, right = figure.subplots(1, 2)
        assert plot(ax=left) is figure, name
        figure.draw_without_rendering()
        assert not right.has_data(), name
        inside = [left, *left.child_axes]
        assert any(axes.has_data() for axes in inside), name
        alone = plot(title="A heading")
        alone.draw_without_rendering()
        titles = [axes.get_title(loc="left") for axes in alone.axes]
        titles += [alone._suptitle.get_text()] if alone._suptitle else []
        assert "A heading" in titles, name
    assert dict(matplotlib.rcParams) == settings
    assert ("matplotlib.pyplot" in sys.modules) == loaded


def test_a_figure_shows_itself_in_notebooks(plane):
    assert plots.heatmap(plane)._repr_png_()[:4] == b"\x89PNG"


def test_axes_have_the_names_of_measures(plane, four):
    axes = plots.heatmap(plane).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("speed", "height")
    lines = plots.parallel_axes(four, measures=[2, 0]).axes[0]
    assert [tick.get_text() for tick in lines.get_xticklabels()] == ["c", "a"]


def test_a_field_or_numbers_give_the_colours(plane):
    (mesh,) = drawn(plots.heatmap(plane, color="age").axes[0], QuadMesh)
    np.testing.assert_array_equal(mesh.get_array().compressed(), _by_rows(plane.cells, plane))
    values = np.full(30, np.nan)
    values[7] = 3.0
    (mesh,) = drawn(plots.heatmap(plane, color=values).axes[0], QuadMesh)
    assert mesh.get_array().compressed().tolist() == [3.0]
    with pytest.raises(ValueError, match=r"color: expected .*objective.*age.*got 'ages'"):
        plots.heatmap(plane, color="ages")
    with pytest.raises(ValueError, match="color: expected one for each of the 30 cells"):
        plots.heatmap(plane, color=np.zeros(29))


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


def test_cells_that_have_no_polygons_are_a_raster():
    directions = np.array([[1.0, 0.0], [0.0, 1.0]])
    archive = gloam.CVTArchive(directions, metric="cosine")
    axes = Figure().subplots()
    shown = cell_values((archive, np.array([0.5, 1.0], np.float32)))
    image = draw_heatmap(axes, shown, Plane(archive))
    assert isinstance(image, AxesImage)
    values = image.get_array()
    assert values[0, -1] == 0.5
    assert values[-1, 0] == 1.0


def test_a_projection_places_neighbours_together_and_says_what_it_is():
    draws = np.random.default_rng(0)
    far = np.repeat([[0.0] * 6, [9.0] * 6], 20, axis=0)
    archive = gloam.CVTArchive(draws.normal(size=(40, 6)) + far)
    elites = filled(archive, np.arange(40.0))
    for method, label in (("pca", "principal component 1 ("), ("tsne", "t-SNE 1")):
        axes = plots.projection_map(elites, method=method).axes[0]
        assert axes.get_xlabel().startswith(label)
        dots = drawn(axes, PathCollection)[-1]
        assert dots.get_array().tolist() == list(range(40))
        spots = np.asarray(dots.get_offsets())
        within = max(np.linalg.norm(np.ptp(half, axis=0)) for half in (spots[:20], spots[20:]))
        assert np.linalg.norm(spots[:20].mean(axis=0) - spots[20:].mean(axis=0)) > within / 2
    few = plots.projection_map(elites, max_cells=10).axes[0]
    assert "10 of 40 cells" in [text.get_text() for text in few.texts]
    assert len(drawn(few, PathCollection)[-1].get_offsets()) == 10


def test_umap_is_used_where_it_is_installed(four, monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(ImportError, match="pip install umap-learn"):
        plots.projection_map(four, method="umap")

    class Umap:
        def __init__(self, **options):
            assert options["random_state"] == 0

        def fit_transform(self, points):
            return points[:, [3, 1]]

    monkeypatch.setitem(sys.modules, "umap", types.SimpleNamespace(UMAP=Umap))
    axes = plots.projection_map(four, method="umap").axes[0]
    assert axes.get_ylabel() == "UMAP 2"
    best = four.best
    spots = np.asarray(drawn(axes, PathCollection)[-1].get_offsets())
    np.testing.assert_allclose(spots[-1], best.measures[[3, 1]])
    with pytest.raises(ValueError, match="method: expected"):
        plots.projection_map(four, method="lda")


def test_parallel_lines_pass_through_the_measures(four):
    axes = plots.parallel_axes(four).axes[0]
    (lines,) = drawn(axes, LineCollection)
    assert lines.get_array().tolist() == sorted(four.objectives.tolist())
    best = lines.get_segments()[-1]
    np.testing.assert_allclose(best[:, 0], range(4))
    np.testing.assert_allclose(best[:, 1], four.best.measures / [3, 4, 2, 5], rtol=1e-6)
    few = plots.parallel_axes(four, max_lines=7).axes[0]
    assert len(drawn(few, LineCollection)[0].get_segments()) == 7
    with pytest.raises(ValueError, match="measures: expected numbers from 0 to 3, got 4"):
        plots.parallel_axes(four, measures=[0, 4])


def test_pairwise_panels_show_the_best_over_the_other_measures(four):
    panels = [axes for axes in plots.pairwise(four).axes if drawn(axes, QuadMesh)][:6]
    pairs = [(0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3)]
    whole = four.store.objectives.reshape(3, 4, 2, 5)
    for axes, pair in zip(panels, pairs, strict=True):
        others = tuple({0, 1, 2, 3} - set(pair))
        expected = whole.max(axis=others).T
        found = drawn(axes, QuadMesh)[0].get_array().filled(-np.inf)
        np.testing.assert_array_equal(found.astype(np.float32), expected)
    assert panels[3].get_xlabel() == "a"
    assert panels[3].get_ylabel() == "d"
    with pytest.raises(ValueError, match="measures: expected 2 to 6 different numbers"):
        plots.pairwise(four, measures=[1, 1])


def test_the_distribution_of_objectives_worked_by_hand():
    archive = gloam.GridArchive((5,), 0, 1)
    elites = filled(archive, [0.5, -np.inf, 0.25, 0.5, 1.0])
    (line,) = plots.objective_ecdf(elites).axes[0].lines
    share = dict(zip(line.get_xdata(), line.get_ydata(), strict=True))  # the last of equal ones
    assert share == {0.25: 0.25, 0.5: 0.75, 1.0: 1.0}
    (line,) = plots.objective_ecdf(elites, of="cells").axes[0].lines
    x, y = line.get_data()
    assert x.tolist() == [0.25, 0.5, 0.5, 1.0, 1.0]
    np.testing.assert_allclose(y, [0.8, 0.6, 0.4, 0.2, 0.0])
    nothing = filled(archive, [-np.inf] * 5)
    with pytest.raises(ValueError, match="elites b: expected at least one elite, got none"):
        plots.objective_ecdf({"a": elites, "b": nothing})


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
    with pytest.raises(ValueError, match="second: expected an archive with the cells"):
        plots.comparison(first, other)


def test_unique_cells_are_drawn_below_the_size_of_the_batch(metrics):
    axes = plots.unique_cells(metrics).axes[0]
    assert axes.lines[0].get_ydata().tolist() == [6, 10]
    assert "batch of 20" in [text.get_text() for text in axes.texts]
    assert axes.get_ylim()[1] > 20


def test_other_columns_of_the_metrics_can_be_drawn(metrics):
    table = metrics.assign(restarts=[0, 0, 1, 3])
    figure = plots.curves(table, columns=["restarts", "qd_score"])
    assert [axes.get_ylabel() for axes in figure.axes] == ["restarts", "QD score"]
    assert figure.axes[0].lines[0].get_ydata().tolist() == [0, 2]
    with pytest.raises(ValueError, match="metrics: expected a column 'nothing'"):
        plots.curves(table, columns=["nothing"])
