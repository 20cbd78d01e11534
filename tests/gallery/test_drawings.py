"""Any drawing of a user's function becomes a picture, or a sign that says why there is none."""

import io
import re
from xml.etree import ElementTree

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.image import imread
from PIL import Image

import gloam
from gloam.gallery import drawings, elite_gallery, gallery_run
from gloam.gallery.drawings import Drawer, Svg, lines, picture_of, sign
from gloam.gallery.html_page import page
from gloam.gallery.pairs import elite_pictures, gallery, made_pictures
from gloam.interop import elites_from_arrays
from tests.gallery.conftest import HOSTILE, found
from tests.helpers import refused

SQUARE = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 2 2"><path d="M0 0H2V2z"/></svg>'
GRAY = np.arange(12, dtype=np.uint8).reshape(3, 4)
COLOR = np.stack([GRAY, 2 * GRAY, 3 * GRAY], axis=2)
SPACE = gloam.Space(size=gloam.Real(0, 1), kind=gloam.Categorical(["round", "flat"]))


def elites(form=None, count=4):
    vectors = np.stack([np.linspace(0, 1, count), np.arange(count) % 2], axis=1)
    archive = gloam.GridArchive((4, 4), 0, 1, measure_names=("a", "b"))
    measures = np.stack([np.arange(count) / count, np.zeros(count)], axis=1)
    filled = elites_from_arrays(archive, vectors, np.arange(count), measures)
    return gloam.Elites(archive, filled.store, form=form)


def drawn(draw, form=None):
    """The pictures that a function makes of four elites."""
    return elite_pictures(elites(form), draw=draw)(np.arange(4))


@pytest.mark.parametrize(
    ("drawing", "pixels"),
    [
        (GRAY, GRAY),
        (COLOR, COLOR),
        (GRAY[..., None], GRAY),
        (GRAY / 255, GRAY),
        (COLOR.astype(np.float32) / 255, COLOR),
        (GRAY.tolist(), GRAY),
        (GRAY > 5, 255 * (GRAY > 5)),
        (Image.fromarray(GRAY), GRAY),
        (Image.fromarray(COLOR), COLOR),
        (Image.fromarray(COLOR).convert("RGBA"), COLOR),
        (Image.new("RGBA", (4, 3)), np.full((3, 4, 3), 255)),  # transparent
        (Image.fromarray(255 * (GRAY > 5).astype(np.uint8)).convert("1"), 255 * (GRAY > 5)),
        (Image.new("P", (4, 3)), np.zeros((3, 4, 3))),
    ],
)
def test_arrays_and_images_keep_their_pixels(drawing, pixels):
    picture = drawn(lambda solution: drawing)[0]
    assert picture.dtype == np.uint8
    np.testing.assert_array_equal(picture, pixels)


def test_a_function_gets_values_and_what_it_asks_for():
    seen = []

    def vector(solution):
        seen.append(solution)
        return GRAY

    drawn(vector)
    np.testing.assert_array_equal(seen, elites().solutions)
    seen.clear()

    def named(values, *, measures, zoom=2):
        seen.append((values, measures))
        return GRAY

    drawn(named, SPACE)
    assert [values["kind"] for values, _ in seen] == ["round", "flat"] * 2
    np.testing.assert_array_equal([measures for _, measures in seen], elites().measures)


def test_what_a_function_changes_is_its_own():
    filled = elites()
    before = filled.solutions.copy(), filled.measures.copy()

    def draw(solution, measures):
        solution[:] = measures[:] = 7
        return GRAY

    elite_pictures(filled, draw=draw)(np.arange(4))
    np.testing.assert_array_equal(filled.solutions, before[0])
    np.testing.assert_array_equal(filled.measures, before[1])


def test_axes_fill_the_picture():
    def draw(solution, ax):
        ax.set(xlim=(0, 1), ylim=(0, 1))
        ax.fill([0, 0.5, 0.5, 0], [0, 0, 1, 1], color=(1, 0, 0))
        ax.figure.set_size_inches(500, 500)
        ax.figure.set_dpi(1000)
        return "not a picture"

    picture = drawn(draw)[0]
    assert picture.shape == (256, 256, 3)
    assert (picture[128, 20:120] == [255, 0, 0]).all()
    assert (picture[128, 140:] == 255).all()


def test_an_svg_is_an_image_of_its_own():
    (picture, *_) = drawn(lambda solution: f'<?xml version="1.0" encoding="latin-1"?>\n{SQUARE}')
    assert picture == Svg(SQUARE)
    assert picture.address.startswith("data:image/svg+xml;base64,")
    # Browsers show no image without the namespace.
    (picture, *_) = drawn(lambda solution: "<svg viewBox='0 0 1 1'><text>&lt;</text></svg>")
    assert ElementTree.fromstring(picture.text).tag == "{http://www.w3.org/2000/svg}svg"


