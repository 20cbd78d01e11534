"""Laws of datasets, on blocks of a few rows so that small arrays span several of them."""

import doctest

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.datasets import load_digits

from gloam.archives import CVTArchive
from gloam.datasets import Dataset, dataset, from_array, readers, rows
from tests.helpers import refused


@pytest.fixture(scope="module", autouse=True)
def _small_blocks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "_BLOCK_BYTES", 64)
        yield


def vectors(count: int, meas: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, meas)).astype(np.float32)


@pytest.fixture(scope="module")
def digits() -> Dataset:
    found = load_digits()
    return from_array(found.images / 16, labels=found.target)


# Few values make many equal rows; -0 equals 0.
repeated = arrays(
    np.float32,
    st.tuples(st.integers(2, 40), st.integers(1, 3)),
    elements=st.sampled_from([-0.0, 0.0, 1.0, 2.5]),
).filter(lambda array: (array != array[0]).any())


# Merging


@given(repeated)
def test_every_item_given_is_at_its_place_and_no_item_is_there_twice(given_items):
    data = Dataset(given_items)
    np.testing.assert_array_equal(data.items[data.place], given_items)
    assert len(np.unique(data.items, axis=0)) == len(data)
    assert data.merged == len(given_items) - len(data)


@given(repeated)
def test_the_first_of_equal_items_is_kept_with_its_name_and_label(given_items):
    labels = [f"label {row}" for row in range(len(given_items))]
    data = Dataset(given_items, labels=labels)
    equal = (given_items[:, None] == given_items).all(axis=2)
    first = equal.argmax(axis=1)
    assert [int(data.names[place]) for place in data.place] == first.tolist()
    assert data.labels == [labels[int(name)] for name in data.names]
    assert data.names == sorted(data.names, key=int)


@given(repeated)
def test_a_fresh_array_gives_the_same_without_a_copy(given_items):
    own = given_items.copy()
    data = Dataset(own, fresh=True)
    expected = Dataset(given_items)
    np.testing.assert_array_equal(data.items, expected.items)
    np.testing.assert_array_equal(data.place, expected.place)
    assert np.shares_memory(data.items, own)


def test_an_array_of_the_users_is_neither_copied_nor_changed():
    mine = vectors(20, 4)
    before = mine.copy()
    data = Dataset(mine)
    assert np.shares_memory(data.items, mine)
    with pytest.raises(ValueError, match="read-only"):
        data.items[0] = 0
    mine[7] = mine[3]
    before = mine.copy()
    assert Dataset(mine).merged == 1
    np.testing.assert_array_equal(mine, before)
    mine[0] = 0  # it can still be written to by its owner


def test_pictures_are_merged_along_with_their_items():
    items = np.array([[0.0], [1.0], [0.0], [2.0]])
    pictures = np.arange(4, dtype=np.uint8).reshape(4, 1, 1)
    data = Dataset(items, images=pictures)
    assert [int(data.image(item)[0, 0]) for item in range(3)] == [0, 1, 3]


def test_building_takes_no_second_copy(monkeypatch):
    import tracemalloc

    monkeypatch.setattr(rows, "_BLOCK_BYTES", 1 << 20)
    items = vectors(16_384, 256)  # 16 MB
    tracemalloc.start()
    try:
        Dataset(items)
        extra = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # A few blocks of 1 MB, and names, digests and places of 16,384 rows.
    assert extra < 0.5 * items.nbytes


# Archive


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_each_item_has_the_cell_of_its_number(metric):
    data = Dataset(vectors(70, 5))
    archive = data.archive(metric=metric, f_min=-1.0)
    assert isinstance(archive, CVTArchive)
    assert (archive.num_cells, archive.metric, archive.f_min) == (70, metric, -1.0)
    assert archive.index_of(jnp.asarray(data.items)).tolist() == list(range(70))


def test_an_archive_of_pictures_has_bounds_0_and_1(digits):
    archive = digits.archive()
    assert digits.bounds == (0, 1)
    assert (archive.lower == 0).all()
    assert (archive.upper == 1).all()
    assert (digits.archive(upper=2.0).upper == 2).all()


