"""FAISS indexes: the cells they find, the recall they report, and that they are reproducible."""

import functools
import gc
import sys
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gloam
from gloam._tools import devices
from gloam._tools.programs import partition
from gloam.archives import CVTArchive, Faiss, FaissIndex, cvt_archive, faiss_index
from gloam.archives.faiss_index import chosen_index
from gloam.formats import objects
from tests.helpers import assert_same_bits

CELLS, MEASURES = 2000, 24
# As they are named, and with codes in place of the centroids.
INDEXES = {
    "flat": "flat",
    "ivf": "ivf",
    "hnsw": "hnsw",
    "codes": Faiss("IVF40,PQ12x4fsr"),
    "hnsw-codes": Faiss("HNSW16_SQ8"),
}
for_every_index = pytest.mark.parametrize("name", INDEXES)
for_both_metrics = pytest.mark.parametrize("metric", ["euclidean", "cosine"])


@pytest.fixture(scope="module", autouse=True)
def _faiss():
    reason = "faiss-cpu is not installed: pip install 'gloam[faiss]'"
    faiss = pytest.importorskip("faiss", reason=reason)
    # Threads that wait for one another are slow if several tests share the cores.
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    yield
    faiss.omp_set_num_threads(threads)


def clustered(cells: int = CELLS, meas: int = MEASURES):
    """Centroids around twenty centres, and 100 points of the same kind."""
    rng = np.random.default_rng(0)
    centers = rng.uniform(-1, 1, (20, meas))
    rows = centers[rng.integers(0, 20, cells + 100)]
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
def built(metric: str, name: str):
    """An archive with its centroids as given, and points."""
    centroids, points = clustered()
    return CVTArchive(centroids, metric=metric, index=INDEXES[name]), centroids, points


@for_both_metrics
@for_every_index
def test_an_index_finds_what_it_says(metric, name):
    archive, centroids, points = built(metric, name)
    found = archive.index_of(jnp.asarray(points))
    assert found.dtype == jnp.int32
    assert archive.lanes is None  # no second copy of the centroids
    assert archive.index.recall >= 0.95
    assert f"recall {archive.index.recall:.3f}" in repr(archive.index)
    agree = np.mean(np.asarray(found) == float64_nearest(points, centroids, metric))
    assert agree >= (1.0 if name == "flat" else 0.85)
    own = archive.index_on_host(np.asarray(archive.centroids))
    assert np.mean(own == np.arange(CELLS)) >= (0.98 if "hnsw" in name else 1.0)


@for_both_metrics
@for_every_index
def test_rows_that_failed_do_no_harm(metric, name):
    archive, _, points = built(metric, name)
    clean = archive.index_on_host(points)
    points = points.copy()
    points[3], points[4, 2], points[5], points[6] = np.nan, np.inf, -np.inf, 0.0
    found = archive.index_on_host(points)
    assert ((found >= 0) & (found < CELLS)).all()
    np.testing.assert_array_equal(found[7:], clean[7:])


@for_both_metrics
def test_compiled_programs_search_exactly(metric):
    centroids, points = clustered()
    # Hardly anything is searched, so that an answer by the index is another one.
    poor = CVTArchive(centroids, metric=metric, index=Faiss("IVF200,Flat", nprobe=1))
    nearest = float64_nearest(points, centroids, metric)
    points = jnp.asarray(points)
    compiled = eqx.filter_jit(lambda archive, measures: archive.index_of(measures))
    np.testing.assert_array_equal(compiled(poor, points), nearest)
    np.testing.assert_array_equal(jax.jit(lambda rows: poor.index_of(rows))(points), nearest)
    assert (np.asarray(poor.index_of(points)) != nearest).any()


