"""Indexes of FAISS: what they find, what they say of themselves, and that they come back whole."""

import functools
import gc
import subprocess
import sys
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gloam
from gloam import devices
from gloam.archives import Faiss, FaissIndex, cvt_archive
from gloam.archives import faiss_index as faiss_building
from gloam.archives import faiss_index as faiss_settings
from gloam.archives.faiss_index import chosen_index
from gloam.formats import objects
from gloam.programs.splitting import split
from tests.helpers import assert_same_bits

KINDS = ["flat", "ivf", "hnsw"]
METRICS = ["euclidean", "cosine"]

exactly = eqx.filter_jit(lambda archive, measures: archive.index_of(measures))


@pytest.fixture(scope="module", autouse=True)
def _faiss():
    reason = "faiss-cpu is not installed: pip install 'gloam[faiss]'"
    faiss = pytest.importorskip("faiss", reason=reason)
    # Threads that wait for one another are slow where several tests share the cores.
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    yield
    faiss.omp_set_num_threads(threads)


def clustered(cells: int, meas: int, count: int = 100, seed: int = 0):
    """Centroids around twenty centres, and points of the same kind."""
    rng = np.random.default_rng(seed)
    centers = rng.uniform(-1, 1, (20, meas))
    rows = centers[rng.integers(0, 20, cells + count)]
    rows = (rows + 0.2 * rng.standard_normal(rows.shape)).astype(np.float32)
    return rows[:cells], rows[cells:]


def float64_nearest(points, centroids, metric):
    points, centroids = points.astype(np.float64), centroids.astype(np.float64)
    if metric == "cosine":
        centroids = centroids / np.linalg.norm(centroids, axis=1, keepdims=True)
        return (points @ centroids.T).argmax(axis=1)
    distances = np.square(centroids).sum(axis=1) - 2 * points @ centroids.T
    return distances.argmin(axis=1)


@functools.cache
def built(metric: str, meas: int, kind: str):
    """An archive with its centroids as given, and points."""
    centroids, points = clustered(2000, meas)
    return gloam.CVTArchive(centroids, metric=metric, index=kind), centroids, points


# Few measures, which FAISS holds as they are, and many, which it holds as codes.
every = [
    pytest.mark.parametrize("kind", KINDS),
    pytest.mark.parametrize("meas", [5, 48]),
    pytest.mark.parametrize("metric", METRICS),
]


def for_every_index(test):
    for mark in every:
        test = mark(test)
    return test


@for_every_index
def test_an_index_finds_what_it_says(metric, meas, kind):
    archive, centroids, points = built(metric, meas, kind)
    index = archive.index
    assert index.kind == kind
    assert archive.lanes is None  # no second copy of the centroids
    found = archive.index_of(jnp.asarray(points))
    assert found.dtype == jnp.int32
    agree = np.mean(np.asarray(found) == float64_nearest(points, centroids, metric))
    # 100 points here and 512 there: four standard deviations of the difference.
    assert agree >= index.recall_between - 4 * np.sqrt(0.25 * (1 / 100 + 1 / 512))
    assert index.recall >= 0.95
    assert kind != "flat" or agree == 1.0


@for_every_index
def test_centers_are_in_their_own_cells(metric, meas, kind):
    archive, *_ = built(metric, meas, kind)
    found = archive.index_on_host(np.asarray(archive.centroids))
    assert np.mean(found == np.arange(2000)) >= (0.99 if kind == "hnsw" else 1.0)