def test_an_archive_of_vectors_has_the_items_extremes():
    data = Dataset(vectors(30, 3))
    assert data.bounds is None
    np.testing.assert_array_equal(data.archive().lower, data.items.min(axis=0))


def test_bounds_given_are_the_archives():
    archive = Dataset(np.eye(3), bounds=(-2, 5)).archive()
    assert archive.lower.tolist() == [-2] * 3
    assert archive.upper.tolist() == [5] * 3


def test_items_of_one_direction_are_refused_for_cosine_and_merged_by_normalizing():
    data = Dataset([[1.0, 2.0], [2.0, 4.0], [1.0, 0.0]])
    with refused("items:", "1 that differ in length"):
        data.archive("cosine")
    merged = data.normalized()
    assert merged.names == ["0", "2"]
    assert merged.place.tolist() == [0, 0, 1]
    assert merged.archive("cosine").num_cells == 2


def test_a_row_of_zeros_is_refused_for_cosine_only():
    data = Dataset(np.r_[vectors(9, 4), np.zeros((1, 4))])
    assert data.archive().num_cells == 10
    message = "items: expected no rows of zeros for the cosine metric, got zeros in row 9."
    with refused(message):
        data.archive("cosine")
    with refused(message):
        data.normalized()


# Unit rows


@given(
    arrays(np.float32, (6, 3), elements=st.floats(2.0**-100, 2.0**100, width=32)),
    arrays(np.float32, (6, 3), elements=st.sampled_from([-1.0, 1.0])),
)
def test_normalized_rows_have_length_one_and_their_direction(sizes, signs):
    items = sizes * signs
    items[0], items[1] = [3, 0, 4], [0, -2, 0]  # at least two directions
    data = Dataset(items).normalized()
    units = data.items[data.place].astype(np.float64)
    # Each of three components is rounded by 6e-8 of itself at most.
    np.testing.assert_allclose(np.linalg.norm(units, axis=1), 1, rtol=1e-6)
    wide = items.astype(np.float64)
    np.testing.assert_allclose(units, wide / np.linalg.norm(wide, axis=1, keepdims=True), atol=1e-7)
    np.testing.assert_allclose(units[0], [0.6, 0, 0.8], atol=1e-7)


def test_normalized_pictures_are_still_shown(digits):
    unit = Dataset(digits.items[1:], digits.shape).normalized()
    assert unit.bounds is None
    np.testing.assert_array_equal(unit.image(4), digits.image(5))


# Samples


@given(st.integers(2, 50), st.integers(2, 50), st.integers(0, 5))
def test_a_sample_is_part_of_a_larger_one_in_order(few, many, seed):
    few, many = sorted((few, many))
    data = Dataset(np.arange(50.0)[:, None], labels=list(range(50)))
    small, large = data.subsample(few, seed), data.subsample(many, seed)
    assert len(small) == few
    assert set(small.names) <= set(large.names)
    assert small.items[:, 0].tolist() == [float(name) for name in small.names]
    assert small.labels == small.names == sorted(small.names, key=int)


def test_samples_differ_by_seed_and_have_every_item_in_turn():
    data = Dataset(np.arange(50.0)[:, None])
    samples = [data.subsample(10, seed).names for seed in range(40)]
    assert samples[3] == data.subsample(10, 3).names
    assert len({tuple(names) for names in samples}) == 40
    assert set().union(*samples) == set(data.names)


@given(st.integers(4, 60), st.floats(0.05, 0.95), st.integers(0, 5))
def test_a_split_has_each_item_on_one_side(count, holdout, seed):
    data = Dataset(np.arange(count, dtype=float)[:, None])
    held = round(holdout * count)
    if not 2 <= held <= count - 2:
        with refused("holdout: expected a share that leaves at least 2 items on both sides, got"):
            data.split(holdout, seed)
        return
    train, held_out = data.split(holdout, seed)
    assert len(held_out) == held
    assert sorted(train.names + held_out.names, key=int) == data.names


