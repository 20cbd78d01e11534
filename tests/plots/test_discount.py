"""Figures of the discount function show the model and its training points."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

import gloam
from gloam import step
from gloam.formats.checkpoints import state_from
from gloam.plots import discount_function, discount_panels
from gloam.plots.plane import Plane
from tests.plots.conftest import bowl, drawn
from tests.run_folders import BATCH, ITERATIONS, SNAPSHOTS, small_dms


def discount_at(folder, iteration, points):
    """The discount function of a snapshot, worked out apart from the plots."""
    algorithm = folder.read_part("algorithm")
    like = jax.eval_shape(lambda key: step.init(algorithm, key).discount, jax.random.key(0))
    arrays = folder.read_snapshot(iteration)
    learned = {
        name.removeprefix("discount "): array
        for name, array in arrays.items()
        if name.startswith("discount ")
    }
    return algorithm.discount.discount(state_from(like, learned), jnp.asarray(points))


def test_the_discount_function_is_drawn_with_its_training_points(run_2d):
    figure = discount_panels(run_2d)
    *panels, bar = figure.axes
    assert len(panels) == 2 * len(SNAPSHOTS)
    snapshots = {at: run_2d.read_snapshot(at) for at in SNAPSHOTS}
    best = max(shot["objectives"].max() for shot in snapshots.values())
    for above, below, at in zip(panels[::2], panels[1::2], SNAPSHOTS, strict=True):
        shot = snapshots[at]
        assert above.get_title(loc="left") == f"iteration {at}"
        score = shot["objectives"][np.isfinite(shot["objectives"])].sum()
        assert f"QD score {score:,.0f}" in [text.get_text() for text in above.texts]
        (mesh,) = drawn(above, QuadMesh)
        found = mesh.get_array().compressed()
        assert sorted(found) == sorted(shot["objectives"][np.isfinite(shot["objectives"])])

        (image,) = drawn(below, AxesImage)
        values = image.get_array()
        plane = Plane(run_2d.read_part("algorithm").archive)
        corners = plane.sites.reshape(*values.shape, 2)[[0, 0, -1, 200], [0, -1, 0, 50]]
        np.testing.assert_allclose(corners[0], [-1, -1], atol=0.01)
        np.testing.assert_allclose(corners[1], [1, -1], atol=0.01)
        expected = discount_at(run_2d, at, corners)
        np.testing.assert_allclose(values[[0, 0, -1, 200], [0, -1, 0, 50]], expected, atol=1e-5)

        empty, batch = drawn(below, PathCollection)
        real = shot["real"]
        np.testing.assert_array_equal(batch.get_offsets(), shot["points"][:BATCH][real[:BATCH]])
        np.testing.assert_array_equal(batch.get_array(), shot["targets"][:BATCH][real[:BATCH]])
        np.testing.assert_array_equal(empty.get_offsets(), shot["points"][BATCH:][real[BATCH:]])
        limits = (0.0, max(1.0, float(best)))
        assert mesh.get_clim() == image.get_clim() == batch.get_clim() == limits
    assert bar.get_ylabel() == "objective and discount"
    assert len(figure.legends) == 1


def test_the_discount_function_alone_is_that_of_the_panels(run_2d):
    figure = discount_function(run_2d.path, iteration=2, title="DMS")
    axes, bar = figure.axes
    (image,) = drawn(axes, AxesImage)
    (panel,) = drawn(discount_panels(run_2d, iterations=[2]).axes[1], AxesImage)
    np.testing.assert_array_equal(image.get_array(), panel.get_array())
    assert len(drawn(axes, PathCollection)) == 2
    assert bar.get_ylabel() == "discount"
    assert axes.get_title(loc="left") == "DMS"
    without = discount_function(run_2d, iteration=2, points=False)
    assert drawn(without.axes[0], PathCollection) == []


@pytest.mark.slow
def test_the_discount_function_of_a_search_in_memory():
    search = gloam.Search(small_dms(gloam.GridArchive((4, 4), -1, 1), np.zeros(4)), seed=1)
    with pytest.raises(ValueError, match=r"^search:"):
        discount_function(search)
    search.ask()
    search.tell(*bowl(np.asarray(search.ask())))
    axes = Figure().subplots()
    assert discount_function(search, ax=axes) is axes.figure
    (image,) = drawn(axes, AxesImage)
    plane = Plane(search.algorithm.archive)
    expected = search.algorithm.discount.discount(search.state.discount, plane.sites[:5])
    np.testing.assert_allclose(image.get_array().ravel()[:5], expected, atol=1e-5)


def test_panels_take_the_place_of_axes(run_2d):
    figure = Figure(figsize=(8, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    assert discount_panels(run_2d, iterations=[2, 6], ax=left) is figure
    figure.draw_without_rendering()
    assert len(left.child_axes) == 5
    assert len(left.get_legend().get_texts()) == 2
    assert not right.has_data()
    outer = left.get_window_extent()
    for panel in left.child_axes:
        box = panel.get_window_extent()
        assert outer.x0 <= box.x0
        assert box.x1 <= outer.x1


def test_snapshots_can_be_chosen(run_2d):
    figure = discount_panels(run_2d, iterations=[6, 2])
    titles = [axes.get_title(loc="left") for axes in figure.axes[:4:2]]
    assert titles == ["iteration 6", "iteration 2"]
    with pytest.raises(ValueError, match=r"^iterations:.*\[2, 6\]"):
        discount_panels(run_2d, iterations=[3])
    with pytest.raises(ValueError, match=r"^iterations:"):
        discount_panels(run_2d, iterations=[])


def test_many_measures_are_drawn(run_3d):
    figure = discount_panels(run_3d)
    below = figure.axes[3]
    cells, _, batch = drawn(below, PathCollection)
    centers = np.asarray(run_3d.read_part("algorithm").archive.centroids)
    expected = np.sort(discount_at(run_3d, ITERATIONS, centers))
    np.testing.assert_allclose(cells.get_array(), expected, atol=1e-5)
    shot = run_3d.read_snapshot(ITERATIONS)
    assert len(batch.get_offsets()) == shot["real"][:BATCH].sum()


@pytest.mark.parametrize("which", ["run_2d", "run_3d"])
def test_without_snapshots_the_checkpoint_is_drawn(which, request, tmp_path):
    whole = request.getfixturevalue(which)
    shutil.copytree(whole.path, tmp_path / "run", ignore=shutil.ignore_patterns("snapshots"))
    figure = discount_panels(gloam.RunFolder(tmp_path / "run"))
    above, below, _ = figure.axes
    assert above.get_title(loc="left") == f"iteration {ITERATIONS}"
    assert figure.legends == []
    # The last snapshot was made at the same iteration, of the same seed.
    other = discount_panels(whole, iterations=[ITERATIONS])
    kind = AxesImage if which == "run_2d" else PathCollection
    ours, theirs = drawn(below, kind)[0], drawn(other.axes[1], kind)[0]
    np.testing.assert_allclose(ours.get_array(), theirs.get_array(), atol=1e-5)
