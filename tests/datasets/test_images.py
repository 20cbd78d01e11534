"""Folders of images made by Pillow, with known pixels."""

import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from gloam.datasets import Dataset, from_folder
from gloam.datasets.images import read_image
from tests.helpers import refused

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


def folder(path, size=(4, 4), mode="L", **options) -> Dataset:
    return from_folder(path, size, mode, **{"progress": False} | options)


def save(path: Path, pixels, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = pixels if isinstance(pixels, Image.Image) else Image.fromarray(np.asarray(pixels))
    picture.save(path, **options)
    return path


def gray(value: int) -> np.ndarray:
    return np.full((4, 4), value, np.uint8)


def stripes(size: int) -> np.ndarray:
    """Three squares beside each other: red, green, blue."""
    square = np.ones((size, size, 1), np.uint8)
    return np.concatenate([square * np.uint8(color) for color in (RED, GREEN, BLUE)], axis=1)


# The folder


def test_pictures_are_read_in_the_order_of_their_names(tmp_path):
    for value in (30, 10, 20):
        save(tmp_path / f"{value}.png", gray(value))
    data = folder(tmp_path)
    assert data.names == ["10.png", "20.png", "30.png"]
    assert (data.shape, data.bounds, data.labels) == ((4, 4), (0, 1), None)
    assert data.source == tmp_path
    for item, value in enumerate((10, 20, 30)):
        np.testing.assert_array_equal(data.items[item], np.float32(value) / np.float32(255))
        np.testing.assert_array_equal(data.image(item), gray(value))


def test_folders_in_the_folder_are_labels(tmp_path):
    for number, name in enumerate(["cats/a.png", "dogs/b.PNG", "dogs/small/c.jpeg", "d.bmp"]):
        save(tmp_path / name, gray(40 * number))
    data = folder(tmp_path)
    labels = dict(zip(data.names, data.labels or [], strict=True))
    assert labels == {
        "cats/a.png": "cats",
        "dogs/b.PNG": "dogs",
        "dogs/small/c.jpeg": "dogs/small",
        "d.bmp": "",
    }


def test_hidden_files_and_other_files_do_not_count(tmp_path):
    for number, name in enumerate(["a.png", "b.png", ".c.png", ".cache/d.png"]):
        save(tmp_path / name, gray(number))
    (tmp_path / "notes.txt").write_text("not a picture")
    data = folder(tmp_path)
    assert data.names == ["a.png", "b.png"]
    assert data.skipped == ()


def test_equal_pictures_are_merged(tmp_path):
    for name, value in [("a", 1), ("b", 2), ("c", 1)]:
        save(tmp_path / f"{name}.png", gray(value))
    data = folder(tmp_path)
    assert data.names == ["a.png", "b.png"]
    assert data.place.tolist() == [0, 1, 0]


def test_broken_files_are_named_and_skipped(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64)).astype(np.uint8)
    whole = save(tmp_path / "good.png", noise).read_bytes()
    save(tmp_path / "fine.png", noise.T)
    (tmp_path / "half.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.jpg").write_bytes(b"")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "text.gif").write_text("not a picture")
    floats = np.full((8, 8), 0.5, np.float32)
    floats[3, 3] = np.nan
    save(tmp_path / "nan.tiff", floats)
    said = (
        r"^4 of 6 files in .* could not be read and were skipped: "
        r"empty\.jpg \(.+\); half\.png \(.+\); nan\.tiff \(.*NaN.*\); \.\.\."
    )
    with pytest.warns(UserWarning, match=said):
        data = folder(tmp_path)
    assert data.names == ["fine.png", "good.png"]
    names = [skipped.name for skipped in data.skipped]
    assert names == ["empty.jpg", "half.png", "nan.tiff", "sub/text.gif"]
    assert all(skipped.reason for skipped in data.skipped)
    assert str(tmp_path) not in "".join(skipped.reason for skipped in data.skipped)
    assert data.skipped[0].reason == "cannot identify image file"
    assert repr(data) == "Dataset(2 items of shape (4, 4), 4 files skipped)"
    assert data.subsample(2).skipped == data.skipped


def test_broken_files_can_be_an_error(tmp_path):
    for number in range(3):
        save(tmp_path / f"{number}.png", gray(number))
    (tmp_path / "bad.png").write_text("not a picture")
    with refused(
        f"path: expected images that can be read, got 1 broken file in '{tmp_path}': bad.png ("
    ):
        folder(tmp_path, skip_broken=False)


def test_of_many_pictures_some_can_be_drawn(tmp_path):
    for number in range(30):
        save(tmp_path / f"{number:02d}.png", gray(number))
    whole, some = folder(tmp_path, max_items=30), folder(tmp_path, max_items=7)
    assert len(whole) == 30
    assert len(some) == 7
    assert some.names == sorted(some.names)
    assert some.names != whole.names[:7]
    assert some.names == folder(tmp_path, max_items=7).names
    with refused("max_items:", "1"):
        folder(tmp_path, max_items=1)


