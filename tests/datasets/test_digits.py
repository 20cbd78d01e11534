"""Scikit-learn's digits as a dataset."""

import re
import sys

import pytest

import gloam


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
