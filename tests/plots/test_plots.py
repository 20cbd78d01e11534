"""Figures show what run folders hold: sizes, values drawn, odd folders."""

import shutil
import struct

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

import gloam
from gloam import step
from gloam.formats.checkpoints import state_from
from gloam.formats.config import describe
from gloam.plots import (
    curves,
    discount_function,
    discount_panels,
    line_colors,
    plot_run,
    save,
    style,
)
from gloam.plots.heatmap import Plane, draw_heatmap
from gloam.records import Fit
from gloam.runs.fused_driver import FusedDriver
from gloam.runs.python_driver import PythonDriver
from gloam.searches.search import snapshot_arrays

BATCH = 12
ITERATIONS = 6
SHOTS = [1, 3, 6]


def bowl(solutions):
    """Best at 0; measures are the first numbers of the solution. For JAX and NumPy alike."""
    return 1.0 - (solutions**2).sum(axis=1) / 10.0, solutions[:, :2]


def dms(archive, **settings):
    few = {
        "num_emitters": 2,
        "batch_size": BATCH // 2,
        "num_empty_points": 9,
        "num_init_points": 16,
    }
    return gloam.DMS.paper(archive, np.zeros(4), 0.4, **few, **settings)


def made_up(like, rng):
    """A state of the shapes of ``like``: nobody has to wait for a search to compile."""

    def fill(leaf):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jnp.broadcast_to(jax.random.key(0), leaf.shape)
        return rng.normal(0, 0.3, leaf.shape).astype(leaf.dtype)

    objectives = rng.uniform(0.2, 1.1, like.store.objectives.shape)
    objectives[rng.uniform(size=objectives.shape) < 0.4] = -np.inf
    return eqx.tree_at(
        lambda state: (state.iteration, state.store.objectives),
        jax.tree.map(fill, like),
        (np.int32(ITERATIONS), objectives.astype(np.float32)),
    )


def write_run(path, algorithm, seeds):
    """A run folder as a driver writes it: several seeds on the device, one in Python."""
    rng = np.random.default_rng(1)
    folder = gloam.RunFolder(path)
    driver = (FusedDriver if len(seeds) > 1 else PythonDriver)(bowl, algorithm, seeds)
    driver.restore(lambda like: made_up(like, rng))
    state, archives = driver.state, driver.elites()
    first = jax.tree.map(lambda leaf: leaf[0], (state.store.objectives, state.discount))
    plan = {"iterations": ITERATIONS}
    kind = driver.kind
    described = describe(algorithm, bowl, driver=kind, seeds=seeds, dataset=None, plan=plan)
    folder.write_config(*described)
    rows = [(seed, at) for at in (2, 4, 6) for seed in seeds]
    metrics = pd.DataFrame(rows, columns=["seed", "iteration"])
    for name in ("qd_score", "coverage", "loss"):
        metrics[name] = rng.uniform(0.1, 1.0, len(rows))
    metrics["unique_cells"] = rng.integers(1, BATCH, len(rows))
    folder.write_metrics(metrics)
    folder.write_checkpoint(state, seconds=1.0)
    for seed, elites in zip(seeds, archives, strict=True):
        folder.write_archive(elites, seed=seed)
    low, high = algorithm.archive.lower, algorithm.archive.upper
    for at in SHOTS:
        objectives, discount = first
        size = BATCH + algorithm.discount.num_empty_points
        points = rng.uniform(low, high, (size, len(low))).astype(np.float32)
        targets = rng.uniform(0, 1, size).astype(np.float32)
        fit = Fit(np.float32(0), np.int32(1), points, targets, rng.uniform(size=size) < 0.8)
        if at < ITERATIONS:
            objectives = np.where(objectives < 0.3 + 0.1 * at, -np.inf, objectives)
            discount = jax.tree.map(
                lambda leaf, at=at: (leaf * at / ITERATIONS).astype(leaf.dtype), discount
            )
        folder.write_snapshot(at, snapshot_arrays(objectives, discount, fit))
    return folder


@pytest.fixture(scope="module")
def run_2d(tmp_path_factory):
    """Two seeds on the device, a grid, snapshots."""
    archive = gloam.GridArchive((8, 6), (-1, -1), (1, 0.5))
    return write_run(tmp_path_factory.mktemp("plots") / "grid", dms(archive), [3, 5])