@for_both_metrics
@pytest.mark.parametrize("factory", ["IVF100,Flat", "HNSW2"])
def test_recall_is_the_share_of_nearest_cells(metric, factory, monkeypatch):
    rng = np.random.default_rng(5)
    centroids = rng.standard_normal((CELLS, 40)).astype(np.float32)
    poor = Faiss(factory, nprobe=1 if "IVF" in factory else 16)
    archive = CVTArchive(centroids, metric=metric, index=poor)
    assert archive.index.nprobe == poor.nprobe
    rows, sample = np.asarray(archive.centroids, np.float64), rng.choice(CELLS, 500, replace=False)
    square = np.square(rows).sum(axis=1) - 2 * rows[sample] @ rows.T
    square += np.square(rows[sample]).sum(axis=1, keepdims=True)
    square[np.arange(500), sample] = np.inf
    noise = rng.standard_normal((500, 40))
    half = 0.5 * np.sqrt(square.min(axis=1, keepdims=True))
    noise *= half / np.linalg.norm(noise, axis=1, keepdims=True)
    near = (rows[sample] + noise).astype(np.float32)
    agree = np.mean(archive.index_on_host(near) == float64_nearest(near, rows, metric))
    assert 0.05 < agree < 0.99  # the settings are so poor that it is no matter of course
    spread = np.sqrt(agree * (1 - agree) * (1 / 500 + 1 / 512))
    assert abs(agree - archive.index.recall) < 4 * spread


def test_more_recall_is_more_effort():
    centroids = np.random.default_rng(0).standard_normal((CELLS, 40)).astype(np.float32)
    low, high = (
        CVTArchive(centroids, index=Faiss("IVF100,Flat", recall=recall)).index
        for recall in (0.3, 0.999)
    )
    assert low.nprobe < high.nprobe <= 100
    assert 0.3 <= low.recall < high.recall
    assert high.recall >= 0.999


def test_a_recall_out_of_reach_is_said(monkeypatch):
    monkeypatch.setattr(FaissIndex, "nearest", lambda *_: np.zeros(512, int))
    with pytest.warns(UserWarning, match=r"^index:.*0\.95.*0\.00\d"):
        index = CVTArchive(clustered()[0], index="ivf").index
    assert index.nprobe == 32  # all lists there are


def test_a_point_whose_lists_are_empty_is_compared_with_every_centroid():
    centroids, points = clustered(100, 3)
    archive = CVTArchive(centroids, index=Faiss("IVF4,Flat", nprobe=1))
    archive.index._index.search = lambda rows, count: (None, np.full((len(rows), count), -1))
    found = archive.index_on_host(points)
    np.testing.assert_array_equal(found, float64_nearest(points, centroids, "euclidean"))


@pytest.mark.parametrize("far", [1e6, 1e20, 1e30])
def test_points_far_outside_find_a_cell_in_their_direction(far):
    centroids, points = clustered(500, 3)
    flat = CVTArchive(centroids, index="flat")
    found = flat.index_on_host((points * far).astype(np.float32))
    scores = points.astype(np.float64) @ centroids.T.astype(np.float64)
    chosen = scores[np.arange(len(points)), found]
    # They are moved to a thousand radii, where lengths weigh a thousandth.
    assert (chosen >= scores.max(axis=1) - 2e-3 * np.abs(scores).max()).all()


def test_measures_far_from_zero_find_their_cells():
    centroids, points = clustered()
    flat = CVTArchive(centroids + 1000, index="flat")
    nearest = float64_nearest(points, centroids, "euclidean")
    assert np.mean(flat.index_on_host(points + 1000) == nearest) > 0.95


