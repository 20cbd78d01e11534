"""Galleries and pages show the right pictures in the right order, and names stay text."""

import base64
import doctest
import hashlib
import importlib
import io
import json
import re
from html.parser import HTMLParser

import jax
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread
from PIL import Image

import gloam
from gloam.archives.store import Store
from gloam.datasets import Dataset, Matches, from_array
from gloam.gallery.page import page
from gloam.gallery.pairs import elite_pictures, gallery, layout_for, made_pictures, spread
from gloam.plots import style
from tests.helpers import refused

pairs_module = importlib.import_module("gloam.gallery.pairs")
page_module = importlib.import_module("gloam.gallery.page")  # the package has a function `page`

HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    "\"><script>alert('2')</script>",
    "<!--data--> & ' \" `${alert(3)}`",
    "$\\frac{ \u2028 ]]> <b>",
]


def found(data, measures, objectives, cells=None, **fields):
    """Matches of an archive put together without a search."""
    cells = np.arange(len(data)) if cells is None else cells

    def everywhere(values, empty=0.0):
        values = np.asarray(values)
        whole = np.full((len(data), *values.shape[1:]), empty, values.dtype)
        whole[cells] = values
        return whole

    specs = {name: jax.ShapeDtypeStruct(v.shape[1:], v.dtype) for name, v in fields.items()}
    store = Store(
        everywhere(np.asarray(cells, np.float32)[:, None]),
        everywhere(np.asarray(objectives, np.float32), -np.inf),
        everywhere(np.asarray(measures, np.float32)),
        {name: everywhere(values) for name, values in fields.items()},
    )
    return Matches(gloam.Elites(data.archive(fields=specs), store), data)


def noisy(count=40, shape=(6, 4), *, labels=True, names=None, empty=5, seed=0):
    """Noisy copies of random pictures, more noise for the later ones; the last have no elite."""
    rng = np.random.default_rng(seed)
    items = rng.integers(0, 256, (count, *shape), dtype=np.uint8)
    marks = [f"label {i % 3}" for i in range(count)] if labels is True else labels or None
    data = from_array(items, labels=marks, names=names)
    kept = count - empty
    noise = np.linspace(0, 0.3, kept)[:, None] * rng.normal(size=(kept, data.items.shape[1]))
    measures = (data.items[:kept] + noise).clip(0, 1)
    return found(data, measures, rng.permutation(kept) / kept, np.arange(kept))


@pytest.fixture(scope="module")
def matches():
    return noisy()


@pytest.fixture(scope="module")
def pictures(matches):
    return elite_pictures(matches.elites, matches.dataset)


def expected(matches, pictures, table):
    """Solution and item in turn."""
    solutions = pictures(table["row"].to_numpy())
    items = [matches.dataset.image(item) for item in table["item"]]
    return [side for pair in zip(solutions, items, strict=True) for side in pair]


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def test_the_examples_hold():
    result = doctest.testmod(pairs_module, extraglobs={"np": np})
    assert result.attempted > 0
    assert result.failed == 0


# Gallery