@pytest.fixture(scope="module")
def run_3d(tmp_path_factory):
    """One seed in Python, three measures, snapshots."""
    centroids = np.random.default_rng(0).uniform(-1, 1, (40, 3)) * [1.0, 3.0, 0.2]
    algorithm = dms(gloam.CVTArchive(centroids))
    return write_run(tmp_path_factory.mktemp("plots") / "cvt", algorithm, [2])


def copy_of(folder, target, *, without):
    shutil.copytree(folder.path, target)
    for name in without:
        place = target / name
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    return gloam.RunFolder(target)


def png_size(path):
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", content[16:24])


def drawn(axes, kind):
    return [child for child in axes.get_children() if isinstance(child, kind)]


def discount_at(folder, iteration, points):
    """The discount function of a snapshot, worked out apart from the plots."""
    algorithm = folder.read_part("algorithm")
    like = jax.eval_shape(lambda key: step.init(algorithm, key).discount, jax.random.key(0))
    arrays = folder.read_snapshots()[iteration]
    learned = {
        name.removeprefix("discount "): array
        for name, array in arrays.items()
        if name.startswith("discount ")
    }
    return algorithm.discount.discount(state_from(like, learned), jnp.asarray(points))


def test_a_run_is_drawn_into_its_figures_folder(run_2d):
    settings = dict(matplotlib.rcParams)
    paths = plot_run(run_2d.path, pdf=True)
    names = [
        "curves.png",
        "curves.pdf",
        "archive.png",
        "archive.pdf",
        "discount.png",
        "discount.pdf",
    ]
    assert [path.name for path in paths] == names
    assert all(path.parent == run_2d.figures for path in paths)
    assert png_size(paths[0]) == (1380, 945)
    for path in paths[::2]:
        width, height = png_size(path)
        assert 600 < width < 2400
        assert 400 < height < 1500
        image = matplotlib.image.imread(path)[..., :3]
        assert image.std() > 0.05
        # Nothing touches the border, so nothing was cut off.
        border = np.concatenate([image[0], image[-1], image[:, 0], image[:, -1]])
        assert (border > 0.99).all()
    assert all(path.read_bytes()[:5] == b"%PDF-" for path in paths[1::2])
    assert sorted(p.name for p in run_2d.figures.iterdir()) == sorted(names)
    assert dict(matplotlib.rcParams) == settings


def test_curves_are_the_mean_over_seeds(run_2d):
    metrics = run_2d.read_metrics()
    figure = curves(metrics, algorithm="DMS")
    labels = [axes.get_ylabel() for axes in figure.axes]
    assert labels == [
        "QD score",
        "coverage of the archive",
        "training loss",
        "unique cells per batch",
    ]
    columns = ["qd_score", "coverage", "loss", "unique_cells"]
    for axes, name in zip(figure.axes, columns, strict=True):
        mean, *single = axes.lines
        table = metrics.pivot(index="iteration", columns="seed", values=name)
        assert mean.get_xdata().tolist() == [2, 4, 6]
        np.testing.assert_allclose(mean.get_ydata(), table.mean(axis=1))
        assert len(single) == 2
        for line, seed in zip(single, [3, 5], strict=True):
            np.testing.assert_array_equal(line.get_ydata(), table[seed])
        # The standard error of two numbers is half their distance.
        band = axes.collections[0].get_paths()[0].vertices
        half = (table[3] - table[5]).abs() / 2
        assert band[:, 1].max() == pytest.approx((table.mean(axis=1) + half).max())


def test_many_seeds_have_no_lines_of_their_own():
    table = pd.DataFrame({"seed": range(6), "iteration": 10, "qd_score": np.arange(6.0)})
    (axes,) = curves(table).axes
    assert len(axes.lines) == 1
    assert axes.lines[0].get_ydata().tolist() == [2.5]


def test_a_gap_in_the_metrics_stays_a_gap():
    table = pd.DataFrame({"seed": 1, "iteration": [1, 2, 3], "loss": [0.5, np.nan, 0.25]})
    (axes,) = curves(table).axes
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), [0.5, np.nan, 0.25])