@for_every_index
def test_ties_go_to_the_lowest_cell(name):
    centroids, points = clustered(CELLS // 2)
    archive = CVTArchive(np.concatenate([centroids, centroids]), index=INDEXES[name])
    found = archive.index_on_host(points)
    assert np.mean(found < CELLS // 2) >= (0.95 if "hnsw" in name else 1.0)


def test_distant_clusters_are_told_apart():
    rng = np.random.default_rng(5)
    sides = 500.0 * rng.choice([-1.0, 1.0], (CELLS + 100, 1))
    rows = (sides + rng.uniform(-0.1, 0.1, (CELLS + 100, 4))).astype(np.float32)
    centroids, points = rows[:CELLS], rows[CELLS:]
    square = np.square(points[:, None].astype(np.float64) - centroids).sum(axis=2)
    flat = CVTArchive(centroids, index="flat")
    assert flat.by_differences
    assert flat.index is None  # it compares scores: the exact search is used
    np.testing.assert_array_equal(flat.index_of(jnp.asarray(points)), square.argmin(axis=1))
    found = CVTArchive(centroids, index="ivf").index_on_host(points)
    assert (found == square.argmin(axis=1)).mean() > 0.8


# Reproducible


@for_every_index
def test_an_index_is_the_same_each_time_it_is_built(name):
    import faiss

    first, centroids, _ = built("euclidean", name)
    again = CVTArchive(centroids, index=INDEXES[name])
    one, two = (faiss.serialize_index(archive.index._index) for archive in (first, again))
    np.testing.assert_array_equal(one, two)
    assert (first.index.nprobe, first.index.recall) == (again.index.nprobe, again.index.recall)


@for_every_index
def test_a_written_archive_finds_the_same_cells(name):
    archive, _, points = built("cosine", name)
    arrays: dict[str, np.ndarray] = {}
    content = objects.encode(archive, arrays)
    again = objects.decode(content, arrays)
    assert objects.encode(again, {}) == content
    np.testing.assert_array_equal(again.index_on_host(points), archive.index_on_host(points))


def algorithm(index) -> gloam.MAPElites:
    archive = CVTArchive(clustered(500, 8)[0], index=index)
    return gloam.MAPElites(archive, np.zeros(8), 0.5, batch_size=12)


def measure(solutions):
    """Measures alone: closeness to the item is maximised. One row of each batch fails."""
    measures = np.tanh(solutions)
    measures[1] = np.nan
    return measures


def test_a_loaded_search_goes_on_to_the_same_bits(tmp_path):
    whole = gloam.Search(algorithm("ivf"), 4)
    whole.tell(None, measure(whole.ask()))
    whole.save(tmp_path / "search.npz")
    loaded = gloam.Search.load(tmp_path / "search.npz")
    for search in (whole, loaded):
        search.tell(None, measure(search.ask()))
    assert_same_bits(whole.elites(), loaded.elites())


def test_optimize_uses_the_index_and_resumes_to_the_same_bits(tmp_path, monkeypatch):
    first = algorithm("ivf")
    assert first.archive.index is not None  # building it searches, too
    searched, nearest = [], FaissIndex.nearest

    def counted(index, points, centroids):
        searched.append(len(points))
        return nearest(index, points, centroids)

    monkeypatch.setattr(FaissIndex, "nearest", counted)
    whole = gloam.optimize(measure, first, 3, run_dir=tmp_path / "a", progress=False)
    assert searched == [12, 12, 12]
    assert whole.metrics["failed"].tolist() == [1]
    np.testing.assert_array_equal(
        whole.elites.cells, first.archive.index_on_host(whole.elites.measures)
    )
    gloam.optimize(measure, first, 1, run_dir=tmp_path / "b", progress=False)
    # As after a kill: the archive is built anew.
    halves = gloam.optimize(
        measure, algorithm("ivf"), 3, run_dir=tmp_path / "b", resume=True, progress=False
    )
    assert_same_bits(whole.elites, halves.elites)
    read = gloam.RunFolder(tmp_path / "b").read_part("algorithm").archive
    assert read.index.recall == first.archive.index.recall


# Only if it is needed


@pytest.fixture
def builds(monkeypatch):
    """The factory strings of the indexes that were built."""
    made = []

    def build(centroids, origin, settings, **options):
        made.append(settings.factory)
        return FaissIndex(centroids, origin, settings, **options)

    monkeypatch.setattr(cvt_archive, "FaissIndex", build)
    return made


def test_a_program_on_the_device_needs_no_index(builds, monkeypatch):
    monkeypatch.setattr(faiss_index, "LARGE", 1000)
    searched = algorithm("auto")
    assert searched.archive.index_settings == Faiss("IVF12,Flat")
    gloam.run(jnp.tanh, searched, iterations=1, progress=False)
    assert builds == []


def test_an_index_is_built_once_for_an_archive_and_its_copies(builds):
    searched = algorithm("ivf")
    before, content = partition(searched)[1], objects.encode(searched.archive, {})
    copy = eqx.tree_at(lambda a: a.emitter.x0, searched, jnp.ones(8))
    assert builds == []
    for one in (searched, copy):
        gloam.optimize(measure, one, 1, progress=False)
    assert builds == ["IVF12,Flat"]
    assert copy.archive.index is searched.archive.index
    assert searched.archive.lanes is None
    # It is not part of programs or files.
    assert partition(searched)[1] == before
    assert objects.encode(searched.archive, {}) == content
    assert algorithm("ivf").archive.index is not None  # of other centroids
    assert builds == ["IVF12,Flat"] * 2


def test_an_index_goes_with_its_centroids():
    gc.collect()  # what other tests have left
    made = len(cvt_archive._INDEXES._values)
    archive = CVTArchive(clustered(500, 3)[0], index="flat")
    assert archive.index is not None
    assert len(cvt_archive._INDEXES._values) == made + 1
    del archive
    gc.collect()
    assert len(cvt_archive._INDEXES._values) == made


# Which index


@pytest.mark.parametrize(
    ("index", "cells", "backend", "factory"),
    [
        ("auto", 70_000, "cpu", None),
        ("auto", 1_000_000, "cpu", "IVF1024,PQ196x4fsr"),
        ("auto", 1_000_000, "gpu", None),
        ("exact", 1_000_000, "cpu", None),
        ("flat", 10, "cpu", "Flat"),
        ("ivf", 10, "cpu", "IVF1,Flat"),
        ("hnsw", 10, "gpu", "HNSW32"),
        ("hnsw", 20_000, "cpu", "HNSW32_SQ8"),
        (Faiss(recall=0.8), 20_000, "cpu", "IVF128,PQ196x4fsr"),
        (Faiss("IVF3,SQ8", recall=0.8), 10, "cpu", "IVF3,SQ8"),
    ],
)
def test_the_size_chooses_unless_somebody_does(index, cells, backend, factory, monkeypatch):
    monkeypatch.setattr(devices, "platform", lambda: backend)
    settings = chosen_index(index, cells, 784)
    assert (settings and settings.factory) == factory
    assert not isinstance(index, Faiss) or settings.recall == index.recall


@pytest.fixture
def no_faiss(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    monkeypatch.setattr(faiss_index.importlib.util, "find_spec", lambda name: None)


@pytest.mark.parametrize("index", ["ivf", Faiss()])
def test_without_faiss_the_error_names_the_extra(no_faiss, index):
    with pytest.raises(
        ValueError,
        match=r"index: expected the package faiss-cpu, got none.*"
        r"pip install 'gloam\[faiss\]'",
    ):
        CVTArchive(clustered(300, 4)[0], index=index)


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
        (
            lambda: chosen_index(Faiss("tree"), 9, 9),
            "factory: expected a string that .* got 'tree'",
        ),
        (lambda: chosen_index(Faiss("PQ2"), 9, 9), "for 9 measures, got 'PQ2' .* multiple of"),
        (
            lambda: chosen_index(Faiss("IVF99,Flat"), 9, 9),
            "factory: expected at most .* cells, 9, ",
        ),
        (lambda: Faiss(3), "factory: expected str, got int 3"),
        (lambda: Faiss("IVF0,Flat"), "factory: .* numbers from 1 to 999,999, got 'IVF0,Flat'"),
        (lambda: Faiss("IVF9999999,Flat"), "factory: .* numbers from 1 to 999,999, got"),
        (lambda: Faiss(recall=1.5), "recall: expected a finite number > 0 and <= 1, got 1.5"),
        (lambda: Faiss(nprobe=0), "nprobe: expected a whole number >= 1, got 0"),
    ],
)
def test_wrong_settings_are_explained(make, message):
    with pytest.raises(ValueError, match=message):
        make()
