"""Galleries show the right pictures in the right order."""

import doctest

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from gloam.datasets import Dataset, from_array
from gloam.datasets.rows import evenly_spaced
from gloam.gallery import pairs
from gloam.gallery.html_page import page
from gloam.gallery.pairs import elite_pictures, gallery, layout_for, made_pictures
from gloam.plots import style
from tests.gallery.conftest import HOSTILE, expected, found, noisy
from tests.helpers import refused


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def test_the_examples_hold():
    result = doctest.testmod(pairs, extraglobs={"np": np})
    assert result.attempted > 0
    assert result.failed == 0


# Gallery


@pytest.mark.parametrize("by", ["explained", "objective", "distance", "label", "item"])
@pytest.mark.parametrize("count", [1, 7, 60])
def test_pairs_are_drawn_in_order(matches, pictures, by, count):
    figure = gallery(matches, pictures, by=by, count=count)
    table = matches.table(by).iloc[evenly_spaced(40, count)]
    assert len(table) == min(count, 40)
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
        # Every pixel of the picture is a square of pixels of the sheet; color maps round.
        shown = rendered[int(top) : int(bottom), int(left) : int(right)]
        np.testing.assert_allclose(shown, array.repeat(scale, 0).repeat(scale, 1), atol=1)


@pytest.mark.parametrize("count", [1, 2, 10, 60, 120, 200])
@pytest.mark.parametrize("shape", [(8, 8), (28, 28), (300, 200), (20, 90, 3)])
def test_the_sheet_is_used_well(count, shape):
    layout = layout_for(count, 2, shape[:2])
    width, height = layout.size
    boxes = [
        (*layout.corner(i), layout.tile, layout.height + 3 * layout.line) for i in range(count)
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


def test_colors_and_other_sizes_are_drawn():
    matches = noisy(shape=(2, 4, 3))
    figure = gallery(matches, lambda rows: np.zeros((len(rows), 100, 100), np.uint8), count=5)
    solution, item = figure.axes[0].images[:2]
    assert item.get_array().shape == (2, 4, 3)
    assert solution.get_array().shape == (100, 100)
    left, right, bottom, top = solution.get_extent()
    assert right - left == bottom - top
    assert item.get_extent()[2:] == [bottom, top]


def test_the_heading_has_the_figures(matches, pictures):
    figure = gallery(matches, pictures, by="distance", count=10, title="Mine")
    heading = texts(figure)[30:]
    assert heading[0] == "Mine"
    assert f"explained variance {matches.explained:.1%}" in heading[1]
    assert f"not reached {(~matches.reached).sum()} of 40 items" in heading[1]
    assert f"coverage {matches.coverage():.1%}" in heading[1]
    assert heading[2] == (
        "10 of 40 items, spread evenly over all of them, from the nearest to the farthest."
    )
    assert heading[4].startswith("Not reached: no solution found is nearer to the item than the")
    assert heading[5].startswith("Empty: no solution found was nearest to the item")
    whole = gallery(matches, pictures, by="item")
    assert texts(whole)[122] == "All 40 items, in the order of the items."
    full = noisy(empty=0)
    without = gallery(full, elite_pictures(full.elites, full.dataset), count=1)
    assert not any(text.startswith(("Not reached:", "Empty:")) for text in texts(without))
    nearest = matches.table("distance").iloc[0]
    assert texts(figure)[0] == f"{nearest['label']} · {nearest['name']}"
    assert texts(figure)[1] == f"{nearest['objective']:.3f} · {nearest['distance']:.2f}"
    assert texts(figure)[2] == f"explains {nearest['explained']:.0%}"


def test_items_with_empty_cells_and_items_that_are_not_reached_are_marked(matches, pictures):
    figure = gallery(matches, pictures, by="item")
    numbers, explained = texts(figure)[1:120:3], texts(figure)[2:120:3]
    table = matches.table("item")
    assert [text.startswith("empty · ") for text in numbers] == (~table["filled"]).tolist()
    missed = (~table["reached"]).tolist()
    assert [text == "not reached" for text in explained] == missed
    assert sum(missed) == 4
    mats, frames = figure.axes[0].collections
    assert len(mats.get_paths()) == 40
    assert len(frames.get_paths()) == sum(missed)


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
    np.testing.assert_array_equal(drawn, images)  # all explained, in the order of the items
    by_objective = gallery(matches, elite_pictures(matches.elites, data), by="objective")
    drawn = [image.get_array() for image in by_objective.axes[0].images]
    np.testing.assert_array_equal(drawn, images[::-1])
    assert page(matches, elite_pictures(matches.elites, data)).count("<img") == 5


def test_what_cannot_be_drawn_is_refused(matches, pictures):
    with refused("count:", "0"):
        gallery(matches, pictures, count=0)
    with refused("by:", "'size'"):
        gallery(matches, pictures, by="size")
    with refused("matches:", "Elites"):
        gallery(matches.elites, pictures)
    with refused("images: expected 40 uint8 images"):
        gallery(matches, lambda rows: np.zeros((len(rows), 6, 4)))
    plain = noisy(labels=False)
    with refused(
        "by: expected an order other than the label, got 'label' for a dataset without labels."
    ):
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
    # Floats go from 0 to 1, a single color is gray, and a flat row has the shape of an item.
    floats = images[..., :1].astype(np.float32) / 255
    matches = found(data, data.items, np.ones(40), image=floats)
    shown = made_pictures(elite_pictures(matches.elites, data), rows)
    np.testing.assert_array_equal(shown, images[rows, ..., 0])
    matches = found(data, data.items, np.ones(40), image=data.items)
    shown = elite_pictures(matches.elites, data)(rows)
    np.testing.assert_array_equal(shown, [data.image(row) for row in rows])


def test_a_domain_renders(monkeypatch):
    monkeypatch.setattr(pairs, "_BATCH", 3)
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
    with pytest.raises(ValueError, match=r"^pictures:.*'image'"):
        elite_pictures(matches.elites, data, object())
    matches = found(data, np.eye(5), np.ones(5), image=np.full((5, 2, 2), 255.0, np.float32))
    with refused("field 'image':", "up to 255"):
        elite_pictures(matches.elites, data)(np.arange(5))
    matches = found(data, np.eye(5), np.ones(5), image=np.ones((5, 7), np.float32))
    with refused("field 'image': expected images (height, width)"):
        elite_pictures(matches.elites, data)(np.arange(5))