def test_parts_keep_shape_bounds_pictures_and_labels(digits):
    train, held_out = digits.split(0.25, seed=2)
    for part in (train, held_out):
        assert (part.shape, part.bounds) == ((8, 8), (0, 1))
        item = len(part) // 2
        whole = int(part.names[item])
        np.testing.assert_array_equal(part.image(item), digits.image(whole))
        assert part.labels[item] == digits.labels[whole]
    with_pictures = Dataset(np.eye(9), images=np.arange(81, dtype=np.uint8).reshape(9, 3, 3))
    part = with_pictures.subsample(4, seed=1)
    for item, name in enumerate(part.names):
        np.testing.assert_array_equal(part.image(item), with_pictures.image(int(name)))


# Pictures


def test_digits_are_shown_as_they_are(digits):
    assert len(digits) == 1797
    assert repr(digits) == "Dataset(1797 items of shape (8, 8), 10 labels)"
    assert digits.labels[:3] == ["0", "1", "2"]
    shown = digits.image(0)
    assert (shown.dtype, shown.shape) == (np.uint8, (8, 8))
    np.testing.assert_array_equal(shown, np.rint(load_digits().images[0] / 16 * 255))
    np.testing.assert_array_equal(digits.image(-1), digits.image(1796))


@given(arrays(np.uint8, st.sampled_from([(3, 4, 5), (3, 2, 2, 3), (3, 3, 2, 1)])))
def test_pixels_come_back_as_they_were(pictures):
    pictures.reshape(3, -1)[:, :2] = [[0, 1], [0, 2], [0, 3]]  # all different
    data = from_array(pictures)
    assert data.items.min() >= 0
    assert data.items.max() <= 1
    for item, picture in enumerate(pictures):
        shown = picture[..., 0] if picture.shape[2:] == (1,) else picture
        np.testing.assert_array_equal(data.image(item), shown)


def test_pictures_with_one_color_are_shown_without_that_axis():
    pictures = np.arange(12, dtype=np.uint8).reshape(3, 2, 2, 1)
    assert Dataset(np.eye(3), images=pictures).image(1).tolist() == [[4, 5], [6, 7]]


def test_flat_rows_with_a_shape_are_pictures():
    flat = np.arange(12, dtype=np.uint8).reshape(2, 6)
    data = from_array(flat, shape=(2, 3))
    np.testing.assert_array_equal(data.image(1), flat[1].reshape(2, 3))
    assert from_array(flat).items[1].tolist() == [6, 7, 8, 9, 10, 11]  # numbers, not pixels


def test_other_values_are_shown_from_the_lowest_to_the_highest():
    data = Dataset(np.array([[[-1.0, 0.0]], [[1.0, -1.0]]]))
    assert data.bounds == (-1, 1)
    assert data.image(0).tolist() == [[0, 128]]
    assert data.image(1).tolist() == [[255, 0]]


def test_a_part_is_shown_as_in_the_whole():
    data = Dataset(np.arange(30.0).reshape(10, 1, 3))
    for seed in range(5):  # not all of them have the darkest and the brightest
        part = data.subsample(2, seed)
        assert part.bounds == (0, 29)
        np.testing.assert_array_equal(part.image(1), data.image(int(part.names[1])))


def test_vectors_without_pictures_cannot_be_shown():
    data = Dataset(vectors(5, 4))
    assert not data.has_images
    with refused("image:", "vectors of shape (4,)"):
        data.image(0)


@pytest.mark.parametrize("item", [1797, -1798])
def test_an_item_that_is_not_there_cannot_be_shown(digits, item):
    with refused("item: expected a"):
        digits.image(item)


# What is said


