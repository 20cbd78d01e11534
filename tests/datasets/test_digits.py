"""Digits that need no download."""

import hashlib
import re
import sys

import numpy as np
import pytest

import gloam
from gloam.datasets.digits import HANDWRITTEN_FILE

PIXELS = "4498d8ac24f6bc4b5665b0bd0863b935a7b13ccbd27cc54b341ad66425947a2c"


def test_the_digits_are_pictures_with_labels():
    data = gloam.datasets.digits()
    assert len(data) == 1797
    assert data.shape == (8, 8)
    assert (data.items.min(), data.items.max()) == (0.0, 1.0)
    assert set(data.labels) == set("0123456789")


def test_without_scikit_learn_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    message = "The digits need scikit-learn. Run: pip install 'gloam[demo]'"
    with pytest.raises(ValueError, match=re.escape(message)):
        gloam.datasets.digits()


def test_the_handwritten_digits_come_with_gloam(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    data = gloam.datasets.handwritten_digits()
    assert (len(data), data.shape, data.merged) == (1000, (28, 28), 0)
    assert data.bounds == (0.0, 1.0)
    counts = [data.labels.count(label) for label in "0123456789"]
    assert sum(counts) == 1000
    assert min(counts) > 70
    assert data.source is None  # a cache of embeddings beside it would be in the package
    assert HANDWRITTEN_FILE.stat().st_size < 250_000
    assert "CC BY-SA 3.0" in HANDWRITTEN_FILE.with_suffix(".txt").read_text()
    pixels = np.stack([data.image(item) for item in range(1000)])
    assert hashlib.sha256(pixels.tobytes()).hexdigest() == PIXELS


def test_the_handwritten_digits_are_those_of_mnist(shared_data):
    path = shared_data / "images" / "mnist_10k.npz"
    if not path.is_file():
        pytest.skip(f"no '{path}': the images of MNIST are not here")
    data = gloam.datasets.handwritten_digits()
    with np.load(path) as mnist:
        places = [int(name) for name in data.names]
        assert places == list(range(9000, 10_000))
        assert data.labels == [str(label) for label in mnist["labels"][places]]
        items = mnist["images"][places].reshape(1000, -1) / np.float32(255)
        np.testing.assert_allclose(data.items, items, rtol=0, atol=1e-7)