@pytest.mark.parametrize("by", ["objective", "distance", "label", "item"])
@pytest.mark.parametrize("count", [1, 7, 60])
def test_pairs_are_drawn_in_order(matches, pictures, by, count):
    figure = gallery(matches, pictures, by=by, count=count)
    table = matches.table(by).iloc[spread(35, count)]
    assert len(table) == min(count, 35)
    drawn = [image.get_array() for image in figure.axes[0].images]
    for ours, theirs in zip(drawn, expected(matches, pictures, table), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_gallery_takes_the_place_of_axes(matches, pictures):
    figure = Figure(figsize=(8, 3))
    left, right = figure.subplots(1, 2)
    assert gallery(matches, pictures, count=6, ax=left) is figure
    figure.draw_without_rendering()
    (sheet,) = left.child_axes
    assert len(sheet.images) == 12
    assert not right.has_data()
    # As much smaller as the sheet is.
    whole = gallery(matches, pictures, count=6)
    share = sheet.get_window_extent().width / whole.axes[0].get_window_extent().width
    for ours, theirs in zip(sheet.texts, whole.axes[0].texts, strict=True):
        ratio = ours.get_fontsize() / theirs.get_fontsize()
        assert ratio * figure.dpi / whole.dpi == pytest.approx(share, rel=0.05)


def test_those_drawn_are_spread_over_the_order():
    for total, count in [(1, 1), (5, 1), (5, 5), (5, 9), (1000, 7), (61, 60)]:
        places = spread(total, count)
        assert len(places) == min(total, count)
        assert places[0] == 0
        assert count == 1 or places[-1] == total - 1
        assert (np.diff(places) > 0).all()
        assert len(places) < 2 or np.ptp(np.diff(places)) <= 1


def test_small_pictures_are_drawn_crisp(matches, pictures, tmp_path):
    figure = gallery(matches, pictures, count=12)
    rendered = np.rint(255 * imread(style.save(figure, tmp_path / "gallery"))[..., 0])
    for image in figure.axes[0].images:
        assert image.get_interpolation() == "nearest"
        left, right, bottom, top = image.get_extent()
        array = image.get_array()
        scale, rest = divmod(bottom - top, array.shape[0])
        assert rest == 0
        assert right - left == scale * array.shape[1]
        # Every pixel of the picture is a square of pixels of the sheet; colour maps round.
        shown = rendered[int(top) : int(bottom), int(left) : int(right)]
        np.testing.assert_allclose(shown, array.repeat(scale, 0).repeat(scale, 1), atol=1)


@pytest.mark.parametrize("count", [1, 2, 10, 60, 120, 200])
@pytest.mark.parametrize("shape", [(8, 8), (28, 28), (300, 200), (20, 90, 3)])
def test_the_sheet_is_used_well(count, shape):
    layout = layout_for(count, 2, shape[:2])
    width, height = layout.size
    boxes = [
        (*layout.corner(i), layout.tile, layout.height + 2 * layout.line) for i in range(count)
    ]
    assert len({box[:2] for box in boxes}) == count
    for left, top, wide, high in boxes:
        assert 0 < left < left + wide < width
        assert 150 < top < top + high < height
    assert layout.pitch[0] > layout.tile
    if count >= 10:
        assert 1 < width / height < 3
        assert width * height < 6e6
        rows = -(-count // layout.columns)
        assert count > 0.8 * rows * layout.columns


def test_colours_and_other_sizes_are_drawn():
    matches = noisy(shape=(2, 4, 3))
    figure = gallery(matches, lambda rows: np.zeros((len(rows), 100, 100), np.uint8), count=5)
    solution, item = figure.axes[0].images[:2]
    assert item.get_array().shape == (2, 4, 3)
    assert solution.get_array().shape == (100, 100)
    left, right, bottom, top = solution.get_extent()
    assert right - left == bottom - top
    assert item.get_extent()[2:] == [bottom, top]


def test_the_heading_has_the_figures(matches, pictures):
    median = float(np.median(matches.distances))
    figure = gallery(matches, pictures, by="distance", count=10, title="Mine")
    heading = texts(figure)[-4:]
    assert heading[0] == "Mine"
    assert f"coverage {matches.coverage():.1%}" in heading[1]
    assert heading[1].endswith(f"{matches.coverage(median):.1%}")
    assert "35 elites for 40 items" in heading[1]
    assert heading[2] == (
        "10 of 35 pairs, spread evenly over all of them, from the nearest to the farthest."
    )
    whole = gallery(matches, pictures, by="item")
    assert texts(whole)[-2] == "All 35 pairs, in the order of the items."
    nearest = matches.table("distance").iloc[0]
    assert texts(figure)[0] == f"{nearest['label']} · {nearest['name']}"
    assert texts(figure)[1] == f"{nearest['objective']:.3f} · {nearest['distance']:.2f}"


def test_any_name_can_be_drawn(tmp_path):
    matches = noisy(
        labels=HOSTILE * 10, names=[f"{name}\n{i}" for i in range(10) for name in HOSTILE]
    )
    pictures = elite_pictures(matches.elites, matches.dataset)
    path = style.save(gallery(matches, pictures, title=HOSTILE[3]), tmp_path / "gallery.png")
    edge = imread(path)[..., :3]
    assert (np.concatenate([edge[0], edge[-1], edge[:, 0], edge[:, -1]]) > 0.99).all()


def test_without_pictures_of_items_solutions_are_drawn():
    data = Dataset(np.eye(5), names=list("abcde"))
    images = np.arange(5 * 12, dtype=np.uint8).reshape(5, 3, 4)
    matches = found(data, np.eye(5), np.arange(5), image=images)
    figure = gallery(matches, elite_pictures(matches.elites, data))
    drawn = [image.get_array() for image in figure.axes[0].images]
    np.testing.assert_array_equal(drawn, images[::-1])
    assert page(matches, elite_pictures(matches.elites, data)).count("<img") == 5


def test_what_cannot_be_drawn_is_refused(matches, pictures):
    with refused("count: expected a whole number >= 1, got 0."):
        gallery(matches, pictures, count=0)
    with refused("by: expected one of objective, distance, label, item, got 'size'."):
        gallery(matches, pictures, by="size")
    with refused("matches: expected Matches, got Elites"):
        gallery(matches.elites, pictures)
    with refused("images: expected 35 uint8 images"):
        gallery(matches, lambda rows: np.zeros((len(rows), 6, 4)))
    plain = noisy(labels=False)
    with refused("by: expected 'objective', 'distance' or 'item', got 'label'"):
        gallery(plain, pictures, by="label")
    nothing = found(plain.dataset, np.zeros((0, 24)), np.zeros(0), [])
    for draw in (gallery, page):
        with refused("elites: expected at least one elite, got none."):
            draw(nothing, pictures)


# What elites look like


class Renderer:
    def render(self, solutions, size=None):
        side = size or 2
        return np.broadcast_to(solutions[:, :, None] / 255, (len(solutions), side, side))


def test_an_image_field_comes_first():
    data = noisy().dataset
    images = np.random.default_rng(1).integers(0, 256, (40, 5, 5, 3), dtype=np.uint8)
    rows = np.array([2, 0])
    matches = found(data, data.items, np.ones(40), image=images)
    shown = elite_pictures(matches.elites, data, Renderer())(rows)
    np.testing.assert_array_equal(shown, images[rows])
    # Floats go from 0 to 1, a single colour is gray, and a flat row has the shape of an item.
    floats = images[..., :1].astype(np.float32) / 255
    matches = found(data, data.items, np.ones(40), image=floats)
    shown = made_pictures(elite_pictures(matches.elites, data), rows)
    np.testing.assert_array_equal(shown, images[rows, ..., 0])
    matches = found(data, data.items, np.ones(40), image=data.items)
    shown = elite_pictures(matches.elites, data)(rows)
    np.testing.assert_array_equal(shown, [data.image(row) for row in rows])


def test_a_domain_renders(monkeypatch):
    monkeypatch.setattr(pairs_module, "_BATCH", 3)
    data = Dataset(np.eye(5))
    matches = found(data, np.eye(5), np.ones(5))  # solutions are the numbers of their cells
    rows = np.array([3, 3, 0, 4, 1])
    shown = elite_pictures(matches.elites, data, Renderer())(rows)
    np.testing.assert_array_equal(shown, np.broadcast_to(rows[:, None, None], (5, 2, 2)))
    shown = elite_pictures(matches.elites, data, Renderer(), size=4)(rows)
    assert shown.shape == (5, 4, 4)
    assert shown.dtype == np.uint8


def test_measures_are_shown_as_the_dataset_shows_its_items():
    rng = np.random.default_rng(2)
    for bounds in (None, (-5.0, 5.0)):
        data = from_array(rng.normal(size=(40, 6, 4)), bounds=bounds)
        matches = found(data, data.items, np.ones(40))
        shown = elite_pictures(matches.elites, data)(np.arange(40))
        np.testing.assert_array_equal(shown, [data.image(item) for item in range(40)])
        beyond = found(data, data.items + 100, np.ones(40))
        assert (elite_pictures(beyond.elites, data)(np.arange(40)) == 255).all()


def test_elites_without_a_look_are_refused():
    data = Dataset(np.eye(5))
    matches = found(data, np.eye(5), np.ones(5))
    with pytest.raises(
        ValueError, match=r"pictures: expected .* Return an 'image' field from eval"
    ):
        elite_pictures(matches.elites, data, object())
    matches = found(data, np.eye(5), np.ones(5), image=np.full((5, 2, 2), 255.0, np.float32))
    with refused("field 'image': expected floats from 0 to 1, got up to 255. Divide by 255"):
        elite_pictures(matches.elites, data)(np.arange(5))
    matches = found(data, np.eye(5), np.ones(5), image=np.ones((5, 7), np.float32))
    with refused("field 'image': expected pictures (height, width)"):
        elite_pictures(matches.elites, data)(np.arange(5))


# Page


class Reader(HTMLParser):
    """Elements with their attributes, the text of scripts, and whether all that opens closes."""

    VOID = ("meta", "input", "img", "br")

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.scripts, self.texts = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert len({name for name, _ in attrs}) == len(attrs)
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif data.strip():
            self.texts.append(data.strip())

    def all(self, tag, **attributes):
        return [
            found
            for name, found in self.elements
            if name == tag and attributes.items() <= found.items()
        ]

    @property
    def data(self):
        return json.loads(self.scripts[0])

    def pictures(self):
        sources = [image["src"] for image in self.all("img")]
        assert all(re.match(r"data:image/(png|jpeg);base64,", source) for source in sources)
        decoded = [base64.b64decode(source.partition(",")[2]) for source in sources]
        return [np.asarray(Image.open(io.BytesIO(content))) for content in decoded]


@pytest.fixture(scope="module")
def read(matches, pictures):
    return Reader(page(matches, pictures, title="Mine"))


def test_pictures_on_the_page_are_the_same_pixels(read, matches, pictures):
    for ours, theirs in zip(
        read.pictures(), expected(matches, pictures, matches.table()), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_the_page_needs_nothing_else(read, matches, pictures):
    text = re.sub(r"base64,[^\"]*", "", page(matches, pictures, title="Mine"))
    assert not re.search(r"https?://|//[a-z]|url\(|@import|<link|<iframe", text)
    assert "<!--" not in text
    (policy,) = (m["content"] for m in read.all("meta") if "http-equiv" in m)
    assert policy.startswith("default-src 'none'; img-src data:;")
    for tag, attributes in read.elements:
        assert "href" not in attributes, tag
        assert tag == "img" or "src" not in attributes, tag


def test_only_the_scripts_own_hash_may_run(read):
    hashed = base64.b64encode(hashlib.sha256(read.scripts[1].encode()).digest()).decode()
    (policy,) = (m["content"] for m in read.all("meta") if "http-equiv" in m)
    assert f"script-src 'sha256-{hashed}';" in policy
    assert len(read.scripts) == 2
    assert read.all("script") == [{"type": "application/json", "id": "data"}, {}]


def test_every_pair_is_there(read, matches):
    data, table = read.data, matches.table()
    assert len(read.all("li")) == len(table) == 35
    assert data["distance"] == [float(distance) for distance in table["distance"]]
    assert [data["labels"][code]["label"] for code in data["label"]] == table["label"].tolist()
    for by in ("objective", "distance", "label", "item"):
        order = np.argsort(data["orders"][by])
        assert table["item"].to_numpy()[order].tolist() == matches.table(by)["item"].tolist()
    names = [found["title"] for found in read.all("div", **{"class": "name"})]
    assert names == table["name"].tolist()
    assert [image["alt"] for image in read.all("img")][:2] == [
        f"solution for {names[0]}",
        f"item {names[0]}",
    ]


def test_the_figures_are_those_of_the_matches(read, matches):
    data, elites = read.data, matches.elites
    for figure in (
        f"{elites.qd_score:,.1f}",
        f"{matches.coverage():.1%}",
        "35 / 40",
        f"{elites.best_objective:.4g}",
    ):
        assert figure in read.texts
    assert data["items"] == 40
    assert data["stops"][0] == 0
    assert data["stops"] == sorted(set(data["stops"]))
    assert len(data["texts"]) == len(data["within"]) == len(data["stops"]) > 100
    for stop, within in zip(data["stops"], data["within"], strict=True):
        assert within / 40 == matches.coverage(stop)
    assert data["within"][-1] == 35
    for at in (0, 57, 120, -1):
        by_label = matches.coverage_by_label(data["stops"][at])
        assert [row["label"] for row in data["labels"]] == by_label["label"].tolist()
        assert [row["items"] for row in data["labels"]] == by_label["items"].tolist()
        assert [row["within"][at] for row in data["labels"]] == by_label["filled"].tolist()
    # Each bar of the histogram counts distances; the highest is as high as the box.
    bars = read.all("rect")
    heights = np.array([float(bar["height"]) for bar in bars])
    counts, _ = np.histogram(matches.distances, len(bars))
    np.testing.assert_allclose(heights, 100 * counts / counts.max(), atol=0.01)


def test_hostile_names_stay_text(read):
    matches = noisy(labels=HOSTILE * 10, names=HOSTILE * 10, empty=0)
    text = page(matches, elite_pictures(matches.elites, matches.dataset), title=HOSTILE[0])
    hostile = Reader(text)
    assert {tag for tag, _ in hostile.elements} == {tag for tag, _ in read.elements}
    assert not any(name.startswith("on") for _, found in hostile.elements for name in found)
    assert len(hostile.all("img")) == 80
    assert len(hostile.scripts) == 2
    assert hostile.scripts[1] == read.scripts[1]
    # Nothing in the data can end its element or open a comment in it.
    assert "<" not in hostile.scripts[0]
    names = [found["title"] for found in hostile.all("div", **{"class": "name"})]
    assert sorted(names) == sorted(HOSTILE * 10)
    assert [row["label"] for row in hostile.data["labels"]] == sorted(HOSTILE)
    assert hostile.texts[0] == HOSTILE[0]


def test_more_pairs_than_the_limit_are_spread(matches, pictures):
    few = Reader(page(matches, pictures, limit=4))
    table = matches.table().iloc[spread(35, 4)]
    assert few.data["distance"] == [float(distance) for distance in table["distance"]]
    assert len(few.all("img")) == 8
    assert few.data["within"][-1] == 35
    assert any(text.startswith("4 of 35 pairs, spread evenly") for text in few.texts)
    with refused("limit: expected a whole number >= 1, got 0."):
        page(matches, pictures, limit=0)


def test_large_pictures_are_shrunk(matches):
    def large(rows):
        return np.full((len(rows), 300, 150, 3), 77, np.uint8)

    shown = Reader(page(matches, large, limit=2))
    solution, item = shown.pictures()[:2]
    assert solution.shape == (112, 56, 3)
    assert np.abs(solution.astype(int) - 77).max() <= 1
    assert item.shape == (6, 4)
    first, second = shown.all("img")[:2]
    # Both fit into the same box; the item is enlarged by a whole number.
    assert (first["width"], first["height"]) == ("42", "84")
    assert (second["width"], second["height"]) == ("56", "84")
    assert second["class"] == "crisp"
    assert "class" not in first


def test_without_labels_nothing_speaks_of_them(pictures):
    matches = noisy(labels=False)
    plain = Reader(page(matches, pictures))
    assert plain.data["labels"] == []
    assert list(plain.data["orders"]) == ["objective", "distance", "item"]
    assert plain.all("select") == plain.all("table") == []
    assert [found["value"] for found in plain.all("input", name="order")] == [
        "objective",
        "distance",
        "item",
    ]


def test_too_many_labels_are_not_listed(monkeypatch, matches, pictures):
    monkeypatch.setattr(page_module, "_MOST_LABELS", 2)
    many = Reader(page(matches, pictures))
    assert many.all("select") == many.all("table") == []
    assert "label" in many.data["orders"]


@pytest.mark.parametrize("distances", [[0] * 150, [0] * 75 + [2] * 75, [1] * 149 + [1000]])
def test_thresholds_suit_any_distances(distances):
    data = Dataset(10000 * np.eye(len(distances)))
    measures = data.items - np.array(distances)[:, None] * np.eye(len(distances))
    matches = found(data, measures, np.ones(len(distances)))
    thresholds = page_module.Thresholds(matches)
    assert thresholds.stops[-1] == max(distances)
    assert thresholds.within == [np.sum(np.array(distances) <= stop) for stop in thresholds.stops]
    # One far off does not take the scale of all others.
    assert thresholds.top == (1 if max(distances) == 1000 else max(distances))
    Reader(page(matches, lambda rows: np.zeros((len(rows), 2, 2), np.uint8)))


def test_held_out_items_have_a_section(matches, pictures, read):
    table = matches.held_out(noisy(seed=1).dataset)
    text = page(matches, pictures, held_out=table)
    assert "Held-out items" in Reader(text).texts
    assert "Held-out items" not in read.texts
    for name in ("distance", "floor"):
        median = float(np.median(table[name]))
        assert re.search(rf"<dt>median {name}</dt><dd>{median:.2f}</dd>", text)
    assert "<dt>items never seen</dt><dd>40</dd>" in text
    with refused("held_out: expected a table with rows of distance and floor, got columns ['a']"):
        page(matches, pictures, held_out=pd.DataFrame({"a": [1]}))
    with refused("held_out: expected a table"):
        page(matches, pictures, held_out=table.iloc[:0])


def test_two_thousand_pairs_are_a_few_megabytes():
    # Noise is the worst case: nothing of it can be packed.
    matches = noisy(2000, (28, 28), empty=0)
    text = page(matches, elite_pictures(matches.elites, matches.dataset))
    assert text.count("<li>") == 2000
    assert len(text.encode()) < 6e6