@pytest.mark.parametrize("metric", METRICS)
def test_compiled_programs_search_exactly(metric):
    centroids, points = clustered(2000, 5)
    # Hardly anything is searched, so that an answer by the index is another one.
    poor = gloam.CVTArchive(centroids, metric=metric, index=Faiss("ivf", lists=200))
    poor.index.effort = 1
    nearest = float64_nearest(points, centroids, metric)
    points = jnp.asarray(points)
    np.testing.assert_array_equal(exactly(poor, points), nearest)
    np.testing.assert_array_equal(jax.jit(lambda rows: poor.index_of(rows))(points), nearest)
    assert (np.asarray(poor.index_of(points)) != nearest).any()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    "settings",
    [Faiss(recall=0.3, lists=100), Faiss("hnsw", 0.3, links=2)],
    ids=lambda settings: settings.kind,
)
def test_recall_is_the_share_of_nearest_cells(metric, settings, monkeypatch):
    monkeypatch.setattr(faiss_building, "_LEAST_EFFORT", 1)
    rng = np.random.default_rng(5)
    centroids = rng.standard_normal((2000, 40)).astype(np.float32)
    archive = gloam.CVTArchive(centroids, metric=metric, index=settings)
    rows, sample = np.asarray(archive.centroids), rng.choice(2000, 500, replace=False)
    square = np.square(rows[sample][:, None] - rows).sum(axis=2)
    square[np.arange(500), sample] = np.inf
    half = 0.5 * np.sqrt(square.min(axis=1, keepdims=True))
    noise = rng.standard_normal((500, 40))
    noise *= half / np.linalg.norm(noise, axis=1, keepdims=True)
    near, between = (rows[sample] + noise).astype(np.float32), square.argmin(axis=1)
    agree = np.mean(archive.index_on_host(near) == float64_nearest(near, rows, metric))
    assert 0.05 < agree < 0.99  # the settings are so poor that it is no matter of course
    spread = np.sqrt(agree * (1 - agree) * (1 / 500 + 1 / 512))
    assert abs(agree - archive.index.recall) < 4 * spread
    # The nearest but itself, as if the centroid were new.
    ids = archive.index.candidate_rows(archive.index.prepared(rows[sample]), rows)
    agree = np.mean((ids == between[:, None]).any(axis=1))
    assert abs(agree - archive.index.recall_between) < 4 * np.sqrt(0.25 * (1 / 500 + 1 / 512))


def test_more_recall_is_more_effort():
    centroids = np.random.default_rng(0).standard_normal((6000, 40)).astype(np.float32)
    low, high = (
        gloam.CVTArchive(centroids, index=Faiss(recall=recall, lists=150)).index
        for recall in (0.3, 0.999)
    )
    assert low.effort < high.effort <= 150
    assert low.recall < high.recall
    assert high.recall >= 0.999
    assert low.recall_between < high.recall_between


def test_a_recall_out_of_reach_is_said(monkeypatch):
    monkeypatch.setattr(FaissIndex, "nearest", lambda self, points, centroids: 0 * points[:, 0])
    with pytest.warns(UserWarning, match=r"index: expected a recall of 0.95, got 0.00\d, the best"):
        index = gloam.CVTArchive(clustered(1000, 4)[0], index="ivf").index
    assert index.effort == 25  # all lists there are


@for_every_index
def test_rows_that_failed_do_no_harm(metric, meas, kind):
    archive, _, points = built(metric, meas, kind)
    clean = archive.index_on_host(points)
    points = points.copy()
    points[3], points[4, 2], points[5], points[6] = np.nan, np.inf, -np.inf, 0.0
    found = archive.index_on_host(points)
    assert ((found >= 0) & (found < 2000)).all()
    np.testing.assert_array_equal(found[7:], clean[7:])


@pytest.mark.parametrize("far", [1e6, 1e20, 1e30])
def test_points_far_outside_find_a_cell_in_their_direction(far):
    centroids, points = clustered(500, 3)
    flat = gloam.CVTArchive(centroids, index="flat")
    found = flat.index_on_host((points * far).astype(np.float32))
    scores = points.astype(np.float64) @ centroids.T.astype(np.float64)
    chosen = scores[np.arange(len(points)), found]
    # They are brought to a thousand radii, where lengths weigh a thousandth.
    assert (chosen >= scores.max(axis=1) - 2e-3 * np.abs(scores).max()).all()


def test_measures_far_from_zero_find_their_cells():
    centroids, points = clustered(2000, 40)
    flat = gloam.CVTArchive(centroids + 1000, index="flat")
    nearest = float64_nearest(points, centroids, "euclidean")
    assert np.mean(flat.index_on_host(points + 1000) == nearest) > 0.95


