"""Cards of objects in notebooks: small, escaped, without matplotlib."""

import base64
import io
import re
import sys
from html.parser import HTMLParser

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from PIL import Image

import gloam
from gloam._tools import drawing
from gloam.archives import Elites
from gloam.archives.store import Store, empty_store
from gloam.archives.thumbnails import thumbnail_pixels

HOSTILE = "<script>alert(1)</script>\"'&"


@pytest.fixture(autouse=True)
def _without_matplotlib(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)


class Page(HTMLParser):
    """The tags, texts and pictures of a piece of HTML; tags must be closed in order."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.texts, self.sources, self._open = [], [], [], []
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.sources += [value for name, value in attrs if name == "src"]
        assert all(not name.startswith("on") for name, _ in attrs)
        if tag != "img":
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def shown(value, size=40_000):
    """The page that a notebook shows, which must be small and load nothing."""
    html = value._repr_html_()
    assert len(html) < size
    page = Page(html)
    assert not {"script", "iframe", "link", "style", "object"} & set(page.tags)
    assert all(source.startswith("data:image/png;base64,") for source in page.sources)
    return page


def picture(page):
    (source,) = page.sources
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))))


def filled(archive, objectives, measures=None):
    cells = np.arange(archive.num_cells, dtype=np.int32)
    measures = np.asarray(archive.centers_of(cells)) if measures is None else measures
    solutions = np.zeros((archive.num_cells, 2), np.float32)
    return Elites(archive, Store(solutions, np.float32(objectives), np.float32(measures), {}))


def test_elites_of_a_grid_are_figures_and_a_map():
    archive = gloam.GridArchive((4, 2), 0, 1)
    objectives = np.full(8, -np.inf)
    objectives[[0, 7]] = [1.0, 3.0]  # the lower left and the upper right cell
    page = shown(filled(archive, objectives))
    assert {"Elites of a GridArchive", "2 of 8 cells", "25.0%", "4.00"} <= set(page.texts)
    pixels = picture(page)
    assert pixels.shape == (80, 160, 3)
    shades = np.rint(255 * drawing.dusk()).astype(np.uint8)
    np.testing.assert_array_equal(pixels[-1, 0], shades[0])
    np.testing.assert_array_equal(pixels[0, -1], shades[-1])
    np.testing.assert_array_equal(pixels[0, 0], drawing.rgb(drawing.EMPTY))


def test_a_large_grid_is_reduced_to_the_best_of_each_block():
    archive = gloam.GridArchive((1000, 500), 0, 1)
    objectives = np.full(500_000, -np.inf)
    objectives[[0, 499_999, 250_250]] = [1.0, 2.0, 3.0]
    elites = filled(archive, objectives, np.zeros((500_000, 2)))
    pixels = thumbnail_pixels(archive, elites.store)
    assert pixels.shape == (72, 77, 3)
    assert (pixels != drawing.rgb(drawing.EMPTY)).any(axis=2).sum() == 3
    shown(elites)


@pytest.mark.parametrize(
    "archive",
    [
        gloam.GridArchive((5,), 0, 1),
        gloam.GridArchive((2, 2, 3), 0, 1),
        gloam.CVTArchive(np.random.default_rng(0).uniform(size=(30, 2))),
        gloam.CVTArchive(np.random.default_rng(0).uniform(size=(30, 2)), metric="cosine"),
        gloam.CVTArchive(np.random.default_rng(0).uniform(size=(30, 4, 4))),
        gloam.CVTArchive(np.array([[0.0], [1.0], [3.0]])),
    ],
    ids=["grid 1D", "grid 3D", "CVT 2D", "cosine", "images", "CVT 1D"],
)
def test_every_kind_of_archive_has_a_map(archive):
    objectives = np.arange(archive.num_cells, dtype=np.float32)
    pixels = picture(shown(filled(archive, objectives)))
    assert max(pixels.shape[:2]) <= 160
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 2
    only = np.where(objectives == 1, 1.0, -np.inf)
    shown(filled(archive, only))
    nothing = Elites(archive, empty_store(archive.num_cells, 2, archive.measure_dim, {}))
    page = shown(nothing)
    assert page.sources == []
    assert "none" in page.texts


def test_a_map_of_centroids_has_the_color_of_the_nearest():
    archive = gloam.CVTArchive(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    pixels = thumbnail_pixels(archive, filled(archive, [0.0, 1.0, -np.inf, 1.0]).store)
    half = len(pixels) // 2
    shades = np.rint(255 * drawing.dusk()).astype(np.uint8)
    assert (pixels[half:, :half] == shades[0]).all()
    assert (pixels[half:, half:] == shades[-1]).all()
    assert (pixels[:half, :half] == drawing.rgb(drawing.EMPTY)).all()


def test_names_and_paths_are_text():
    archive = gloam.GridArchive((2, 2), 0, 1, measure_names=(HOSTILE, "<img src=x>"))
    page = shown(filled(archive, np.arange(4.0)))
    assert f"{HOSTILE}, <img src=x>" in page.texts
    data = gloam.datasets.Dataset(
        np.eye(6), labels=[HOSTILE] * 6, names=[HOSTILE] * 6, source=HOSTILE
    )
    page = shown(data)
    assert any("(6)" in text and "<script>" in text for text in page.texts)
    assert HOSTILE in page.texts
    long = drawing.card("x" * 5000, {"y" * 5000: "z" * 5000})
    assert len(long) < 1500


def test_a_dataset_of_pictures_shows_some_of_them():
    items = np.random.default_rng(0).uniform(size=(50, 6, 6))
    labels = [str(number % 7) for number in range(50)]
    page = shown(gloam.datasets.from_array(items, labels=labels))
    assert "50 of shape (6, 6)" in page.texts
    assert any(text.endswith("and 3 more") for text in page.texts)
    assert picture(page).shape == (3 * 34, 8 * 34, 3)
    color = gloam.datasets.from_array(np.random.default_rng(0).uniform(size=(3, 90, 60, 3)))
    assert picture(shown(color)).shape == (34, 3 * 34, 3)


def test_a_dataset_of_vectors_shows_where_they_lie():
    vectors = np.concatenate([np.zeros((30, 5)), np.ones((30, 5))])
    vectors += np.random.default_rng(0).normal(size=(60, 5)) / 100
    pixels = picture(shown(gloam.datasets.from_array(vectors)))
    middle = pixels[:, 60:100]
    assert (middle == drawing.rgb(drawing.EMPTY)).all()
    assert (pixels != drawing.rgb(drawing.EMPTY)).any()
    shown(gloam.datasets.from_array(np.arange(5.0)[:, None]))


def result(tmp_path, seeds):
    archive = gloam.GridArchive((2, 2), 0, 1)
    elites = {seed: filled(archive, [1.0, 2.0, -np.inf, 0.5 + seed]) for seed in seeds}
    rows = [(seed, at, 10 * at, float(at + seed)) for at in (1, 2, 3) for seed in seeds]
    columns = ["seed", "iteration", "evaluations", "qd_score"]
    return gloam.Result(elites, pd.DataFrame(rows, columns=columns), seeds, tmp_path / HOSTILE[1:7])


def test_a_result_shows_means_over_seeds(tmp_path):
    found = result(tmp_path, [1, 3])
    page = shown(found)
    # Scores 4.5 and 6.5: their mean, and their standard error.
    assert {"2 seeds", "3", "30", "5.5 ± 1.0", "75 ± 0%"} <= set(page.texts)
    assert "polyline" in page.tags
    assert repr(found) == (
        "Result(2 seeds, 3 iterations, 30 evaluations per seed, QD score 5.50, coverage 75.0%)"
    )
    assert found.evaluations_per_seed == 30
    alone = result(tmp_path, [1])
    assert "4.50" in shown(alone).texts
    empty = gloam.Result(alone.elites_by_seed, pd.DataFrame(), [1], None)
    assert "svg" not in shown(empty).tags
    assert empty.evaluations_per_seed == 0
    assert repr(empty) == "Result(seed 1, QD score 4.50, coverage 75.0%)"


def test_a_search_shows_itself_before_and_after_its_first_batch():
    archive = gloam.GridArchive((3, 3), -1, 1)
    search = gloam.Search(gloam.MAPElites(archive, np.zeros(2), 0.3, batch_size=4), seed=7)
    assert shown(search).sources == []
    search.ask()
    search.tell(np.ones(4), jnp.array([[-1, -1], [1, 1], [0, 0], [1, -1]]))
    page = shown(search)
    assert {"Search with MAP-Elites", "7", "1", "4", "4 of 9 cells"} <= set(page.texts)
    assert len(picture(page)) == 159
    assert repr(search) == (
        "Search(MAP-Elites, seed 7, iteration 1, QD score 4.00, coverage 44.4%)"
    )


def test_a_sparkline_goes_up_where_values_do():
    points = re.findall(
        r"([\d.]+),([\d.]+)", drawing.sparkline(np.array([0.0, 1.0, np.nan, 3.0]), "")
    )
    heights = [float(y) for _, y in points]
    assert heights == [38.0, 26.0, 2.0]  # rows of pixels, counted from above
    assert drawing.sparkline(np.array([np.nan, 1.0]), "") == ""
