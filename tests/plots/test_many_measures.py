"""Figures of many measures show the right numbers at the right places."""

import sys
import types

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PathCollection, QuadMesh

import gloam
from gloam import plots
from tests.plots.conftest import drawn, filled


def test_axes_have_the_names_of_measures(plane, four):
    axes = plots.heatmap(plane).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("speed", "height")
    lines = plots.parallel_axes(four, measures=[2, 0]).axes[0]
    assert [tick.get_text() for tick in lines.get_xticklabels()] == ["c", "a"]


@pytest.mark.parametrize(
    ("method", "label"),
    [
        ("pca", "principal component 1 ("),
        pytest.param("tsne", "t-SNE 1", marks=pytest.mark.slow),
    ],
)
def test_a_projection_places_neighbours_together_and_says_what_it_is(method, label):
    draws = np.random.default_rng(0)
    far = np.repeat([[0.0] * 6, [9.0] * 6], 20, axis=0)
    archive = gloam.CVTArchive(draws.normal(size=(40, 6)) + far)
    elites = filled(archive, np.arange(40.0))
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
    with pytest.raises(ValueError, match=r"measures: .*4"):
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
    with pytest.raises(ValueError, match=r"^measures:.*2.*6"):
        plots.pairwise(four, measures=[1, 1])