def test_runs_are_compared_in_the_colours_of_their_algorithms(run_2d, run_3d):
    nothing_trained = run_3d.read_metrics().assign(loss=np.nan)
    figure = curves({"MAP-Elites": nothing_trained, "DMS": run_2d.read_metrics()})
    colors = line_colors(["DMS", "MAP-Elites"])
    score, _, loss, _ = figure.axes
    assert [line.get_label() for line in score.lines if line.get_linewidth() > 1] == [
        "MAP-Elites",
        "DMS",
    ]
    assert score.lines[0].get_color() == colors["MAP-Elites"]
    assert {line.get_color() for line in loss.lines} == {colors["DMS"]}
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == ["MAP-Elites", "DMS", "standard error", "single seeds"]


def test_colours_are_distinct_and_belong_to_names():
    labels = ["CMAMAE", "one", "DDS", "two", "MAPElitesLine", "three", "DMS"]
    colors = line_colors(labels)
    assert list(colors) == labels
    assert len(set(colors.values())) == len(labels)
    assert colors["CMAMAE"] == line_colors(["CMA-MAE"])["CMA-MAE"]
    assert len(line_colors([f"run {i}" for i in range(30)])) == 30


@pytest.mark.parametrize(
    "metrics",
    [pd.DataFrame(), {}, {"a": pd.DataFrame()}, pd.DataFrame({"seed": [1], "iteration": [1]})],
)
def test_metrics_without_anything_to_draw_are_refused(metrics):
    with pytest.raises(ValueError, match=r"metrics.*expected .* got"):
        curves(metrics)


def test_a_grid_is_drawn_cell_by_cell(run_2d):
    elites = run_2d.read_archive()
    axes = Figure().subplots()
    mesh = draw_heatmap(axes, elites)
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
    centre = (corners[1, 2] + corners[2, 3]) / 2
    cell = int(elites.archive.index_of(jnp.asarray(centre, jnp.float32)[None])[0])
    assert cell == 2 * 6 + 1


def test_many_measures_become_two_principal_components():
    rng = np.random.default_rng(1)
    # All but the third and first measure are nearly nothing, and the third varies most.
    centroids = rng.uniform(-1, 1, (50, 5)) * [2.0, 0.01, 5.0, 0.01, 0.01]
    archive = gloam.CVTArchive(centroids)
    objectives = np.where(np.arange(50) % 3 == 0, -np.inf, rng.uniform(size=50))
    objectives = objectives.astype(np.float32)
    axes = Figure().subplots()
    dots = draw_heatmap(axes, (archive, objectives))
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
    mesh = draw_heatmap(Figure().subplots(), (archive, np.array(objectives, np.float32)))
    assert mesh.get_array().shape == (1, 3)
    low, high = mesh.get_clim()
    assert low < high
    assert high == limits[1]


def test_objectives_that_do_not_fit_the_archive_are_refused():
    archive = gloam.GridArchive((3, 3), 0, 1)
    with pytest.raises(ValueError, match="objectives: expected one for each of the 9 cells, got"):
        draw_heatmap(Figure().subplots(), (archive, np.zeros((3, 3))))


def test_the_discount_function_is_drawn_with_its_training_points(run_2d):
    figure = discount_panels(run_2d)
    *panels, bar = figure.axes
    assert len(panels) == 2 * len(SHOTS)
    snapshots = run_2d.read_snapshots()
    best = max(shot["objectives"].max() for shot in snapshots.values())
    for above, below, at in zip(panels[::2], panels[1::2], SHOTS, strict=True):
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
    figure = discount_function(run_2d.path, iteration=3, title="DMS")
    axes, bar = figure.axes
    (image,) = drawn(axes, AxesImage)
    (panel,) = drawn(discount_panels(run_2d, iterations=[3]).axes[1], AxesImage)
    np.testing.assert_array_equal(image.get_array(), panel.get_array())
    assert len(drawn(axes, PathCollection)) == 2
    assert bar.get_ylabel() == "discount"
    assert axes.get_title(loc="left") == "DMS"
    without = discount_function(run_2d, iteration=3, points=False)
    assert drawn(without.axes[0], PathCollection) == []


def test_the_discount_function_of_a_search_in_memory():
    search = gloam.Search(dms(gloam.GridArchive((4, 4), -1, 1)), seed=1)
    with pytest.raises(ValueError, match="search: expected at least one finished iteration"):
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
    assert discount_panels(run_2d, iterations=[1, 6], ax=left) is figure
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
    figure = discount_panels(run_2d, iterations=[6, 1])
    titles = [axes.get_title(loc="left") for axes in figure.axes[:4:2]]
    assert titles == ["iteration 6", "iteration 1"]
    with pytest.raises(ValueError, match=r"iterations: expected snapshots among \[1, 3, 6\], got"):
        discount_panels(run_2d, iterations=[2])