def test_a_folder_of_broken_files_is_refused(tmp_path):
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_text("not a picture")
    with refused(
        f"path: expected images that can be read, got 2 broken files in '{tmp_path}': a.png ("
    ):
        folder(tmp_path)


def test_missing_and_empty_folders_are_refused(tmp_path):
    with refused("path:", f"'{tmp_path / 'none'}'"):
        folder(tmp_path / "none")
    (tmp_path / "notes.txt").write_text("not a picture")
    with refused("path:", f"'{tmp_path}', which has none"):
        folder(tmp_path)
    (tmp_path / "a.HEIC").write_bytes(b"")
    (tmp_path / "b.heic").write_bytes(b"")
    with pytest.raises(ValueError, match=r"It has other files \(2 \.heic, 1 \.txt\)\. Images are"):
        folder(tmp_path)
    with refused("path:", f"'{tmp_path / 'notes.txt'}'"):
        folder(tmp_path / "notes.txt")
    save(tmp_path / "one.png", gray(1))
    with pytest.raises(ValueError, match=r"got one\..* The folder is '"):
        folder(tmp_path)
    with refused("items: expected at least 2 items, got one."):
        folder(tmp_path)
    save(tmp_path / "two.png", gray(1))
    with refused("items:", "2 that are all equal"):
        folder(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 28}, "size: expected (height, width), got 28."),
        ({"size": (28, 0)}, "size: expected a whole number >= 1, got 0."),
        ({"mode": "CMYK"}, "mode: expected 'L' (gray) or 'RGB', got 'CMYK'."),
        ({"background": 256}, "background: expected a gray value from 0 to 255, got 256."),
        ({"embed": "clip"}, "embed: expected a function of a batch, got 'clip'."),
    ],
)
def test_wrong_arguments_are_explained(tmp_path, options, message):
    save(tmp_path / "a.png", gray(1))
    with refused(message):
        folder(tmp_path, **options)


# Sizes


def test_the_middle_is_cut_out(tmp_path):
    wide = save(tmp_path / "wide.png", stripes(20))
    tall = save(tmp_path / "tall.png", stripes(20).swapaxes(0, 1))
    for path in (wide, tall):
        np.testing.assert_array_equal(read_image(path, (20, 20), "RGB")[10, 10], GREEN)
        # Right at the edge of the cut, colors may mix.
        inner = read_image(path, (20, 20), "RGB")[2:-2, 2:-2]
        np.testing.assert_array_equal(inner, np.broadcast_to(GREEN, inner.shape))


def test_without_cutting_all_of_it_is_squeezed(tmp_path):
    path = save(tmp_path / "wide.png", stripes(30))
    squeezed = read_image(path, (30, 30), "RGB", crop=False)
    assert squeezed[15, [5, 15, 25]].tolist() == [list(RED), list(GREEN), list(BLUE)]


def test_size_is_height_and_width(tmp_path):
    path = save(tmp_path / "wide.png", stripes(10))
    assert read_image(path, (10, 30), "RGB").tolist() == stripes(10).tolist()
    assert read_image(path, (5, 9), "L").shape == (5, 9)