def test_repr_says_what_was_merged_and_skipped():
    one = dataset.Skipped("a.png", "is empty")
    data = Dataset(
        [[1.0], [1.0], [2.0]],
        images=np.zeros((3, 2, 2), np.uint8),
        labels=[5, 5, None],
        skipped=(one,),
    )
    assert data.labels == ["5", ""]
    assert repr(data) == (
        "Dataset(2 items of shape (1,), 2 labels, with images, 1 duplicate merged, 1 file skipped)"
    )


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([[1.0, 2.0]], "items: expected at least 2 items, got one."),
        (np.ones((5, 3)), "items: expected at least 2 different items, got 5 that are all equal."),
        ([], "items: expected at least one item, got none."),
        (np.empty((0, 3)), "items: expected at least one item, got shape (0, 3)."),
        ([1.0, 2.0], "items: expected a row for each item, got shape (2,)."),
        (3.0, "items: expected a row for each item, got shape ()."),
        ("abc", "items: expected an array of numbers, got dtype <U3."),
        (np.array([["a"], ["b"]]), "items: expected an array of numbers, got dtype <U1."),
        (np.array([[{}], [1]], object), "items: expected an array of numbers, got dtype object."),
        (np.ones((2, 2), complex), "items: expected an array of numbers, got dtype complex128."),
        ([[1.0], ["b"]], "items: expected arrays of numbers, got dtype <U1 in row 1."),
        ([[1.0], [[1], [2, 3]]], "items: expected arrays of numbers, got dtype object in row 1."),
        (
            [np.zeros((4, 4)), np.zeros((4, 4)), np.zeros((4, 5))],
            "items: expected items of one shape, (4, 4) as in row 0, got (4, 5) in row 2.",
        ),
    ],
)
def test_bad_items_are_refused(items, message):
    with refused(message):
        Dataset(items)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_a_number_that_is_not_finite_is_refused_with_its_row(bad):
    items = vectors(40, 3).astype(np.float64)
    items[23, 1] = bad
    with refused("items:", "NaN or infinity in row 23"):
        Dataset(items)
    items[30] = bad
    with refused(
        "items: expected finite numbers, got NaN or infinity in row 23 ('x23') and 1 more"
    ):
        Dataset(items, names=[f"x{row}" for row in range(40)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": ["a", "b"]}, "labels: expected one for each of the 3 items, got 2."),
        ({"labels": "abc"}, "labels: expected one for each of the 3 items, got 'abc'."),
        ({"labels": np.eye(3)}, "labels: expected one text or number for each item, got [1.0,"),
        ({"names": ["a"]}, "names: expected one for each of the 3 items, got 1."),
        ({"shape": (2, 2)}, "shape: expected a shape of the 6 numbers of an item, got (2, 2)."),
        ({"shape": (6, 0)}, "shape: expected a whole number >= 1, got 0."),
        ({"bounds": (0.0,)}, "bounds: expected two numbers, got (0.0,)."),
        (
            {"bounds": (0, 9)},
            "bounds: expected bounds that contain the items, which range",
        ),
        ({"images": np.zeros((2, 4, 4), np.uint8)}, "images: expected 3 uint8 images"),
        ({"images": np.zeros((3, 4, 4))}, "images: expected 3 uint8 images (height, width) or"),
        ({"images": np.zeros((3, 4, 4, 2), np.uint8)}, "images: expected 3 uint8 images"),
    ],
)
def test_what_does_not_fit_the_items_is_refused(options, message):
    with refused(message):
        Dataset(np.arange(18.0).reshape(3, 6), **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda data: data.subsample(1), "num_items: expected a whole number >= 2, got 1."),
        (
            lambda data: data.subsample(6),
            "num_items: expected at most the 5 items there are, got 6.",
        ),
        (lambda data: data.subsample(3, seed=-1), "seed: expected a whole number >= 0, got -1."),
        (lambda data: data.split(0.0), "holdout: expected a finite number > 0, got 0.0."),
        (lambda data: data.archive("manhattan"), "metric: expected 'euclidean' or 'cosine', got"),
    ],
)
def test_wrong_arguments_are_explained(call, message):
    with refused(message):
        call(Dataset(vectors(5, 3)))


@pytest.mark.parametrize("module", [dataset, readers])
def test_the_examples_in_the_documentation_hold(module):
    found = doctest.testmod(module, extraglobs={"np": np})
    assert found.attempted > 0
    assert found.failed == 0


@pytest.mark.parametrize("shape", [1.5, "4", object(), {}])
def test_a_shape_is_a_list_of_sizes(shape):
    with pytest.raises(ValueError, match=r"^shape:"):
        from_array(np.random.default_rng(0).random((5, 4)), shape=shape)


@pytest.mark.parametrize("shape", [(5,), (2, 5), (0,), ()])
def test_measures_of_another_size_cannot_be_shown(digits, shape):
    with refused(f"measures: expected rows of {digits.items.shape[1]} numbers"):
        digits.pixels(np.zeros(shape))


def test_images_of_different_sizes_are_refused():
    with refused("images: expected 2 uint8 images"):
        from_array(np.eye(2), images=[[1, 2], [3]])