def test_many_measures_are_drawn(run_3d):
    assert [path.name for path in plot_run(run_3d.path)] == [
        "curves.png",
        "archive.png",
        "pairwise.png",
        "discount.png",
    ]
    figure = discount_panels(run_3d)
    below = figure.axes[5]
    cells, _, batch = drawn(below, PathCollection)
    centers = np.asarray(run_3d.read_part("algorithm").archive.centroids)
    expected = np.sort(discount_at(run_3d, ITERATIONS, centers))
    np.testing.assert_allclose(cells.get_array(), expected, atol=1e-5)
    shot = run_3d.read_snapshots()[ITERATIONS]
    assert len(batch.get_offsets()) == shot["real"][:BATCH].sum()


@pytest.mark.parametrize("which", ["run_2d", "run_3d"])
def test_without_snapshots_the_checkpoint_is_drawn(which, request, tmp_path):
    folder = copy_of(request.getfixturevalue(which), tmp_path / "run", without=["snapshots"])
    figure = discount_panels(folder)
    above, below, _ = figure.axes
    assert above.get_title(loc="left") == f"iteration {ITERATIONS}"
    assert figure.legends == []
    # The last snapshot was made at the same iteration, of the same seed.
    whole = discount_panels(request.getfixturevalue(which), iterations=[ITERATIONS])
    kind = AxesImage if which == "run_2d" else PathCollection
    ours, theirs = drawn(below, kind)[0], drawn(whole.axes[1], kind)[0]
    np.testing.assert_allclose(ours.get_array(), theirs.get_array(), atol=1e-5)


def test_an_algorithm_without_a_model_has_no_discount_figure(tmp_path):
    archive = gloam.GridArchive((4, 4), -1, 1)
    algorithm = gloam.MAPElites(archive, np.zeros(2), 0.3, batch_size=8)
    gloam.optimize(bowl, algorithm, 2, run_dir=tmp_path, snapshots=[1], progress=False)
    assert [path.name for path in plot_run(tmp_path)] == ["curves.png", "archive.png"]
    with pytest.raises(ValueError, match="discount: expected DiscountModel, got NoDiscount"):
        discount_panels(gloam.RunFolder(tmp_path))


class OwnNetwork(eqx.Module):
    weights: jax.Array

    def __call__(self, measures):
        return jnp.dot(self.weights, measures)


def test_an_algorithm_with_own_parts_is_handed_over(tmp_path):
    archive = gloam.GridArchive((4, 4), -1, 1)
    algorithm = dms(archive, network=OwnNetwork(jnp.ones(2)))
    write_run(tmp_path, algorithm, [1])
    with pytest.raises(ValueError, match=r"OwnNetwork.* never loaded from a file"):
        plot_run(tmp_path)
    assert len(plot_run(tmp_path, algorithm=algorithm)) == 3


def test_a_folder_without_a_run_is_refused(tmp_path, run_2d):
    with pytest.raises(ValueError, match=r"run folder: expected .* got .*nowhere"):
        plot_run(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"run folder: expected .* got"):
        discount_panels(gloam.RunFolder(tmp_path))
    started = copy_of(
        run_2d, tmp_path / "started", without=["metrics.csv", "snapshots", "checkpoint"]
    )
    with pytest.raises(ValueError, match="metrics: expected at least one row, got none"):
        plot_run(started.path)
    with pytest.raises(ValueError, match="run folder: expected snapshots or a checkpoint, got"):
        discount_panels(started)


def test_a_figure_is_saved_under_its_name(tmp_path):
    figure = style.figure(2, 1)
    assert save(figure, tmp_path / "deep" / "alpha0.5") == tmp_path / "deep" / "alpha0.5.png"
    assert png_size(tmp_path / "deep" / "alpha0.5.png") == (300, 150)
    assert save(figure, str(tmp_path / "b.png"), pdf=True) == tmp_path / "b.png"
    first = (tmp_path / "b.pdf").read_bytes()
    assert len(first) > 500
    # The same figure gives the same file: no dates in it.
    save(figure, tmp_path / "b.png", pdf=True)
    assert (tmp_path / "b.pdf").read_bytes() == first