@pytest.mark.parametrize("kind", KINDS)
def test_ties_go_to_the_lowest_cell(kind):
    centroids, points = clustered(1000, 8)
    twice = np.concatenate([centroids, centroids])
    archive = gloam.CVTArchive(twice, index=kind)
    assert np.mean(archive.index_on_host(points) < 1000) >= (0.95 if kind == "hnsw" else 1.0)


# The same answers again


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_is_the_same_each_time_it_is_built(kind):
    first, centroids, _ = built("euclidean", 48, kind)
    again = gloam.CVTArchive(centroids, index=kind)
    one, two = (content_of(archive.index) for archive in (first, again))
    assert one.keys() == two.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], two[name], err_msg=name)


def content_of(index: FaissIndex) -> dict:
    """All of an index but its time."""
    import faiss

    parts = {k: v for k, v in vars(index).items() if k not in ("milliseconds", "timed", "_index")}
    return parts | ({"content": faiss.serialize_index(index._index)} if index._index else {})


@pytest.mark.parametrize("kind", KINDS)
def test_a_written_archive_finds_the_same_cells(kind):
    archive, _, points = built("cosine", 48, kind)
    arrays: dict[str, np.ndarray] = {}
    content = objects.encode(archive, arrays)
    again = objects.decode(content, arrays)
    assert objects.encode(again, {}) == content
    np.testing.assert_array_equal(again.index_on_host(points), archive.index_on_host(points))


def algorithm(index) -> gloam.DMS:
    centroids, _ = clustered(2000, 40)
    archive = gloam.CVTArchive(centroids, index=index)
    return gloam.DMS.paper(
        archive,
        np.zeros(40),
        0.5,
        num_emitters=2,
        batch_size=6,
        num_init_points=20,
        num_empty_points=10,
    )


def measure(solutions):
    """Measures alone: closeness to the item is maximised. One row of each batch fails."""
    measures = np.tanh(solutions)
    measures[1] = np.nan
    return measures


@pytest.mark.slow
def test_a_loaded_search_goes_on_to_the_same_bits(tmp_path):
    whole = gloam.Search(algorithm("ivf"), 4)
    for _ in range(2):
        whole.tell(None, measure(whole.ask()))
    whole.save(tmp_path / "search.npz")
    loaded = gloam.Search.load(tmp_path / "search.npz")
    for _ in range(2):
        whole.tell(None, measure(whole.ask()))
        loaded.tell(None, measure(loaded.ask()))
    assert_same_bits(whole.elites, loaded.elites)


def test_optimize_uses_the_index_and_resumes_to_the_same_bits(tmp_path, monkeypatch):
    searched = []
    nearest = FaissIndex.nearest
    monkeypatch.setattr(
        FaissIndex,
        "nearest",
        lambda self, points, centroids: (
            searched.append(len(points)) or nearest(self, points, centroids)
        ),
    )
    settings = {"progress": False}
    first = algorithm("ivf")
    assert first.archive.index is not None  # building it searches, too
    searched.clear()
    whole = gloam.optimize(measure, first, 3, run_dir=tmp_path / "a", **settings)
    assert searched == [12, 12, 12]
    assert whole.metrics["failed"].tolist() == [1]
    np.testing.assert_array_equal(
        whole.elites.cells, first.archive.index_on_host(whole.elites.measures)
    )
    gloam.optimize(measure, first, 1, run_dir=tmp_path / "b", **settings)
    # As after a kill: the archive is built anew.
    halves = gloam.optimize(
        measure, algorithm("ivf"), 3, run_dir=tmp_path / "b", resume=True, **settings
    )
    assert_same_bits(whole.elites, halves.elites)
    read = gloam.RunFolder(tmp_path / "b").read_part("algorithm").archive
    assert read.index.recall == first.archive.index.recall


# Only where it is needed


@pytest.fixture
def builds(monkeypatch):
    """The kinds of the indexes that were built."""
    made = []

    def build(*arguments, **options):
        made.append(arguments[2].kind)
        return faiss_building.build_index(*arguments, **options)

    monkeypatch.setattr(cvt_archive, "build_index", build)
    return made