def test_a_picture_taken_sideways_is_turned(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held with its right side down
    path = save(tmp_path / "turned.png", stripes(8), exif=exif)
    turned = read_image(path, (24, 8), "RGB")
    assert turned[[4, 12, 20], 4].tolist() == [list(RED), list(GREEN), list(BLUE)]


def test_spoilt_notes_of_a_camera_do_not_spoil_the_picture(tmp_path):
    path = save(tmp_path / "x.png", gray(80), exif=b"Exif\0\0 no such notes")
    assert read_image(path, (4, 4), "L").tolist() == gray(80).tolist()


def test_a_large_photograph_keeps_its_place_when_decoded_small(tmp_path):
    path = save(tmp_path / "photo.jpg", stripes(400), quality=95)
    small = read_image(path, (5, 15), "RGB").astype(int)
    expected = np.array([RED, GREEN, BLUE])
    # JPEG changes colors a little.
    assert np.abs(small[2, [2, 7, 12]] - expected).max() < 12


def test_what_can_be_seen_at_the_size_wanted_is_not_lost(tmp_path):
    fields = np.indices((6, 6)).sum(axis=0) % 2 * np.uint8(255)
    board = fields.repeat(10, axis=0).repeat(10, axis=1).astype(np.uint8)
    path = save(tmp_path / "board.jpg", board, quality=95)
    small = read_image(path, (30, 30), "L").astype(int)
    assert np.abs(small[2::5, 2::5] - fields).max() < 12


# Modes


def palette() -> Image.Image:
    picture = Image.new("P", (4, 4), 1)
    picture.putpalette([0, 0, 0, *RED, *BLUE])
    return picture


@pytest.mark.parametrize(
    ("picture", "suffix", "color"),
    [
        (Image.new("L", (4, 4), 100), ".png", (100, 100, 100)),
        (Image.new("1", (4, 4), 1), ".png", (255, 255, 255)),
        (Image.new("RGB", (4, 4), (10, 20, 30)), ".png", (10, 20, 30)),
        (palette(), ".png", RED),
        (palette(), ".gif", RED),
        (Image.new("CMYK", (4, 4), (255, 0, 0, 0)), ".tiff", (0, 255, 255)),
        (Image.new("RGBA", (4, 4), (10, 20, 30, 255)), ".png", (10, 20, 30)),
        # A fifth of the color in front of white.
        (Image.new("RGBA", (4, 4), (0, 55, 255, 51)), ".png", (204, 215, 255)),
        (Image.new("LA", (4, 4), (0, 51)), ".png", (204, 204, 204)),
        (Image.new("RGBA", (4, 4), (9, 9, 9, 0)), ".webp", (255, 255, 255)),
        (Image.fromarray(np.full((4, 4), 25_700, np.uint16)), ".png", (100, 100, 100)),
        (Image.fromarray(np.full((4, 4), 65_535, np.uint16)), ".tiff", (255, 255, 255)),
        (Image.fromarray(np.full((4, 4), 25_700, np.int32)), ".tiff", (100, 100, 100)),
        (Image.fromarray(np.full((4, 4), 0.2, np.float32)), ".tiff", (51, 51, 51)),
    ],
)
def test_every_mode_gives_its_color(tmp_path, picture, suffix, color):
    path = save(tmp_path / f"x{suffix}", picture)
    rgb = read_image(path, (4, 4), "RGB")
    assert (rgb.shape, rgb.dtype) == ((4, 4, 3), np.uint8)
    np.testing.assert_array_equal(rgb, np.broadcast_to(np.uint8(color), (4, 4, 3)))
    # The luma of ITU-R 601, which Pillow computes in whole numbers.
    luma = np.dot(color, [0.299, 0.587, 0.114])
    gray = read_image(path, (4, 4), "L")
    assert gray.shape == (4, 4)
    assert np.abs(gray - luma).max() <= 1


def test_transparent_colors_of_a_palette_show_the_background(tmp_path):
    path = save(tmp_path / "x.png", palette(), transparency=1)
    assert read_image(path, (4, 4), "L").tolist() == gray(255).tolist()
    assert read_image(path, (4, 4), "L", background=7).tolist() == gray(7).tolist()


def test_values_beyond_the_usual_are_scaled_by_their_extremes(tmp_path):
    path = save(tmp_path / "x.tiff", np.float32([[-5, 0], [5, 15]]))
    assert read_image(path, (2, 2), "L").tolist() == [[0, 64], [128, 255]]
    path = save(tmp_path / "y.tiff", np.full((2, 2), -3, np.float32))
    assert read_image(path, (2, 2), "L").tolist() == [[0, 0], [0, 0]]


def test_the_first_frame_is_taken(tmp_path):
    frames = [Image.fromarray(gray(value)) for value in (50, 200)]
    path = save(tmp_path / "x.gif", frames[0], save_all=True, append_images=frames[1:])
    assert read_image(path, (4, 4), "L").tolist() == gray(50).tolist()


@given(
    st.sampled_from(["1", "L", "LA", "P", "RGB", "RGBA", "I;16"]),
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.tuples(st.integers(1, 12), st.integers(1, 12)),
    st.sampled_from(["L", "RGB"]),
    st.booleans(),
)
def test_every_size_and_mode_fits(tmp_path_factory, mode, given_size, size, wanted, crop):
    path = save(tmp_path_factory.mktemp("p") / "x.png", Image.new(mode, given_size, 0))
    picture = read_image(path, size, wanted, crop=crop)
    assert picture.shape == (*size, 3)[: 2 + (wanted == "RGB")]
    # A picture of one value has that value at any size.
    transparent = mode in ("LA", "RGBA")
    assert (picture == (255 if transparent else 0)).all()


def test_an_interrupt_does_not_wait_for_the_other_pictures(tmp_path, monkeypatch):
    count = 200
    for number in range(count):
        Image.new("L", (4, 4), number).save(tmp_path / f"{number:03d}.png")
    read = []
    release = threading.Event()

    def slow(path, *arguments, **options):
        read.append(path)
        if len(read) > 1:
            release.wait(30)
        return np.zeros((4, 4), np.uint8)

    @contextmanager
    def stopped(*arguments, **options):
        def advance(step):
            # By a timer, after which the threads go on: the block must have cancelled the others.
            threading.Timer(0.2, release.set).start()
            raise KeyboardInterrupt

        yield advance

    monkeypatch.setattr("gloam.datasets.images.read_image", slow)
    monkeypatch.setattr("gloam.datasets.images.work_bar", stopped)
    with pytest.raises(KeyboardInterrupt):
        from_folder(tmp_path, (4, 4))
    assert len(read) < count // 2


def test_images_that_memory_cannot_hold_are_refused_before_they_are_read(tmp_path):
    save(tmp_path / "a.png", gray(1))
    save(tmp_path / "b.png", gray(2))
    with refused("size: expected at most the"):
        folder(tmp_path, (999_999, 999_999))
    with refused("path: expected a path"):
        folder("")
