"""Pages show the right pictures and figures, and names stay text."""

import base64
import hashlib
import io
import json
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import gloam
from gloam.datasets import Dataset, Matches
from gloam.datasets.rows import evenly_spaced
from gloam.gallery import html_page
from gloam.gallery.html_page import page
from gloam.gallery.pairs import elite_pictures
from tests.gallery.conftest import HOSTILE, expected, found, noisy
from tests.helpers import refused


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


def test_every_item_is_there(read, matches):
    data, table = read.data, matches.table()
    assert len(read.all("li")) == len(table) == 40
    assert data["distance"] == [float(distance) for distance in table["distance"]]
    assert [data["labels"][code]["label"] for code in data["label"]] == table["label"].tolist()
    assert list(data["orders"]) == ["explained", "distance", "objective", "label", "item"]
    for by in data["orders"]:
        order = np.argsort(data["orders"][by])
        assert table["item"].to_numpy()[order].tolist() == matches.table(by)["item"].tolist()
    names = [found["title"] for found in read.all("div", **{"class": "name"})]
    assert names == table["name"].tolist()
    assert [image["alt"] for image in read.all("img")][:2] == [
        f"solution for {names[0]}",
        f"item {names[0]}",
    ]


def test_items_with_empty_cells_and_items_that_are_not_reached_are_marked(read, matches):
    table = matches.table()
    marks = [found.get("class") for found in read.all("li")]
    assert marks == [None if reached else "unreached" for reached in table["reached"]]
    # The page begins with the best and ends with those that are not reached.
    assert marks.count("unreached") > 0
    assert marks == sorted(marks, key=lambda mark: mark is not None)
    # Of the five with empty cells, the elite of another cell is near enough to one.
    assert (~table["filled"]).sum() == 5
    assert table["reached"][~table["filled"]].sum() == 1
    assert sum(text.startswith("empty · ") for text in read.texts) == 5
    assert read.texts.count("not reached") == marks.count("unreached")
    explained = [text for text in read.texts if text.startswith("explains ")]
    assert explained == [f"explains {one:.0%}" for one in table["explained"] if one > 0]
    rule = "Not reached: no solution found is nearer to the item than the mean of all items is."
    assert rule in read.texts


def test_the_figures_are_those_of_the_matches(read, matches):
    data, elites = read.data, matches.elites
    for figure in (
        f"{matches.explained:.1%}",
        f"{(~matches.reached).sum()} / 40",
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
    assert data["within"][-1] == 40
    for at in (0, 57, 120, -1):
        by_label = matches.coverage_by_label(data["stops"][at])
        assert [row["label"] for row in data["labels"]] == by_label["label"].tolist()
        assert [row["items"] for row in data["labels"]] == by_label["items"].tolist()
        assert [row["within"][at] for row in data["labels"]] == by_label["filled"].tolist()
    for row in matches.coverage_by_label().itertuples():
        start = read.texts.index(row.label)
        assert read.texts[start + 1 : start + 4] == [
            str(row.items),
            f"{row.coverage:.1%}",
            f"{row.explained:.1%}",
        ]
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
    table = matches.table().iloc[evenly_spaced(40, 4)]
    assert few.data["distance"] == [float(distance) for distance in table["distance"]]
    assert len(few.all("img")) == 8
    assert few.data["within"][-1] == 40
    assert any(text.startswith("4 of 40 items, spread evenly") for text in few.texts)
    with refused("limit:", "0"):
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
    assert list(plain.data["orders"]) == ["explained", "distance", "objective", "item"]
    assert plain.all("select") == plain.all("table") == []
    assert [found["value"] for found in plain.all("input", name="order")] == [
        "explained",
        "distance",
        "objective",
        "item",
    ]


def test_too_many_labels_are_not_listed(monkeypatch, matches, pictures):
    monkeypatch.setattr(html_page, "_MAX_LABELS", 2)
    many = Reader(page(matches, pictures))
    assert many.all("select") == many.all("table") == []
    assert "label" in many.data["orders"]


@pytest.mark.parametrize("distances", [[0] * 150, [0] * 75 + [2] * 75, [1] * 149 + [1000]])
def test_thresholds_suit_any_distances(distances):
    data = Dataset(10000 * np.eye(len(distances)))
    measures = data.items - np.array(distances)[:, None] * np.eye(len(distances))
    matches = found(data, measures, np.ones(len(distances)))
    thresholds = html_page.Thresholds(matches)
    assert thresholds.stops[-1] == max(distances)
    assert thresholds.within == [np.sum(np.array(distances) <= stop) for stop in thresholds.stops]
    # One far off does not take the scale of all others.
    assert thresholds.top == (1 if max(distances) == 1000 else max(distances))
    Reader(page(matches, lambda rows: np.zeros((len(rows), 2, 2), np.uint8)))


def test_pairs_show_the_variables_of_a_space(matches, pictures):
    space = gloam.Space(**{HOSTILE[0]: gloam.Integer(0, 99)})
    elites = gloam.Elites(matches.elites.archive, matches.elites.store, form=space)
    text = page(Matches(elites, matches.dataset), pictures)
    assert HOSTILE[0] not in text
    shown = [found["title"] for found in Reader(text).all("div") if "title" in found]
    values = [title for title in shown if title.startswith(f"{HOSTILE[0]}: ")]
    nearest = elites.solutions[matches.rows, 0].astype(int)
    assert sorted(values) == sorted(f"{HOSTILE[0]}: {value}" for value in nearest)
    assert "variables" in text


def test_held_out_items_have_a_section(matches, pictures, read):
    table = matches.held_out(noisy(seed=1).dataset)
    text = page(matches, pictures, held_out=table)
    assert "Held-out items" in Reader(text).texts
    assert "Held-out items" not in read.texts
    for name in ("distance", "floor"):
        median = float(np.median(table[name]))
        assert re.search(rf"<dt>median {name}</dt><dd>{median:.2f}</dd>", text)
    assert "<dt>held-out items</dt><dd>40</dd>" in text
    with refused("held_out:", "columns ['a']"):
        page(matches, pictures, held_out=pd.DataFrame({"a": [1]}))
    with refused("held_out: expected a table"):
        page(matches, pictures, held_out=table.iloc[:0])


def test_two_thousand_pairs_are_a_few_megabytes():
    # Noise is the worst case: nothing of it can be packed.
    matches = noisy(2000, (28, 28), empty=0)
    text = page(matches, elite_pictures(matches.elites, matches.dataset))
    assert text.count("<li>") == 2000
    assert len(text.encode()) < 6e6