def circular(depth=3000):
    value = []
    for _ in range(depth):
        value = [value]
    return value


class UnprintableError(Exception):
    def __str__(self):
        raise RuntimeError


BAD = {
    "nothing": lambda _: None,
    "wrong shape": lambda _: np.zeros((2, 3, 5)),
    "a vector": lambda _: np.zeros(5),
    "no pixels": lambda _: np.zeros((0, 5)),
    "NaN": lambda _: np.array([[0.0, np.nan]]),
    "infinity": lambda _: np.array([[0.0, -np.inf]]),
    "bytes as floats": lambda _: np.full((2, 2), 255.0),
    "objects": lambda _: np.array([[object()]]),
    "complex": lambda _: np.zeros((2, 2), complex),
    "texts": lambda _: np.array([["a"]]),
    "ragged": lambda _: [[1, 2], [3]],
    "deep": lambda _: circular(),
    "a number": lambda _: 3,
    "bytes": lambda _: b"\x89PNG",
    "no SVG": lambda _: "hello",
    "not closed": lambda _: "<svg><g></svg>",
    "another element": lambda _: "<html></html>",
    "entities": lambda _: '<!DOCTYPE svg [<!ENTITY a "b">]><svg>&a;</svg>',
    "control characters": lambda _: "<svg>\x00</svg>",
    "half a character": lambda _: "<svg>\udc80</svg>",
    "endless text": lambda _: "<svg>" + "x" * 200_000 + "</svg>",
    "exception": lambda _: 1 / 0,
    "without a text": lambda _: (_ for _ in ()).throw(UnprintableError()),
    "exit": lambda _: (_ for _ in ()).throw(SystemExit(3)),
    "endless message": lambda _: (_ for _ in ()).throw(KeyError("é\x1b" * 10**6)),
    "formula": lambda _, ax: ax.set_title("$\\frac{$"),
    "log of nothing": lambda _, ax: ax.figure.delaxes(ax) or ax.nothing,
    "closed image": lambda _: closed_image(),
}


def closed_image():
    file = io.BytesIO()
    Image.fromarray(GRAY).save(file, "PNG")
    image = Image.open(io.BytesIO(file.getvalue()[:40]))
    return image


@pytest.mark.parametrize("name", BAD)
def test_a_sign_takes_the_place_of_a_bad_picture(name, monkeypatch):
    messages = []
    monkeypatch.setattr(drawings, "sign", lambda text: messages.append(text) or sign(text))
    made = drawn(BAD[name])
    assert len(made) == 4
    for picture in made:
        assert picture.shape == (128, 128, 3)
        assert len(np.unique(picture)) > 2
    assert len(messages) == 4
    assert all(re.match(r"draw: ", text) and len(text) < 500 for text in messages)


@pytest.mark.parametrize("shape", [(9000, 9000), (1, 100_000), (100_000, 1), (300, 900, 3)])
@pytest.mark.parametrize("as_image", [False, True])
def test_large_pictures_are_shrunk(shape, as_image):
    array = np.zeros(shape, np.uint8)
    array[: shape[0] // 2] = 200
    picture = picture_of(Image.fromarray(array) if as_image else array)
    assert max(picture.shape[:2]) <= 256
    assert min(picture.shape[:2]) >= 1
    assert picture.ndim == len(shape)
    assert picture[0, 0].max() == (200 if shape[0] > 1 else 0)


@settings(max_examples=50)
@given(
    hnp.arrays(
        st.sampled_from([np.uint8, np.float32, np.float64, np.int64, bool]),
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
    )
)
def test_any_array_has_a_picture(array):
    (picture,) = elite_pictures(elites(), draw=lambda _: array)(np.array([0]))
    assert picture.dtype == np.uint8
    assert picture.ndim == 2 or picture.shape[2] == 3
    assert 0 < max(picture.shape[:2]) <= 256


def test_pictures_are_drawn_once_and_the_oldest_is_forgotten(monkeypatch):
    calls = []
    drawer = Drawer(lambda solution: calls.append(solution[0]) or GRAY)
    filled = elites()
    for _ in range(3):
        drawer.pictures(filled)(np.array([0, 1, 0]))
    assert len(calls) == 2
    # The same vector of another space is another solution.
    drawer.pictures(elites(SPACE))(np.array([0]))
    assert len(calls) == 2  # it failed: a dict has no first number
    monkeypatch.setattr(drawings, "_MAX_CACHED", 2)
    drawer.pictures(filled)(np.array([2, 3]))
    assert len(calls) == 4
    drawer.pictures(filled)(np.array([3, 2]))
    assert len(calls) == 4
    drawer.pictures(filled)(np.array([0]))
    assert len(calls) == 5


@pytest.mark.parametrize(
    "draw",
    [lambda: None, lambda solution, size: None, lambda solution, measures, /: None],
)
def test_other_parameters_are_refused(draw):
    with refused("draw: expected (solution)"):
        Drawer(draw)


def test_what_is_no_function_is_refused():
    with refused("draw: expected a function", "str"):
        Drawer("file.py:draw")


# Lines


def test_lines_show_high_values_above_low_ones():
    (picture,) = lines(np.array([[0.0, 1.0]]), (0.0, 1.0))
    ink = np.argwhere(picture < 128)
    left, right = ink[ink[:, 1] < 40], ink[ink[:, 1] > 215]
    assert left[:, 0].min() > 200
    assert right[:, 0].max() < 56


@settings(max_examples=30)
@given(hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=900)))
def test_any_vectors_are_drawn(vectors):
    finite = np.nan_to_num(vectors)
    limits = float(finite.min()), float(finite.max())
    for picture in lines(finite[:2], limits):
        assert picture.shape == (256, 256)
        assert (picture < 128).any()