def test_a_program_on_the_device_needs_no_index(builds, monkeypatch):
    monkeypatch.setattr(faiss_settings, "LARGE", 1000)
    searched = algorithm("auto")
    assert searched.archive.index_settings == Faiss()
    gloam.run(jnp.tanh, searched, iterations=2, progress=False)
    assert builds == []


def test_an_index_is_built_once_for_an_archive_and_its_copies(builds, tmp_path):
    searched = algorithm("ivf")
    assert builds == []
    copy = eqx.tree_at(lambda a: a.emitter.x0, searched, jnp.ones(40))
    for one in (searched, searched, copy):
        gloam.optimize(measure, one, 1, progress=False)
    assert builds == ["ivf"]
    assert "recall" in repr(copy.archive.index)
    assert copy.archive.index is searched.archive.index
    assert searched.archive.lanes is None
    gloam.optimize(measure, algorithm("ivf"), 1, progress=False)  # of other centroids
    assert builds == ["ivf", "ivf"]


def test_an_index_goes_with_its_centroids(builds):
    gc.collect()  # what other tests have left
    made = len(cvt_archive._INDEXES._values)
    archive = gloam.CVTArchive(clustered(500, 3)[0], index="flat")
    assert archive.index is not None
    assert len(cvt_archive._INDEXES._values) == made + 1
    del archive
    gc.collect()
    assert len(cvt_archive._INDEXES._values) == made


def test_what_is_built_changes_neither_equality_nor_files_nor_programs(builds):
    searched = algorithm("ivf")
    before, content = split(searched)[1], objects.encode(searched.archive, {})
    assert searched.archive.index is not None
    assert split(searched)[1] == before
    assert objects.encode(searched.archive, {}) == content


# Which index


@pytest.mark.parametrize(
    ("index", "cells", "backend", "kind"),
    [
        ("auto", 70_000, "cpu", None),
        ("auto", 1_000_000, "cpu", "ivf"),
        ("auto", 1_000_000, "gpu", None),
        ("exact", 1_000_000, "cpu", None),
        ("flat", 10, "cpu", "flat"),
        ("hnsw", 10, "gpu", "hnsw"),
        (Faiss("ivf", recall=0.8), 10, "cpu", "ivf"),
    ],
)
def test_the_size_chooses_unless_somebody_does(index, cells, backend, kind, monkeypatch):
    monkeypatch.setattr(devices, "platform", lambda: backend)
    settings = chosen_index(index, cells, 784)
    assert (settings and settings.kind) == kind
    assert not isinstance(index, Faiss) or settings == index


def test_archives_of_usual_size_are_exact():
    assert gloam.CVTArchive(clustered(300, 4)[0]).index is None


@pytest.fixture
def no_faiss(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    monkeypatch.setattr(faiss_settings.importlib.util, "find_spec", lambda name: None)


@pytest.mark.parametrize("index", [*KINDS, Faiss()])
def test_without_faiss_the_error_names_the_extra(no_faiss, index):
    with pytest.raises(
        ValueError,
        match=r"index: expected the package faiss-cpu, got none.*"
        r"pip install 'gloam\[faiss\]'",
    ):
        gloam.CVTArchive(clustered(300, 4)[0], index=index)


def test_without_faiss_a_large_archive_is_exact_and_says_so(no_faiss):
    with pytest.warns(UserWarning, match=r"searched exactly.*pip install 'gloam\[faiss\]'"):
        assert chosen_index("auto", 1_000_000, 512) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert chosen_index("auto", 10_000, 10) is None
        assert chosen_index("exact", 1_000_000, 512) is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: chosen_index("ball-tree", 9, 9), "index: expected 'auto', 'exact', .* got 'ball"),
        (lambda: Faiss("pq"), "kind: expected 'flat', 'ivf' or 'hnsw', got 'pq'"),
        (lambda: Faiss(recall=1.5), "recall: expected a finite number > 0 and <= 1, got 1.5"),
        (lambda: Faiss(lists=0), "lists: expected a whole number >= 1, got 0"),
    ],
)
def test_wrong_settings_are_explained(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_importing_gloam_does_not_import_faiss():
    code = "import gloam, sys; sys.exit('faiss' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
