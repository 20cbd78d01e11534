"""Rows in blocks against NumPy on the whole array."""

import doctest

import numpy as np
import pytest

from gloam.datasets import rows


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(rows, "_BLOCK_BYTES", 64)


def test_blocks_divide_the_rows():
    array = np.arange(60.0).reshape(20, 3)
    parts = [array[block] for block in rows.blocks(array)]
    assert max(map(len, parts)) == 2
    np.testing.assert_array_equal(np.concatenate(parts), array)
    assert list(rows.blocks(np.zeros((3, 1000)))) == [slice(0, 1), slice(1, 2), slice(2, 3)]


def test_the_first_of_equal_rows_is_numpys():
    array = np.random.default_rng(0).integers(0, 3, (200, 3)).astype(np.float32)
    array[array == 0] *= np.random.default_rng(1).choice([-1, 1], (array == 0).sum())
    kept, group = rows.first_of_equal(array[block] for block in rows.blocks(array))
    _, first, inverse = np.unique(array, axis=0, return_index=True, return_inverse=True)
    np.testing.assert_array_equal(kept, np.sort(first))
    np.testing.assert_array_equal(kept[group], first[inverse.ravel()])


def test_rows_are_chosen_in_place_or_copied():
    array = np.arange(60.0).reshape(20, 3)
    kept = np.array([0, 3, 4, 11, 19])
    expected = array[kept]
    copied = rows.chosen(array, kept, in_place=False)
    assert not np.shares_memory(copied, array)
    np.testing.assert_array_equal(copied, expected)
    moved = rows.chosen(array, kept, in_place=True)
    assert np.shares_memory(moved, array)
    np.testing.assert_array_equal(moved, expected)


def test_pixels_are_divided_by_255():
    pixels = np.arange(256, dtype=np.uint8).reshape(16, 16)
    expected = pixels.astype(np.float32) / np.float32(255)
    np.testing.assert_array_equal(rows.float32(pixels, pixels=True), expected)


def test_indices_are_evenly_spaced():
    for total, count in [(1, 1), (5, 1), (5, 5), (5, 9), (1000, 7), (61, 60)]:
        places = rows.evenly_spaced(total, count)
        assert len(places) == min(total, count)
        assert places[0] == 0
        assert count == 1 or places[-1] == total - 1
        assert (np.diff(places) > 0).all()
        assert len(places) < 2 or np.ptp(np.diff(places)) <= 1


def test_the_examples_hold():
    found = doctest.testmod(rows)
    assert found.attempted > 0
    assert found.failed == 0