def test_the_extremes_of_a_long_vector_are_drawn():
    vector = np.zeros((1, 100_000))
    vector[0, 70_001] = 1.0
    (picture,) = lines(vector, (0.0, 1.0))
    columns = np.flatnonzero((picture[:40] < 128).any(axis=0))
    assert columns.min() / 256 == pytest.approx(0.7, abs=0.03)


# Galleries


def test_svg_is_an_image_on_a_page_and_a_sign_in_a_figure(monkeypatch):
    data = gloam.datasets.from_array(
        np.eye(5), names=[f"{name} {i}" for i, name in enumerate("abcde")]
    )
    matches = found(data, np.eye(5), np.arange(5))
    hostile = SQUARE.replace(
        "<path", f"<text>{HOSTILE[0].replace('<', '&lt;')}</text><script/><path"
    )
    pictures = elite_pictures(matches.elites, data, draw=lambda solution: hostile)
    text = page(matches, pictures)
    assert text.count('src="data:image/svg+xml;base64,') == 5
    assert "<script/>" not in text
    assert HOSTILE[0] not in text
    shown = gallery(matches, pictures).axes[0].images[0].get_array()
    assert shown.shape == (128, 128, 3)
    monkeypatch.setattr("gloam.gallery.html_page._MAX_SVG", 2 * len(hostile))
    assert page(matches, pictures).count('src="data:image/svg+xml;base64,') == 2


def test_lists_of_other_things_are_no_pictures():
    rows = np.arange(2)
    pictures = [GRAY, Svg(SQUARE)]
    assert made_pictures(lambda _: pictures, rows) is pictures
    for wrong in ([GRAY / 255, GRAY / 255], [GRAY], [GRAY, None], [GRAY[0], GRAY[0]]):
        with refused("images: expected 2 uint8 images"):
            made_pictures(lambda _, wrong=wrong: wrong, rows)


def test_elites_without_items_are_drawn_from_best_to_worst(tmp_path):
    filled = elites()

    def draw(solution, measures):
        return np.full((2, 2), solution[0], np.float32)

    figure = elite_gallery(filled, elite_pictures(filled, draw=draw), count=3, title="Mine")
    grays = [image.get_array()[0, 0] for image in figure.axes[0].images]
    np.testing.assert_array_equal(grays, np.rint(255 * filled.solutions[[3, 1, 0], 0]))
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts[:3] == ["cell 12", "3", "0.75, 0"]
    assert texts[9] == "Mine"
    assert "4 of 16 cells" in texts[10]
    assert texts[11].startswith("3 of 4 elites")
    assert texts[12] == "Below: cell, objective, a, b."
    nothing = gloam.Search(gloam.MAPElites(filled.archive, np.zeros(2), 0.1)).elites()
    with refused("elites:", "none"):
        elite_gallery(nothing, elite_pictures(nothing, draw=draw))
    with refused("elites:", "Drawer"):
        elite_gallery(Drawer(draw), draw)


def test_a_run_without_a_dataset_has_a_gallery_of_drawings(tmp_path):
    from tests.run_folders import write_grid_run

    write_grid_run(tmp_path / "run")
    paths = gallery_run(tmp_path / "run", draw=lambda solution, ax: ax.plot(solution), count=4)
    assert [path.name for path in paths] == ["gallery.png"]
    assert imread(paths[0]).ndim == 3
    with refused("dataset:"):
        gallery_run(tmp_path / "run")
